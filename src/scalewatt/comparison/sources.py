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
from scalewatt.provenance.description import node_kind, software_of
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.run_row import RunFiles, read_provenances
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import number

_RUNS = "tables/runs.parquet"
_BY_RUN = ("device", "dataset_fraction", "nodes", "ranks_per_node", "protocol", "sampling_period_s")
_BY_MODEL = ("epochs", "dataset_samples", "validation_samples")
_BY_NODE = ("CPUs of a node", "GPUs of a node", "GPU driver", "kernel")
_FACILITY = {
    "pue": "PUE",
    "carbon_g_per_kwh": "carbon intensity (g CO₂e/kWh)",
    "price_per_kwh": "price of a kWh",
}


@dataclass(frozen=True, eq=False)
class Source:
    """The runs of one campaign that count, with what is recorded about them."""

    folder: str
    """As the user named it."""
    runs: pd.DataFrame
    """Rows of RUNS, with `dataset_fraction`, `seed`, `simulated` and `no_energy`."""
    settings: pd.DataFrame
    """A row per configuration: each setting as JSON, of several values those of all repeats."""
    recorded: pd.DataFrame
    """Columns section, name, value: what runs recorded of software, machines and cluster."""
    excluded: int = 0
    gpu_word: str = "GPUs"
    """What n counts: GPUs, processes or ranks."""

    def summary(self) -> dict[str, Any]:
        """The source in a few facts."""
        runs = self.runs
        origins = runs["energy_origin"].fillna("unknown").value_counts().sort_index()
        return {
            "folder": self.folder,
            "campaign": runs["campaign"].iloc[0],
            "runs": len(runs),
            "excluded": self.excluded,
            "configurations": len(self.settings),
            "devices": sorted(runs["device"].unique()),
            "protocols": sorted(runs["protocol"].unique()),
            "energy_origins": {str(origin): int(n) for origin, n in origins.items()},
            "energy_scopes": sorted(runs["energy_scope"].dropna().unique()),
        }


def read_source(text: str, results: Path) -> Source:
    """Read the runs of a campaign's results folder, or of the folder of that name below `results`.

    InputError if there are none, or if they are damaged.
    """
    folder = find_folder(text, results)
    if not (folder / _RUNS).is_file():
        known = sorted(path.parents[1].name for path in results.glob(f"*/{_RUNS}"))
        raise InputError(
            f"{text}: has no {_RUNS}, which Snakemake's target `tables` makes; allowed: a results folder, or "
            f"a name in {results} ({', '.join(known) or 'none with tables'}){nearest(text, known)}; an "
            "archive is imported first (`scalewatt import`)"
        )
    frame = read_frame(folder / _RUNS, RUNS)
    runs = frame[frame["excluded"].isna()].reset_index(drop=True)
    if runs.empty:
        raise InputError(f"{text}: has no run that counts; expected one or more in {_RUNS}")
    specs = []
    for id_, repeat, sha256 in zip(
        runs["configuration"], runs["repeat"], runs["spec_sha256"], strict=True
    ):
        specs.append(read_spec(RunFiles(folder, id_, repeat).folder / "spec.json"))
        if sha256 != specs[-1].sha256:
            raise InputError(
                f"{folder}: {_RUNS} is of another training of {id_} repeat {repeat} than its spec.json; "
                "make it anew (Snakemake's target `tables`)"
            )
    return make_source(
        str(folder),
        runs,
        specs,
        read_provenances(records(runs), folder),
        frame.attrs.get("definition", {}).get("facility") or {},
        frame.attrs.get("no_energy") or {},
        excluded=len(frame) - len(runs),
        gpu_word=frame.attrs.get("gpu_word") or "GPUs",
    )


def find_folder(text: str, results: Path) -> Path:
    """Path that `text` is or, where nothing has it, that of its name below `results`."""
    path = Path(text)
    return path if path.exists() or len(path.parts) != 1 else results / text


def make_source(
    folder: str,
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
    keys = [(spec.configuration, spec.repeat) for spec in specs]
    simulated = [bool(provenance.get(key, {}).get(SIMULATED_KEY)) for key in keys]
    runs = runs.assign(
        dataset_fraction=pd.Series([spec.dataset_fraction for spec in specs]),
        seed=pd.Series([spec.seed for spec in specs], dtype=object),
        simulated=pd.Series(simulated, dtype=bool),
        no_energy=pd.Series([no_energy.get(id_) for id_, _ in keys], dtype=object),
    )
    rows = [
        ("cluster", words, number(facility[name]))
        for name, words in _FACILITY.items()
        if facility.get(name) is not None
    ]
    devices = runs["device"] + ": " + runs["device_name"].fillna("not known")
    rows += [("machines", "devices", device) for device in devices]
    rows += [row for record in provenance.values() for row in _recorded(record)]
    recorded = pd.DataFrame(rows, columns=["section", "name", "value"]).drop_duplicates()
    settings = pd.DataFrame([{"configuration": s.configuration, **_settings(s)} for s in specs])
    settings = settings.groupby("configuration", sort=False).agg(_joined)
    return Source(folder, runs, settings, recorded, **facts)


def _joined(texts: pd.Series) -> str:
    return ", ".join(dict.fromkeys(texts.dropna()))


def _settings(spec: RunSpec) -> dict[str, str]:
    """Each setting by the key of the campaign file that it follows from, and its value as JSON."""
    model = spec.model if spec.phase == "train" else f"{spec.model}.{spec.phase}"
    dataset = spec.dataset["name"]
    values = {name: getattr(spec, name) for name in _BY_RUN}
    values |= {f"{name} of {model}": getattr(spec, name) for name in _BY_MODEL}
    values |= {f"datasets.{dataset}.{name}": value for name, value in spec.dataset.items()}
    values |= {f"models.{model}.dataset": values.pop(f"datasets.{dataset}.name")}
    values |= {f"models.{model}.{name}": value for name, value in spec.settings.items()}
    return {
        name: json.dumps(value, sort_keys=True).replace('"', "")
        for name, value in values.items()
        if value is not None
    }


def _recorded(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield section, name and value of what a run recorded."""
    for whose, name, value in software_of(dict(provenance)):
        yield "software", name, value if whose == "the run" else f"{value} ({whose})"
    for name, value in (provenance.get("environment_variables") or {}).items():
        yield "software", f"variable {name}", "not set" if value is None else str(value)
    for node in provenance.get("nodes") or ():
        for name, value in zip(_BY_NODE, node_kind(node), strict=True):
            yield "machines", name, value
    for host in provenance.get("hostnames") or ():
        yield "machines", "names of nodes", str(host)
