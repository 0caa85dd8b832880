"""Compare the histories and energies of re-runs with those of the campaign."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.reproduction.check_result import (
    DIFFERS,
    ENERGY,
    HISTORY,
    NOT_CHECKED,
    SAME,
    Finding,
    compared,
    not_checked,
)
from scalewatt.reproduction.provenance_check import code_finding, commits_of
from scalewatt.reproduction.run_selection import Run, again_folder, run_folder
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.run_row import RunFiles, run_row
from scalewatt.results.text.number_format import number
from scalewatt.run_files.inventory import json_object, published_runs

GPU_RELATIVE = 0.05
"""By how much of the larger one two values may differ on a GPU; the page says why."""
GPU_POINTS = 1.0
"""Metrics in percent may differ by so many percentage points, however small they are."""
OF_THE_MACHINE = ("segment", "peak_memory_bytes")
"""Columns about a run's execution, not about what it learnt, as those that end in `_s`."""
_EXACT = ("epoch", "samples", "updates", "learning_rate")
"""Exact on a GPU too: they are not computed there."""
_METRICS = ("metric", "train_metric")
_CONTEXT = ("device_name", "cuda", "mpi", "precision_used", "commit", "dataset_sha256")
"""Keys of the provenance that may explain a difference, besides packages."""
_MOST = 3
QUANTITIES = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
_AGAIN = "to measure once more, on an otherwise idle machine, remove reproduction/ and its work"
_ALIKE = ("energy_origin", "energy_scope", "device_name")
Row = Mapping[str, Any]
_OTHER_DATA = "the re-run used other data: what it learnt is not comparable"


@dataclass(frozen=True)
class Repeat:
    """A re-run of a run of the campaign."""

    configuration: str
    repeat: int
    made: str
    """When, in UTC, as ISO 8601 writes it."""
    on: str | None
    """The machine's device."""
    circumstances: tuple[str, ...]
    """Differences from the first run in machine and packages."""


