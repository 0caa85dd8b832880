"""`scalewatt compare`: two campaigns next to each other.

Configurations are matched by what they are, not by their names: two are the same if KEY agrees. If a campaign
has several of one KEY, such as variants or devices, what they differ in has to agree too; of those that
remain, a single one of each campaign is compared with the other if they differ in nothing but the device.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
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
from scalewatt.results.columns import label, metric_label, unit
from scalewatt.results.tables.frames import frame_of, read_frame, records, write_frame
from scalewatt.results.tables.ratios import CAMPAIGN, HIGHER, LOWER, NO_INTERVAL, NOT_APART, ratios
from scalewatt.results.tables.run_row import RunFiles, read_provenances
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import MISSING, listed, number, with_unit

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
_SECTIONS = ("settings", "cluster", "machines", "software")


# --- what is compared -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Source:
    """The runs of one campaign that count, with what is recorded about them."""

    folder: str
    """As the user named it."""
    runs: pd.DataFrame
    """Rows of RUNS, with `dataset_fraction`, `seed`, `simulated` and `no_energy`."""
    facts: pd.DataFrame
    """Columns configuration, section, name, value: the settings of each configuration as JSON and, where
    configuration is "", seeds and what runs recorded of software, machines and cluster."""
    excluded: int = 0

    def summary(self) -> dict[str, Any]:
        """The source in a few facts."""
        runs = self.runs
        origins = runs["energy_origin"].fillna("unknown").value_counts().sort_index()
        return {
            "folder": self.folder,
            "campaign": runs["campaign"].iloc[0],
            "runs": len(runs),
            "excluded": self.excluded,
            "configurations": runs["configuration"].nunique(),
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
    table = read_frame(folder / _RUNS, RUNS)
    counted = table[table["excluded"].isna()].reset_index(drop=True)
    if counted.empty:
        raise InputError(f"{text}: has no run that counts; expected one or more in {_RUNS}")
    rows, specs = records(counted), []
    for row in rows:
        id_, repeat = row["configuration"], row["repeat"]
        specs.append(read_spec(RunFiles(folder, id_, repeat).folder / "spec.json"))
        if row["spec_sha256"] != specs[-1].sha256:
            raise InputError(
                f"{folder}: {_RUNS} is of another training of {id_} repeat {repeat} than its spec.json; "
                "make it anew (Snakemake's target `tables`)"
            )
    provenances = read_provenances(rows, folder)
    return make_source(str(folder), counted, specs, provenances, len(table) - len(counted))


def find_folder(text: str, results: Path) -> Path:
    """Path that `text` is or, if it has no results, that of its name below `results`."""
    path = Path(text)
    return path if (path / _RUNS).is_file() or len(path.parts) != 1 else results / text


def make_source(
    folder: str,
    runs: pd.DataFrame,
    specs: list[RunSpec],
    provenances: Mapping[tuple[str, int], dict[str, Any]],
    excluded: int = 0,
) -> Source:
    """Join rows of runs, with their table's metadata, with their specs (one each) and what is recorded."""
    no_energy = runs.attrs.get("no_energy") or {}
    keys = [(spec.configuration, spec.repeat) for spec in specs]
    recorded = [provenances.get(key, {}) for key in keys]
    simulated = [bool(each.get(SIMULATED_KEY)) for each in recorded]
    runs = runs.assign(
        dataset_fraction=pd.Series([spec.dataset_fraction for spec in specs]),
        seed=pd.Series([spec.seed for spec in specs], dtype=object),
        seeds=pd.Series([each.get("seeds") for each in recorded], dtype=object),
        simulated=pd.Series(simulated, dtype=bool),
        no_energy=pd.Series([no_energy.get(id_) for id_, _ in keys], dtype=object),
    )
    facility = runs.attrs.get("definition", {}).get("facility") or {}
    facts = [
        (spec.configuration, "settings", *setting)
        for spec in specs
        for setting in _settings(spec).items()
    ]
    facts += [("", "settings", "seeds", str(spec.seed)) for spec in specs]
    facts += [
        ("", "cluster", words, number(facility[name]))
        for name, words in _FACILITY.items()
        if facility.get(name) is not None
    ]
    devices = runs["device"] + ": " + runs["device_name"].fillna("not known")
    facts += [("", "machines", "devices", device) for device in devices]
    facts += [("", *fact) for record in provenances.values() for fact in _recorded(record)]
    columns = ["configuration", "section", "name", "value"]
    return Source(folder, runs, pd.DataFrame(facts, columns=columns).drop_duplicates(), excluded)


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
        ids = (self.a if side == "a" else self.b).runs["configuration"]
        return list(ids[~ids.isin(self.pairs[f"configuration_{side}"])].unique())

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
    runs = []
    for side, source in (("a", a), ("b", b)):
        training = source.runs["configuration"].map(_pair_numbers(pairs, side))
        runs.append(source.runs.assign(campaign=side.upper(), training=training))
    both = pd.concat(runs, ignore_index=True).dropna(subset="training")
    both = both.sort_values("training", kind="stable")
    first = {row["training"]: row for row in records(both[both["campaign"] == "A"])}
    rows = [first[row["training"]] | row for row in ratios(both, CAMPAIGN)]
    return Comparison(a, b, pairs, differences(a, b, pairs), frame_of(rows, COMPARED))


