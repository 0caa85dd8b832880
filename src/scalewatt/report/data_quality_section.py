"""Data quality: what is missing, left out, flagged or not comparable, by name and count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.report.html_tables import Cell, Part, texts
from scalewatt.report.report_request import Definition
from scalewatt.report.summary_section import counting, missing_runs, scope_sentence
from scalewatt.results.figures.superseded import Replaced
from scalewatt.results.text.flag_labels import FLAG_WORDS, NULL_ENERGY, absent_kinds, read_flags
from scalewatt.results.text.number_format import MISSING, count, listed, percent, with_unit

Flag = dict[str, Any]
_MOST_NAMED = 8


def quality(
    definition: Definition,
    runs: pd.DataFrame,
    idle: pd.DataFrame | None = None,
    no_idle: Mapping[str, str] | None = None,
    replaced: Sequence[Replaced] = (),
    checks: pd.DataFrame | None = None,
) -> list[Part]:
    """Return all topics, also those without a finding. Without runs, what is missing alone.

    `idle`: the table of idle powers, None without idle probes. `no_idle`: by device, why its runs have
    no idle energy although there are probes. `replaced`: measurements that were replaced. `checks`:
    the table of the same energies by other sources.
    """
    if runs.empty:
        return [_missing(definition, runs)]
    runs = runs.assign(
        run=runs["configuration"] + "/" + runs["repeat"].astype(str),
        parsed=pd.Series(list(map(parsed_flags, data.each(runs))), runs.index, dtype=object),
    )
    valid = counting(runs)
    return [
        _missing(definition, runs),
        _excluded(runs),
        _replaced(replaced, runs),
        _unknown_energy(runs),
        _coverage(runs),
        _flags(runs),
        *_copies(valid),
        *_other_sources(checks, valid),
        _single(valid),
        _scopes(valid),
        _idle(idle, valid, no_idle or {}),
        _lost(valid),
    ]


# --- flags ----------------------------------------------------------------------------------------


def parsed_flags(run: Any) -> list[Flag]:
    """Return a run's flags; InputError if they are no JSON list of objects with a code."""
    where = f"report: tables/runs.parquet: {run.configuration}/{run.repeat}"
    return read_flags(run.flags, where)


def flag_labels(flags: Sequence[Flag]) -> str:
    """Return the labels of a run's flags. A device kind without a sensor is named by the scope instead."""
    codes = dict.fromkeys(str(flag["code"]) for flag in flags if flag["code"] != "absent")
    return "; ".join(FLAG_WORDS.get(code, code) for code in codes) or MISSING


def _detail(flag: Flag) -> str:
    return " ".join(str(flag[key]) for key in ("device", "detail") if flag.get(key))


def _described(flags: Sequence[Flag], codes: Sequence[str] | None = None) -> str:
    """Return flags (of some codes) with their details, each once."""
    found: dict[str, None] = {}
    for flag in flags:
        if codes is None or flag["code"] in codes:
            label, detail = FLAG_WORDS.get(flag["code"], str(flag["code"])), _detail(flag)
            found[f"{label} ({detail})" if detail else label] = None
    return "; ".join(found)


def _flags(runs: pd.DataFrame) -> Part:
    flags = pd.DataFrame(
        [
            {"run": row.run, "code": flag["code"], "detail": _detail(flag)}
            for row in data.each(runs)
            for flag in row.parsed
            if flag["code"] != "absent"
        ],
        columns=["run", "code", "detail"],
    )
    absent = _absent(runs)
    if flags.empty:
        return Part(
            "Flags", f"No run has a quality flag{' except those' if absent else ''}{absent}."
        )
    rows = []
    for code, own in data.groups(flags, "code"):
        example = f"{own['run'].iloc[0]}: {own['detail'].iloc[0]}".removesuffix(": ")
        rows.append((FLAG_WORDS.get(code, code), code, own["run"].nunique(), len(own), example))
    return Part(
        "Flags",
        f"{count(len(rows), 'kind')} of quality flag on energies; none changes a number silently."
        + (f" Not among them: the flags{absent}." if absent else ""),
        texts(
            "flags",
            "Flags",
            ["warning", "flag", "runs", "times", "for example"],
            sorted(rows, key=lambda row: -row[3]),
        ),
    )


