"""The lock, the conda environments, the container and `make setup` bring the same packages."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import requires
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from workspace import COPIED

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVS = ROOT / "envs"
LOCK = (ENVS / "lock.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {"analysis": "workflow", "training": "train"}

PINNED = re.compile(
    r"^([a-z0-9.-]+)==([^ ]+)(?: ; .+)? \\\n((?:    --hash=sha256:\w{64}.*\n)+)", re.M
)
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def locked() -> dict[str, tuple[str, set[str]]]:
    """{package: its version and its files' hashes} of the lock."""
    return {pin[1]: (pin[2], set(HASH.findall(pin[3]))) for pin in PINNED.finditer(LOCK)}


def conda(name: str) -> list[str]:
    """What pip installs in a conda environment: package, version and hashes."""
    content = yaml.safe_load((ENVS / f"{name}.yaml").read_text())
    python, pip, packages = content["dependencies"]
    assert (python, pip) == ("python=3.11.*", "pip")
    return packages["pip"]


def applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_every_package_of_the_lock_is_there_once_with_hashes_and_nothing_names_an_index() -> None:
    assert re.sub(r"^ *#.*\n", "", PINNED.sub("", LOCK), flags=re.M).strip() == ""
    assert len(PINNED.findall(LOCK)) == len(locked()) > 100
    assert "://" not in LOCK + "".join(map(str, [*conda("analysis"), *conda("training")]))


def test_the_lock_has_what_the_project_asks_for_and_the_papers_versions() -> None:
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    asked += chain.from_iterable(PROJECT["project"]["optional-dependencies"].values())
    asked += (ENVS / "paper.txt").read_text().splitlines()[1:]
    for requirement in map(Requirement, asked):
        if requirement.name != "scalewatt":
            version, _ = locked()[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement
    assert (locked()["torch"][0], locked()["torchvision"][0]) == ("2.7.0", "0.22.0")


@pytest.mark.lock
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="what packages require of Python 3.11")
@pytest.mark.parametrize("name", EXTRAS)
def test_a_conda_environment_has_the_locks_files_of_all_that_its_extra_needs(name: str) -> None:
    packages = {}
    for line in conda(name):
        package, _, version = line.partition(" ")[0].partition("==")
        packages[package] = version
        hashes = set(HASH.findall(line))
        assert version == locked()[package][0]
        assert hashes and hashes <= locked()[package][1]
    wanted = [Requirement(text) for text in requires("scalewatt") or []]
    wanted = [
        requirement
        for requirement in wanted
        if applies(requirement) or applies(requirement, EXTRAS[name])
    ]
    for package in packages:
        wanted += [
            requirement
            for requirement in map(Requirement, requires(package) or [])
            if applies(requirement)
        ]
    assert {canonicalize_name(requirement.name) for requirement in wanted} - {"scalewatt"} <= set(
        packages
    )
    assert ("torch" in packages) == (name == "training")


# --- rules ----------------------------------------------------------------------------------------

HEAVY = re.compile(r"\bscalewatt (prepare|train|probe)\b")
"""Commands that need torch, MPI or perun; all others do without."""


def test_what_trains_prepares_and_probes_has_the_training_environment_and_all_else_the_other() -> (
    None
):
    text = "\n".join(file.read_text() for file in (ROOT / "workflow" / "rules").glob("*.smk"))
    rules = [
        rule
        for rule in re.split(r"^ *rule ", text, flags=re.M)
        if "shell:" in rule or "script:" in rule
    ]
    assert len(rules) > 12
    for rule in rules:
        heavy = HEAVY.search(rule)
        assert f"envs/{'training' if heavy else 'analysis'}.yaml" in rule, rule
        assert ("localrule: True" in rule) != bool(heavy), rule


# --- container and make ---------------------------------------------------------------------------


def test_the_container_has_all_that_the_package_and_the_workflow_read() -> None:
    files = re.search(r"^%files\n((?: .+\n)+)", (ENVS / "scalewatt.def").read_text(), re.M)
    assert files
    copied = {line.split()[0] for line in files[1].splitlines()}
    assert copied == {*COPIED, "README.md"}
