"""What sbatch's refusals mean: later, or never. The texts are those of Slurm 22.05."""

from __future__ import annotations

import pytest

from scalewatt.slurm.submit_limits import meaning

SENTENCE = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, user's size and/or time limits)"
)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("AssocMaxSubmitJobLimit", "own"),
        ("QOSMaxSubmitJobPerUserLimit", "own"),
        ("QOSMaxJobsPerUserLimit", "own"),
        ("AssocMaxJobsLimit", "own"),
        ("AssocGrpSubmitJobsLimit", "shared"),
        ("QOSGrpSubmitJobsLimit", "shared"),
        ("QOSGrpJobsLimit", "shared"),
        ("MaxSubmitJobsPerAccount", "shared"),
    ],
)
def test_a_limit_on_the_number_of_jobs_means_later(limit: str, expected: str) -> None:
    assert meaning(f"sbatch: error: {limit} {SENTENCE}") == expected


@pytest.mark.parametrize(
    "limit",
    [
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMaxNodePerJobLimit",
        "QOSMaxCpuPerUserLimit",
        "QOSMaxGRESPerUser",
        "QOSMaxGRESPerJob",
        "QOSMinGRES",
        "QOSGrpCPUMinutesLimit",
        "AssocGrpGRES",
        "AssocMaxNodePerJobLimit",
        "MaxGRESPerAccount",
    ],
)
def test_a_limit_that_one_job_alone_exceeds_means_never(limit: str) -> None:
    assert meaning(f"sbatch: error: {limit} {SENTENCE}") == "final"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SENTENCE, "unclear"),
        ("sbatch: error: Slurm job queue full, sleeping and retrying", "shared"),
        (
            "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying sbatch: "
            "error: Batch job submission failed: Resource temporarily unavailable",
            "shared",
        ),
        ("sbatch: error: Batch job submission failed: Invalid account", "final"),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid", "final"),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", "final"),
    ],
)
def test_other_words_of_sbatch_are_told_apart(text: str, expected: str) -> None:
    assert meaning(text) == expected