def _absent(runs: pd.DataFrame) -> str:
    """Return which device kinds have no sensor in how many runs; empty if there are all."""
    kinds = [found for row in data.each(runs) if (found := absent_kinds(row._asdict()))]
    if not kinds:
        return ""
    labels = listed(dict.fromkeys(kind for found in kinds for kind in found))
    runs_word = count(len(kinds), "run")
    return f" of device kinds without a sensor or an estimate (absent: {labels}; {runs_word})"


# --- other sources and copies ---------------------------------------------------------------------


_SOURCES = {
    "nvml_energy_counter": "the GPU's own energy counter",
    "nvml_power_instant": "the GPU's instantaneous power",
    "nvml_power_average": "the GPU's averaged power",
    "slurm_consumed_energy": "Slurm's ConsumedEnergy",
}
_OF_WHOLE_NODES = "the node's own meter, with fans, boards and losses"


def _other_sources(checks: pd.DataFrame | None, runs: pd.DataFrame) -> list[Part]:
    """Return the same energies by other sources: means over those `runs` of a configuration."""
    counted = runs[["configuration", "repeat"]]
    if checks is None or (known := checks[checks["difference"].notna()].merge(counted)).empty:
        return []
    keys = ["configuration", "source", "device_kind", "recorded_scope"]
    groups = known.groupby(keys, sort=False, dropna=False)
    means = groups[["energy_kwh", "recorded_kwh", "difference", "extra_w"]].mean()
    rows = [
        (
            one.configuration,
            f"{_SOURCES.get(one.source, _OF_WHOLE_NODES)} ({one.source})",
            one.device_kind,
            one.runs,
            with_unit(one.energy_kwh, "kWh"),
            with_unit(one.recorded_kwh, "kWh") + _of_scope(one.recorded_scope),
            f"{100 * one.difference:+.1f} %" + _of_nodes(one.extra_w),
        )
        for one in data.each(means.assign(runs=groups["repeat"].nunique()).reset_index())
    ]
    headings = ["configuration", "source", "of", "runs", "by it", "counted", "difference"]
    return [
        Part(
            "The same energies by other sources",
            "Recorded in addition, and never counted. A meter of whole nodes sees what no sensor of their "
            "parts does: what it has beyond their sum is drawn by fans, boards, drives and network cards, "
            "lost in power supplies, or used by parts of which nothing was recorded. A rule that takes the "
            "mean of a whole log mixes in the time before and after the training.",
            texts("sources", "Other sources of the same energies", headings, rows),
        )
    ]


def _of_scope(scope: Any) -> str:
    return f" of {scope}" if isinstance(scope, str) else ""


def _of_nodes(extra_w: Any) -> str:
    return "" if pd.isna(extra_w) else f", {extra_w:+.0f} W a node"


def _copies(runs: pd.DataFrame) -> list[Part]:
    """Return what rests on recordings that repeat others; nothing where none does."""
    copied = runs[runs["duplicate_share"].fillna(0) > 0]
    if copied.empty:
        return []
    rows = [
        (
            name,
            f"{len(own)} of {len(runs[runs['configuration'] == name])}",
            f"{100 * own['duplicate_share'].max():.0f} %",
            with_unit(own["energy_kwh"].mean(), "kWh"),
            with_unit(own["distinct_energy_kwh"].mean(), "kWh"),
        )
        for name, own in data.groups(copied, "configuration")
    ]
    headings = ["configuration", "runs", "largest share", "energy", "without the copies"]
    return [
        Part(
            "Recordings that repeat others",
            "The files of several nodes or devices are the same to the last sample. Whether these share a "
            "sensor, or copies stand in for lost files, is not said; their sum is no sum of independent "
            "measurements. By the others alone: their mean, times the number of nodes or devices.",
            texts("copies", "Energy that rests on copies", headings, rows),
        )
    ]


