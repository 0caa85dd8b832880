"""The cluster file's `setup` is for the script: scalewatt records with its own packages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CAMPAIGN = """
name: own
protocol: corrected
sampling_period_s: 0.2
models:
  whose: {workload: command, folder: scripts, command: python whose.py, files: [whose.py], epochs: 1}
series:
  a: {model: whose, device: local, gpus: [2], local_batch_size: 8}
figures: {}
"""
SCRIPT = """
import os, time
import brought
time.sleep(1)
os.write(1, f"brought from {brought.__file__}\\n".encode())
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A module's folder on PYTHONPATH: something for the script, and other copies of our packages."""
    folder = tmp_path / "modules"
    (folder / "perun").mkdir(parents=True)
    (folder / "brought.py").touch()
    for name in ("perun/__init__.py", "psutil.py"):
        (folder / name).write_text(f"raise ImportError('{name} of a module')\n")
    return folder


def test_a_pythonpath_of_setup_reaches_the_script_and_not_the_recorder(
    tmp_path: Path, modules: Path
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    (workspace.path / "scripts").mkdir()
    (workspace.path / "scripts" / "whose.py").write_text(SCRIPT)
    (workspace.path / "campaigns" / "own.yaml").write_text(CAMPAIGN)
    cluster = workspace.path / "config.yaml"
    load = "'export PYTHONPATH=" + str(modules) + "${PYTHONPATH:+:$PYTHONPATH}'"
    cluster.write_text(f"{cluster.read_text()}\nsetup: [{load}]\n")
    run = "results/own/runs/whose-local-n002-lbs0008-full/1"
    workspace.done(f"{run}/provenance.json", "--config", "campaign=campaigns/own.yaml")
    log = (workspace.path / run / "train.log").read_text()
    assert log.count(f"brought from {modules / 'brought.py'}\n") == 2
    recorded = workspace.path / run / "perun"
    assert list(recorded.glob("*.hdf5")) and list(recorded.glob("*.sensors.json"))
    provenance = json.loads((workspace.path / run / "provenance.json").read_text())
    assert provenance["packages"]["perun"] is not None
