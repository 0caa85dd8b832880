"""Evidence that tests make up: lines of points with given numbers. No number here was ever measured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from scalewatt.claims.evidence import EPOCHS, PRECISION, Evidence, Line, Point
from scalewatt.claims.load_evidence import with_points
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.published import FULL_SAMPLES
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS
from scalewatt.statistics import Numbers, Source, estimate, joined

Values = Mapping[str, float | None]
REPEATS = 5
CHECKED_KINDS = ("numeric", "trend", "threshold", "table", "derived", "identity")
"""Kinds of claim that tables of results decide."""
SPREAD = 0.003
"""Relative standard deviation between repeats, where a test does not say."""


NEEDED = re.compile(
    r"\d+ (repeats|points)|\d+ more needed|\d+ more|GBS [0-9 and]+ are needed|\d+ are needed|needs? \d+|"
    r"points at GBS \d|no number of repeats|\d+ samples a second|\d+ comparisons|"
    r"an estimate with an interval, or a sensor"
)
"""How many repeats or points would do, or what else."""


def row(n_repeats: int = REPEATS, spread: float = SPREAD, **given: Any) -> dict[str, Any]:
    """A row of `configurations`: columns as given, quantities by their mean (`energy_kwh=30`)."""
    cells: dict[str, Any] = dict.fromkeys(CONFIGURATIONS.names)
    cells |= {"campaign": "made", "energy_origin": "measured", "energy_scope": "gpu+cpu+ram"}
    cells |= {"n_repeats": n_repeats}
    for name, value in given.items():
        if f"{name}_mean" in cells and value is not None:
            cells |= stat(name, value, n_repeats, spread)
        elif name in cells:
            cells[name] = value
        else:
            assert f"{name}_mean" in cells, f"{name} is no column"
    return cells


def stat(name: str, mean: float, n: int = REPEATS, spread: float = SPREAD) -> dict[str, Any]:
    """The columns of a quantity: mean, and for several repeats sd and interval."""
    cells: dict[str, Any] = {f"{name}_mean": mean}
    if n > 1:
        sd = spread * abs(mean)
        half = float(stdtrit(n - 1, 0.975)) * sd / math.sqrt(n)
        cells |= {f"{name}_sd": sd, f"{name}_low": mean - half, f"{name}_high": mean + half}
        cells[f"{name}_population_sd"] = sd * math.sqrt((n - 1) / n)
    return cells


def line(
    model: str,
    phase: str,
    device: str,
    mode: str,
    constant: int,
    values: Mapping[int, Values],
    n_repeats: int = REPEATS,
    spread: float = SPREAD,
    varies_seeds: bool = True,
    **columns: Any,
) -> Line:
    """A line from quantities (means) by GPU count; `columns` are those of all its rows.

    Batch sizes and samples follow from the mode; GPU hours, P_GPUh, shares and rates from run time
    and energies, where they are not given.
    """
    name = f"{model}-{phase}-{device}-{mode}-{constant}"
    largest = max(values)
    points = []
    for gpus, given in sorted(values.items()):
        local = max(1, constant // gpus) if "gbs" in mode else constant
        total = FULL_SAMPLES[model]
        samples = total * gpus // largest if mode.startswith("sd") else total
        identity = {
            "configuration": f"{name}-n{gpus:03d}",
            "model": model,
            "phase": phase,
            "device": device,
            "gpus": gpus,
            "nodes": max(1, gpus // 4),
            "local_batch_size": local,
            "global_batch_size": local * gpus,
            "dataset_samples": samples,
            "epochs": EPOCHS[phase],
            "protocol": "paper",
            "precision": PRECISION[model],
            "energy_scope": "gpu+cpu" if device == "h100" else "gpu+cpu+ram",
        }
        quantities = _derived({**identity, **columns}, given)
        points.append(
            Point(
                row(n_repeats, spread, **{**identity, **columns, **quantities}),
                (mode,),
                total,
                varies_seeds=varies_seeds,
            )
        )
    return Line(name, name, model, phase, device, mode, constant, tuple(points), tuple(values))


def _derived(identity: Mapping[str, Any], given: Values) -> dict[str, Any]:
    quantities = dict(given)
    hours, energy = quantities.get("runtime_h"), quantities.get("energy_kwh")
    if hours is not None:
        held = quantities.setdefault("gpu_hours", hours * identity["gpus"])
        work = identity["dataset_samples"] * identity["epochs"]
        assert held is not None
        quantities.setdefault("samples_per_gpuh", work / held)
        quantities.setdefault("passes_per_gpuh", work / identity["local_batch_size"] / held)
        if energy is not None:
            quantities.setdefault("p_gpuh_kw", energy / held)
    for kind in ("gpu", "cpu", "ram"):
        part = quantities.get(f"{kind}_energy_kwh")
        if part is not None and energy:
            quantities.setdefault(f"{kind}_energy_share", part / energy)
    return quantities


def evidence(lines: Iterable[Line], **more: Any) -> Evidence:
    """Evidence of these lines; `more` as `Evidence` has it."""
    return with_points(Evidence("made", lines=tuple(lines), **more))


def changed(
    given: Evidence,
    where: Callable[[Point], bool],
    spread: float | None = None,
    n_repeats: int | None = None,
    **quantities: Callable[[Point], float | None],
) -> Evidence:
    """The same with other values of these quantities at the points that `where` picks.

    What is derived from them (P_GPUh, rates, shares) is not derived again: name it as well. An
    unknown quantity is `lambda point: None`. Of one repeat: the campaign has no other repeats that
    would tell its spread.
    """

    def one(point: Point) -> Point:
        if not where(point):
            return point
        n = n_repeats or point.n_repeats
        cells = dict(point.row) | {"n_repeats": n}
        for name, value in quantities.items():
            new = value(point)
            blank = {c: None for c in cells if c.rsplit("_", 1)[0] == name and c != name}
            blank |= {f"{name}_population_sd": None}
            cells |= blank
            if new is not None:
                cells |= stat(name, new, n, SPREAD if spread is None else spread)
        return replace(point, row=cells)

    lines = (replace(ln, points=tuple(map(one, ln.points))) for ln in given.lines)
    world = with_points(replace(given, lines=tuple(lines)))
    return without_spreads(world) if n_repeats == 1 else world


def without_spreads(given: Evidence) -> Evidence:
    """The same as if the campaign had no repeats that tell the spread of single runs."""

    def plain(points: Iterable[Point]) -> tuple[Point, ...]:
        return tuple(replace(point, spreads={}) for point in points)

    lines = tuple(replace(ln, points=plain(ln.points)) for ln in given.lines)
    return replace(given, lines=lines, points=plain(given.points))


def without(given: Evidence, where: Callable[[Point], bool]) -> Evidence:
    """The same without the points that `where` picks."""
    lines = (replace(ln, points=tuple(p for p in ln.points if not where(p))) for ln in given.lines)
    return with_points(replace(given, lines=tuple(lines)))


def runs_of(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The table of runs with these rows; columns that a row lacks are null."""
    return frame_of([dict.fromkeys(RUNS.names) | dict(row) for row in rows], RUNS)


def numbers(
    values: Iterable[float], errors: float | Iterable[float], freedom: float = REPEATS - 1
) -> Numbers:
    """Means of REPEATS runs with these standard errors, each with a source of its own."""
    means = list(values)
    each = [errors] * len(means) if isinstance(errors, float | int) else list(errors)
    return joined(
        [
            estimate(value, Source(f"runs of number {at}"), error**2, freedom, REPEATS * error**2)
            for at, (value, error) in enumerate(zip(means, each, strict=True))
        ]
    )
