"""`scalewatt compare`: two campaigns next to each other.

Configurations are matched by what they are, not by their names: two are the same if KEY agrees. If a campaign
has several of one KEY, such as variants or devices, what they differ in has to agree too; of those that
remain, a single one of each campaign is compared with the other if they differ in nothing but the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.columns import schema
from scalewatt.common.errors import InputError, nearest
from scalewatt.provenance.description import node_kind, software_of
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.results.tables.frames import frame_of, read_frame, records, write_frame
from scalewatt.results.tables.ratios import CAMPAIGN, ratios
from scalewatt.results.tables.run_row import RunFiles, read_provenances
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import number

COMPARED = schema("compare")
KEY = (
    *("model", "phase", "gpus", "gpus_per_replica", "gradient_accumulation_steps"),
    *("local_batch_size", "global_batch_size", "dataset_fraction", "precision"),
    *LEVERS,
)
"""What two configurations must share."""
_BY_MACHINE = ["nodes", "ranks_per_node"]
"""What follows from the machine and n."""
_BY_RUN = ("device", "dataset_fraction", *_BY_MACHINE, "protocol", "sampling_period_s")
_BY_MODEL = ("epochs", "dataset_samples", "validation_samples")
_BY_NODE = ("CPUs of a node", "GPUs of a node", "GPU driver", "kernel")
_FACILITY = {
    "pue": "PUE",
    "carbon_g_per_kwh": "carbon intensity (g CO₂e/kWh)",
    "price_per_kwh": "price of a kWh",
}
_RUNS = "tables/runs.parquet"
_SAME_RUN = ["spec_sha256", "repeat", "runtime_s", "energy_kwh"]
_MOST_VALUES = 4


# --- what is compared -----------------------------------------------------------------------------


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
    """Columns section, name, value: seeds, and what runs recorded of software, machines and cluster."""
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
    for row in records(runs[["configuration", "repeat", "spec_sha256"]]):
        id_, repeat = row["configuration"], row["repeat"]
        specs.append(read_spec(RunFiles(folder, id_, repeat).folder / "spec.json"))
        if row["spec_sha256"] != specs[-1].sha256:
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
    """Path that `text` is or, if nothing has it, that of its name below `results`."""
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
    rows = [("settings", "seeds", str(spec.seed)) for spec in specs]
    rows += [
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


# --- the comparison -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two campaigns, what they have in common, and how it differs."""

    a: Source
    b: Source
    pairs: pd.DataFrame
    """Columns configuration_a, configuration_b."""
    differences: pd.DataFrame
    """Columns section, name, a, b, pairs."""
    table: pd.DataFrame
    """COMPARED: one row per pair and quantity."""

    @property
    def same_runs(self) -> int:
        """Number of measurements that are in both: of the same spec, with the same run time and energy."""
        return len(self.a.runs[_SAME_RUN].merge(self.b.runs[_SAME_RUN]))

    def only(self, side: str) -> list[str]:
        """Configurations that only `a` or only `b` has."""
        source = self.a if side == "a" else self.b
        matched = set(self.pairs[f"configuration_{side}"])
        return [id_ for id_ in source.settings.index if id_ not in matched]

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON-ready values."""
        return {
            "a": self.a.summary(),
            "b": self.b.summary(),
            "same_runs": self.same_runs,
            "differences": records(self.differences),
            "compared": records(self.table),
            "only_a": self.only("a"),
            "only_b": self.only("b"),
        }

    def write(self, stem: Path) -> None:
        """Write `stem`.parquet and .csv: one row per pair and quantity."""
        sources = {"a": self.a.summary(), "b": self.b.summary()}
        write_frame(self.table, Path(f"{stem}.parquet"), COMPARED, sources)


def compare(a: str, b: str, results: Path) -> Comparison:
    """Compare two campaigns, each named as `read_source` takes it; InputError if both are the same."""
    if find_folder(a, results).resolve() == find_folder(b, results).resolve():
        raise InputError(f"compare: {a} and {b} are the same; expected two campaigns")
    return compared(*(read_source(text, results) for text in (a, b)))


def compared(a: Source, b: Source) -> Comparison:
    """Compare two sources."""
    pairs = match(a, b)
    rows = []
    if len(pairs):
        sides = []
        for side, source in zip("ab", (a, b), strict=True):
            training = pd.Series(pairs.index, index=pairs[f"configuration_{side}"])
            runs = source.runs.assign(campaign=side.upper())
            runs["training"] = runs["configuration"].map(training)
            sides.append(runs.dropna(subset="training"))
        both = pd.concat(sides, ignore_index=True).sort_values("training", kind="stable")
        keys = {row["training"]: {name: row[name] for name in KEY} for row in records(sides[0])}
        rows = [keys[row["training"]] | row for row in ratios(both, CAMPAIGN)]
    table = frame_of([{name: row[name] for name in COMPARED.names} for row in rows], COMPARED)
    return Comparison(a, b, pairs, differences(a, b, pairs), table)


def match(a: Source, b: Source) -> pd.DataFrame:
    """Pairs of the same training: columns configuration_a and configuration_b."""
    trainings = pd.concat({side: _trainings(source) for side, source in (("a", a), ("b", b))})
    pairs: list[tuple[str, str]] = []
    for _, same in trainings.groupby(list(KEY), sort=False):
        sides = [
            source.settings.loc[[id_ for s, id_ in same.index if s == side]]
            for side, source in (("a", a), ("b", b))
        ]
        varied = {
            name: None
            for side in sides
            for name in side.columns.difference(_BY_MACHINE, sort=False)
            if side[name].nunique(dropna=False) > 1
        }
        for by in (list(varied), [name for name in varied if name != "device"]):
            agreeing = _agreeing(sides[0], sides[1], by)
            pairs += agreeing
            sides = [
                side.drop(index=[pair[at] for pair in agreeing]) for at, side in enumerate(sides)
            ]
    return pd.DataFrame(pairs, columns=["configuration_a", "configuration_b"])


def _trainings(source: Source) -> pd.DataFrame:
    """KEY of each training, by configuration; empty text for what it lacks."""
    first = source.runs.drop_duplicates("configuration").set_index("configuration")[list(KEY)]
    ordered = first.sort_index().sort_values(list(KEY), kind="stable")
    return ordered.astype(object).where(ordered.notna(), "")


def _agreeing(a: pd.DataFrame, b: pd.DataFrame, by: list[str]) -> list[tuple[str, str]]:
    """Pairs that agree in the settings `by`, if each campaign has a single such training."""
    sides = []
    for side in (a, b):
        rows = side.reindex(columns=by).fillna("").itertuples(index=False, name=None)
        values = pd.Series(list(rows) if by else [()] * len(side), side.index, dtype=object)
        sides.append(values[~values.duplicated(keep=False)])
    ids = {value: id_ for id_, value in sides[1].items()}
    return [(str(id_), str(ids[value])) for id_, value in sides[0].items() if value in ids]


def differences(a: Source, b: Source, pairs: pd.DataFrame) -> pd.DataFrame:
    """All that differs: columns section, name, a, b and how many pairs differ so; null: not recorded."""
    columns = ["section", "name", "a", "b"]
    settings, recorded = {}, {}
    for side, source in (("a", a), ("b", b)):
        matched = source.settings.loc[pairs[f"configuration_{side}"]].reset_index(drop=True)
        settings[side] = matched.rename_axis(columns="name").stack()
        recorded[side] = source.recorded.groupby(["section", "name"])["value"].agg(_listed)
    by_pair = pd.concat(settings, axis=1).sort_index().reset_index("name")
    unlike = _unlike(by_pair.assign(section="settings")).groupby(columns, sort=False, dropna=False)
    tables = [unlike.size().reset_index(name="pairs")]
    tables.append(_unlike(pd.concat(recorded, axis=1).reset_index()))
    return pd.concat(tables, ignore_index=True).reindex(columns=[*columns, "pairs"])


def _unlike(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["a"].fillna("") != rows["b"].fillna("")]


def _listed(values: pd.Series) -> str:
    """Distinct values in order, with commas; of many the first and how many more."""
    texts = sorted(map(str, values.unique()))
    more = f" and {len(texts) - _MOST_VALUES} more" if len(texts) > _MOST_VALUES else ""
    return ", ".join(texts[:_MOST_VALUES]) + more
