"""Data quality: what is missing, left out, flagged or not comparable, by name and count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.report.html_tables import Cell, Grid, texts
from scalewatt.report.report_request import Definition
from scalewatt.report.summary_section import counting, missing_runs, scope_sentence
from scalewatt.results.figures.superseded import Replaced
from scalewatt.results.text.flag_labels import FLAG_WORDS, NULL_ENERGY, absent_kinds
from scalewatt.results.text.number_format import MISSING, count, listed, percent, with_unit

Row = dict[str, Any]
_SHOWN = 8


@dataclass(frozen=True)
class Part:
    """One topic: a sentence with its count, and what it is about (may be none)."""

    heading: str
    says: str
    grid: Grid | None = None


def quality(
    definition: Definition,
    runs: Sequence[Row],
    idle: Sequence[Row] = (),
    no_idle: Mapping[str, str] | None = None,
    replaced: Sequence[Replaced] = (),
) -> list[Part]:
    """All topics, also those without a finding: that is said. Without runs, what is missing alone.

    `idle`: the rows of the table of idle powers, none without idle probes. `no_idle`: by device, why
    its runs have no idle energy although there are probes. `replaced`: measurements that were set aside.
    """
    if not runs:
        return [_missing(definition, runs)]
    return [
        _missing(definition, runs),
        _excluded(runs),
        _measured_again(replaced, runs),
        _unknown_energy(runs),
        _coverage(runs),
        _flags(runs),
        _single(runs),
        _scopes(counting(runs)),
        _idle(idle, counting(runs), no_idle or {}),
        _lost(counting(runs)),
    ]


def parsed_flags(run: Row) -> list[Row]:
    """A run's flags; InputError where they are no JSON list of objects with a code."""
    return _flags_of(run, f"runs.parquet: {_name(run)}")


def _flags_of(row: Row, where: str) -> list[Row]:
    try:
        found = json.loads(row["flags"] or "[]")
        if all(one["code"] for one in found):
            return found
    except (ValueError, TypeError, KeyError):
        pass
    raise InputError(
        f"report: tables/{where}: column flags is {row['flags']!r}; expected a JSON list of objects "
        "with code, device and detail"
    )


def flags_in_words(run: Row) -> str:
    """A run's kinds of doubt."""
    codes = dict.fromkeys(str(flag["code"]) for flag in _doubts(run))
    return "; ".join(FLAG_WORDS.get(code, code) for code in codes) or MISSING


def _doubts(run: Row) -> list[Row]:
    """A run's flags but `absent`: what no node has a sensor of is said by the scope."""
    return [flag for flag in parsed_flags(run) if flag["code"] != "absent"]


def _flag(flag: Row) -> str:
    detail = " ".join(str(flag[key]) for key in ("device", "detail") if flag.get(key))
    words = FLAG_WORDS.get(flag["code"], str(flag["code"]))
    return f"{words} ({detail})" if detail else words


def _name(run: Row) -> str:
    return f"{run['configuration']}/{run['repeat']}"


def _missing(definition: Definition, runs: Sequence[Row]) -> Part:
    missing = missing_runs(definition, runs)
    if not missing:
        return Part("Missing runs", "No planned run is missing.")
    why = " With results_only nothing is trained." if definition.results_only else ""
    says = f"{count(len(missing), 'planned run')} without results, so in no table or figure.{why}"
    by_configuration: dict[str, list[str]] = {}
    for name in missing:
        configuration, repeat = name.rsplit("/", 1)
        by_configuration.setdefault(configuration, []).append(repeat)
    rows = [
        (configuration, listed(repeats), f"{len(repeats)} of {definition.planned[configuration]}")
        for configuration, repeats in by_configuration.items()
    ]
    return Part(
        "Missing runs",
        says,
        texts("missing-runs", "Missing runs", ["configuration", "repeats", "missing"], rows),
    )


def _excluded(runs: Sequence[Row]) -> Part:
    rows = [
        (run["configuration"], run["repeat"], run["excluded"], _energy(run["energy_kwh"]))
        for run in runs
        if run["excluded"] is not None
    ]
    if not rows:
        return Part("Excluded runs", "No run is excluded.")
    headings = ["configuration", "repeat", "why", "its energy"]
    return Part(
        "Excluded runs",
        f"{count(len(rows), 'run')} excluded: in the table of runs, and in nothing else.",
        texts("excluded-runs", "Excluded runs", headings, rows),
    )


