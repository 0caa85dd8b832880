"""Snakemake in an environment that has scalewatt, and no snakemake-executor-plugin-slurm."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest
from workspace import PROJECT, run_process

pytestmark = [pytest.mark.timeout(300)]

OTHERS = """
rule all:
    output: "made.txt"
    shell: "echo other > {output}"
"""


@pytest.fixture()
def packages(tmp_path: Path) -> Path:
    """All installed packages but the Slurm plugin, and scalewatt's."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("snakemake_executor_plugin_slurm", "scalewatt")):
            (folder / entry.name).symlink_to(entry)
    for entry in (PROJECT / "src").iterdir():
        if not (folder / entry.name).exists():
            (folder / entry.name).symlink_to(entry)
    return folder


def snakemake(packages: Path, *arguments: str) -> tuple[int, str]:
    """Run Snakemake on another workflow, with these packages alone."""
    folder = packages.parent
    (folder / "Snakefile").write_text(OTHERS)
    command = [sys.executable, "-S", "-m", "snakemake", *arguments]
    return run_process(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(packages)})


def test_other_workflows_run(packages: Path) -> None:
    code, output = snakemake(packages, "--cores", "1")
    assert code == 0, output
    assert (packages.parent / "made.txt").read_text() == "other\n"


def test_the_executor_for_slurm_is_refused_in_one_sentence(packages: Path) -> None:
    code, output = snakemake(packages, "--executor", "scalewatt-slurm", "--jobs", "1")
    assert code == 1, output
    assert "executor scalewatt-slurm needs snakemake-executor-plugin-slurm" in output
    assert "pip install 'scalewatt[workflow]'" in output
    assert "Traceback" not in output
    assert not (packages.parent / "made.txt").exists()
