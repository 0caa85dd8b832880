"""Read what is compared: a campaign's results from their folder, or from an archive of them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.archive.archive_file import opened, read_manifest, write_content
from scalewatt.archive.cluster_facts import ELSEWHERE, SUFFIX
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError, nearest
from scalewatt.common.files import require_space
from scalewatt.common.yaml_files import read_yaml
from scalewatt.reproduction.manifests import REFERENCE
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.run_row import RunFiles, read_provenances
from scalewatt.results.tables.table_schema import RUNS

Row = dict[str, Any]
_RUNS = "tables/runs.parquet"
_NEEDED = re.compile(r"tables/runs\.parquet|runs/[^/]+/[0-9]+/(?:spec|provenance)\.json")
_MOST_NAMED = 10
ALLOWED = "results/<campaign>, the name of a folder in results, or an archive that `scalewatt export` wrote"


@dataclass(frozen=True)
class Source:
    """The runs of one campaign, with what is recorded about them."""

    place: str
    """The folder or archive, as the user named it."""
    campaign: str
    runs: tuple[Row, ...]
    """Rows of RUNS; excluded runs are left out."""
    excluded: int
    unlisted: int
    """Finished runs that the table of runs does not have yet."""
    specs: Mapping[tuple[str, int], RunSpec]
    provenance: Mapping[tuple[str, int], Row]
    """Of the runs that have one."""
    facility: Mapping[str, float]
    """What the tables were made with: pue, carbon_g_per_kwh, price_per_kwh."""
    no_energy: Mapping[str, str]
    """Why the energy of a configuration is not known."""
    counts_processes: bool
    """True if n counts processes, and not GPUs."""
    cluster: str | None
    """Its name, as an archive tells it; None where that is not known."""


def place_of(text: str, results: Path) -> Path:
    """Return the path that `text` is, or, where there is none such, that of its name below `results`."""
    given = Path(text)
    is_name = not given.is_absolute() and len(given.parts) == 1
    if is_name and not given.exists() and (results / given).is_dir():
        return results / given
    return given


def read_source(text: str, results: Path) -> Source:
    """Return the runs that `text` names; InputError if it names none, or if they are damaged.

    `text`: a campaign's results folder, the name of one below `results`, or an archive.
    """
    given = place_of(text, results)
    if given.is_file() and given.suffix in (".yaml", ".yml"):
        raise InputError(
            f"{text}: is a YAML file, not results; expected {results / _name_in(given)}"
        )
    if given.is_file() or (given / METADATA).is_file():
        return _of_archive(given)
    if not given.is_dir():
        there = sorted(path.parents[1].name for path in results.glob(f"*/{_RUNS}"))
        rest = ", …" if len(there) > _MOST_NAMED else ""
        held = f"{', '.join(there[:_MOST_NAMED]) or 'no campaign with results'}{rest}"
        raise InputError(
            f"{text}: is not there; allowed: {ALLOWED}; {results} has {held}{nearest(text, there)}"
        )
    if not (given / _RUNS).is_file():
        raise InputError(
            f"{given}: has no {_RUNS}, which Snakemake's target `tables` makes; allowed: {ALLOWED}"
        )
    facts = given.parent.parent / "campaigns" / f"{given.name}{SUFFIX}"
    return _of_folder(given, str(given), facts)


def _name_in(file: Path) -> str:
    """Return the name that a campaign file gives; in words where it has none."""
    return str(read_yaml(file).get("name", "<campaign>"))


def _of_folder(folder: Path, place: str, facts: Path) -> Source:
    frame = read_frame(folder / _RUNS, RUNS)
    rows = records(frame)
    counted = tuple(row for row in rows if row["excluded"] is None)
    if not counted:
        raise InputError(f"{place}: has no run that counts; expected one or more in {_RUNS}")
    keys = [(row["configuration"], row["repeat"]) for row in counted]
    specs = {key: read_spec(RunFiles(folder, *key).folder / "spec.json") for key in keys}
    for row, (key, spec) in zip(counted, specs.items(), strict=True):
        if row["spec_sha256"] not in (None, spec.sha256):
            raise InputError(
                f"{place}: {_RUNS} is of another training of {key[0]} repeat {key[1]} than its spec.json; "
                "allowed: a table that was made after it (Snakemake's target `tables`)"
            )
    definition = frame.attrs.get("definition") or {}
    return Source(
        place=place,
        campaign=counted[0]["campaign"],
        runs=counted,
        excluded=len(rows) - len(counted),
        unlisted=len(_finished(folder) - {(row["configuration"], row["repeat"]) for row in rows}),
        specs=specs,
        provenance=read_provenances(counted, folder),
        facility={k: v for k, v in (definition.get("facility") or {}).items() if v is not None},
        no_energy=frame.attrs.get("no_energy") or {},
        counts_processes=frame.attrs.get("gpu_word") == "processes",
        cluster=_cluster_of(facts),
    )


def _finished(folder: Path) -> set[tuple[str, int]]:
    found = (folder / "runs").glob("*/*/provenance.json")
    return {(p.parents[1].name, int(p.parent.name)) for p in found if p.parent.name.isdecimal()}


def _cluster_of(facts: Path) -> str | None:
    """Read the cluster's name from the facts of an archive; None without them."""
    name = read_yaml(facts).get("cluster") if facts.is_file() else None
    return None if name == ELSEWHERE else name


def _of_archive(path: Path) -> Source:
    """Return an archive's runs; only their files are unpacked, each compared with its SHA-256."""
    with opened(path) as one, tempfile.TemporaryDirectory(prefix="scalewatt-compare-") as unpacked:
        manifest = read_manifest(one)
        if manifest.kind == REFERENCE:
            raise InputError(f"{path}: has the published rows and no runs; allowed: {ALLOWED}")
        base, facts = f"results/{manifest.name}/", f"campaigns/{manifest.name}{SUFFIX}"
        wanted = [name for name in manifest.files if _is_needed(name, base)]
        if f"{base}{_RUNS}" not in wanted:
            raise InputError(f"{path}: has no {base}{_RUNS}; allowed: {ALLOWED}")
        wanted += [facts] if facts in manifest.files else []
        folder = Path(unpacked)
        size = sum(manifest.files[name].bytes for name in wanted)
        require_space(folder, size, unpacked, f"the tables and specs of {path}")
        try:
            write_content(one, manifest, {name: folder / name for name in wanted})
            return _of_folder(folder / base, str(path), folder / facts)
        except InputError as error:  # the folder of unpacking is gone when it is read
            raise InputError(str(error).replace(f"{folder}/", f"{path}: ")) from error


def _is_needed(name: str, base: str) -> bool:
    return name.startswith(base) and _NEEDED.fullmatch(name.removeprefix(base)) is not None
