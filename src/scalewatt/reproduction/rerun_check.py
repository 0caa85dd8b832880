"""Compare the histories and energies of re-runs with those of the campaign."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.reproduction.findings import (
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
from scalewatt.statistics import quantile

GPU_RELATIVE = 0.05
"""By how much of the first value another may differ on a GPU; the page says why."""
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
_ALIKE = ("energy_origin", "energy_scope", "device_name")
Row = Mapping[str, Any]


def found_repeats(results: Path) -> list[dict[str, Any]]:
    """Find the re-runs below a campaign's results: when and on what they were made, and what is unlike."""
    repeats = []
    for run, published in sorted(published_runs(again_folder(results)).items()):
        again = _provenance(again_folder(results), run)
        made = datetime.fromtimestamp(published.mtime_ns / 1e9, UTC)
        repeats.append(
            {
                "configuration": run[0],
                "repeat": run[1],
                "made": f"{made:%Y-%m-%d %H:%M} UTC",
                "on": again.get("device_name"),
                "unlike": other_circumstances(_provenance(results, run), again),
            }
        )
    return repeats


def repeat_findings(results: Path, campaign: Campaign) -> list[Finding]:
    """Compare histories, then energies, of all re-runs."""
    runs = sorted(published_runs(again_folder(results)))
    histories = [row for run in runs for row in _tried(HISTORY, run, results, campaign)]
    return histories + [row for run in runs for row in _tried(ENERGY, run, results, campaign)]


def _tried(check: str, run: Run, results: Path, campaign: Campaign) -> list[Finding]:
    """Findings of one check of a run; an unreadable history is a difference."""
    name = f"{run[0]}/{run[1]}"
    first, again = _provenance(results, run), _provenance(again_folder(results), run)
    if not first:
        return [not_checked(check, name, "the run itself does not exist any more")]
    if first.get("spec_sha256") != again.get("spec_sha256"):
        why = "the re-run has another spec than the run has now: repeat it"
        return [not_checked(check, name, why)]
    try:
        if check == HISTORY:
            return [*made_alike(name, first, again), *_history(name, run, results, first, again)]
        return _energy(name, run, results, campaign)
    except InputError as error:
        outcome = DIFFERS if check == HISTORY else NOT_CHECKED
        return [Finding(check, name, outcome, detail=str(error))]


def made_alike(name: str, first: Row, again: Row) -> Iterator[Finding]:
    """Yield whether a re-run had the same data and code, where both record them."""
    data = first.get("dataset_sha256"), again.get("dataset_sha256")
    if None not in data:
        why = "the re-run used other data: what it learnt is not comparable"
        yield compared(HISTORY, f"{name}: data", *data, why)
    commits, others = commits_of(first), commits_of(again)
    if commits and others:
        yield code_finding(HISTORY, f"{name}: commit", commits, others)


def _provenance(results: Path, run: Run) -> dict[str, Any]:
    return json_object(run_folder(results, run) / "provenance.json")


def other_circumstances(first: Row, again: Row) -> list[str]:
    """Differences between the provenances of a run and its re-run."""
    before, now = first.get("packages") or {}, again.get("packages") or {}
    pairs = [(name, before.get(name), now.get(name)) for name in sorted({*before, *now})]
    pairs += [(name.replace("_", " "), first.get(name), again.get(name)) for name in _CONTEXT]
    return [f"{name}: {one}, then {two}" for name, one, two in pairs if one != two]


# --- histories ------------------------------------------------------------------------------------


def _history(name: str, run: Run, results: Path, first: Row, again: Row) -> list[Finding]:
    before = _read_history(run_folder(results, run) / "history.parquet")
    now = _read_history(run_folder(again_folder(results), run) / "history.parquet")
    # A simulation computes on the CPU alone, whatever device it is of.
    simulated = "simulated" in first and "simulated" in again
    on_gpu = not simulated and "cuda" in (first.get("torch_device"), again.get("torch_device"))
    context = "; ".join(other_circumstances(first, again))
    return history_findings(name, before, now, on_gpu, first.get("metric_name"), context)


