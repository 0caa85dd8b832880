"""Data quality: what is missing, left out, flagged or not comparable, by name and count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.report.html_tables import Cell, Part, texts
from scalewatt.report.report_request import Definition
from scalewatt.report.summary_section import counting, missing_runs, scope_sentence
from scalewatt.results.figures.superseded import Replaced
from scalewatt.results.text.flag_labels import FLAG_WORDS, NULL_ENERGY, absent_kinds, read_flags
from scalewatt.results.text.number_format import MISSING, listed, percent, with_unit

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
        *_other_sources(checks, valid),
        _single(valid),
        _scopes(valid),
        _idle(idle, valid, no_idle or {}),
        _lost(valid),
    ]


def _part(
    heading: str,
    sentence: str,
    headings: Sequence[str] = (),
    rows: Iterable[Sequence[Any]] = (),
) -> Part:
    """Return a topic, with a table where it has rows."""
    rows = list(rows)
    name = heading.lower().replace(" ", "-")
    return Part(heading, sentence, texts(name, heading, list(headings), rows) if rows else None)


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
    labels: dict[str, None] = {}
    for flag in flags:
        if codes is None or flag["code"] in codes:
            label, detail = FLAG_WORDS.get(flag["code"], str(flag["code"])), _detail(flag)
            labels[f"{label} ({detail})" if detail else label] = None
    return "; ".join(labels)


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
    rows = [
        (
            *(FLAG_WORDS.get(code, code), code, of_code["run"].nunique(), len(of_code)),
            f"{of_code['run'].iloc[0]}: {of_code['detail'].iloc[0]}".removesuffix(": "),
        )
        for code, of_code in data.groups(flags, "code")
    ]
    sentence = "No run has a quality flag." if flags.empty else "None changes a number silently."
    return _part(
        "Flags",
        f"{sentence}{_absent(runs)}",
        ["warning", "flag", "runs", "times", "for example"],
        sorted(rows, key=lambda row: -row[3]),
    )


def _absent(runs: pd.DataFrame) -> str:
    """Return which device kinds have no sensor in how many runs; empty if there are all."""
    kinds = [found for row in data.each(runs) if (found := absent_kinds(row._asdict()))]
    if not kinds:
        return ""
    labels = listed(dict.fromkeys(kind for absent in kinds for kind in absent))
    return f" Device kinds without a sensor or an estimate (flag absent): {labels}; runs: {len(kinds)}."


# --- other sources and copies ---------------------------------------------------------------------


_SOURCES = {
    "nvml_energy_counter": "the GPU's own energy counter",
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
            row.configuration,
            f"{_SOURCES.get(row.source, _OF_WHOLE_NODES)} ({row.source})",
            row.device_kind,
            row.runs,
            with_unit(row.energy_kwh, "kWh"),
            with_unit(row.recorded_kwh, "kWh")
            + (f" of {row.recorded_scope}" if isinstance(row.recorded_scope, str) else ""),
            f"{100 * row.difference:+.1f} %"
            + ("" if pd.isna(row.extra_w) else f", {row.extra_w:+.0f} W a node"),
        )
        for row in data.each(means.assign(runs=groups["repeat"].nunique()).reset_index())
    ]
    return [
        _part(
            "The same energies by other sources",
            "Recorded in addition, and never counted. A meter of whole nodes sees what no sensor of their "
            "parts does: what it has beyond their sum is drawn by fans, boards, drives and network cards, "
            "lost in power supplies, or used by parts of which nothing was recorded. A rule that takes the "
            "mean of a whole log mixes in the time before and after the training.",
            ["configuration", "source", "of", "runs", "by it", "counted", "difference"],
            rows,
        )
    ]


# --- runs -----------------------------------------------------------------------------------------


def _missing(definition: Definition, runs: pd.DataFrame) -> Part:
    missing = pd.DataFrame(missing_runs(definition, runs), columns=["configuration", "repeat"])
    sentence = f"Planned runs without results, in no table or figure: {len(missing)}."
    if missing.empty:
        sentence = "No planned run is missing."
    elif definition.results_only:
        sentence += " With results_only nothing is trained."
    rows = [
        (name, listed(map(str, rows["repeat"])), f"{len(rows)} of {definition.planned[name]}")
        for name, rows in data.groups(missing, "configuration")
    ]
    return _part("Missing runs", sentence, ["configuration", "repeats", "missing"], rows)


def _excluded(runs: pd.DataFrame) -> Part:
    excluded = runs[runs["excluded"].notna()]
    sentence = "They are in the table of runs, and in nothing else."
    return _part(
        "Excluded runs",
        "No run is excluded." if excluded.empty else sentence,
        ["configuration", "repeat", "why", "its energy"],
        [
            (row.configuration, row.repeat, row.excluded, _energy(row.energy_kwh))
            for row in data.each(excluded)
        ],
    )


def _replaced(replaced: Sequence[Replaced], runs: pd.DataFrame) -> Part:
    now = {(row.configuration, row.repeat): row.energy_kwh for row in data.each(runs)}
    sentence = "What was replaced is kept in superseded/ where it was made, and in no table, figure or claim."
    return _part(
        "Runs measured again",
        sentence if replaced else "No measurement was replaced by another one.",
        ["configuration", "repeat", "why", "asked for", "energy before", "energy now"],
        [
            (
                *(run.configuration, run.repeat, run.reason, run.date, _energy(run.energy_kwh)),
                _energy(now.get((run.configuration, run.repeat))),
            )
            for run in replaced
        ],
    )


def _unknown_energy(runs: pd.DataFrame) -> Part:
    unknown = runs[runs["energy_kwh"].isna()]
    return _part(
        "Runs without energy",
        "The energy of every run is known." if unknown.empty else "Their energy is null, not 0.",
        ["configuration", "repeat", "recorded of it", "why"],
        [
            (row.configuration, row.repeat, _energy(row.recorded_energy_kwh), _why_unknown(row))
            for row in data.each(unknown)
        ],
    )


def _energy(kwh: float | None) -> Cell:
    known = None if kwh is None or pd.isna(kwh) else float(kwh)
    return Cell(with_unit(known, "kWh"), known)


def _why_unknown(run: Any) -> str:
    if not run.energy_scope:
        return "No device kind has a sensor or anything to estimate from."
    return _described(run.parsed, list(NULL_ENERGY)) or "The flags of the run give no reason."


_OF_GAPS = ("gap", "missing_samples", "over_limit", "counter")


def _coverage(runs: pd.DataFrame) -> Part:
    known = runs[runs["coverage"].notna()]
    part = known[known["coverage"] < 1].sort_values("coverage", kind="stable")
    sentence = "Runs whose power is known for all device seconds: "
    return _part(
        "Coverage",
        f"{sentence}{len(known) - len(part)} of {len(runs)}.",
        ["configuration", "repeat", "coverage", "gaps and samples left out"],
        [
            (
                row.configuration,
                row.repeat,
                Cell(percent(row.coverage), row.coverage),
                _described(row.parsed, _OF_GAPS) or MISSING,
            )
            for row in data.each(part)
        ],
    )


# --- what sums and means rest on ------------------------------------------------------------------


def _single(runs: pd.DataFrame) -> Part:
    repeats = runs.groupby("configuration", sort=False).size()
    single = repeats.index[repeats == 1]
    if single.empty:
        return _part("Single runs", "No configuration rests on a single run.")
    return _part(
        "Single runs",
        f"Configurations of a single run, with neither spread nor interval: {len(single)} of "
        f"{len(repeats)} ({listed(single, _MOST_NAMED)}).",
    )


def _scopes(runs: pd.DataFrame) -> Part:
    known = runs[runs["energy_kwh"].notna()]
    rows = [
        (origin, scope, listed(group["device"].unique()), len(group))
        for (origin, scope), group in known.groupby(["energy_origin", "energy_scope"])
    ]
    return _part(
        "Origin and scope",
        scope_sentence(known) if rows else "No energy is known.",
        ["origin", "scope", "devices", "runs"],
        rows,
    )


def _idle(idle: pd.DataFrame | None, runs: pd.DataFrame, why: Mapping[str, str]) -> Part:
    """Return what is known of idle devices, why others have no baseline, and runs that used less than it."""
    rows, usable = [], 0
    for row in data.each(pd.DataFrame() if idle is None else idle):
        flags = read_flags(
            row.flags, f"report: tables/idle.parquet: {row.device} {row.device_kind}"
        )
        usable += not pd.isna(row.mean_w) and all(f["code"] != "not_idle" for f in flags)
        powers = (_known(row.mean_per_device_w), _known(row.sd_w))
        kept = (row.device, row.device_kind, row.energy_origin, row.repeats)
        rows.append((*kept, *powers, _described(flags) or None))
    sentences = [f"Idle powers that can serve as a baseline: {usable} of {len(rows)}."]
    if not rows:
        sentences = ["No idle power was measured, so no energy is net of it."]
    sentences += [f"No baseline of {device}: {reason}." for device, reason in why.items()]
    below = runs.loc[runs["net_energy_kwh"] < 0, "run"]
    if len(below):
        sentences.append(
            "Runs that used less than idle devices would have, so that their baseline is too high: "
            f"{listed(below, _MOST_NAMED)}."
        )
    headings = ["device", "kind", "origin", "probes", "W per device", "sd of a node (W)", "flags"]
    return _part("Idle baseline", " ".join(sentences), headings, rows)


def _known(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _lost(runs: pd.DataFrame) -> Part:
    lost = runs["discarded_energy_kwh"].dropna()
    lost = lost[lost > 0]
    sentence = "No known energy was lost work."
    if len(lost):
        sentence = (
            f"Work repeated after a kill, a failure or a stop: {with_unit(float(lost.sum()), 'kWh')} in "
            f"{len(lost)} of {len(runs)} runs; it is part of their energy."
        )
    segments = int((runs["segments"] > 1).sum())
    return _part("Interruptions", f"{sentence} Runs of more than one segment: {segments}.")
