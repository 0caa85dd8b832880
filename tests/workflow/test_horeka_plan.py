"""The paper's campaign on HoreKa, planned where there is neither Slurm nor an account nor data."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from workspace import Workspace

pytestmark = pytest.mark.slow

JOB = re.compile(
    r"Job \d+: (?P<what>train|idle probe of) (?P<name>\S+) repeat (?P<repeat>\d+) "
    r"\(nodes × ranks × CPUs: (?P<nodes>\d+) × (?P<ranks>\d+) × (?P<cpus>\d+); "
    r"(?P<partition>\S+); (?P<minutes>\d+) min\)"
)


@dataclass(frozen=True)
class Job:
    """What `-n` says of a job for the scheduler."""

    name: str
    repeat: int
    nodes: int
    ranks: int
    cpus: int
    partition: str
    minutes: int


@dataclass(frozen=True)
class Plan:
    """The jobs of one dry run."""

    counts: dict[str, int]
    trainings: list[Job]
    probes: list[Job]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """`snakemake --profile profiles/horeka -n all`, with idle probes, as a user calls it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SCALEWATT_ACCOUNT", raising=False)
        workspace = Workspace.create(tmp_path_factory.mktemp("horeka") / "project")
        workspace.edit(
            "campaigns/paper.yaml", "\nseries:\n", "\nidle_probe: {repeats: 3}\n\nseries:\n"
        )
        code, output = workspace.snakemake("-np", "all", profile="horeka")
    assert code == 0, output
    assert not (workspace.path / "results").exists()
    counts = re.findall(r"^(\w+) +(\d+)$", output.rsplit("Job stats:", 1)[1], re.MULTILINE)
    jobs: dict[str, list[Job]] = {"train": [], "idle probe of": []}
    for job in JOB.finditer(output):
        numbers = {key: int(job[key]) for key in ("repeat", "nodes", "ranks", "cpus", "minutes")}
        jobs[job["what"]].append(Job(job["name"], partition=job["partition"], **numbers))
    return Plan({name: int(n) for name, n in counts}, jobs["train"], jobs["idle probe of"])


def test_every_run_is_one_job_and_so_is_every_probe(plan: Plan) -> None:
    assert len(plan.trainings) == len({(job.name, job.repeat) for job in plan.trainings}) == 175
    assert len({job.name for job in plan.trainings}) == 53
    assert plan.counts["train"] == plan.counts["spec"] == plan.counts["energy"] == 175
    assert len(plan.probes) == plan.counts["probe"] == 6
    assert plan.counts["era5_year"] == 40
    assert plan.counts["plan_table"] == 1 and plan.counts["draw_figure"] == 12
    assert plan.counts["manifest"] == 1
    assert plan.counts["total"] == 660


def test_a_device_has_its_partition_and_its_cpus(plan: Plan) -> None:
    for job in plan.trainings:
        partition = "accelerated-h100" if "-h100-" in job.name else "accelerated"
        assert job.partition == partition, job
        assert job.cpus == (32 if "-h100-" in job.name else 38), job
    assert {(j.name, j.partition, j.nodes, j.ranks) for j in plan.probes} == {
        ("a100", "accelerated", 1, 4),
        ("h100", "accelerated-h100", 1, 4),
    }


def minutes(plan: Plan, name: str) -> set[int]:
    """Wall times of a configuration's jobs."""
    return {job.minutes for job in plan.trainings if job.name == name}


def test_wall_times_follow_from_the_work(plan: Plan) -> None:
    # 82 h and 140 h were published: they need several jobs of the limit.
    assert minutes(plan, "resnet50-a100-n001-lbs0256-full") == {2880}
    assert minutes(plan, "fourcastnet.pretrain-a100-n004-lbs0004-full") == {2880}
    # 27 min were published, the scaling model says at most 28.4: 15 + 28.4 + 10 = 53.4 min
    assert minutes(plan, "resnet50-a100-n256-lbs0256-full") == {60}
    # 426 min, at most 442: 15 + 442 + 10 = 467 min
    assert minutes(plan, "resnet50-a100-n016-lbs0016-full") == {470}
    # 20 of 80 epochs, at most 288 min
    assert minutes(plan, "fourcastnet.pretrain-a100-n064-lbs0001-full-epochs20") == {320}
    # 300 s and a quarter of an hour
    assert {job.minutes for job in plan.probes} == {20}


def test_the_first_cheap_point_goes_to_the_partition_for_short_tries(tmp_path: Path) -> None:
    """By the campaign and the command that docs/paper/horeka.md shows."""
    workspace = Workspace.create(tmp_path / "project")
    page = (Path(__file__).parents[2] / "docs" / "paper" / "horeka.md").read_text()
    (campaign,) = re.findall(r"```yaml\n(name: first\n.*?)```", page, re.DOTALL)
    (workspace.path / "campaigns" / "first.yaml").write_text(campaign)
    (shown,) = re.findall(r"^snakemake (.* -n all .*first\.yaml.*)$", page, re.MULTILINE)
    code, output = workspace.snakemake("-p", *shlex.split(shown), profile=None)
    assert code == 0, output
    (job,) = JOB.finditer(output)
    assert (job["partition"], job["nodes"], job["ranks"]) == ("dev_accelerated", "1", "4")
    assert int(job["minutes"]) <= 60, "short tries are short"
    (command,) = re.findall(r"^snakemake (.* all .*first\.yaml.*\S) +# on the cluster$", page, re.M)
    assert command == shown.replace(" -n all", " all")
