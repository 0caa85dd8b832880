"""A campaign over clocks on a real Slurm, with GPUs whose power and speed follow the clock by a law."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from counted import PATIENCE_S
from governed import LEVERS, SCRIPT, UPDATES, environment_of, power_w, training_s
from mini_node import wait_for
from mini_project import DEVICES, HERE, MiniProject
from minislurm import MiniSlurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]

CLOCKS = (705, 1005, 1410)
EPOCHS, REPEATS = 2, 2
PROGRAMS = ("scalewatt.execution.rank", "governed.py", "scalewatt.cli")


def configuration(gpus: int, clock_mhz: int) -> str:
    return f"governed-a100-apart-n{gpus:03d}-lbs0064-full-gpuclock{clock_mhz}mhz"


KILLED = (configuration(2, 705), 1)
IGNORED = (configuration(1, 1005), 2)


def project_on(slurm: MiniSlurm, folder: Path) -> MiniProject:
    project = MiniProject.on(slurm, folder / "project", HERE / "levers.yaml")
    (folder / "settings").mkdir()
    (project.path / "scripts").mkdir()
    (project.path / "scripts" / "governed.py").write_text(SCRIPT)
    project.change(
        "cluster",
        levers=LEVERS,
        devices={name: {**device, "torch_device": "cuda"} for name, device in DEVICES.items()},
    )
    project.variables.update(environment_of(folder / "settings", 4))
    return project


def processes(project: MiniProject) -> list[psutil.Process]:
    """All trainings on the nodes: what launches them, their ranks, their scripts."""
    trainings = []
    for node in project.slurm.nodes.values():
        for process in node.processes():
            with suppress(psutil.Error):
                if set(PROGRAMS) & set(process.cmdline()) or process.name() == "slurmstepd":
                    trainings.append(process)
    return trainings


def kill_training(project: MiniProject) -> None:
    """Kill all ranks and scripts of the run KILLED on all nodes, in the epoch after the first safe one."""
    pattern = f"{KILLED[0]}-{KILLED[1]}-*/script/epoch"
    wait_for(lambda: list(project.work.glob(pattern)), "checkpoint", PATIENCE_S)
    (name,) = [path.parents[1].name for path in project.work.glob(pattern)]
    time.sleep(1)  # A quarter of the next epoch, which is lost.
    for process in processes(project):
        with suppress(psutil.Error):
            if name in " ".join(process.cmdline()) or name in process.environ().get(
                "SCALEWATT_WORK", ""
            ):
                process.kill()


@pytest.fixture(scope="module")
def done(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """The campaign, of which one run was killed on all of its nodes."""
    slurm.cancel_all()
    project = project_on(slurm, tmp_path_factory.mktemp("levers"))
    process = project.start("tables")
    try:
        kill_training(project)
        output, _ = process.communicate(timeout=4 * PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, output
    return project


def measure_again(project: MiniProject, run: tuple[str, int]) -> None:
    """Set a run's measurement aside, as a user does."""
    command = [sys.executable, "-m", "scalewatt.cli", "remeasure", run[0], str(run[1])]
    options = ["--reason", "a test", "--site", "profiles/mini/cluster.yaml"]
    environment = project.slurm.environment
    subprocess.run([*command, *options], cwd=project.path, env=environment, check=True)


def train(project: MiniProject, run: tuple[str, int]) -> tuple[float, float, float]:
    """Seconds, energy and lost energy in J of the GPUs in training, over all segments and nodes."""
    rows = [
        row
        for row in project.energy(*run)
        if (row["device_kind"], row["stage"]) == ("gpu", "train")
    ]
    return (
        sum(row["duration_s"] for row in rows),
        sum(row["energy_j"] for row in rows),
        sum(row["discarded_j"] or 0.0 for row in rows),
    )


@pytest.mark.parametrize("gpus", (1, 2))
@pytest.mark.parametrize("clock_mhz", CLOCKS)
def test_recorded_energies_follow_the_law(done: MiniProject, gpus: int, clock_mhz: int) -> None:
    for repeat in range(1, REPEATS + 1):
        run = (configuration(gpus, clock_mhz), repeat)
        duration_s, energy_j, lost_j = train(done, run)
        law_j = gpus * power_w(clock_mhz) * training_s(clock_mhz, EPOCHS * UPDATES)
        assert energy_j - lost_j == pytest.approx(law_j, rel=0.005), run
        assert energy_j == pytest.approx(power_w(clock_mhz) * duration_s, rel=0.005), run
        assert (lost_j > 0) == (run == KILLED)


def test_a_killed_run_went_on_at_its_clock_and_finished(done: MiniProject) -> None:
    segments = done.provenance(*KILLED)["segments"]
    assert len(segments) == 2 and segments[-1]["outcome"] == "finished"


def test_no_run_is_left_out_and_the_tables_tell_the_clocks(done: MiniProject) -> None:
    runs = pq.read_table(done.results / "tables" / "runs.parquet").to_pylist()
    assert len(runs) == len(CLOCKS) * 2 * REPEATS
    assert {row["gpu_clock_mhz"] for row in runs} == set(CLOCKS)
    assert not [row["excluded"] for row in runs if row["excluded"]]
    unwanted = ("_not_held", "operating_point_unknown", "time_unknown")
    assert not [row for row in runs if any(code in row["flags"] for code in unwanted)]


def test_a_node_that_ignores_the_clock_is_found_and_its_run_left_out(done: MiniProject) -> None:
    for node in done.slurm.nodes:
        (done.path.parent / "settings" / f"{node}-ignores").touch()
    measure_again(done, IGNORED)
    code, output = done.snakemake("tables")
    assert code == 0, output
    runs = pq.read_table(done.results / "tables" / "runs.parquet").to_pylist()
    (row,) = [row for row in runs if row["excluded"]]
    assert (row["configuration"], row["repeat"]) == IGNORED
    assert "1410 MHz for" in row["excluded"] and "1005 were asked for" in row["excluded"]
    table = pq.read_table(done.results / "tables" / "configurations.parquet").to_pylist()
    (row_of_point,) = [row for row in table if row["configuration"] == IGNORED[0]]
    assert row_of_point["n_repeats"] == REPEATS - 1
    for node in done.slurm.nodes:
        (done.path.parent / "settings" / f"{node}-ignores").unlink()
