"""Building the tables from runs' rows, and writing them with what their captions need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import SAME, VARIED
from scalewatt.recordings.terms import SIMULATED
from scalewatt.results.columns import SEVERAL
from scalewatt.results.cross_checks import CROSS_CHECKS, cross_checks_of
from scalewatt.results.figures.breakdown_table import breakdown
from scalewatt.results.figures.figure_schema import (
    OVERVIEW,
    PANEL_FIGURES,
    RATIOS,
    SCHEMAS,
    TABLE1,
    TABLE1_QUANTITIES,
    VARIANTS,
)
from scalewatt.results.figures.learning_table import learning
from scalewatt.results.figures.panel_points import panel_points
from scalewatt.results.figures.power_trace import panels, power
from scalewatt.results.tables.comparisons import comparisons_of
from scalewatt.results.tables.derived_quantities import Facility, is_estimated
from scalewatt.results.tables.frames import frame_of, records, write_frame
from scalewatt.results.tables.idle import without_baseline
from scalewatt.results.tables.published import is_overlaid, published_lines
from scalewatt.results.tables.repeat_statistics import configurations_of, quotients, unlike_energies
from scalewatt.results.tables.run_row import read_runs
from scalewatt.results.tables.scaling import ENDS, energy_quotients, lines_of, points_of, scaling_of
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS, SCALING
from scalewatt.results.text.captions import ASSUMED
from scalewatt.results.text.flag_labels import (
    FLAG_WORDS,
    NULL_ENERGY,
    counts_processes,
    details_of,
    read_flags,
)

Row = dict[str, Any]
SCATTER = "the scatter of their errors does not show what another seed would give."
_WITH_ERRORS = ("learning", "table1", "variants")
"""Tables that show errors, besides figures with a panel of them."""


def write_runs(definition: Row, results: Path, out: Path) -> None:
    """Write `out`/runs and the other tables of all of a campaign's runs, as Parquet and CSV."""
    runs = _read_runs(definition, results)
    configurations = configurations_of(runs)
    metadata = _metadata(definition, runs, results)
    tables = {
        "runs": (runs, RUNS),
        "configurations": (configurations, CONFIGURATIONS),
        "scaling": (scaling_of(definition["series"], configurations), SCALING),
        "comparisons": (comparisons_of(runs, metadata["no_energy"]), COMPARISONS),
        "cross_checks": (cross_checks_of(runs), CROSS_CHECKS),
    }
    for name, (frame, columns) in tables.items():
        write_frame(frame, out / f"{name}.parquet", columns, metadata)


def write_figure_table(definition: Row, results: Path, out: Path) -> None:
    """Write the table of one figure (or Table 1), from its own runs and no others."""
    runs = _read_runs(definition, results)
    frame = figure_table(definition, runs, _idle(definition, results))
    write_frame(frame, out, SCHEMAS[definition["figure"]], _metadata(definition, runs, results))


def figure_table(definition: Row, runs: pd.DataFrame, idle: Path | None = None) -> pd.DataFrame:
    """Table of a figure, from its runs and, if they count, the idle probes in a table."""
    counted, configurations = runs[runs["excluded"].isna()], configurations_of(runs)
    match definition["figure"]:
        case "figure1":
            return overview(definition)
        case "figure5":
            return power(definition, configurations, counted)
        case "table1":
            return table1(definition, configurations)
        case "variants":
            return variants(definition, configurations)
        case "breakdown":
            return breakdown(definition, configurations, counted, idle)
        case "learning":
            return learning(definition, configurations, counted)
    return panel_points(definition, configurations, counted)


def _read_runs(definition: Row, results: Path) -> pd.DataFrame:
    facility = Facility(**definition.get("facility", {}))
    why = {_key(run): run["reason"] for run in definition.get("excluded", [])}
    idle = _idle(definition, results)
    return read_runs(results, definition["runs"], definition["campaign"], facility, idle, why)


def _idle(definition: Row, results: Path) -> Path | None:
    """Path of the table of idle probes, where the campaign has them and they count for this table."""
    return results / "tables" / "idle.parquet" if definition.get("idle") else None


def _key(run: Row) -> tuple[str, int]:
    return run["configuration"], run["repeat"]


