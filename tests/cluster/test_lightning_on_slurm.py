"""examples/lightning, by the commands of its README, on a real Slurm: on 1 and 2 nodes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import sysconfig
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from documents import blocks, commands
from mini_project import MiniProject
from minislurm import MiniSlurm, wait_for
from workspace import PROJECT, environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        find_spec("lightning") is None,
        reason="lightning is not installed: the example needs it",
    ),
]

PAGE = "examples/lightning/README.md"
EXAMPLE = "examples/lightning"
STUDY = f"{EXAMPLE}/campaign.yaml"
SAMPLES = 1280
SAYS_WHOSE = """
import os, sys
if "SCALEWATT_WORK" in os.environ:
    with open(os.path.join(os.environ["SCALEWATT_WORK"], "python"), "a") as file:
        file.write(sys.prefix + "\\n")
"""
PLACES = {1: (1, 1), 2: (1, 2), 4: (2, 2)}
"""Nodes and ranks a node of each number of GPUs."""


def configuration(gpus: int) -> str:
    return f"vit-a100-n{gpus:03d}-lbs0064-full"


def own_environment(path: Path) -> None:
    """An environment of the user's, with a Python of its own that has torch and Lightning."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    module = find_spec("lightning")
    assert module is not None and module.origin is not None
    folders = {sysconfig.get_paths()["purelib"], str(Path(module.origin).parents[1])}
    (library,) = path.glob("lib/python*/site-packages")
    (library / "others.pth").write_text("\n".join(sorted(folders)) + "\n")
    (library / "sitecustomize.py").write_text(SAYS_WHOSE)


def write_example(project: MiniProject, home: Path) -> None:
    """Put the example into the project, with fewer samples, and its keys into the cluster file."""
    shutil.copytree(PROJECT / EXAMPLE, project.path / EXAMPLE)
    campaign = (project.path / STUDY).read_text()
    smaller = campaign.replace("samples: 20000", f"samples: {SAMPLES}")
    assert smaller != campaign
    (project.path / STUDY).write_text(f"sampling_period_s: 0.2\n{smaller}")
    own_environment(home / "envs" / "vit")
    (cluster,) = blocks(PAGE, "yaml")
    project.change("cluster", **yaml.safe_load(cluster.replace("$HOME", str(home))))


def typed(project: MiniProject, command: str) -> str:
    """Type a command of the page on the login node, with the profile of this cluster."""
    at_mini = command.replace("profiles/mine", "profiles/mini")
    at_mini = at_mini.replace("--site mine", "--site profiles/mini/cluster.yaml")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", at_mini],
        cwd=project.path,
        env={**project.slurm.environment, "PATH": environment()["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    logs = "\n".join(p.read_text()[-3000:] for p in project.work.parent.glob("*/*/train.log"))
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{logs}"
    return done.stdout


def of_page(beginning: str) -> str:
    """The one command of the page that begins so."""
    (module,) = [c.bare for c in commands(PAGE) if c.bare.startswith(beginning)]
    return module


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def results(project: MiniProject) -> Path:
    return project.path / "results" / "lightning-example"


def work(project: MiniProject, gpus: int, study: str = "lightning-example") -> Path:
    """The folder that the script of a run has to itself."""
    (path,) = project.path.glob(f"work/{study}/{configuration(gpus)}-1-*/script")
    return path


@pytest.fixture(scope="module")
def project(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """A checkout with the example."""
    slurm.cancel_all()
    made = MiniProject.on(slurm, tmp_path_factory.mktemp("lightning") / "project")
    write_example(made, tmp_path_factory.mktemp("home"))
    return made


@pytest.fixture(scope="module")
def measured(project: MiniProject) -> MiniProject:
    """The example's campaign, measured by the commands of its README."""
    assert "configurations: 3" in typed(project, of_page("scalewatt campaign"))
    typed(project, of_page("snakemake --profile profiles/mine -n all"))
    typed(project, of_page("snakemake --profile profiles/mine all"))
    return project


def test_the_pages_commands_measure_the_script_on_one_and_two_nodes(measured: MiniProject) -> None:
    printed = typed(measured, of_page("scalewatt status"))
    assert "3 of 3" in printed, printed
    table = rows(results(measured) / "tables" / "runs.parquet")
    assert {row["gpus"]: (row["nodes"], row["gpus"] // row["nodes"]) for row in table} == PLACES
    for row in table:
        assert row["energy_kwh"] > 0 and row["energy_origin"] == "estimated"
        assert row["throughput_samples_per_s"] > 0
        assert row["metric_name"] == "top1_error_percent"
    assert (results(measured) / "figures" / "speedup.svg").stat().st_size


def test_the_script_ran_in_the_environment_that_setup_activates(measured: MiniProject) -> None:
    ranks = (work(measured, 4) / "python").read_text().split()
    assert len(ranks) == 4
    assert {Path(prefix).parts[-2:] for prefix in ranks} == {("envs", "vit")}


def test_a_run_that_slurm_warns_goes_on_in_another_job(measured: MiniProject) -> None:
    content = yaml.safe_load((measured.path / STUDY).read_text())
    content["name"] = "my-stop"
    content["models"]["vit"]["epochs"] = 12
    content["series"]["vit-lbs64"]["gpus"] = [4]
    stop = "campaigns/my-stop.yaml"
    (measured.path / stop).write_text(yaml.safe_dump(content))
    snakemake = measured.start("tables", "--config", f"campaign={stop}")
    try:
        measured.slurm.command(
            "scancel", "--signal=USR1", wait_for(partial(begun, measured), "epoch", 300)
        )
        output, _ = snakemake.communicate()
    finally:
        if snakemake.poll() is None:
            snakemake.send_signal(signal.SIGINT)
            print(snakemake.communicate()[0])
    assert snakemake.returncode == 0, output
    folder = measured.path / "results" / "my-stop" / "runs" / configuration(4) / "1"
    segments = json.loads((folder / "provenance.json").read_text())["segments"]
    assert [segment["outcome"] for segment in segments] == ["stopped", "finished"]
    history = rows(folder / "history.parquet")
    assert [row["epoch"] for row in history] == list(range(12))
    assert {row["segment"] for row in history} == {0, 1}
    assert {(row["samples"], row["updates"]) for row in history} == {(SAMPLES, 5)}
    log = (folder / "train.log").read_text()
    assert "stopped.ckpt" in log, "restored from it"


def begun(project: MiniProject) -> str | None:
    """The job of the run that is to be stopped, once it has reported two epochs."""
    for path in project.path.glob("work/my-stop/*/script-history.jsonl"):
        if path.read_text().count("\n") > 1:
            return json.loads((path.parent / "holder.json").read_text())["job"]
    return None
