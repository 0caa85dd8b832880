"""Hold the content of imported files against what is demanded of one's own, before it is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import read_exclusions
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.energies.accounting.energy_schema import ENERGY_SCHEMA, FLAGS_SCHEMA
from scalewatt.energies.accounting.run_inputs import read_provenance
from scalewatt.reproduction.manifests import MANIFEST, read_manifest
from scalewatt.results.carbon.carbon_table import CARBON
from scalewatt.results.tables.read_table import opened_parquet, read_checked
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS

_BEGINS: Mapping[str, tuple[bytes, ...]] = {
    ".pdf": (b"%PDF-",),
    ".png": (b"\x89PNG\r\n",),
    ".svg": (b"<?xml", b"<svg"),
    ".html": (b"<!doctype html", b"<html"),
}
_HEAD_BYTES = 16


def check_results(campaign: Campaign, results: Path) -> None:
    """Check all files of imported results and the campaign's list of exclusions; InputError names the first.

    `results` is the campaign's own folder, before it has its place.
    """
    read_exclusions(campaign)
    for path in sorted(results.rglob("*")):
        if path.is_file():
            _check(path, path.relative_to(results))
    if (results / MANIFEST).exists():
        read_manifest(results)


def _check(path: Path, relative: Path) -> None:
    if relative.name == "spec.json":
        _check_run(read_spec(path), path, relative)
    elif relative.name == "provenance.json":
        read_provenance(path)
    elif path.suffix == ".json":
        read_json(path)
    elif path.suffix == ".parquet":
        _check_table(path, relative)
    elif path.suffix in _BEGINS:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES).lower()
        if not head.startswith(tuple(one.lower() for one in _BEGINS[path.suffix])):
            raise InputError(f"{path}: is no {path.suffix[1:].upper()} file")


def _check_run(spec: RunSpec, path: Path, relative: Path) -> None:
    """Raise InputError if a spec is not that of the run in whose folder it lies."""
    _, configuration, repeat, *_ = relative.parts  # runs/… or superseded/…
    if (spec.configuration, str(spec.repeat)) != (configuration, repeat):
        raise InputError(
            f"{path}: is the spec of {spec.configuration} repeat {spec.repeat}; expected that of "
            f"{configuration} repeat {repeat}, in whose folder it lies"
        )


def _check_table(path: Path, relative: Path) -> None:
    if (check := _TABLES.get(relative.as_posix())) is not None:
        check(path)
    elif relative.parts[0] == "energy" and path.stem.isdigit():
        read_checked(path, ENERGY_SCHEMA)
    elif relative.parts[0] == "energy" and path.stem.endswith(".flags"):
        read_checked(path, FLAGS_SCHEMA)
    elif relative.parts[0] == "energy" and path.stem.endswith(".carbon"):
        read_checked(path, CARBON)
    else:
        with opened_parquet(path, ()) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)


_TABLES: Mapping[str, Callable[[Path], Any]] = {
    "tables/runs.parquet": lambda path: read_checked(path, RUNS),
    "tables/configurations.parquet": lambda path: read_checked(path, CONFIGURATIONS),
}