def _list_excluded(definition: Row, runs: pd.DataFrame) -> list[Row]:
    """List the runs that a user excluded, and those that their own flags leave out."""
    by_user = list(definition.get("excluded", []))
    left_out = runs[runs["excluded"].notna()].rename(columns={"excluded": "reason"})
    by_flags = records(left_out[["configuration", "repeat", "reason"]])
    return by_user + [run for run in by_flags if _key(run) not in map(_key, by_user)]


def _metadata(definition: Row, runs: pd.DataFrame, results: Path) -> Row:
    """What is stored with a table (docs/tables.md)."""
    figure, idle = definition.get("figure"), _idle(definition, results)
    metrics = runs["metric_name"].unique()
    metric = next(iter(metrics), None)
    is_mixed = len(metrics) > 1 or (len(metrics) == 1 and pd.isna(metric))
    metadata = {
        "figure": figure,
        "campaign": definition["campaign"],
        "missing": definition["missing"],
        "excluded": _list_excluded(definition, runs),
        "options": definition.get("options", {}),
        "notes": notes(definition, runs),
        "gpu_word": what_n_counts(definition, runs),
        # The metric that all runs have; `several` where they differ or do not say.
        "metric_name": SEVERAL if is_mixed else metric,
        "no_energy": unknown_energies(runs) | unlike_energies(runs),
        # All that the table depends on besides its runs: whoever has those can make it again.
        "definition": definition,
    }
    if idle:
        why = metadata["no_idle"] = without_baseline(idle, runs)
        if figure == "breakdown":
            metadata["notes"] += [f"No idle baseline of {name}: {why[name]}." for name in why]
    if figure == "figure5":
        metadata["panels"] = panels(definition)
        # Whose times count from the start of the recording, as it has no stages.
        rows = records(runs[["configuration", "flags"]])
        without = {row["configuration"] for row in rows if details_of(row, "no_events")}
        metadata |= {"no_stages": sorted(without)} if without else {}
    return metadata


# --- the tables of Figure 1, Table 1 and variants --------------------------------------------------


def overview(definition: Row) -> pd.DataFrame:
    """Table of Figure 1: what happens to batch sizes, data and updates along each series."""
    rows = [
        {**point, **series, "figure": definition["figure"], "series": series["name"]}
        for series in definition["series"]
        for point in series["points"]
    ]
    return frame_of(rows, OVERVIEW)


def table1(definition: Row, configurations: pd.DataFrame) -> pd.DataFrame:
    """Table 1: one row per chosen configuration, means over its repeats.

    With the option `overlay: published`, after each of them the published row of the same training.
    """
    # Each row stands alone, so it is a series of a single point.
    chosen = [{"name": "", "label": "", "points": [point]} for point in definition["points"]]
    rows = lines_of(chosen, configurations)
    if is_overlaid(definition):
        rows = pd.concat([rows, published_lines(points_of(chosen))], ignore_index=True)
        rows = rows.sort_values("place", kind="stable", ignore_index=True)
    names = {
        f"{name}_{part}": name + end for name in TABLE1_QUANTITIES for end, part in ENDS.items()
    }
    return rows.rename(columns=names)[TABLE1.names]


def variants(definition: Row, configurations: pd.DataFrame) -> pd.DataFrame:
    """One training done in several ways: a row per configuration that has runs, with ratios to its baseline.

    The interval of a ratio needs repeats of both, which are independent. Null if a mean is not known, or
    where two energies are not comparable. A baseline divided by itself is 1, without interval.
    """
    rows = pd.DataFrame(definition["variants"]).merge(configurations, on="configuration")
    by_id = configurations.set_index("configuration", drop=False)
    baselines = by_id.reindex(rows["baseline"]).set_axis(rows.index)
    for name, quantity in RATIOS.items():
        divide = quotients if quantity == "runtime_h" else energy_quotients
        ratios = divide(rows, baselines, quantity)
        ends = {name: "mean", f"{name}_low": "low", f"{name}_high": "high"}
        rows = rows.assign(**{column: ratios[part] for column, part in ends.items()})
    return rows[VARIANTS.names]


# --- notes for captions, what n counts, and why energies are not known ----------------------------