def match(a: Source, b: Source) -> pd.DataFrame:
    """Pairs of the same training: columns configuration_a and configuration_b."""
    columns = ["configuration_a", "configuration_b"]
    both = pd.concat({"a": _trainings(a), "b": _trainings(b)}, names=["side", "configuration"])
    pairs = [pd.DataFrame(columns=columns)]
    for _, same in both.groupby("training", sort=False):
        sides = [same[same.index.get_level_values("side") == side].droplevel(0) for side in "ab"]
        names = same.columns.difference(_BY_MACHINE, sort=False)
        varied = [n for n in names if any(side[n].nunique(dropna=False) > 1 for side in sides)]
        for by in (varied, [name for name in varied if name != "device"]):
            # Those that no other of their campaign agrees with.
            keys = ["training", *by]
            single = [side.reset_index().drop_duplicates(keys, keep=False) for side in sides]
            agreeing = single[0].merge(single[1], on=keys, suffixes=("_a", "_b"))[columns]
            pairs.append(agreeing)
            sides = [side.drop(agreeing[name]) for side, name in zip(sides, columns, strict=True)]
    return pd.concat(pairs, ignore_index=True)


def _trainings(source: Source) -> pd.DataFrame:
    """Settings of each configuration, and as `training` its KEY as text, in the order of KEY."""
    first = source.runs.drop_duplicates("configuration").set_index("configuration")[list(KEY)]
    ordered = first.sort_index().sort_values(list(KEY), kind="stable")
    keys = ordered.astype(object).where(ordered.notna(), "").itertuples(index=False, name=None)
    of_one = source.facts[source.facts["configuration"] != ""]
    settings = of_one.groupby(["configuration", "name"])["value"].agg(_listed).unstack()
    return settings.reindex(ordered.index).assign(training=[str(key) for key in keys])


def _pair_numbers(pairs: pd.DataFrame, side: str) -> dict[str, int]:
    return dict(zip(pairs[f"configuration_{side}"], pairs.index, strict=True))


def differences(a: Source, b: Source, pairs: pd.DataFrame) -> pd.DataFrame:
    """All that differs: columns section, name, a, b and how many pairs differ so; null: not recorded."""
    columns = ["section", "name", "a", "b"]
    values = {}
    for side, source in (("a", a), ("b", b)):
        # What is recorded of all runs is no pair's.
        number_of = _pair_numbers(pairs, side) | {"": -1}
        facts = source.facts.assign(pair=source.facts["configuration"].map(number_of))
        values[side] = facts.groupby(["pair", "section", "name"])["value"].agg(_listed)
    both = pd.concat(values, axis=1).reset_index()
    unlike = both[both["a"].fillna("") != both["b"].fillna("")].assign(
        section=lambda rows: pd.Categorical(rows["section"], _SECTIONS, ordered=True),
        is_pair=lambda rows: rows["pair"] >= 0,
    )
    groups = unlike.groupby(columns, sort=False, dropna=False, observed=True)
    counts = groups["is_pair"].sum().reset_index(name="pairs").sort_values(["section", "name"])
    pairs_or_null = counts["pairs"].astype("Int64").mask(counts["pairs"] == 0)
    return counts.astype({"section": "str"}).assign(pairs=pairs_or_null).reset_index(drop=True)


def _listed(values: pd.Series) -> str:
    """Distinct values in order, with commas; of many the first and how many more."""
    return listed(sorted(map(str, values.unique())), _MOST_VALUES)


# --- text for a terminal --------------------------------------------------------------------------


Row = Mapping[str, Any]
_WIDTH = 100
_MOST_ALONE = 20
_LONGEST_VALUE = 48
NOTE = (
    "B/A is the ratio of geometric means over repeats, with the 95 % interval of Welch's t on logarithms; "
    "means are arithmetic, as in the tables. Lower does not mean better."
)