def _read_history(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        message = " ".join(str(error).split())
        raise InputError(f"{path}: is not a readable Parquet file ({message})") from error


def history_findings(
    run: str,
    first: pd.DataFrame,
    again: pd.DataFrame,
    on_gpu: bool,
    metric_name: str | None = None,
    context: str = "",
) -> list[Finding]:
    """Compare each column of learning of two histories, and their number of epochs.

    Where both have no value of anything learnt, nothing is checked: counts alone prove nothing.
    `context`: what differs between the two runs' machines and packages.
    """
    findings = [compared(HISTORY, f"{run}: epochs", len(first), len(again))]
    learnt = False
    for name in dict.fromkeys([*first, *again]):
        if name.endswith("_s") or name in OF_THE_MACHINE:
            continue
        what = f"{run}: {name}"
        if name not in first or name not in again:
            where = "the repeat" if name in first else "the first run"
            findings.append(Finding(HISTORY, what, DIFFERS, detail=f"{where} has no such column"))
            continue
        tolerances = gpu_tolerances(name, metric_name) if on_gpu and name not in _EXACT else None
        finding = _compare_column(what, first[name], again[name], tolerances, context)
        learnt = learnt or (finding.outcome == SAME and name not in _EXACT)
        findings.append(finding)
    if learnt or any(finding.outcome == DIFFERS for finding in findings):
        return findings
    why = "what it learnt is not known of both: the histories have no epoch, or only nulls"
    return [not_checked(HISTORY, run, why, expected=len(first), found=len(again))]


def gpu_tolerances(column: str, metric_name: str | None) -> tuple[float, float]:
    """Relative and absolute tolerance of a column's values on GPUs."""
    # The columns of the metric do not contain its name; a model's own results do.
    name = (metric_name or "") if column in _METRICS else column
    return GPU_RELATIVE, GPU_POINTS if "percent" in name.split("_") else 0.0


def _compare_column(
    what: str,
    first: pd.Series[Any],
    again: pd.Series[Any],
    tolerances: tuple[float, float] | None,
    context: str,
) -> Finding:
    rows = min(len(first), len(again))
    before, now = (column[:rows].to_numpy(dtype=float) for column in (first, again))
    if np.isnan(before).all() and np.isnan(now).all():
        why = "it is null in every row of both" if rows else "one of them has no row"
        return not_checked(HISTORY, what, why)
    if tolerances is None:  # to the bit: -0 is not 0
        asked, alike = "bit by bit", before.view(np.int64) == now.view(np.int64)
    else:
        asked, (relative, absolute) = "within the tolerance for GPUs", tolerances
        near = np.isclose(now, before, rtol=relative, atol=0, equal_nan=True)
        alike = near | np.isclose(now, before, rtol=0, atol=absolute, equal_nan=True)
    differing = np.flatnonzero(~alike)
    if not differing.size:
        values = (_shown(before[-1]), _shown(now[-1]))
        return Finding(
            HISTORY, what, SAME, *values, f"{rows} values, {asked}; the last ones are shown"
        )
    named = "; ".join(
        f"row {at + 1}: {float(before[at])!r} and {float(now[at])!r}" for at in differing[:_MOST]
    )
    why = f"{differing.size} of {rows} values are not the same {asked}: {named}"
    values = (_shown(before[differing[0]]), _shown(now[differing[0]]))
    return Finding(HISTORY, what, DIFFERS, *values, f"{why} ({context})" if context else why)


def _shown(value: float) -> float | str:
    """A value that JSON can hold: NaN and infinity as text."""
    return float(value) if math.isfinite(value) else str(value)


# --- energies -------------------------------------------------------------------------------------


def _energy(name: str, run: Run, results: Path, campaign: Campaign) -> list[Finding]:
    again = run_row(RunFiles(again_folder(results), *run), results.name, Facility())
    rows = excluded_runs(read_exclusions(campaign), results)
    left_out = {(row["configuration"], row["repeat"]) for row in rows}
    earlier = [
        run_row(RunFiles(results, *other), results.name, Facility())
        for other in sorted(published_runs(results))
        if other[0] == run[0] and other not in left_out
    ]
    return energy_findings(name, earlier, again)


def energy_findings(run: str, earlier: Sequence[Row], again: Row) -> list[Finding]:
    """Compare the whole energy and that of each device kind, except of one that is the whole.

    `earlier`: rows of the runs table of the same configuration, without excluded runs; those of another
    origin, scope or machine are not comparable with `again`, and named.
    """
    names = QUANTITIES
    if "+" not in (again["energy_scope"] or "+"):  # one kind, whose energy is the whole
        names = tuple(name for name in names if name != f"{again['energy_scope']}_energy_kwh")
    return [_compare_energy(f"{run}: {name}", name, earlier, again) for name in names]


def _compare_energy(what: str, name: str, earlier: Sequence[Row], again: Row) -> Finding:
    energy = again[name]
    alike = [row for row in earlier if all(row[key] == again[key] for key in _ALIKE)]
    unlike = [row for row in earlier if row not in alike]
    known = [row[name] for row in alike if row[name] is not None]
    left_out = [f"that of repeat {r['repeat']} is unknown" for r in alike if r[name] is None]
    left_out += [f"repeat {row['repeat']} is {_basis(row)}" for row in unlike]
    left = "".join(f"; {reason}" for reason in left_out)
    shown = known or [row[name] for row in unlike if row[name] is not None][:1]
    expected = sum(shown) / len(shown) if shown else None
    interval = prediction_interval(known)
    if energy is None or interval is None:
        why = f"no earlier energy to compare with: this one is {_basis(again)}"
        if known:
            ratio = f", ratio {number(energy / expected)}" if energy and expected else ""
            why = f"one earlier run has no scatter{ratio}"
        why = "the repeat's energy is not known" if energy is None else f"{why}{left}"
        return not_checked(ENERGY, what, why, expected=expected, found=energy)
    low, high = interval
    is_within = low <= energy <= high
    ratio = number(energy / expected) if expected else "unknown"
    detail = (
        f"{'within' if is_within else 'outside'} the 95 % prediction interval {number(low)} to "
        f"{number(high)} kWh of {len(known)} earlier runs (mean {number(expected)}, ratio {ratio}){left}"
    )
    if not is_within:
        detail += "; to measure once more, on an otherwise idle machine, remove reproduction/ and its work"
    return Finding(ENERGY, what, SAME if is_within else DIFFERS, [low, high], energy, detail)


def _basis(row: Row) -> str:
    """Origin, scope and machine of an energy."""
    origin, scope = row["energy_origin"] or "of unknown origin", row["energy_scope"] or "no scope"
    return f"{origin} ({scope}) on {row['device_name'] or 'an unknown machine'}"


def prediction_interval(earlier: Sequence[float]) -> tuple[float, float] | None:
    """Lower and upper end of the 95 % prediction interval of one more observation; None of fewer than two.

    mean ± t · s · √(1 + 1/n), s the sample standard deviation, t the quantile of n − 1 degrees of
    freedom: for observations that are independent and normal. Unlike the interval of the mean it does
    not shrink to nothing with n. Source: G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley
    1991, on intervals to contain a single future observation.
    """
    known = summarise(earlier)
    if known.n < 2 or known.mean is None or known.sd is None:
        return None
    half = quantile(known.n - 1) * known.sd * math.sqrt(1 + 1 / known.n)
    return known.mean - half, known.mean + half
