"""The series of a campaign with their points, what is constant along each, and how its dataset goes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from scalewatt.campaign.campaign_types import Campaign, Series
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, Row, key_of_line
from scalewatt.claims.evidence.pooled_spread import pooled


def lines_of(campaign: Campaign, rows: Sequence[Row]) -> tuple[Line, ...]:
    """Return all series of a campaign, each with the points that `rows` (of configurations) has."""
    by_id = {row["configuration"]: row for row in rows}
    modes = modes_of(campaign)
    of_point: dict[str, tuple[str, ...]] = {}
    for name, series in campaign.series.items():
        for id_ in series.points.values():
            of_point[id_] = (*of_point.get(id_, ()), modes[name])
    lines = [
        Line(
            name,
            series.label,
            series.model,
            series.phase,
            series.device,
            modes[name],
            constant_of(campaign, series),
            tuple(
                Point(by_id[id_], of_point[id_], _total(campaign, id_), _chance(campaign, id_))
                for _, id_ in sorted(series.points.items())
                if id_ in by_id
            ),
            tuple(sorted(series.points)),
        )
        for name, series in campaign.series.items()
    ]
    there = Counter(map(key_of_line, lines))
    return tuple(replace(line, alike=there[key_of_line(line)] > 1) for line in lines)


def _total(campaign: Campaign, id_: str) -> int | None:
    """Return samples of the whole dataset that a configuration trains on a part of."""
    one = campaign.configurations[id_]
    if one.dataset_samples is None:
        return None
    fraction = Fraction(one.dataset_fraction)
    if fraction == 1:
        return one.dataset_samples
    total = one.dataset.get("train_samples")
    return None if total is None else int(total)


def _chance(campaign: Campaign, id_: str) -> float | None:
    """Return the error of guessing less two standard deviations over the validation set, in percent."""
    one = campaign.configurations[id_]
    classes, samples = one.dataset.get("classes"), one.validation_samples
    if not classes or not samples:
        return None
    hits = 1 / classes
    return float(100 * (1 - hits - 2 * math.sqrt(hits * (1 - hits) / samples)))


def with_points(evidence: Evidence) -> Evidence:
    """Return the same with `points`: those of all lines, each once, with what repeats say of their spread."""
    there = {point.id: point for line in evidence.lines for point in line.points}
    spreads = {} if evidence.published else pooled(point.row for point in there.values())

    def told(points: Iterable[Point]) -> tuple[Point, ...]:
        return tuple(replace(point, spreads=spreads) for point in points)

    lines = tuple(replace(line, points=told(line.points)) for line in evidence.lines)
    return replace(evidence, lines=lines, points=told(there.values()))


def modes_of(campaign: Campaign) -> dict[str, str]:
    """Return the mode of each series (see `evidence`)."""
    longest: dict[tuple[str, str], int] = {}
    smallest: dict[tuple[str, ...], int] = {}
    for series in campaign.series.values():
        key = (series.model, series.phase)
        longest[key] = max(longest.get(key, 0), _epochs(campaign, series))
    found = {name: _mode(campaign, series, longest) for name, series in campaign.series.items()}
    keys: dict[str, tuple[str, ...]] = {}
    for name, series in campaign.series.items():
        if found[name].endswith("gbs"):
            keys[name] = (series.model, series.phase, series.device, found[name])
            constant = constant_of(campaign, series) or 0
            smallest[keys[name]] = min(smallest.get(keys[name], constant), constant)
    for name, of_gbs in keys.items():
        is_small = (constant_of(campaign, campaign.series[name]) or 0) == smallest[of_gbs]
        found[name] += "_s" if is_small else "_l"
    return found


def _mode(campaign: Campaign, series: Series, longest: Mapping[tuple[str, str], int]) -> str:
    if _epochs(campaign, series) < longest[series.model, series.phase]:
        return "probe"
    if series.constant == "neither":
        return "other"
    data = "sd" if series.is_scaled else "fd"
    return data + ("_gbs" if series.constant == "global_batch_size" else "_lbs")


def _epochs(campaign: Campaign, series: Series) -> int:
    return max(campaign.configurations[id_].epochs for id_ in series.points.values())


def constant_of(campaign: Campaign, series: Series) -> int | None:
    """Return the batch size that is the same at all points of a series, if one is."""
    there = [campaign.configurations[id_] for id_ in series.points.values()]
    name = series.constant
    values = {getattr(c, name) for c in there} if hasattr(there[0], name) else set()
    return values.pop() if len(values) == 1 else None