# --- runs -----------------------------------------------------------------------------------------


def _missing(definition: Definition, runs: pd.DataFrame) -> Part:
    heading = "Missing runs"
    missing = pd.DataFrame(missing_runs(definition, runs), columns=["configuration", "repeat"])
    if missing.empty:
        return Part(heading, "No planned run is missing.")
    why = " With results_only nothing is trained." if definition.results_only else ""
    says = f"{count(len(missing), 'planned run')} without results, so in no table or figure.{why}"
    rows = [
        (name, listed(map(str, own["repeat"])), f"{len(own)} of {definition.planned[name]}")
        for name, own in data.groups(missing, "configuration")
    ]
    headings = ["configuration", "repeats", "missing"]
    return Part(heading, says, texts("missing-runs", heading, headings, rows))


def _excluded(runs: pd.DataFrame) -> Part:
    excluded = runs[runs["excluded"].notna()]
    if excluded.empty:
        return Part("Excluded runs", "No run is excluded.")
    headings = ["configuration", "repeat", "why", "its energy"]
    rows = [
        (row.configuration, row.repeat, row.excluded, _energy(row.energy_kwh))
        for row in data.each(excluded)
    ]
    return Part(
        "Excluded runs",
        f"{count(len(rows), 'run')} excluded: in the table of runs, and in nothing else.",
        texts("excluded-runs", "Excluded runs", headings, rows),
    )


def _replaced(replaced: Sequence[Replaced], runs: pd.DataFrame) -> Part:
    heading = "Runs measured again"
    if not replaced:
        return Part(heading, "No measurement was replaced by another one.")
    now = {(row.configuration, row.repeat): row.energy_kwh for row in data.each(runs)}
    rows = [
        (
            one.configuration,
            one.repeat,
            one.reason,
            one.date,
            _energy(one.energy_kwh),
            _energy(now.get((one.configuration, one.repeat))),
        )
        for one in replaced
    ]
    says = (
        f"{count(len(rows), 'measurement')} replaced by measuring the run again: kept in superseded/ "
        "where it was made, and in no table, figure or claim."
    )
    headings = ["configuration", "repeat", "why", "asked for", "energy before", "energy now"]
    return Part(heading, says, texts("measured-again", heading, headings, rows))


def _unknown_energy(runs: pd.DataFrame) -> Part:
    unknown = runs[runs["energy_kwh"].isna()]
    if unknown.empty:
        return Part("Runs without energy", "The energy of every run is known.")
    rows = [
        (row.configuration, row.repeat, _energy(row.recorded_energy_kwh), _why_unknown(row))
        for row in data.each(unknown)
    ]
    return Part(
        "Runs without energy",
        f"The energy of {count(len(rows), 'run')} is not stated; it is null, not 0.",
        texts(
            "runs-without-energy",
            "Runs without energy",
            ["configuration", "repeat", "recorded of it", "why"],
            rows,
        ),
    )


def _energy(kwh: float | None) -> Cell:
    known = None if kwh is None or pd.isna(kwh) else float(kwh)
    return Cell(with_unit(known, "kWh"), known)


def _why_unknown(run: Any) -> str:
    if not run.energy_scope:
        return "No device kind has a sensor or anything to estimate from."
    return _described(run.parsed, list(NULL_ENERGY)) or "The flags of the run give no reason."


_OF_GAPS = ("gap", "missing_samples", "zero_power", "over_limit", "frozen", "counter_reset")


