"""Evidence that tests make up: series of points with given numbers. No number here was ever measured."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from scalewatt.claims.evidence import (
    COLUMNS,
    EPOCHS,
    PRECISION,
    PROBE_EPOCHS,
    SERIES,
    Evidence,
    Points,
    Trace,
    prepared,
)
from scalewatt.claims.reference_tables import read_claims
from scalewatt.claims.verdicts import Verdict, verdict_of
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.published import FULL_SAMPLES
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.statistics import Numbers, Source, estimate, joined

Values = Mapping[str, float | None]
REPEATS = 5
SPREAD = 0.003
"""Relative standard deviation between repeats, where a test does not say."""


class Made(NamedTuple):
    """A series: its row of `Evidence.series`, and the rows of its points."""

    series: dict[str, Any]
    points: list[dict[str, Any]]


def row(n_repeats: int = REPEATS, spread: float = SPREAD, **given: Any) -> dict[str, Any]:
    """A point: columns as given, quantities by their mean (`energy_kwh=30`)."""
    cells: dict[str, Any] = dict.fromkeys(COLUMNS)
    cells |= {"campaign": "made", "energy_origin": "measured", "energy_scope": "gpu+cpu+ram"}
    cells |= {"n_repeats": n_repeats, "dataset_total": FULL_SAMPLES.get(given.get("model", ""))}
    cells |= {"varies_seeds": True, "is_probe": False, "chance": None}
    for name, value in given.items():
        if f"{name}_mean" in cells:
            cells[f"{name}_mean"] = value
            cells[f"{name}_sd"] = spread * abs(value) if n_repeats > 1 and value else None
        else:
            assert name in cells, f"{name} is no column"
            cells[name] = value
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
    name: str = "",
    **columns: Any,
) -> Made:
    """A series from quantities (means) by GPU count; `columns` are those of all its rows.

    Batch sizes and samples follow from the mode; GPU hours, P_GPUh, shares and rates from run time
    and energies, where they are not given. ResNet50's points are of their series, FourCastNet's are shared.
    """
    name = name or f"{model}-{phase}-{device}-{mode}-{constant}"
    points = []
    for gpus, given in sorted(values.items()):
        local = max(1, constant // gpus) if "gbs" in mode else constant
        total = FULL_SAMPLES.get(model, 1281167)
        id_ = f"{name}-n{gpus:03d}"
        if model == "fourcastnet":
            id_ = f"{model}.{phase}-{device}-n{gpus:03d}-lbs{local:04d}-full"
        identity = {
            "configuration": id_ + ("-epochs20" if mode == "probe" else ""),
            **{"model": model, "phase": phase, "device": device, "gpus": gpus},
            **{"nodes": max(1, gpus // 4), "local_batch_size": local},
            "global_batch_size": local * gpus,
            "dataset_samples": total * gpus // max(values) if mode.startswith("sd") else total,
            "epochs": PROBE_EPOCHS if mode == "probe" else EPOCHS[phase],
            **{"protocol": "paper", "precision": PRECISION.get(model), "is_probe": mode == "probe"},
            "energy_scope": "gpu+cpu" if device == "h100" else "gpu+cpu+ram",
            "metric_name": "top1_error_percent" if model == "resnet50" else "z500_rmse_m2s2",
        }
        points.append(
            row(n_repeats, spread, **{**identity, **columns, **_derived(identity, given)})
        )
    title = " ".join(filter(None, (model, phase.replace("train", ""), device, mode, str(constant))))
    ids = {point["gpus"]: point["configuration"] for point in points}
    series = (model, phase, device, mode, constant, ids, title)
    return Made({"name": name, **dict(zip(SERIES, series, strict=True))}, points)


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


def evidence(lines: Iterable[Made], **more: Any) -> Evidence:
    """Evidence of these series; `more` as `Evidence` has it. Of points of several the first counts."""
    made = list(lines)
    points = frame([point for each in made for point in each.points])
    series = pd.DataFrame([each.series for each in made]).set_index("name")
    return Evidence("made", points=points, series=series, **more)


def frame(rows: Iterable[Mapping[str, Any]]) -> Points:
    """Points as Evidence has them."""
    points = pd.DataFrame(rows).drop_duplicates("configuration")
    return prepared(points.set_index("configuration", drop=False).rename_axis(None))


# --- changes ----------------------------------------------------------------------------------------


def where(given: Evidence, condition: str) -> pd.Series:
    """The points of a condition such as `resnet50 & fd_lbs & gpus == 4`; empty, or `all`: every one."""
    points = given.points
    if condition in ("", "all"):
        return pd.Series(True, points.index)
    words = {word for mode in ("fd", "sd") for word in _prefixes(mode)} | {"probe"}
    columns = {}
    for word in words:
        named = given.series["mode"].map(lambda mode, word=word: f"{mode}_".startswith(f"{word}_"))
        columns[word] = points.index.isin(
            [i for ids in given.series["ids"][named] for i in ids.values()]
        )
    for name in ("model", "phase", "device"):
        columns |= {value: points[name] == value for value in points[name].unique()}
    for word in ("resnet50", "fourcastnet", "pretrain", "finetune", "h100", "a100"):
        columns.setdefault(word, pd.Series(False, points.index))
    mask: pd.Series = _short(points).assign(**columns).eval(condition, engine="python")
    return mask.astype(bool)


def _prefixes(data: str) -> list[str]:
    return [data, *(f"{data}_{kept}" for kept in ("lbs", "gbs", "gbs_s", "gbs_l"))]


def _short(points: Points) -> Points:
    """Points whose quantities and batch sizes have short names, for expressions."""
    sizes = {"local_batch_size": "lbs", "global_batch_size": "gbs"}
    means = {name: name.removesuffix("_mean") for name in points if name.endswith("_mean")}
    return points.rename(columns=sizes | means)


def changed(
    given: Evidence,
    condition: str,
    change: str,
    spread: float | None = None,
    n_repeats: int | None = None,
) -> Evidence:
    """The same with other values of a quantity at some points: `energy_kwh = 1.1 * energy_kwh`.

    What is derived from it (P_GPUh, rates, shares) is not derived again. `{4: 10, 8: 12}` gives values by
    GPU count, `drop` takes the points away, `keep 2` all but the first two of each series. Of one
    repeat: the campaign has no other repeats that would tell its spread.
    """
    mask, points = where(given, condition), given.points.copy()
    if change == "drop":
        return replace(given, points=prepared(points[~mask]))
    if change.startswith("keep"):
        series = [ids for ids in given.series["ids"] if mask.get(next(iter(ids.values())), False)]
        gone = [id_ for ids in series for id_ in list(ids.values())[int(change[5:]) :]]
        return replace(given, points=prepared(points.drop(index=set(gone) & set(points.index))))
    name, _, expression = change.partition(" = ")
    if expression.startswith("{"):
        new = points["gpus"].map(ast.literal_eval(expression)).astype(float)
        mask &= new.notna()
    elif expression == "unknown":
        new = pd.Series(float("nan"), points.index)
    else:
        new = _short(points).eval(expression, engine="python") + pd.Series(0.0, points.index)
    if n_repeats:
        points.loc[mask, "n_repeats"] = n_repeats
    sd = (SPREAD if spread is None else spread) * new.abs()
    points.loc[mask, f"{name}_mean"] = new[mask]
    points.loc[mask, f"{name}_sd"] = sd.where(points["n_repeats"] > 1)[mask]
    return replace(given, points=prepared(points, is_pooled=n_repeats != 1))


def with_columns(given: Evidence, condition: str = "", **columns: Any) -> Evidence:
    """The same with other columns at some points, and its series on the devices of their points."""
    points, mask = given.points.copy(), where(given, condition)
    for name, value in columns.items():
        points[name] = points[name].astype(object)
        points.loc[mask, name] = value
    devices = [points["device"].get(next(iter(ids.values()))) for ids in given.series["ids"]]
    return replace(given, points=prepared(points), series=given.series.assign(device=devices))


def trace(
    configuration: str, device: str, lbs: int, powers: Iterable[float | None], **more: Any
) -> Trace:
    """A panel of figure 5: a sample each second, of 16 samples a GBS."""
    cells = {"configuration": configuration, "device": device, "gpus": 16 // lbs}
    cells |= {"local_batch_size": lbs, "global_batch_size": 16, "device_kind": "gpu"}
    return Trace(cells | {"energy_origin": "measured"} | more, pd.Series(list(powers), dtype=float))


def runs_of(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The table of runs with these rows; columns that a row lacks are null."""
    return frame_of([dict.fromkeys(RUNS.names) | dict(cells) for cells in rows], RUNS)


# --- verdicts ---------------------------------------------------------------------------------------

CLAIMS = {claim.id: claim for claim in read_claims()}
NEEDED = re.compile(
    r"\d+ (repeats|points)|\d+ more needed|\d+ more|GBS [0-9 and]+ are needed|\d+ are needed|needs? \d+|"
    r"points at GBS \d|no number of repeats|\d+ samples a second|\d+ comparisons|"
    r"an estimate with an interval, or a sensor"
)
"""How many repeats or points would do, or what else."""


def judged(id_: str, given: Evidence) -> Verdict:
    """The verdict on a claim."""
    return verdict_of(CLAIMS[id_], given)


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
