"""What is compared: the runs of a campaign's results folder, with their settings and what they recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError, nearest
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.report.provenance_section import node_kind, software_of
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.run_row import RunFiles, read_provenances
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import number

_RUNS = "tables/runs.parquet"
_OF_RUN = ("dataset_fraction", "nodes", "ranks_per_node", "protocol", "sampling_period_s")
_OF_DATA = ("epochs", "dataset_samples", "validation_samples")
_OF_NODES = ("CPUs of a node", "GPUs of a node", "GPU driver", "kernel")
_FACILITY = {
    "pue": "PUE",
    "carbon_g_per_kwh": "carbon intensity (g CO₂e/kWh)",
    "price_per_kwh": "price of a kWh",
}
SETTINGS, SOFTWARE, MACHINES, CLUSTER = "settings", "software", "machines", "cluster"


@dataclass(frozen=True, eq=False)
class Source:
    """The runs of one campaign that count, with what is recorded about them."""

    place: str
    """The folder, as the user named it."""
    runs: pd.DataFrame
    """Rows of RUNS, with `dataset_fraction`, `seed`, `simulated` and `no_energy`."""
    settings: pd.DataFrame
    """A row per configuration: each setting as JSON, of several values those of all repeats."""
    recorded: pd.DataFrame
    """Columns section, name, value: what runs recorded of software, machines and cluster."""
    excluded: int
    gpu_word: str
    """What n counts: GPUs, processes or ranks."""


def read_source(text: str, results: Path) -> Source:
    """Read the runs of a campaign's results folder, or of the folder of that name below `results`.

    InputError if there are none, or if they are damaged.
    """
    folder = folder_of(text, results)
    if not (folder / _RUNS).is_file():
        there = sorted(path.parents[1].name for path in results.glob(f"*/{_RUNS}"))
        raise InputError(
            f"{text}: has no {_RUNS}, which Snakemake's target `tables` makes; allowed: a results folder, or "
            f"a name in {results} ({', '.join(there) or 'none with tables'}){nearest(text, there)}; an "
            "archive is imported first (`scalewatt import`)"
        )
    frame = read_frame(folder / _RUNS, RUNS)
    runs = frame[frame["excluded"].isna()].reset_index(drop=True)
    if runs.empty:
        raise InputError(f"{text}: has no run that counts; expected one or more in {_RUNS}")
    keys = list(zip(runs["configuration"], runs["repeat"], strict=True))
    specs = [read_spec(RunFiles(folder, *key).folder / "spec.json") for key in keys]
    for (configuration, repeat), sha256, spec in zip(keys, runs["spec_sha256"], specs, strict=True):
        if sha256 != spec.sha256:
            raise InputError(
                f"{folder}: {_RUNS} is of another training of {configuration} repeat {repeat} than its "
                "spec.json; make it anew (Snakemake's target `tables`)"
            )
    attributes = frame.attrs
    provenance = read_provenances(records(runs), folder)
    facility = attributes.get("definition", {}).get("facility") or {}
    return source_of(
        str(folder),
        runs,
        specs,
        provenance,
        facility,
        attributes.get("no_energy") or {},
        excluded=len(frame) - len(runs),
        gpu_word=attributes.get("gpu_word") or "GPUs",
    )


def folder_of(text: str, results: Path) -> Path:
    """Path that `text` is or, where there is none such, that of its name below `results`."""
    given = Path(text)
    return given if given.exists() or len(given.parts) != 1 else results / text


def source_of(
    place: str,
    runs: pd.DataFrame,
    specs: list[RunSpec],
    provenance: Mapping[tuple[str, int], dict[str, Any]],
    facility: Mapping[str, float | None],
    no_energy: Mapping[str, str],
    **facts: Any,
) -> Source:
    """Join rows of runs with their specs (one each) and what is recorded of them.

    `no_energy`: why the energy of a configuration is not known.
    """
    simulated = [
        bool(provenance.get((spec.configuration, spec.repeat), {}).get(SIMULATED_KEY))
        for spec in specs
    ]
    runs = runs.assign(
        dataset_fraction=pd.Series([spec.dataset_fraction for spec in specs]),
        seed=pd.Series([spec.seed for spec in specs], dtype=object),
        simulated=pd.Series(simulated, dtype=bool),
        no_energy=pd.Series([no_energy.get(spec.configuration) for spec in specs], dtype=object),
    )
    rows = [
        (CLUSTER, words, number(facility[name]))
        for name, words in _FACILITY.items()
        if facility.get(name) is not None
    ]
    devices = runs["device"] + ": " + runs["device_name"].fillna("not known")
    rows += [(MACHINES, "devices", device) for device in devices]
    for record in provenance.values():
        rows += _recorded(record)
    recorded = pd.DataFrame(rows, columns=["section", "name", "value"]).drop_duplicates()
    return Source(place, runs, _settings(specs), recorded, **facts)


def _settings(specs: list[RunSpec]) -> pd.DataFrame:
    flat = pd.DataFrame(
        [{"configuration": spec.configuration, **dict(_flat(spec))} for spec in specs]
    )
    return flat.groupby("configuration", sort=False).agg(_joined)


def _joined(texts: pd.Series) -> str:
    return ", ".join(dict.fromkeys(texts.dropna()))


def _flat(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield each setting by the key of the campaign file that it follows from, and its value as JSON."""
    model = spec.model if spec.phase == "train" else f"{spec.model}.{spec.phase}"
    values = {name: getattr(spec, name) for name in ("device", *_OF_RUN)}
    values |= {f"{name} of {model}": getattr(spec, name) for name in _OF_DATA}
    values |= {f"models.{model}.dataset": spec.dataset["name"]}
    data = {name: value for name, value in spec.dataset.items() if name != "name"}
    values |= {f"datasets.{spec.dataset['name']}.{name}": value for name, value in data.items()}
    values |= {f"models.{model}.{name}": value for name, value in spec.settings.items()}
    for name, value in values.items():
        if value is not None:
            yield name, json.dumps(value, sort_keys=True).replace('"', "")


def _recorded(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield section, name and value of what a run recorded."""
    for whose, name, value in software_of(dict(provenance)):
        yield SOFTWARE, name, value if whose == "the run" else f"{value} ({whose})"
    for name, value in (provenance.get("environment_variables") or {}).items():
        yield SOFTWARE, f"variable {name}", "not set" if value is None else str(value)
    for node in provenance.get("nodes") or ():
        for name, value in zip(_OF_NODES, node_kind(node), strict=True):
            yield MACHINES, name, value
    for host in provenance.get("hostnames") or ():
        yield MACHINES, "names of nodes", str(host)
