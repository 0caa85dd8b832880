"""The tree of the package: one direction of imports, one name for one module."""

from __future__ import annotations

import re
from collections import defaultdict

from package_layers import (
    HEIGHT,
    MODULES,
    PACKAGE,
    PICTURE,
    PROJECT,
    folder_of,
    imported_modules,
    imported_names,
    picture,
)

KNOWN_IMPORTS: set[tuple[str, str]] = set()
"""Imports against the layers that are still to be fixed."""


def agree(found: set, known: set, what: str) -> None:
    """Fail on what is new, and on known exceptions that are gone."""
    assert not found - known, f"{what}: {sorted(found - known)}"
    assert not known - found, f"fixed, so delete it from the list: {sorted(known - found)}"


def test_every_folder_has_its_layer() -> None:
    assert {folder_of(name) for name in MODULES if name} == set(HEIGHT)


def test_folders_import_from_lower_layers_only() -> None:
    against = {
        (name, other)
        for name in MODULES
        if name
        for other in imported_modules(name)
        if folder_of(name) != folder_of(other)
        and HEIGHT[folder_of(name)] <= HEIGHT[folder_of(other)]
    }
    agree(against, KNOWN_IMPORTS, "imports from the same or a higher layer")


def test_energy_knows_nothing_of_campaigns_and_trainings() -> None:
    unwanted = {"campaign", "execution", "training"}
    found = {
        (name, other)
        for name in MODULES
        if folder_of(name) == "energies"
        for other in imported_modules(name)
        if folder_of(other) in unwanted
    }
    assert not found


def test_the_package_knows_nothing_of_snakemake() -> None:
    found = {
        name
        for name, path in MODULES.items()
        for other in imported_names(path)
        if other.startswith("snakemake")
    }
    assert not found


def test_a_name_stands_for_one_module() -> None:
    places = defaultdict(list)
    for name, path in MODULES.items():
        if path.name != "__init__.py":
            places[path.stem].append(name)
    assert not {stem: names for stem, names in places.items() if len(names) > 1}


# --- docs/architecture.md -------------------------------------------------------------------------


def test_the_picture_of_the_layers_is_up_to_date() -> None:
    drawn = PICTURE.read_text(encoding="utf-8")
    assert drawn == picture(), "run: python tests/unit/package_layers.py"


def test_the_folders_and_modules_of_the_document_exist() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("| folder |")[2].partition("## The way of a sample")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(HEIGHT)
    named = {p for p in re.findall(r"`([\w/.]+)`", text) if p.partition("/")[0] in HEIGHT}
    named -= {"events", "lightning", "notebooks"}  # modules
    assert not [path for path in named if not (PACKAGE / path).exists()]
    below = [path for path in re.findall(r"`((?:src|tests|workflow|reference)/[\w/.]+)`", text)]
    assert not [path for path in below if not (PROJECT / path).exists()]
