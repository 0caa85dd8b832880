"""Compare the histories and energies of re-runs with those of the campaign."""

from __future__ import annotations

import math
import statistics
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
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.run_row import read_runs
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
Row = Mapping[str, Any]


def rerun_findings(campaign: Campaign, cluster: Cluster, results: Path) -> Iterator[Finding]:
    """Yield how the re-runs below a campaign's results compare with its runs; why if there is none."""
    runs = sorted(published_runs(results / FOLDER))
    for run in runs:
        name = f"{run[0]}/{run[1]}"
        folders = run_folder(results, run), run_folder(results / FOLDER, run)
        first, again = (json_object(folder / "provenance.json") for folder in folders)
        if first.get("spec_sha256") != again.get("spec_sha256"):
            why = "the run itself is gone, or has another spec now: repeat it"
            yield from (skip(check, name, why) for check in (HISTORY, ENERGY))
            continue
        yield from made_alike(name, first, again)
        # A simulation computes on the CPU alone, whatever its device.
        simulated = "simulated" in first and "simulated" in again
        on_gpu = not simulated and "cuda" in (first.get("torch_device"), again.get("torch_device"))
        try:
            before, now = (pd.read_parquet(folder / "history.parquet") for folder in folders)
            yield from history_findings(name, before, now, on_gpu, first.get("metric_name"))
        except (OSError, ValueError, pa.ArrowException) as error:
            yield Finding(HISTORY, name, DIFFERS, detail=f"not a readable table ({error})")
        try:
            yield from energy_findings(name, *_energies(run, results, campaign))
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
    # What may explain a difference, and is none itself.
    old, new = (record.get("packages") or {} for record in (first, again))
    pairs = [(package, old.get(package), new.get(package)) for package in sorted({*old, *new})]
    pairs += [(key, first.get(key), again.get(key)) for key in _CONTEXT]
    if others := "; ".join(f"{key}: {a}, then {b}" for key, a, b in pairs if a != b):
        yield skip(HISTORY, f"{name}: circumstances", f"unlike the first time: {others}")


def history_findings(
    run: str,
    first: pd.DataFrame,
    again: pd.DataFrame,
    on_gpu: bool,
    metric_name: str | None = None,
) -> list[Finding]:
    """Compare each column of learning of two histories, and their number of epochs.

    On a GPU within a tolerance, else bit by bit, where -0 is not 0. If both have no value of anything
    learnt, nothing is checked: counts alone prove nothing.
    """
    findings = [compare(HISTORY, f"{run}: epochs", len(first), len(again))]
    columns = [name for name in dict.fromkeys([*first, *again]) if not name.endswith("_s")]
    rows = min(len(first), len(again))
    for name in (name for name in columns if name not in OF_THE_MACHINE):
        what = f"{run}: {name}"
        if name not in first or name not in again:
            findings.append(Finding(HISTORY, what, DIFFERS, detail="only one of them has it"))
            continue
        before, now = (frame[name][:rows].to_numpy(dtype=float) for frame in (first, again))
        if np.isnan([before, now]).all():
            findings.append(skip(HISTORY, what, "it is null in every row of both"))
            continue
        if on_gpu and name not in _COUNTS:
            # The metric's columns do not have its name; what a model reports besides does.
            named = metric_name or "" if name in ("metric", "train_metric") else name
            points = GPU_POINTS if "percent" in named.split("_") else 0.0
            alike = np.isclose(now, before, GPU_RELATIVE, 0.0, equal_nan=True)
            alike |= np.isclose(now, before, 0.0, points, equal_nan=True)
            asked = "within the tolerance for GPUs"
        else:
            alike, asked = before.view(np.int64) == now.view(np.int64), "bit by bit"
        if alike.all():
            findings.append(Finding(HISTORY, what, SAME, detail=f"{rows} values, {asked}"))
            continue
        at = int(np.argmin(alike))
        why = (
            f"{(~alike).sum()} of {rows} values are not the same {asked}: first in row {at + 1}: "
            f"{before[at]}, then {now[at]}"
        )
        findings.append(Finding(HISTORY, what, DIFFERS, detail=why))
    counts = {f"{run}: {name}" for name in ("epochs", *_COUNTS)}
    learnt = [row for row in findings if row.what not in counts and row.outcome == SAME]
    if learnt or any(row.outcome == DIFFERS for row in findings):
        return findings
    return [skip(HISTORY, run, "what it learnt is unknown: no epochs, or only nulls")]


# --- energies -------------------------------------------------------------------------------------


def _energies(run: RunName, results: Path, campaign: Campaign) -> tuple[Sequence[Row], Row]:
    """Rows of the runs table of a configuration's runs that count, and of the re-run."""
    (again,) = records(read_runs(results / FOLDER, [run], results.name))
    excluded = excluded_runs(read_exclusions(campaign), results)
    left_out = {(row["configuration"], row["repeat"]) for row in excluded}
    others = [run_ for run_ in sorted(published_runs(results)) if run_[0] == run[0]]
    counted = [other for other in others if other not in left_out]
    return records(read_runs(results, counted, results.name)), again


def energy_findings(run: str, earlier: Sequence[Row], again: Row) -> Iterator[Finding]:
    """Compare the whole energy of a re-run, and that of each device kind that it knows.

    `earlier`: rows of the runs table of the same configuration, without excluded runs. Those of another
    origin, scope or machine, or of unknown energy, do not count.
    """
    alike = [row for row in earlier if all(row[key] == again[key] for key in _BASIS)]
    kinds = [name for kind in DEVICE_KINDS if again[name := f"{kind}_energy_kwh"] is not None]
    for name in ("energy_kwh", *kinds):
        what, energy = f"{run}: {name}", again[name]
        if energy is None:
            yield skip(ENERGY, what, "the energy of the re-run is unknown")
            continue
        known = [row[name] for row in alike if row[name] is not None]
        mean = sum(known) / len(known) if known else None
        note = f", ratio {number(energy / mean)}" if mean else ""
        if others := len(earlier) - len(known):
            note += f"; of another origin, scope or machine, or unknown: {others}"
        interval = prediction_interval(known)
        if interval is None:
            why = f"earlier runs to compare with: {len(known)}, which have no scatter{note}"
            yield Finding(ENERGY, what, NOT_CHECKED, mean, energy, why)
            continue
        expected = f"{interval[0]:.6g} to {interval[1]:.6g}"
        detail = f"the 95 % prediction interval of {len(known)} earlier runs{note}"
        if interval[0] <= energy <= interval[1]:
            yield Finding(ENERGY, what, SAME, expected, energy, f"within {detail}")
        else:
            remedy = "to measure again, on an idle machine, remove reproduction/ and its work"
            yield Finding(ENERGY, what, DIFFERS, expected, energy, f"outside {detail}; {remedy}")


def prediction_interval(earlier: Sequence[float]) -> tuple[float, float] | None:
    """Ends of the 95 % prediction interval of one more observation; None of fewer than two.

    mean ± t · s · √(1 + 1/n), s the sample standard deviation, t the quantile of n − 1 degrees of
    freedom: for observations that are independent and normal. Unlike the interval of the mean it does
    not shrink to nothing with n. Source: G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley
    1991, on intervals to contain a single future observation.
    """
    n = len(earlier)
    if n < 2:
        return None
    mean, half = statistics.mean(earlier), float(quantile(n - 1)) * statistics.stdev(earlier)
    half *= math.sqrt(1 + 1 / n)
    return mean - half, mean + half
