"""What the doctor says of launchers, Slurm, folders and packages."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_files import profile, program

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.doctor.doctor_types import (
    LIMITED,
    MISSING,
    OK,
    SET_UP,
    UNKNOWN,
    Check,
    Limits,
    Machine,
    Profile,
)
from scalewatt.doctor.examine import planned_checks
from scalewatt.doctor.folder_checks import Folder, assess_folder, type_of
from scalewatt.doctor.probe_child import probe_folder
from scalewatt.doctor.slurm_checks import (
    assess_account,
    assess_accounting,
    assess_pmi,
    plan_slurm_checks,
)
from scalewatt.doctor.software_checks import (
    assess_mpi,
    assess_packages,
    cgroup_cores,
    check_mpi,
    launcher_here,
)
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.provenance.package_lock import Difference

SHORT = Limits(command_s=0.5)
LONG = Limits(command_s=60.0)
PARTITIONS = "accelerated|2-00:00:00|0/1/0/1\ncpuonly|infinite|0/1/0/1\n"


def test_worlds_of_one_are_distinguished_from_a_world_of_two() -> None:
    two = json.dumps({"size": 2, "hosts": ["a"], "library": "MPICH"})
    one = json.dumps({"size": 1, "hosts": ["a"], "library": "MPICH"})
    assert assess_mpi("mpi4py 4", ["mpiexec"], True, Answer(f"noise\n{two}\n"), "c").outcome == OK
    alone = assess_mpi("mpi4py 4", ["srun"], True, Answer(f"{one}\n{one}\n"), "c")
    assert alone.outcome == MISSING and "--mpi=pmi2" in alone.ask[0]
    assert launcher_here("srun --mpi=pmi2 --ntasks={gpus}", None) == (["mpiexec", "-n", "2"], False)
    assert launcher_here("srun --ntasks={gpus}", "7") == (["srun", "--ntasks=2"], True)


@pytest.mark.parametrize("launcher", ["", " ", "mpiexec 'a", "mpiexec -n {}", "mpiexec {here}"])
def test_a_launcher_that_is_no_command_not_found(launcher: str, tmp_path: Path) -> None:
    made = profile(tmp_path)
    wrong = replace(made, cluster=replace(made.cluster, launcher=launcher))
    (check,) = check_mpi(Machine(), Subprocesses("nothing here", {"PATH": ""}), wrong)
    assert check.outcome == MISSING and check.needed
    assert check.ask == (f"launcher: in {tmp_path}/cluster.yaml",)
    assert assess_pmi(Answer(errors="MPI types are... pmi2"), launcher, "c").outcome == OK


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A PATH with Slurm's commands, as they are on a login node without accounting."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cat", "sleep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name in ("sbatch", "squeue", "scancel", "sacct", "sacctmgr"):
        program(folder, name, "exit 0")
    program(folder, "srun", "echo 'MPI plugin types are...'; printf '\\tnone\\n\\tpmi2\\n'")
    program(folder, "scontrol", "echo 'AcctGatherEnergyType    = (null)'")
    program(folder, "sinfo", f"cat <<'E'\n{PARTITIONS}E")
    return folder


def asked(slurm: Path, limits: Limits = LONG, **device: Any) -> dict[str, Check]:
    """Slurm's checks for a device of partition `accelerated`."""
    given = {"partition": "accelerated", "gres": "gpu", "time_limit_min": 60} | device
    machine = Machine(environment={"PATH": str(slurm)}, limits=limits)
    # A Python elsewhere, so that only our PATH counts.
    programs = Subprocesses(str(slurm / "python"), machine.environment)
    planned = plan_slurm_checks(machine, programs, profile(slurm.parent / "profile", **given))
    return {check.name: check for question in planned.values() for check in question()}


def test_a_cluster_that_answers_is_all_right(slurm: Path) -> None:
    found = asked(slurm)
    assert found["slurm_partitions"].outcome == found["slurm_pmi"].outcome == OK
    assert found["slurm_partitions"].found == "accelerated: 1 nodes, 48 h"
    assert found["slurm_accounting"].outcome == LIMITED
    assert "--partition=accelerated" in found["slurm_job"].fix[0]


def test_a_missing_partition_is_named_with_the_nearest(slurm: Path) -> None:
    check = asked(slurm, partition="acelerated")["slurm_partitions"]
    assert check.outcome == MISSING and check.needed
    assert "no partition 'acelerated'" in check.found and "'accelerated'" in check.found
    words = "allocation failure: Requested node configuration is not available"
    program(slurm, "sbatch", f"echo '{words}' >&2; exit 1")
    too_many = asked(slurm, gpus_per_node=8)["slurm_partitions"]
    assert too_many.outcome == MISSING
    assert "--gres=gpu:8" in too_many.found and "is not available" in too_many.found


def test_a_login_node_without_sbatch_is_told_to_go_to_one(slurm: Path) -> None:
    (slurm / "sbatch").unlink()
    found = asked(slurm)
    assert set(found) == {"slurm"}
    assert found["slurm"].outcome == MISSING and "sbatch: not found" in found["slurm"].found