def _measured_again(replaced: Sequence[Replaced], runs: Sequence[Row]) -> Part:
    heading = "Runs measured again"
    if not replaced:
        return Part(heading, "No measurement was set aside to be made again.")
    now = {(run["configuration"], run["repeat"]): run["energy_kwh"] for run in runs}
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
        f"{count(len(rows), 'measurement')} set aside so that the run is measured again: kept in "
        "superseded/ where it was made, and in no table, figure or claim."
    )
    headings = ["configuration", "repeat", "why", "asked for", "energy before", "energy now"]
    return Part(heading, says, texts("measured-again", heading, headings, rows))


def _unknown_energy(runs: Sequence[Row]) -> Part:
    rows = [
        (
            run["configuration"],
            run["repeat"],
            _energy(run["recorded_energy_kwh"]),
            _why_unknown(run),
        )
        for run in runs
        if run["energy_kwh"] is None
    ]
    if not rows:
        return Part("Runs without energy", "The energy of every run is known.")
    headings = ["configuration", "repeat", "recorded of it", "why"]
    return Part(
        "Runs without energy",
        f"The energy of {count(len(rows), 'run')} is not stated; it is null, not 0.",
        texts("runs-without-energy", "Runs without energy", headings, rows),
    )


def _energy(kwh: float | None) -> Cell:
    return Cell(with_unit(kwh, "kWh"), kwh)


def _why_unknown(run: Row) -> str:
    if not run["energy_scope"]:
        return "No device kind has a sensor or anything to estimate from."
    found = dict.fromkeys(_flag(f) for f in parsed_flags(run) if f["code"] in NULL_ENERGY)
    return "; ".join(found) or "The flags of the run do not say."


def _coverage(runs: Sequence[Row]) -> Part:
    known = [run for run in runs if run["coverage"] is not None]
    if not known:
        return Part("Coverage", "No device kind of any run was recorded.")
    part = sorted((run for run in known if run["coverage"] < 1), key=lambda run: run["coverage"])
    full = len(known) - len(part)
    says = f"Power is known for all device seconds of {full} of {count(len(runs), 'run')}."
    if not part:
        return Part("Coverage", says)
    says += f" The least is {percent(part[0]['coverage'])} ({_name(part[0])})."
    rows = [
        (
            run["configuration"],
            run["repeat"],
            Cell(percent(run["coverage"]), run["coverage"]),
            _gaps(run),
        )
        for run in part
    ]
    headings = ["configuration", "repeat", "coverage", "gaps and samples left out"]
    return Part("Coverage", says, texts("coverage", "Coverage below 100 %", headings, rows))


_OF_GAPS = ("gap", "missing_samples", "zero_power", "over_limit", "frozen", "counter_reset")


def _gaps(run: Row) -> str:
    found = [_flag(flag) for flag in parsed_flags(run) if flag["code"] in _OF_GAPS]
    return "; ".join(dict.fromkeys(found)) or MISSING


def _flags(runs: Sequence[Row]) -> Part:
    found: dict[str, list[tuple[Row, Row]]] = {}
    for run in runs:
        for flag in _doubts(run):
            found.setdefault(flag["code"], []).append((run, flag))
    absent = _absent(runs)
    if not found:
        return Part("Flags", f"No run has a flag of doubt{' but those' if absent else ''}{absent}.")
    rows = [
        (
            FLAG_WORDS.get(code, code),
            code,
            len({_name(run) for run, _ in own}),
            len(own),
            _example(own),
        )
        for code, own in sorted(found.items(), key=lambda one: -len(one[1]))
    ]
    return Part(
        "Flags",
        f"{count(len(found), 'kind')} of doubt about energies; none changes a number in silence."
        + (f" Not among them: the flags{absent}." if absent else ""),
        texts("flags", "Flags", ["doubt", "flag", "runs", "times", "for example"], rows),
    )


