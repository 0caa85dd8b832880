"""A part of a campaign: the points up to a number of GPUs (`max_gpus`), or chosen runs (`only`).

What is left out is out of tables, figures and totals too, and is counted. Its results stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Series
from scalewatt.common.errors import InputError, nearest

_CHOICE = re.compile(r"([^/\s,]+)(?:/([1-9][0-9]{0,8}))?")


def part_of(campaign: Campaign, max_gpus: int | None, only: str | None) -> Campaign:
    """A campaign without points of more than `max_gpus` GPUs and, with `only`, of these runs alone.

    `only`: CONFIGURATION/REPEAT or CONFIGURATION, several with commas or spaces. With a run that starts
    from another's weights comes that one. Of registered runs nothing is too large.
    InputError for a name that is unknown, and if nothing is left.
    """
    if max_gpus is not None and not campaign.registered:
        campaign = _up_to(campaign, max_gpus)
    if only is None:
        return campaign
    kept = _chosen(campaign, only)
    return replace(_part(campaign, kept, "only"), only=kept)


def _up_to(whole: Campaign, most: int) -> Campaign:
    """The points of at most `most` GPUs."""
    points = whole.configurations.values()
    kept = {point.id: tuple(whole.repeats_of(point.id)) for point in points if point.gpus <= most}
    if not kept:
        raise InputError(
            f"max_gpus: {most}: {whole.path} has no point of so few GPUs; allowed: "
            f"{min(point.gpus for point in points)} or more"
        )
    return whole if len(kept) == len(points) else _part(whole, kept, f"max_gpus {most}")


def _chosen(whole: Campaign, text: str) -> dict[str, tuple[int, ...]]:
    """Repeats that a text names, by configuration, with those whose weights they start from."""
    chosen: dict[str, set[int]] = {}
    for word in re.split(r"[,\s]+", text.strip(" \t\n,")):
        match = _CHOICE.fullmatch(word)
        if match is None:
            raise InputError(
                f"only: '{word[:200]}'; expected CONFIGURATION/REPEAT, or CONFIGURATION for all its "
                f"repeats, such as {next(iter(whole.configurations))}/1; several with commas"
            )
        id_, repeat = match[1], match[2]
        if id_ not in whole.configurations:
            raise InputError(
                f"only: no configuration '{id_}' in {whole.path}{nearest(id_, whole.configurations)}; "
                f"`scalewatt campaign {whole.path}` lists all"
            )
        repeats = whole.repeats_of(id_)
        if repeat is not None and int(repeat) not in repeats:
            raise InputError(
                f"only: {id_} has no repeat {repeat}; allowed: {repeats[0]} to {repeats[-1]}"
            )
        numbers = set(repeats) if repeat is None else {int(repeat)}
        source = whole.configurations[id_].initial_weights
        for name in filter(None, (id_, source)):
            chosen.setdefault(name, set()).update(numbers)
    return {id_: tuple(sorted(chosen[id_])) for id_ in whole.configurations if id_ in chosen}


# --- what is left ---------------------------------------------------------------------------------


def _part(whole: Campaign, kept: Mapping[str, tuple[int, ...]], key: str) -> Campaign:
    """The campaign of these runs alone, with what of its series and figures is of them."""
    series = {
        name: replace(s, points={n: id_ for n, id_ in s.points.items() if id_ in kept})
        for name, s in whole.series.items()
        if set(s.points.values()) & kept.keys()
    }
    figures = {name: _figure(content, series) for name, content in whole.figures.items()}
    repeats = {id_: len(numbers) for id_, numbers in kept.items()}
    left_out = [f"{key}: {sum(repeats.values())} of {sum(whole.repeats.values())} runs"]
    if empty := [name for name, content in figures.items() if content is None]:
        left_out.append(f"{key}: no run is left to show in {', '.join(empty)}")
    return replace(
        whole,
        series=series,
        configurations={id_: whole.configurations[id_] for id_ in kept},
        repeats=repeats,
        figures={name: content for name, content in figures.items() if content is not None},
        left_out=(*whole.left_out, *left_out),
        part_of=whole.whole,
    )


def _figure(content: Mapping[str, Any], series: Mapping[str, Series]) -> dict[str, Any] | None:
    """Content of a figure with the series that are left; None if nothing is."""
    shown = dict(content)
    if "points" in shown:
        shown["points"] = [
            point
            for point in shown["points"]
            if point["series"] in series and point["gpus"] in series[point["series"]].points
        ]
        return shown if shown["points"] else None
    for key in {"series", "baselines"} & shown.keys():
        shown[key] = [name for name in shown[key] if name in series]
    if "baselines" in shown:  # what has none any more is compared with nothing
        kinds = {(series[name].model, series[name].phase) for name in shown["baselines"]}
        shown["series"] = [
            name for name in shown["series"] if (series[name].model, series[name].phase) in kinds
        ]
    return shown if shown["series"] else None