def comparison_text(comparison: Comparison) -> str:
    """Text of the comparison for a terminal."""
    lines = [_source_line("A", comparison.a.summary()), _source_line("B", comparison.b.summary())]
    if comparison.same_runs:
        lines.append(
            f"The same measurements in both, whose ratios say nothing: {comparison.same_runs}."
        )
    blocks = ["\n".join(lines)]
    for section, rows in comparison.differences.groupby("section", sort=False):
        table = [("", "A", "B", "")]
        for row in records(rows):
            a, b = (
                textwrap.shorten(row[s] or MISSING, _LONGEST_VALUE, placeholder=" …") for s in "ab"
            )
            pairs = "" if row["pairs"] is None else f"pairs: {row['pairs']:.0f}"
            table.append((row["name"], a, b, pairs))
        blocks.append("\n".join([f"What differs in {section}", *_align(table)]))
    if comparison.differences.empty:
        blocks.append("Nothing differs in settings, seeds, software, machines and cluster.")
    blocks.append(f"Configurations in both: {len(comparison.pairs)}")
    quantities = comparison.table.groupby("quantity", sort=False)
    blocks += [_quantity_block(str(name), records(rows), comparison) for name, rows in quantities]
    for side in "ab":
        if only := comparison.only(side):
            ids = listed(only, _MOST_ALONE).replace(", ", "\n  ")
            blocks.append(f"Configurations only in {side.upper()}: {len(only)}\n  {ids}")
    return "\n\n".join([*blocks, textwrap.fill(NOTE, _WIDTH)])


def _source_line(side: str, facts: Row) -> str:
    counts = {name: facts[name] for name in ("runs", "configurations", "excluded") if facts[name]}
    origins = [f"{name} ({n})" for name, n in facts["energy_origins"].items()]
    return (
        f"{side}: {facts['campaign']} ({facts['folder']}) on {listed(facts['devices'])}: "
        f"{', '.join(f'{name} {n}' for name, n in counts.items())}; protocol "
        f"{listed(facts['protocols'])}; energy {listed(origins)}, of "
        f"{listed(facts['energy_scopes']) or MISSING}"
    )


def _align(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Indented lines of rows of equal length, without spaces at their ends."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        ("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True))).rstrip()
        for row in table
    ]


def _quantity_block(name: str, rows: Sequence[Row], comparison: Comparison) -> str:
    """Table of a quantity, under its name, the count of each verdict and where its values are from."""
    is_metric = name == "metric_last"
    metrics = {*comparison.a.runs["metric_name"], *comparison.b.runs["metric_name"]}
    words = label(name, comparison.a.runs.attrs.get("gpu_word") or "GPUs")
    if is_metric and len(metrics) == 1:
        words = metric_label(None, metrics.pop())
    verdicts = pd.Series([row["verdict"] for row in rows]).value_counts(sort=False)
    counts = [f"{str(verdict).replace('_', ' ')}: {n}" for verdict, n in verdicts.items()]
    table: list[tuple[str, ...]] = [("", "A", "B", "B/A", "")]
    for row in rows:
        means = (with_unit(row[f"mean_{side}"], "" if is_metric else unit(name)) for side in "ab")
        ids = dict.fromkeys((row["configuration_a"], row["configuration_b"]))
        table.append((" | ".join(ids), *means, _ratio_text(row), verdict_text(row)))
    return "\n".join([f"{words}: {', '.join(counts)}", *_origin_lines(rows), *_align(table)])


def _origin_lines(rows: Sequence[Row]) -> list[str]:
    """Where the values of a quantity are from, and of what its energies are; none without a ratio."""
    known = [row for row in rows if row["ratio"] is not None]
    pairs = dict.fromkeys((row["origin_a"], row["origin_b"]) for row in known)
    origins = "; ".join(f"both {a}" if a == b else f"A {a}, B {b}" for a, b in pairs)
    scopes = ", ".join(sorted({row["scope_a"] for row in known if row["scope_a"]}))
    energy = f" Energy of {scopes}." if scopes else ""
    return [f"  {origins[:1].upper()}{origins[1:]}.{energy}"] if origins else []


def _ratio_text(row: Row) -> str:
    """The ratio B/A with its interval: with four decimals near 1, where the side matters."""
    ratios = [row[name] for name in ("ratio", "ratio_low", "ratio_high") if row[name] is not None]
    texts = [f"{r:.4f}" if 0.9 < r < 1.1 else number(r, 3) for r in ratios]
    return texts[0] + f" ({' to '.join(texts[1:])})" * (len(texts) > 1) if texts else MISSING


def verdict_text(row: Row) -> str:
    """The verdict in a few words, such as "A is lower by 20 % (15 to 24 %)"."""
    verdict = row["verdict"]
    same = "; the same within 5 %" if row["equivalent"] else ""
    if verdict == NOT_APART:
        return f"cannot be told apart{same}"
    if verdict not in (LOWER, HIGHER):
        return f"{'no interval' if verdict == NO_INTERVAL else 'not compared'}: {row['reason']}"
    ratios = [row[name] for name in ("ratio", "ratio_low", "ratio_high")]
    # By how much the lower one is lower, relative to the higher one.
    share, *ends = (100 * (1 - (1 / ratio if verdict == HIGHER else ratio)) for ratio in ratios)
    low, high = (number(end, 3) for end in sorted(ends))
    side = "A" if verdict == HIGHER else "B"
    return f"{side} is lower by {number(share, 3)} % ({low} to {high} %){same}"
