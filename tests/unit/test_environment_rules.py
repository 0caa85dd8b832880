"""Which environment each rule has, and that the analysis one, without torch, has what its rules need."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaign_files import workflow_in
from packaging.requirements import Requirement

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVS = ROOT / "envs"
RULES_FOLDER = ROOT / "workflow" / "rules"
SUBSET: dict[str, Any] = runpy.run_path(str(ENVS / "subset.py"))
LINKED_INSTALL = HERE.parent / "workflow" / "linked_install.py"
TRAINING, ANALYSIS = "../../envs/training.yaml", "../../envs/analysis.yaml"

NEEDS_TRAINING = {"prepare", "train", "probe"}
"""Commands of the rules that need torch, MPI or perun; all others do without."""
ONLY_IN_TRAININGS = {
    "scalewatt.common.termination": {"mpi4py"},
    "scalewatt.provenance.versions": {"torch"},
}
"""What modules of the analysis import only when they are asked about a training's own device."""
CASES = (
    "profiles/local/cluster.yaml",
    "profiles/local/cluster.yaml,campaign=campaigns/variants.yaml",
    "profiles/local/cluster.yaml,results_only=True",
    "profiles/simulate/cluster.yaml",
    "profiles/horeka/cluster.yaml",
)


def analysis() -> set[str]:
    """The packages of the analysis environment."""
    wanted = SUBSET["names_of"]((ENVS / "analysis.in").read_text())
    return set(SUBSET["subset"]((ENVS / "lock.txt").read_text(), wanted))


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


# --- the analysis environment ---------------------------------------------------------------------


def test_the_analysis_environment_has_all_that_its_packages_require() -> None:
    """By what the installed packages say of themselves; the lock's own words are the source."""
    part = analysis()
    seen = 0
    for name in part:
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:
            pytest.fail(f"{name} is not installed: is .venv from this lock?")
        for text in required:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                assert SUBSET["normalised"](wanted.name) in part, f"{name} requires {text}"
                seen += 1
    assert seen > 50


# --- the rules ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A rule of the workflow."""

    name: str
    command: str | None
    conda: str | None
    outputs: int
    local: bool

    @property
    def program(self) -> str | None:
        """The command of scalewatt that it runs; None where it runs another program."""
        found = re.search(r"\bscalewatt ([a-z-]+)", self.command or "")
        return found[1] if found else None


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> list[Rule]:
    """The rules of all cases, and of a cluster with a file of carbon intensity."""
    folder = tmp_path_factory.mktemp("cluster")
    grid = folder / "grid.csv"
    grid.write_text("time,g_per_kwh\n1795000000,300\n1795003600,400\n")
    cluster = yaml.safe_load((ROOT / "profiles" / "local" / "cluster.yaml").read_text())
    carbon = {"file": str(grid), "source": "a test"}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({**cluster, "carbon_intensity": carbon}))
    cases = (*CASES, str(folder / "cluster.yaml"))
    project = workflow_in(folder / "project")
    done = run(sys.executable, HERE / "rules_of_workflow.py", *cases, cwd=project)
    assert done.returncode == 0, done.stderr
    return [Rule(**rule) for rule in json.loads(done.stdout)]


def test_every_rule_that_runs_a_command_has_an_environment_and_no_other_has(
    rules: list[Rule],
) -> None:
    """A rule without a command is a target: it makes nothing and names what others make."""
    assert {"train", "train_command", "era5_year", "spec", "energy", "report"} <= {
        rule.name for rule in rules if rule.command
    }
    for rule in rules:
        if rule.command is None:
            assert rule.outputs == 0, rule
            assert rule.conda is None, rule
        else:
            assert rule.conda is not None, rule
            assert (RULES_FOLDER / rule.conda).resolve() in (
                ENVS / "training.yaml",
                ENVS / "analysis.yaml",
            )


def test_what_trains_prepares_and_probes_has_all_of_the_lock_and_all_else_the_analysis(
    rules: list[Rule],
) -> None:
    for rule in rules:
        if rule.command:
            name = TRAINING if rule.program in NEEDS_TRAINING else ANALYSIS
            assert rule.conda == name, rule
    programs = {rule.program for rule in rules}
    assert {
        "simulate",
        "account",
        "carbon",
        "table",
        "figure",
        "claims",
        "report",
        "plan",
    } <= programs


def test_what_needs_no_training_environment_runs_where_snakemake_runs(rules: list[Rule]) -> None:
    for rule in rules:
        if rule.command:
            assert rule.local == (rule.conda == ANALYSIS), rule


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the analysis' packages and no others."""
    prefix = tmp_path_factory.mktemp("analysis") / "env"
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(prefix)],
        [sys.executable, str(LINKED_INSTALL), str(prefix), "analysis"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    return prefix


@pytest.fixture(scope="module")
def imported(rules: list[Rule], linked: Path) -> dict[str, Any]:
    """What the commands of the analysis' rules import there."""
    commands = {rule.program for rule in rules if rule.program and rule.conda == ANALYSIS}
    done = run(linked / "bin" / "python", HERE / "analysis_imports.py", *sorted(commands))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_the_rules_of_the_analysis_call_is_imported_without_torch(
    imported: dict[str, Any],
) -> None:
    modules = {
        *("results.build", "figures.draw_figure", "report.build_report"),
        *("claims.check_claims", "scaling.commands"),
    }
    assert {f"scalewatt.{name}" for name in modules} <= set(imported["reached"])
    assert "torch" not in imported["loaded"]


def test_nothing_that_the_analysis_imports_later_is_left_out(
    imported: dict[str, Any], linked: Path
) -> None:
    site = next(linked.glob("lib/python*/site-packages"))
    known = {path.name.removesuffix(".py") for path in site.iterdir()}
    missing = {module: set(names) - known for module, names in imported["imports"].items()}
    assert {module: names for module, names in missing.items() if names} == ONLY_IN_TRAININGS