def notes(definition: Mapping[str, Any], runs: pd.DataFrame) -> list[str]:
    """Sentences on the runs of a table, as far as they concern any of them."""
    counted, notes = runs[runs["excluded"].isna()], []
    if is_overlaid(definition):
        notes.append("Published: Huber et al. (2025), where they have the same training.")
        if protocols := sorted({*counted["protocol"]} - {"paper"}):
            words = ", ".join(protocols)
            notes.append(f"Published runs followed protocol paper, these (also) {words}.")
    if counted["energy_origin"].eq(SIMULATED).any():
        notes.append(ASSUMED)
    kinds: dict[str, dict[str, None]] = {}
    for run in records(counted[["model", "phase", "device", "flags"]]):
        for flag in read_flags(run["flags"]):
            if flag["code"] == "extrapolated":
                kind = f"{run['model']}.{run['phase']} on {run['device']}"
                kinds.setdefault(flag["detail"], {})[kind] = None
    notes += [f"Simulated {', '.join(names)}: {detail}." for detail, names in kinds.items()]
    notes += estimate_notes(counted)
    if _shows_errors(definition.get("figure")):
        seeds = list(repeat_seeds(runs).values())
        for seed, words in ((SAME, "Repeats share one seed"), (None, "Repeats may share a seed")):
            if count := seeds.count(seed):
                some = f" (configurations: {count} of {len(seeds)})" * (count < len(seeds))
                notes.append(f"{words}{some}: {SCATTER}")
    return notes


def estimate_notes(runs: pd.DataFrame) -> list[str]:
    """Sentence on where true energies lie, if some of these runs' are estimated."""
    known = runs[runs["energy_kwh"].notna()]
    estimated = known[is_estimated(known)]
    if estimated.empty:
        return []
    some = "Energies are" if len(estimated) == len(known) else "Some energies are"
    ends = estimated[["energy_low_kwh", "energy_high_kwh"]].div(estimated["energy_kwh"], axis=0)
    if ends.isna().any(axis=None):
        return [f"{some} estimated, in part without an interval."]
    return [
        f"{some} estimated: the true ones lie within {ends['energy_low_kwh'].min():.2g} to "
        f"{ends['energy_high_kwh'].max():.2g} times what is shown. Repeats share this error, so their "
        "spread does not show it."
    ]


def _shows_errors(figure: str | None) -> bool:
    panels = PANEL_FIGURES[figure].panels if figure in PANEL_FIGURES else ()
    shown = any(panel.y_name.startswith("metric_") for panel in panels)
    return figure is None or figure in _WITH_ERRORS or shown


def repeat_seeds(runs: pd.DataFrame) -> dict[str, str | None]:
    """Seeds of repeats that count and have an error, by configuration: same, varied, or null if not known."""
    counted = runs[runs["excluded"].isna() & runs["metric_last"].notna()]
    seeds: dict[str, str | None] = {}
    for id_, repeats in counted.groupby("configuration", sort=False):
        if len(repeats) > 1:
            count = repeats["seed"].nunique()
            is_known = repeats["seed"].notna().all()
            # The descriptions that runs were registered with may say it.
            words = [SAME if count == 1 else VARIED] if is_known else repeats["seeds"].unique()
            seeds[str(id_)] = words[0] if len(words) == 1 and not pd.isna(words[0]) else None
    return seeds


def what_n_counts(definition: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """`GPUs`, `processes`, or `ranks` of both; by the campaign's devices where no runs tell it."""
    if "torch_devices" in definition:
        words = {"cpu": "processes", "cuda": "GPUs"}
        names = {words.get(device, "ranks") for device in definition["torch_devices"]}
    else:
        rows = records(runs[["torch_device", "flags"]])
        names = {"processes" if counts_processes(row) else "GPUs" for row in rows}
    return "ranks" if len(names) > 1 else next(iter(names), "GPUs")


def unknown_energies(runs: pd.DataFrame) -> dict[str, str]:
    """Name why the energy of a configuration is not known, by the flags of its runs that count."""
    why: dict[str, str] = {}
    counted = runs.loc[
        runs["excluded"].isna(), ["configuration", "energy_kwh", "energy_scope", "flags"]
    ]
    counts = counted["configuration"].value_counts()
    unknown = counted[counted["energy_kwh"].isna()]
    for id_, rows in unknown.groupby("configuration", sort=False):
        words: dict[str, None] = {}
        for row in records(rows):
            codes = {flag["code"] for flag in read_flags(row["flags"])}
            usual = "absent" if row["energy_scope"] is None else "not_recorded"
            known = [code for code in NULL_ENERGY if code in codes] or [usual]
            words |= dict.fromkeys(FLAG_WORDS[code] for code in known)
        some = f" in {len(rows)} of {counts[id_]} runs" * (len(rows) < counts[id_])
        why[str(id_)] = "; ".join(words) + some
    return why
