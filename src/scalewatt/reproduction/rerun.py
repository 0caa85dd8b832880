"""Compare the histories and energies of re-runs with those of the campaign."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
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
    compare,
    skip,
)
from scalewatt.reproduction.provenance import commits_of, compare_code
from scalewatt.reproduction.run_choice import FOLDER, choose_run
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.run_row import RunFiles, run_row
from scalewatt.results.text.number_format import number
from scalewatt.run_files.inventory import RunName, json_object, published_runs, run_folder
from scalewatt.statistics import quantile

GPU_RELATIVE = 0.05
"""By how much of the first value another may differ on a GPU; docs/guide/reproduce.md says why."""
GPU_POINTS = 1.0
"""Metrics in percent may differ by so many percentage points, however small they are."""
OF_THE_MACHINE = ("segment", "peak_memory_bytes")
"""Columns about a run's execution, as those that end in `_s`, not about what it learnt."""
_COUNTS = ("epoch", "samples", "updates", "learning_rate")
"""Exact on a GPU too: they are not computed there."""
_CONTEXT = ("device_name", "cuda", "mpi", "precision_used")
"""Keys of the provenance that may explain a difference, besides packages."""
_BASIS = ("energy_origin", "energy_scope", "device_name")
"""Energies are comparable where these are equal."""
_MOST = 3
Row = Mapping[str, Any]


def rerun_findings(campaign: Campaign, cluster: Cluster, results: Path) -> Iterator[Finding]:
    """Yield how the re-runs below a campaign's results compare with its runs; why if there is none."""
    runs = sorted(published_runs(results / FOLDER))
    for run in runs:
        name = f"{run[0]}/{run[1]}"
        first, again = (
            json_object(run_folder(folder, run) / "provenance.json")
            for folder in (results, results / FOLDER)
        )
        if first.get("spec_sha256") != again.get("spec_sha256"):
            why = "the run itself is gone, or has another spec now: repeat it"
            yield from (skip(check, name, why) for check in (HISTORY, ENERGY))
            continue
        yield from made_alike(name, first, again)
        yield from _compare_history(name, run, results, first, again)
        try:
            yield from _compare_energy(name, run, results, campaign)
        except InputError as error:
            yield skip(ENERGY, name, str(error))
    if not runs:
        chosen, why = choose_run(campaign, cluster, results)
        if chosen is not None:
            name = f"{chosen[0]}/{chosen[1]}"
            why = f"no run was repeated; `snakemake reproduce` re-runs {name}: {why}"
        yield from (skip(check, "a re-run", why) for check in (HISTORY, ENERGY))


def made_alike(name: str, first: Row, again: Row) -> Iterator[Finding]:
    """Yield whether a re-run had the same data and code, as far as recorded, and what else differs."""
    data = first.get("dataset_sha256"), again.get("dataset_sha256")
    if None not in data:
        why = "the re-run used other data: what it learnt is not comparable"
        yield compare(HISTORY, f"{name}: data", *data, why)
    before, now = commits_of(first), commits_of(again)
    if before and now:
        yield compare_code(HISTORY, f"{name}: commit", before, now)
    if others := _other_circumstances(first, again):
        yield skip(HISTORY, f"{name}: circumstances", f"unlike the first time: {others}")


# --- histories ------------------------------------------------------------------------------------


def _compare_history(
    name: str, run: RunName, results: Path, first: Row, again: Row
) -> list[Finding]:
    paths = [run_folder(folder, run) / "history.parquet" for folder in (results, results / FOLDER)]
    try:
        before, now = map(pd.read_parquet, paths)
    except (OSError, ValueError, pa.ArrowException) as error:
        return [Finding(HISTORY, name, DIFFERS, detail=f"not a readable table ({error})")]
    # A simulation computes on the CPU alone, whatever its device.
    simulated = "simulated" in first and "simulated" in again
    on_gpu = not simulated and "cuda" in (first.get("torch_device"), again.get("torch_device"))
    return history_findings(name, before, now, on_gpu, first.get("metric_name"))


def _other_circumstances(first: Row, again: Row) -> str:
    """Differences between the provenances of a run and its re-run."""
    before, now = first.get("packages") or {}, again.get("packages") or {}
    pairs = [(name, before.get(name), now.get(name)) for name in sorted({*before, *now})]
    pairs += [(name, first.get(name), again.get(name)) for name in _CONTEXT]
    return "; ".join(f"{name}: {old}, then {new}" for name, old, new in pairs if old != new)


def history_findings(
    run: str,
    first: pd.DataFrame,
    again: pd.DataFrame,
    on_gpu: bool,
    metric_name: str | None = None,
) -> list[Finding]:
    """Compare each column of learning of two histories, and their number of epochs.

    If both have no value of anything learnt, nothing is checked: counts alone prove nothing.
    """
    findings = [compare(HISTORY, f"{run}: epochs", len(first), len(again))]
    for name in dict.fromkeys([*first, *again]):
        if name.endswith("_s") or name in OF_THE_MACHINE:
            continue
        what = f"{run}: {name}"
        if name not in first or name not in again:
            findings.append(Finding(HISTORY, what, DIFFERS, detail="only one of them has it"))
            continue
        # The metric's columns do not have its name; what a model reports besides does.
        named = metric_name or "" if name in ("metric", "train_metric") else name
        points = GPU_POINTS if "percent" in named.split("_") else 0.0
        tolerances = (GPU_RELATIVE, points) if on_gpu and name not in _COUNTS else None
        findings.append(_compare_column(what, first[name], again[name], tolerances))
    counts = {f"{run}: {name}" for name in ("epochs", *_COUNTS)}
    learnt = [row for row in findings if row.what not in counts and row.outcome == SAME]
    if learnt or any(row.outcome == DIFFERS for row in findings):
        return findings
    return [skip(HISTORY, run, "what it learnt is unknown: no epochs, or only nulls")]