@pytest.mark.parametrize("name", ["local", "horeka"])
def test_every_check_is_in_the_documents_table(name: str, slurm: Path) -> None:
    folder = PROJECT_ROOT / "profiles" / name
    made = Profile(folder, load_cluster(folder / "cluster.yaml"))
    program(slurm, "sacctmgr", "")
    machine = Machine(environment={"PATH": str(slurm)})
    programs = Subprocesses(str(slurm / "python"), machine.environment)
    asked = planned_checks(machine, programs, made, Path("results"))
    names = {re.sub(r"^(folder_data\.).*", r"\1<name>", one) for names in asked for one in names}
    rows = re.findall(r"^\| (`.*?) \|", (PROJECT_ROOT / "docs/doctor.md").read_text(), re.M)
    listed = {word for row in rows for word in re.findall(r"`(\S+)`", row)}
    assert names <= listed
    assert {"amd_gpus", "grace"} <= listed, "named only where there are such"


def test_pmi_account_and_energy_of_a_cluster_are_assessed() -> None:
    lists = Answer(errors="srun: MPI types are...\nsrun: none\nsrun: pmix\nsrun: pmix_v4\n")
    pmi = assess_pmi(lists, "srun --mpi=pmi2", "cluster.yaml")
    assert pmi.outcome == MISSING and pmi.facts["plugins"] == ["none", "pmix", "pmix_v4"]
    yours = Answer("hk-1\nhk-2\n")
    unset = assess_account(yours, "$ACCOUNT", {}, "cluster.yaml")
    assert unset.fix == ("export ACCOUNT=hk-1",)
    unknown = assess_account(Answer(""), "$ACCOUNT", {}, "cluster.yaml")
    assert unknown.fix == () and "project" in unknown.ask[0]
    assert assess_account(yours, "$ACCOUNT", {"ACCOUNT": "HK-2"}, "c").outcome == OK
    assert assess_account(yours, "hk-3", {}, "c").outcome == MISSING
    storage = "AccountingStorageType   = accounting_storage/slurmdbd\n"
    rapl = assess_accounting(
        Answer(f"{storage}AcctGatherEnergyType    = acct_gather_energy/rapl\n")
    )
    assert (rapl.outcome, rapl.facts) == (OK, {"accounting": True, "energy": "rapl"})


MOUNTS = {"/": "ext4", "/nfs home": "nfs4"}


def tried(folder: Folder, **change: Any) -> Check:
    said = {"exists": True, "tried": str(folder.path), "free_gib": 50.0, "error": None} | change
    return assess_folder(folder, Answer(json.dumps(said)), MOUNTS)


def test_folders_are_assessed_by_space_rights_and_kind_of_disk() -> None:
    work = Folder("work", Path("/nfs home/work"), True, 5.0, is_shared=True)
    assert type_of(work.path, MOUNTS) == "nfs4"
    assert tried(work).outcome == OK
    assert tried(work, free_gib=4.0).outcome == MISSING
    assert "Permission denied" in tried(work, error="Permission denied").found
    own = tried(replace(work, path=Path("/data")))
    assert own.outcome == LIMITED and "other nodes do not see it" in own.means
    prepared = Folder("data.era5", Path("/nfs home"), False)
    assert tried(prepared, error="Read-only file system").outcome == OK
    scratch = Folder("scratch", Path("/nfs home/tmp"), True, 0, is_shared=False)
    assert tried(scratch).outcome == LIMITED
    hung = assess_folder(work, Answer(problem="no answer", timed_out=True), MOUNTS)
    assert hung.outcome == UNKNOWN and hung.needed and "may hang" in hung.found
    crashed = assess_folder(work, Answer(problem="python failed (no memory)"), MOUNTS)
    assert crashed.outcome == UNKNOWN and "may hang" not in crashed.found


def test_trying_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    found = probe_folder(tmp_path / "new" / "work")
    assert (found["exists"], found["tried"], found["error"]) == (False, str(tmp_path), None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_one_that_may_not_be_searched_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(path: Path) -> bool:
        if path != tmp_path:
            raise PermissionError(13, "Permission denied")
        return True

    monkeypatch.setattr(Path, "exists", exists)
    answer = Answer(json.dumps(probe_folder(tmp_path / "closed" / "work")))
    work = assess_folder(Folder("work", tmp_path / "closed" / "work", True), answer, MOUNTS)
    assert work.outcome == MISSING and work.needed and "may hang" not in work.found
    assert work.fix == (f"ls -ld {tmp_path}; quota",)
    data = assess_folder(Folder("data.era5", tmp_path, False), answer, MOUNTS)
    assert data.outcome == MISSING and not data.needed and data.fix


@pytest.mark.parametrize(
    ("text", "cores"), [("150000 100000", 1.5), ("max 100000", None), ("", None)]
)
def test_cores_of_a_control_group_are_read(text: str, cores: float | None) -> None:
    assert cgroup_cores(text) == cores


def test_the_fix_of_packages_fits_their_environment_and_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, more = Difference("torch", "2.7.0", "2.6.0"), Difference("cowsay", None, "6.1")
    unknown = assess_packages(None, [other])
    assert unknown.outcome == LIMITED and "torch 2.6.0 (locked: 2.7.0)" in unknown.found
    assert unknown.fix == SET_UP
    monkeypatch.setattr("sys.prefix", str(tmp_path / "my env"))
    prefix = f"'{tmp_path}/my env'"
    install = f"envs/install.sh {prefix} analysis"
    remove = f"'{tmp_path}/my env/bin/python' -m pip uninstall --yes cowsay"
    assert assess_packages("analysis", [other]).fix == (install,)
    assert assess_packages("analysis", [more]).fix == (remove,)
    assert assess_packages("analysis", [more, other]).fix == (install, remove)
