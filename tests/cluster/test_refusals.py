"""What cannot work is said once, clearly, and burns no jobs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from mini_project import MiniProject
from minislurm import MiniSlurm, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]

ONE = "results/mini/runs/fourcastnet.pretrain-a100-n001-lbs0002-full/1/provenance.json"
TWO = "results/mini/runs/fourcastnet.pretrain-a100-n002-lbs0002-full/1/provenance.json"
FOUR = "results/mini/runs/fourcastnet.pretrain-a100-n004-lbs0002-full/1/provenance.json"


@pytest.fixture(scope="module")
def prepared(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """A project whose small dataset is prepared."""
    project = MiniProject.on(slurm, tmp_path_factory.mktemp("prepared") / "project")
    project.done("results/mini/datasets/waves.json")
    return project


@pytest.fixture()
def project(prepared: MiniProject, tmp_path: Path) -> MiniProject:
    """A copy of it, with an empty queue."""
    prepared.slurm.cancel_all()
    shutil.copytree(prepared.path, tmp_path / "project")
    return MiniProject(tmp_path / "project", slurm=prepared.slurm)


def change_campaign(project: MiniProject, **values: object) -> None:
    """Set top-level keys of the campaign."""
    path = project.path / "campaigns" / "mini.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **values}))


def notes(output: str) -> list[str]:
    """What was said, without the announcements of jobs."""
    return [line for line in output.splitlines() if not re.match(r"\s*\d+:\d\d  \[", line)]


def trainings(project: MiniProject) -> int:
    """How many jobs were submitted for trainings, by Slurm's accounting."""
    text = project.slurm.command("sacct", "-nPX", "-S", "now-1day", "-o", "WorkDir,Partition")
    return text.splitlines().count(f"{project.path}|accelerated")


def test_all_that_slurm_cannot_give_is_said_before_anything_is_submitted(
    project: MiniProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINI_ACCOUNT", raising=False)
    before = project.slurm.states()
    project.change("cluster", account="$MINI_ACCOUNT")
    project.change_devices(gpus_per_node=8, cpus_per_node=32, cpus_per_rank=4)
    project.change("profile", **{"default-resources": ["slurm_partition='cpuonyl'", "runtime=9"]})
    code, output = project.snakemake(TWO, "results/mini/datasets/scans.json")
    assert code == 1
    said = "\n".join(notes(output))
    assert "profiles/mini/cluster.yaml: account: MINI_ACCOUNT is not set" in said
    assert re.search(r"export MINI_ACCOUNT=<your project> \(yours: .*\btest\b.*\)", said)
    assert "asks for 8 GPUs on a node; a node of partition accelerated has at most 4" in said
    assert "Slurm has no partition 'cpuonyl'" in said and "did you mean 'cpuonly'?" in said
    assert "Traceback" not in output
    assert project.slurm.states() == before
    assert not trainings(project)


def test_an_account_that_is_not_the_users_is_refused_with_the_users(project: MiniProject) -> None:
    project.change("cluster", account="nobodys")
    code, output = project.snakemake(ONE)
    assert code == 1
    assert re.search("Slurm does not let you use 'nobodys'; allowed: .*test", output)
    assert not trainings(project)


def test_what_only_sbatch_knows_is_said_as_slurm_says_it(project: MiniProject) -> None:
    """More GPUs than nodes have are seen by sinfo; a constraint that no node has is not."""
    project.change(
        "profile",
        **{"set-resources": {"train": {"constraint": "'nowhere'"}}},
    )
    code, output = project.snakemake(ONE, FOUR)
    assert code == 1
    said = notes(output)
    assert sum("Invalid feature specification" in line for line in said) == 1, output
    assert sum("not submitted" in line for line in said) == 2, output
    assert not trainings(project)


def test_a_launcher_that_makes_worlds_of_one_is_named_and_not_tried_again(
    project: MiniProject,
) -> None:
    project.change(
        "cluster", launcher="srun --mpi=none --nodes={nodes} --ntasks={gpus} --cpus-per-task=1"
    )
    code, output = project.snakemake(TWO)
    assert code == 1
    (said,) = [line for line in notes(output) if "not submitted again" in line]
    assert "MPI has 1 ranks, the spec asks for 2" in said
    assert "log: " in said and "train.log" in said
    assert trainings(project) == 1, "no retries are burnt"
    (segments,) = project.work.glob("*/segments.json")
    assert [one["outcome"] for one in json.loads(segments.read_text())] == ["refused"]


def test_a_spent_budget_stops_submission_and_what_was_trained_stays(project: MiniProject) -> None:
    change_campaign(project, energy_budget_kwh=0.000001)
    code, output = project.snakemake("--jobs", "1", ONE, TWO)
    assert code == 1
    finished = [path for path in (ONE, TWO) if (project.path / path).exists()]
    assert len(finished) == 1
    (said,) = [line for line in notes(output) if "budget" in line]
    assert "not submitted: the campaign's energy budget is used up" in said
    assert trainings(project) == 1


@pytest.mark.nightly
def test_a_job_that_outlives_its_snakemake_is_not_submitted_again(project: MiniProject) -> None:
    models = yaml.safe_load((project.path / "campaigns" / "mini.yaml").read_text())["models"]
    models["fourcastnet.pretrain"]["epochs"] = 200
    change_campaign(project, models=models)
    first = project.start(TWO)
    try:
        wait_for(lambda: any(project.work.glob("*/position.json")), "a checkpoint", 150)
    finally:
        first.kill()
        first.communicate()
    (job,) = [job for job, state in project.slurm.squeue().items() if state == "RUNNING"]
    assert project.snakemake("--unlock")[0] == 0
    code, output = project.snakemake(TWO)
    assert code == 1
    (said,) = [line for line in notes(output) if "not submitted" in line]
    assert f"job {job}" in said and f"scancel {job}" in said
    wait_for(lambda: (project.path / TWO).exists(), "the end of the job", 120)
    wait_for(project.slurm.idle, "an empty queue")
    project.done(TWO)
    provenance = json.loads((project.path / TWO).read_text())
    assert [one["outcome"] for one in provenance["segments"]] == ["finished"]
    assert trainings(project) == 1