def _absent(runs: Sequence[Row]) -> str:
    """What no node of how many runs has a sensor of; empty where there are all."""
    kinds = {_name(run): absent_kinds(run) for run in runs}
    own = [found for found in kinds.values() if found]
    if not own:
        return ""
    words = listed(dict.fromkeys(kind for found in own for kind in found))
    of = count(len(own), "run")
    return f" of device kinds without a sensor or an estimate (absent: {words}; {of})"


def _example(own: Sequence[tuple[Row, Row]]) -> str:
    run, flag = own[0]
    detail = " ".join(str(flag[key]) for key in ("device", "detail") if flag.get(key))
    return f"{_name(run)}: {detail}" if detail else _name(run)


def _single(runs: Iterable[Row]) -> Part:
    repeats: dict[str, int] = {}
    for run in counting(runs):
        repeats[run["configuration"]] = repeats.get(run["configuration"], 0) + 1
    single = [name for name, n in repeats.items() if n == 1]
    if not single:
        return Part("Single runs", "No configuration rests on a single run.")
    return Part(
        "Single runs",
        f"{len(single)} of {count(len(repeats), 'configuration')} rest on a single run: they have "
        f"neither spread nor interval ({listed(single, _SHOWN)}).",
    )


def _scopes(runs: Sequence[Row]) -> Part:
    groups: dict[tuple[str, str], list[Row]] = {}
    for run in runs:
        if run["energy_kwh"] is not None:
            groups.setdefault((run["energy_origin"], run["energy_scope"]), []).append(run)
    if not groups:
        return Part("Origin and scope", "No energy is known.")
    if len(groups) == 1:
        ((origin, scope),) = groups
        says = f"All energies that are known are of one origin and scope: {origin}, {scope}."
        return Part("Origin and scope", says)
    rows = [
        (origin, scope, listed(dict.fromkeys(run["device"] for run in own)), len(own))
        for (origin, scope), own in sorted(groups.items())
    ]
    says = f"Energies of {len(groups)} kinds. {scope_sentence(runs)}".strip()
    headings = ["origin", "scope", "devices", "runs"]
    return Part("Origin and scope", says, texts("scopes", "Origin and scope", headings, rows))


def _idle(idle: Sequence[Row], runs: Sequence[Row], why: Mapping[str, str]) -> Part:
    """What is known of idle devices, why others have no baseline, and runs that took less than it."""
    known = [row for row in idle if row["mean_w"] is not None and not _is_busy(row)]
    says = f"{len(known)} of {count(len(idle), 'idle power')} can be taken for a baseline."
    if not idle:
        says = "No idle power was measured, so no energy is net of it."
    says += "".join(f" No baseline of {device}: {reason}." for device, reason in why.items())
    below = [r for r in runs if r["net_energy_kwh"] is not None and r["net_energy_kwh"] < 0]
    if below:
        says += (
            f" {count(len(below), 'run')} took less than idle devices would have used, so their "
            f"baseline is too high: {listed(map(_name, below), _SHOWN)}."
        )
    if not idle:
        return Part("Idle baseline", says)
    rows = [
        (
            row["device"],
            row["device_kind"],
            row["energy_origin"],
            row["repeats"],
            row["mean_per_device_w"],
            row["sd_w"],
            "; ".join(dict.fromkeys(map(_flag, _idle_flags(row)))) or None,
        )
        for row in idle
    ]
    headings = ["device", "kind", "origin", "probes", "W per device", "sd of a node (W)", "doubts"]
    return Part("Idle baseline", says, texts("idle", "Powers by idle probes", headings, rows))


def _is_busy(row: Row) -> bool:
    return any(flag["code"] == "not_idle" for flag in _idle_flags(row))


def _idle_flags(row: Row) -> list[Row]:
    return _flags_of(row, f"idle.parquet: {row['device']} {row['device_kind']}")


def _lost(runs: Sequence[Row]) -> Part:
    again = [run for run in runs if run["discarded_energy_kwh"]]
    several = [run for run in runs if run["segments"] > 1]
    if not again:
        says = "No known energy went into work that was thrown away."
    else:
        total = sum(run["discarded_energy_kwh"] for run in again)
        says = (
            f"{with_unit(total, 'kWh')} of {count(len(again), 'run')} went into work that was done "
            "again after a kill, a failure or a stop; it is part of their energy."
        )
    had = count(len(several), "run").capitalize()
    return Part("Interruptions", f"{says} {had} had more than one segment.")
