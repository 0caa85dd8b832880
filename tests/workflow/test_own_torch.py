"""The list for a node with its own torch (docs/environments.md) is a part of the lock."""

from __future__ import annotations

from importlib.metadata import requires

from packaging.requirements import Requirement
from workspace import PROJECT

from scalewatt.provenance.package_lock import locked_versions, normalised

THERE = {
    *("torch", "torchvision", "numpy", "pandas", "pyarrow", "scipy", "matplotlib", "seaborn"),
    *("pillow", "psutil", "pyyaml", "jinja2", "scikit-learn", "nvidia-ml-py", "py-cpuinfo"),
    "packaging",
}
"""What a node with its own torch has, beside what these need."""


def closure(names: set[str]) -> set[str]:
    """These packages with all that they need, without extras."""
    found: set[str] = set()
    while names:
        found |= names
        asked = [Requirement(text) for name in names for text in requires(name) or []]
        needed = (one for one in asked if one.marker is None or one.marker.evaluate({"extra": ""}))
        names = {normalised(one.name) for one in needed} - found
    return found


def test_the_list_for_nodes_has_versions_of_the_lock_and_all_that_its_packages_need() -> None:
    listed, lock = locked_versions(PROJECT / "envs" / "gpu-node.txt"), locked_versions()
    assert listed.items() <= lock.items()
    there = closure(THERE)
    assert not there & set(listed), "a node has these itself"
    assert closure(set(listed)) - there == set(listed)
