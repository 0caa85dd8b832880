"""What sbatch's refusals mean: later, or never. The texts are those of Slurm 22.05."""

from __future__ import annotations

import pytest

from scalewatt.slurm.submit_limits import UNREACHABLE, meaning

SENTENCE = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, user's size and/or time limits)"
)
FAILED = "sbatch: error: Batch job submission failed: "
LIMITS = {
    "own": "AssocMaxSubmitJobLimit QOSMaxSubmitJobPerUserLimit QOSMaxJobsPerUserLimit AssocMaxJobsLimit",
    "shared": (
        "AssocGrpSubmitJobsLimit QOSGrpSubmitJobsLimit QOSGrpJobsLimit MaxSubmitJobsPerAccount"
    ),
    "final": (
        "QOSMaxWallDurationPerJobLimit QOSMaxNodePerJobLimit QOSMaxCpuPerUserLimit QOSMaxGRESPerJob "
        "QOSMinGRES QOSGrpCPUMinutesLimit AssocGrpGRES AssocMaxNodePerJobLimit MaxGRESPerAccount"
    ),
}
OTHERS = {
    SENTENCE: "unclear",
    "sbatch: error: Slurm job queue full, sleeping and retrying": "shared",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying": "shared",
    f"{FAILED}Invalid account": "final",
    f"{FAILED}Requested time limit is invalid": "final",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (f"sbatch: error: {w} {SENTENCE}", k)
            for k, words in LIMITS.items()
            for w in words.split()
        ),
        *OTHERS.items(),
    ],
)
def test_a_limit_on_the_number_of_jobs_means_later_and_one_on_a_job_never(
    text: str, expected: str
) -> None:
    assert meaning(text) == expected
    assert not UNREACHABLE.search(text) or expected == "shared"