def found_repeats(results: Path) -> list[Repeat]:
    """Return the re-runs below a campaign's results."""
    found = []
    for (configuration, repeat), one in sorted(published_runs(again_folder(results)).items()):
        first = _provenance(results, (configuration, repeat))
        again = json_object(one.folder / "provenance.json")
        made = datetime.fromtimestamp(one.mtime_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")
        words = tuple(other_circumstances(first, again))
        found.append(Repeat(configuration, repeat, made, again.get("device_name"), words))
    return found


def repeat_findings(results: Path, campaign: Campaign) -> list[Finding]:
    """Return the findings of histories, then of energies, of all re-runs."""
    runs = sorted(published_runs(again_folder(results)))
    histories = [one for run in runs for one in _tried(HISTORY, run, results, campaign)]
    return histories + [one for run in runs for one in _tried(ENERGY, run, results, campaign)]


def _tried(check: str, run: Run, results: Path, campaign: Campaign) -> list[Finding]:
    """Return the findings of one check of a run; an unreadable history is a difference."""
    name = f"{run[0]}/{run[1]}"
    own, again = _provenance(results, run), _provenance(again_folder(results), run)
    if not own:
        return [not_checked(check, name, "the run itself does not exist any more")]
    if own.get("spec_sha256") != again.get("spec_sha256"):
        why = "the re-run has another spec than the run has now: repeat it"
        return [not_checked(check, name, why)]
    try:
        if check == HISTORY:
            return _history(name, run, results, own, again)
        return _energy(name, run, results, campaign)
    except InputError as error:
        outcome = DIFFERS if check == HISTORY else NOT_CHECKED
        return [Finding(check, name, outcome, detail=str(error))]


def _history(
    name: str, run: Run, results: Path, own: Mapping[str, Any], again: Mapping[str, Any]
) -> list[Finding]:
    first = read_table(run_folder(results, run) / "history.parquet")
    second = read_table(run_folder(again_folder(results), run) / "history.parquet")
    # A simulation computes on the CPU alone, whatever device it is of.
    simulated = "simulated" in own and "simulated" in again
    on_gpu = not simulated and "cuda" in (own.get("torch_device"), again.get("torch_device"))
    context = "; ".join(other_circumstances(own, again)) or None
    learnt = history_findings(name, first, second, on_gpu, own.get("metric_name"), context)
    return [*made_alike(name, own, again), *learnt]


def made_alike(name: str, own: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether a re-run had the same data and code, where both record them."""
    first, second = own.get("dataset_sha256"), again.get("dataset_sha256")
    if first is not None and second is not None:
        yield compared(HISTORY, f"{name}: data", first, second, _OTHER_DATA)
    commits, others = commits_of(own), commits_of(again)
    if commits and others:
        yield code_finding(HISTORY, f"{name}: commit", commits, others)


def _energy(name: str, run: Run, results: Path, campaign: Campaign) -> list[Finding]:
    again = run_row(RunFiles(again_folder(results), *run), results.name, Facility())
    rows = read_exclusions(campaign)
    left_out = {(one["configuration"], one["repeat"]) for one in excluded_runs(rows, results)}
    earlier = [
        run_row(RunFiles(results, *one), results.name, Facility())
        for one in sorted(published_runs(results))
        if one[0] == run[0] and one not in left_out
    ]
    return energy_findings(name, earlier, again)


def _provenance(results: Path, run: Run) -> dict[str, Any]:
    return json_object(run_folder(results, run) / "provenance.json")


# --- histories ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exactness:
    """The tolerance of a column's values."""

    relative: float = 0.0
    absolute: float = 0.0
    bits: bool = True

    def holds(self, one: Any, two: Any) -> bool:
        """Return True if two values are within it; null equals only null."""
        if self.bits or one is None or two is None or same_value(one, two):
            return same_value(one, two)
        near = max(self.relative * max(abs(one), abs(two)), self.absolute)
        return bool(abs(one - two) <= near)  # of NaN and infinity it does not hold


def same_value(one: Any, two: Any) -> bool:
    """Return True if two values are the same: NaN equals NaN, -0.0 does not equal 0.0."""
    if isinstance(one, float) and isinstance(two, float):
        return one.hex() == two.hex()
    return type(one) is type(two) and bool(one == two)


def is_timing(column: str) -> bool:
    """Return True if a column is about duration or machine, not about what was learnt."""
    return column.endswith("_s") or column in OF_THE_MACHINE


def exactness(column: str, on_gpu: bool, metric_name: str | None) -> Exactness:
    """Return the tolerance of a column's values, on a CPU or on GPUs."""
    if not on_gpu or column in _EXACT:
        return Exactness()
    # The columns of the metric do not contain its name; a model's own results do.
    name = (metric_name or "") if column in _METRICS else column
    percent = "percent" in name.split("_")
    return Exactness(GPU_RELATIVE, GPU_POINTS if percent else 0.0, bits=False)


def history_findings(
    run: str,
    first: pa.Table,
    again: pa.Table,
    on_gpu: bool,
    metric_name: str | None = None,
    context: str | None = None,
) -> list[Finding]:
    """Return one row for each learning column of two histories, and one for their number of epochs.

    Where both have no value of anything learnt, nothing is checked: counts alone prove nothing.
    `context`: what differs between the two runs' machines and packages.
    """
    names = [name for name in first.column_names if not is_timing(name)]
    more = [n for n in again.column_names if not is_timing(n) and n not in names]
    findings = [compared(HISTORY, f"{run}: epochs", len(first), len(again))]
    for name in [*names, *more]:
        what = f"{run}: {name}"
        if name not in again.column_names or name not in first.column_names:
            where = "the repeat" if name in names else "the first run"
            findings.append(Finding(HISTORY, what, DIFFERS, detail=f"{where} has no such column"))
            continue
        asked = exactness(name, on_gpu, metric_name)
        findings.append(_column(what, first[name], again[name], asked, context))
    counts = {f"{run}: {name}" for name in ("epochs", *_EXACT)}
    alike = {one.what for one in findings if one.outcome == SAME} - counts
    if alike or any(one.outcome == DIFFERS for one in findings):
        return findings
    why = "what it learnt is not known of both: the histories have no epoch, or only nulls"
    return [not_checked(HISTORY, run, why, expected=len(first), found=len(again))]


def _column(
    what: str, first: pa.ChunkedArray, again: pa.ChunkedArray, alike: Exactness, context: str | None
) -> Finding:
    if first.type != again.type:
        difference = "columns of other types"
        return Finding(HISTORY, what, DIFFERS, str(first.type), str(again.type), difference)
    pairs = list(zip(first.to_pylist(), again.to_pylist(), strict=False))
    if all(one is None and two is None for one, two in pairs):
        why = "it is null in every row of both" if pairs else "one of them has no row"
        return not_checked(HISTORY, what, why)
    differing = [(at, *pair) for at, pair in enumerate(pairs) if not alike.holds(*pair)]
    asked = "bit by bit" if alike.bits else "within the tolerance for GPUs"
    if not differing:
        one, two = pairs[-1]
        difference = f"{len(pairs)} values, {asked}; the last ones are shown"
        return Finding(HISTORY, what, SAME, finite(one), finite(two), difference)
    _, one, two = differing[0]
    named = "; ".join(f"row {at + 1}: {a!r} and {b!r}" for at, a, b in differing[:_MOST])
    count = f"{len(differing)} of {len(pairs)} values are not the same {asked}"
    why = f" ({context})" if context else ""
    return Finding(HISTORY, what, DIFFERS, finite(one), finite(two), f"{count}: {named}{why}")


def finite(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity as text."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value


def read_table(path: Path) -> pa.Table:
    """Read a history as it is stored, whatever its columns; InputError if it is unreadable."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, ValueError, pa.ArrowException) as error:
        message = " ".join(str(error).split())
        raise InputError(f"{path}: is no readable Parquet file ({message})") from error


def other_circumstances(first: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return the differences between the provenances of a run and its re-run."""
    own, other = first.get("packages") or {}, again.get("packages") or {}
    pairs = [(name, own.get(name), other.get(name)) for name in sorted({*own, *other})]
    pairs += [(name.replace("_", " "), first.get(name), again.get(name)) for name in _CONTEXT]
    return [f"{name}: {one}, then {two}" for name, one, two in pairs if one != two]


# --- energies -------------------------------------------------------------------------------------


def energy_findings(run: str, earlier: Sequence[Row], again: Row) -> list[Finding]:
    """Return one row for the whole energy and for each device kind, except one that is the whole.

    `earlier`: rows of the runs table of the same configuration, without excluded runs; those of another
    origin, scope or machine are not comparable with `again`, and named.
    """
    counted = [row for row in earlier if all(row[name] == again[name] for name in _ALIKE)]
    others = [row for row in earlier if row not in counted]
    names = QUANTITIES
    if "+" not in (again["energy_scope"] or "+"):  # one kind, whose energy is the whole
        names = tuple(name for name in names if name != f"{again['energy_scope']}_energy_kwh")
    return [_finding(f"{run}: {name}", name, counted, others, again) for name in names]


def _finding(
    what: str, name: str, earlier: Sequence[Row], others: Sequence[Row], again: Row
) -> Finding:
    found = again[name]
    known = [row[name] for row in earlier if row[name] is not None]
    if found is None and not known:
        return not_checked(ENERGY, what, "neither the repeat nor an earlier run has a known energy")
    if found is None:
        mean = sum(known) / len(known)
        return not_checked(ENERGY, what, "the repeat's energy is not known", expected=mean)
    left = _left_out(earlier, others, name)
    if not known:
        first = next((row[name] for row in others if row[name] is not None), None)
        why = f"no earlier energy to compare with: this one is {_basis(again)}{left}"
        return not_checked(ENERGY, what, why, expected=first, found=found)
    interval = prediction_interval(known)
    if interval is None:
        ratio = f", ratio {number(found / known[0])}" if known[0] else ""
        why = f"one earlier run has no scatter{ratio}{left}"
        return not_checked(ENERGY, what, why, expected=known[0], found=found)
    outcome = SAME if interval.holds(found) else DIFFERS
    place = "within" if outcome == SAME else "outside"
    if outcome == DIFFERS:
        left += f"; {_AGAIN}"
    detail = (
        f"{place} the 95 % prediction interval {number(interval.low)} to {number(interval.high)} kWh of "
        f"{interval.n} earlier runs (mean {number(interval.mean)}, ratio "
        f"{number(found / interval.mean) if interval.mean else 'unknown'}){left}"
    )
    return Finding(ENERGY, what, outcome, [interval.low, interval.high], found, detail)


def _left_out(earlier: Sequence[Row], others: Sequence[Row], name: str) -> str:
    """Return which earlier runs do not count, and why."""
    unknown = [str(row["repeat"]) for row in earlier if row[name] is None]
    word = "repeat" if len(unknown) == 1 else "repeats"
    parts = [f"that of {word} {', '.join(unknown)} is unknown"] if unknown else []
    parts += [f"repeat {row['repeat']} is {_basis(row)}" for row in others]
    return "".join(f"; {part}" for part in parts)


def _basis(row: Row) -> str:
    """Return origin, scope and machine of an energy."""
    origin, scope = row["energy_origin"] or "of unknown origin", row["energy_scope"] or "no scope"
    return f"{origin} ({scope}) on {row['device_name'] or 'an unknown machine'}"


@dataclass(frozen=True)
class Interval:
    """A prediction interval, in the unit of the values that it is made from."""

    low: float
    high: float
    mean: float
    n: int

    def holds(self, value: float) -> bool:
        """Return True if a value lies within it, its ends included."""
        return self.low <= value <= self.high


def prediction_interval(earlier: Sequence[float]) -> Interval | None:
    """Return the 95 % Student-t prediction interval of one more observation; None of fewer than two values.

    mean ± t · s · √(1 + 1/n), s the sample standard deviation, t the quantile of n − 1 degrees of
    freedom: for observations that are independent and normal. Unlike the interval of the mean it does
    not shrink to nothing with n. Source: G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley
    1991, on intervals to contain a single future observation.
    """
    found = summarise(earlier)
    if found.n < 2 or found.mean is None or found.sd is None:
        return None
    from scalewatt.statistics import quantile  # numpy takes long to import

    half = quantile(found.n - 1) * found.sd * math.sqrt(1 + 1 / found.n)
    return Interval(found.mean - half, found.mean + half, found.mean, found.n)