def _coverage(runs: pd.DataFrame) -> Part:
    known = runs[runs["coverage"].notna()]
    if known.empty:
        return Part("Coverage", "No device kind of any run was recorded.")
    part = known[known["coverage"] < 1].sort_values("coverage", kind="stable")
    full = len(known) - len(part)
    says = f"Power is known for all device seconds of {full} of {count(len(runs), 'run')}."
    if part.empty:
        return Part("Coverage", says)
    least = part.iloc[0]
    says += f" The least is {percent(least['coverage'])} ({least['run']})."
    rows = [
        (
            row.configuration,
            row.repeat,
            Cell(percent(row.coverage), row.coverage),
            _described(row.parsed, _OF_GAPS) or MISSING,
        )
        for row in data.each(part)
    ]
    headings = ["configuration", "repeat", "coverage", "gaps and samples left out"]
    return Part("Coverage", says, texts("coverage", "Coverage below 100 %", headings, rows))


# --- what sums and means rest on ------------------------------------------------------------------


def _single(runs: pd.DataFrame) -> Part:
    repeats = runs.groupby("configuration", sort=False).size()
    single = repeats.index[repeats == 1]
    if single.empty:
        return Part("Single runs", "No configuration rests on a single run.")
    return Part(
        "Single runs",
        f"{len(single)} of {count(len(repeats), 'configuration')} "
        f"{'rests' if len(single) == 1 else 'rest'} on a single run, with neither spread nor interval "
        f"({listed(single, _MOST_NAMED)}).",
    )


def _scopes(runs: pd.DataFrame) -> Part:
    known = runs[runs["energy_kwh"].notna()]
    if known.empty:
        return Part("Origin and scope", "No energy is known.")
    rows = [
        (origin, scope, listed(own["device"].unique()), len(own))
        for (origin, scope), own in known.groupby(["energy_origin", "energy_scope"])
    ]
    if len(rows) == 1:
        origin, scope, *_ = rows[0]
        says = f"All known energies have one origin and scope: {origin}, {scope}."
        return Part("Origin and scope", says)
    says = f"Energies of {len(rows)} kinds. {scope_sentence(runs)}".strip()
    headings = ["origin", "scope", "devices", "runs"]
    return Part("Origin and scope", says, texts("scopes", "Origin and scope", headings, rows))


def _idle(idle: pd.DataFrame | None, runs: pd.DataFrame, why: Mapping[str, str]) -> Part:
    """Return what is known of idle devices, why others have no baseline, and runs that used less than it."""
    says, rows, usable = "No idle power was measured, so no energy is net of it.", [], 0
    for row in data.each(pd.DataFrame() if idle is None else idle):
        where = f"report: tables/idle.parquet: {row.device} {row.device_kind}"
        flags = read_flags(row.flags, where)
        usable += not pd.isna(row.mean_w) and all(f["code"] != "not_idle" for f in flags)
        kept = (row.device, row.device_kind, row.energy_origin, row.repeats)
        powers = (_known(row.mean_per_device_w), _known(row.sd_w))
        rows.append((*kept, *powers, _described(flags) or None))
    if rows:
        says = f"{usable} of {count(len(rows), 'idle power')} can serve as a baseline."
    says += "".join(f" No baseline of {device}: {reason}." for device, reason in why.items())
    below = runs.loc[runs["net_energy_kwh"] < 0, "run"]
    if len(below):
        says += (
            f" {count(len(below), 'run')} used less than idle devices would have, so their baseline is "
            f"too high: {listed(below, _MOST_NAMED)}."
        )
    if not rows:
        return Part("Idle baseline", says)
    headings = ["device", "kind", "origin", "probes", "W per device", "sd of a node (W)", "flags"]
    return Part("Idle baseline", says, texts("idle", "Powers by idle probes", headings, rows))


def _known(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _lost(runs: pd.DataFrame) -> Part:
    lost = runs["discarded_energy_kwh"].dropna()
    lost = lost[lost > 0]
    says = "No known energy was lost work."
    if len(lost):
        says = (
            f"{with_unit(float(lost.sum()), 'kWh')} of {count(len(lost), 'run')} was lost work, repeated "
            "after a kill, a failure or a stop; it is part of their energy."
        )
    had = count(int((runs["segments"] > 1).sum()), "run").capitalize()
    return Part("Interruptions", f"{says} {had} had more than one segment.")
