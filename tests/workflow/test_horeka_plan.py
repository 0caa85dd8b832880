"""The paper's campaign on HoreKa, planned where there is neither Slurm nor an account nor data."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from documents import blocks
from workspace import PROJECT, Workspace

pytestmark = pytest.mark.slow

PAGE, PROBE = "docs/paper/horeka.md", "idle probe of"

JOB = re.compile(
    r"Job \d+: (?P<what>train|idle probe of) (?P<name>\S+) repeat (?P<repeat>\d+) "
    r"\(nodes × ranks × CPUs: (?P<nodes>\d+) × (?P<ranks>\d+) × (?P<cpus>\d+); "
    r"(?P<partition>\S+); (?P<minutes>\d+) min\)"
)


def jobs_of(output: str, what: str) -> pd.DataFrame:
    """What a dry run prints of each job of a kind for the scheduler."""
    jobs = pd.DataFrame([job.groupdict() for job in JOB.finditer(output) if job["what"] == what])
    return jobs.astype(dict.fromkeys(("repeat", "nodes", "ranks", "cpus", "minutes"), int))


def combinations(jobs: pd.DataFrame, *columns: str) -> set[tuple[Any, ...]]:
    """The combinations of values that some columns have."""
    return set(jobs[list(columns)].itertuples(index=False, name=None))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `snakemake --profile profiles/horeka -n all`, with idle probes, prints to a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SCALEWATT_ACCOUNT", raising=False)
        workspace = Workspace.create(tmp_path_factory.mktemp("horeka") / "project")
        workspace.edit(
            "campaigns/paper.yaml", "\nseries:\n", "\nidle_probe: {repeats: 3}\n\nseries:\n"
        )
        code, output = workspace.snakemake("-np", "all", profile="horeka")
    assert code == 0, output
    assert not (workspace.path / "results").exists()
    return output


def test_every_run_is_one_job_and_so_is_every_probe(planned: str) -> None:
    trainings = jobs_of(planned, "train")
    stats = planned.rsplit("Job stats:", 1)[1]
    counts = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", stats, re.MULTILINE)}
    assert len(trainings) == len(combinations(trainings, "name", "repeat")) == 175
    assert trainings["name"].nunique() == 53
    assert counts["train"] == counts["spec"] == counts["energy"] == 175
    assert len(jobs_of(planned, PROBE)) == counts["probe"] == 6
    assert counts["era5_year"] == 40
    assert counts["plan_table"] == 1 and counts["draw_figure"] == 12
    assert counts["manifest"] == 1
    assert counts["total"] == 660


def test_a_device_has_its_partition_and_its_cpus(planned: str) -> None:
    trainings = jobs_of(planned, "train")
    is_h100 = trainings["name"].str.contains("-h100-")
    assert combinations(trainings.assign(is_h100=is_h100), "is_h100", "partition", "cpus") == {
        (False, "accelerated", 38),
        (True, "accelerated-h100", 32),
    }
    assert combinations(jobs_of(planned, PROBE), "name", "partition", "nodes", "ranks") == {
        ("a100", "accelerated", 1, 4),
        ("h100", "accelerated-h100", 1, 4),
    }


def test_wall_times_follow_from_the_work(planned: str) -> None:
    minutes = jobs_of(planned, "train").groupby("name")["minutes"].agg(set)
    # 82 h and 140 h were published: they need several jobs of the limit.
    assert minutes["resnet50-a100-n001-lbs0256-full"] == {2880}
    assert minutes["fourcastnet.pretrain-a100-n004-lbs0004-full"] == {2880}
    # 27 min were published, the scaling model says at most 28.4: 15 + 28.4 + 10 = 53.4 min
    assert minutes["resnet50-a100-n256-lbs0256-full"] == {60}
    # 426 min, at most 442: 15 + 442 + 10 = 467 min
    assert minutes["resnet50-a100-n016-lbs0016-full"] == {470}
    # 20 of 80 epochs, at most 288 min
    assert minutes["fourcastnet.pretrain-a100-n064-lbs0001-full-epochs20"] == {320}
    # 300 s and a quarter of an hour
    assert set(jobs_of(planned, PROBE)["minutes"]) == {20}


def test_the_first_cheap_point_goes_to_the_partition_for_short_tries(tmp_path: Path) -> None:
    """By the campaign and the command that docs/paper/horeka.md shows."""
    workspace = Workspace.create(tmp_path / "project")
    page = (PROJECT / PAGE).read_text()
    (campaign,) = [text for text in blocks(PAGE, "yaml") if text.startswith("name: first\n")]
    (workspace.path / "campaigns" / "first.yaml").write_text(campaign)
    (shown,) = re.findall(r"^snakemake (.* -n all .*first\.yaml.*)$", page, re.MULTILINE)
    code, output = workspace.snakemake("-p", *shlex.split(shown), profile=None)
    assert code == 0, output
    ((_, job),) = jobs_of(output, "train").iterrows()
    assert (job.partition, job.nodes, job.ranks) == ("dev_accelerated", 1, 4)
    assert job.minutes <= 60, "short tries are short"
    (command,) = re.findall(r"^snakemake (.* all .*first\.yaml.*\S) +# on the cluster$", page, re.M)
    assert command == shown.replace(" -n all", " all")