def _compare_column(
    what: str,
    first: pd.Series[Any],
    again: pd.Series[Any],
    tolerances: tuple[float, float] | None,
) -> Finding:
    """Compare two columns bit by bit (-0 is not 0), or within a relative and an absolute tolerance."""
    rows = min(len(first), len(again))
    before, now = (column[:rows].to_numpy(dtype=float) for column in (first, again))
    if np.isnan(before).all() and np.isnan(now).all():
        return skip(HISTORY, what, "it is null in every row of both")
    if tolerances is None:
        alike = before.view(np.int64) == now.view(np.int64)
    else:
        near = [(tolerances[0], 0.0), (0.0, tolerances[1])]
        alike = np.any(
            [np.isclose(now, before, rtol, atol, equal_nan=True) for rtol, atol in near], axis=0
        )
    asked = "bit by bit" if tolerances is None else "within the tolerance for GPUs"
    differing = np.flatnonzero(~alike)
    if not differing.size:
        return Finding(HISTORY, what, SAME, detail=f"{rows} values, {asked}")
    named = "; ".join(f"row {at + 1}: {before[at]}, then {now[at]}" for at in differing[:_MOST])
    why = f"{differing.size} of {rows} values are not the same {asked}: {named}"
    return Finding(HISTORY, what, DIFFERS, detail=why)


# --- energies -------------------------------------------------------------------------------------


def _compare_energy(name: str, run: RunName, results: Path, campaign: Campaign) -> list[Finding]:
    again = run_row(RunFiles(results / FOLDER, *run), results.name, Facility())
    excluded = excluded_runs(read_exclusions(campaign), results)
    left_out = {(row["configuration"], row["repeat"]) for row in excluded}
    earlier = [
        run_row(RunFiles(results, *other), results.name, Facility())
        for other in sorted(published_runs(results))
        if other[0] == run[0] and other not in left_out
    ]
    return energy_findings(name, earlier, again)


def energy_findings(run: str, earlier: Sequence[Row], again: Row) -> list[Finding]:
    """Compare the whole energy of a re-run, and that of each device kind that it knows.

    `earlier`: rows of the runs table of the same configuration, without excluded runs. Those of another
    origin, scope or machine, or of unknown energy, do not count.
    """
    alike = [row for row in earlier if all(row[key] == again[key] for key in _BASIS)]
    kinds = [name for kind in DEVICE_KINDS if again[name := f"{kind}_energy_kwh"] is not None]
    findings = []
    for name in ("energy_kwh", *kinds):
        known = [row[name] for row in alike if row[name] is not None]
        others = len(earlier) - len(known)
        note = f"; of another origin, scope or machine, or unknown: {others}" if others else ""
        findings.append(_compare_with_interval(f"{run}: {name}", known, again[name], note))
    return findings


def _compare_with_interval(
    what: str, earlier: Sequence[float], energy: float | None, note: str
) -> Finding:
    """Compare an energy in kWh with what earlier ones predict."""
    if energy is None:
        return skip(ENERGY, what, "the energy of the re-run is unknown")
    interval = prediction_interval(earlier)
    mean = sum(earlier) / len(earlier) if earlier else None
    ratio = f", ratio {number(energy / mean)}" if mean else ""
    if interval is None:
        why = f"earlier runs to compare with: {len(earlier)}, which have no scatter{ratio}{note}"
        return Finding(ENERGY, what, NOT_CHECKED, mean, energy, why)
    is_within = interval[0] <= energy <= interval[1]
    where = "within" if is_within else "outside"
    detail = f"{where} the 95 % prediction interval of {len(earlier)} earlier runs{ratio}{note}"
    if not is_within:
        detail += "; to measure again, on an idle machine, remove reproduction/ and its work"
    outcome, expected = SAME if is_within else DIFFERS, f"{interval[0]:.6g} to {interval[1]:.6g}"
    return Finding(ENERGY, what, outcome, expected, energy, detail)


def prediction_interval(earlier: Sequence[float]) -> tuple[float, float] | None:
    """Ends of the 95 % prediction interval of one more observation; None of fewer than two.

    mean ± t · s · √(1 + 1/n), s the sample standard deviation, t the quantile of n − 1 degrees of
    freedom: for observations that are independent and normal. Unlike the interval of the mean it does
    not shrink to nothing with n. Source: G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley
    1991, on intervals to contain a single future observation.
    """
    known = summarise(earlier)
    if known.n < 2 or known.mean is None or known.sd is None:
        return None
    half = float(quantile(known.n - 1)) * known.sd * math.sqrt(1 + 1 / known.n)
    return known.mean - half, known.mean + half
