"""What is wrong is said before anything is submitted, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm
from workspace import Workspace

from scalewatt.campaign.cluster import Cluster
from scalewatt.common.errors import InputError
from scalewatt.scheduling.preflight import check_before_submission

FITS = {
    **{"slurm_partition": "accelerated", "nodes": 2, "tasks_per_node": 4, "cpus_per_task": 2},
    **{"gres": "gpu:4", "mem_mb": 0, "runtime": 60},
}


@pytest.fixture()
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", fake.environment()["PATH"])
    return fake


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_construct(name="mini", launcher="srun", devices={}, **changes)


def check(folder: Path, *jobs: tuple[str, dict[str, Any]], **changes: Any) -> None:
    check_before_submission(jobs, cluster(**changes), "profiles/x/cluster.yaml", [folder])


def test_a_folder_without_room_is_refused_only_where_room_is_asked_for(tmp_path: Path) -> None:
    check(tmp_path, min_free_gib=1e9)
    with pytest.raises(InputError, match=r"at least 1e\+09 are needed"):
        check_before_submission([], cluster(), "profiles/x/cluster.yaml", [tmp_path], 1e9)


def test_all_problems_are_said_at_once(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINE", raising=False)
    (tmp_path / "file").touch()
    fake.refuses({"--nodes=3": "Requested node configuration is not available"})
    large = {**FITS, "nodes": 3, "slurm_account": "$MINE"}
    with pytest.raises(InputError) as caught:
        check(tmp_path / "file", ("train a", large), ("train b", large), account="$MINE")
    lines = str(caught.value).splitlines()
    assert lines[0] == "nothing is started:"
    assert len(lines) == 4
    assert "file: cannot be written to" in lines[1]
    assert lines[2].endswith(".yaml: account: MINE is not set; export MINE=<your project>")
    assert "train a (and 1 more): Slurm refuses --partition=accelerated --nodes=3 " in lines[3]
    assert lines[3].endswith(": Requested node configuration is not available")


@pytest.mark.parametrize(
    "words",
    [
        "Unable to contact slurm controller (connect failure)",
        "Job violates accounting/QOS policy (AssocMaxSubmitJobLimit)",
    ],
)
def test_what_may_pass_is_a_warning(
    words: str, fake: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses({"--nodes=2": words})
    check(tmp_path, ("train a", FITS))
    warning = capsys.readouterr().err
    assert warning.startswith("scalewatt: warning: train a: ") and words in warning


def test_a_machine_without_slurm_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch is not found; start Snakemake on its login node"):
        check(tmp_path, ("train a", FITS))


def test_without_jobs_for_the_scheduler_slurm_is_not_asked(fake: FakeSlurm, tmp_path: Path) -> None:
    check(tmp_path, account="$NOT_SET_ANYWHERE")
    assert fake.calls("asked") == []


@pytest.mark.slow
def test_only_what_trains_or_prepares_needs_the_work_folder(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "project")
    settings = "work_root: file/work\nmin_free_gib: 1000000000"
    workspace.edit("config.yaml", "work_root: work", settings)
    (workspace.path / "file").touch()
    workspace.done("figure1")
    code, output = workspace.snakemake("prepare_imagenet")
    assert code == 1
    assert "file/work/tiny: cannot be written to (Not a directory)" in output
    assert "results/tiny: " in output and "at least 1e+09 are needed" in output
