"""A part of a campaign: the points up to a number of GPUs (`max_gpus`), or chosen runs (`only`).

What is left out is out of tables, figures and totals too, and is named. Its results stay where they are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Series
from scalewatt.common.errors import InputError

MAX_GPUS, ONLY = "max_gpus", "only"
_CHOICE = re.compile(r"([^/\s,]+)(?:/([1-9][0-9]{0,8}))?")
_MOST_NAMES = 6
"""Of configurations, in a message."""

Repeats = Mapping[str, tuple[int, ...]]
"""Numbers of the repeats, by configuration."""


def part_of(campaign: Campaign, max_gpus: int | None, only: str | None) -> Campaign:
    """Return a campaign without points of more than `max_gpus` GPUs and, with `only`, of these runs alone.

    `only`: CONFIGURATION/REPEAT or CONFIGURATION, several with commas or spaces. With a run that starts
    from another's weights comes that one. Of runs that were made elsewhere nothing is too large.
    InputError for a name that is unknown, and if nothing is left.
    """
    elsewhere = campaign.registered or campaign.imported is not None
    if max_gpus is not None and not elsewhere:
        campaign = _up_to(campaign, max_gpus)
    if only is None:
        return campaign
    if campaign.imported is not None:
        raise InputError(
            f"{ONLY}: {campaign.path} came with an archive, whose tables and figures are of all its "
            f"runs; allowed: a campaign of runs that are made or registered here"
        )
    return _only(campaign, only)


# --- up to a number of GPUs -----------------------------------------------------------------------


def _up_to(whole: Campaign, most: int) -> Campaign:
    kept = {
        id_: tuple(whole.repeats_of(id_))
        for id_, one in whole.configurations.items()
        if one.gpus <= most
    }
    if not kept:
        least = min(one.gpus for one in whole.configurations.values())
        raise InputError(
            f"{MAX_GPUS}: {most}: {whole.path} has no point of so few GPUs; allowed: {least} or more"
        )
    if len(kept) == len(whole.configurations):
        return whole
    part = _part(whole, kept)
    left_out = _larger_points(whole.series.values(), most)
    return replace(part, left_out=(*left_out, *_figures_left_out(whole, part, MAX_GPUS)))


def _larger_points(series: Iterable[Series], most: int) -> list[str]:
    """Return one sentence for each series of the campaign file with larger points."""
    found: dict[str, str] = {}
    for one in series:
        larger = [str(gpus) for gpus in one.points if gpus > most]
        if larger:
            of = "all" if len(larger) == len(one.points) else "points"
            found[one.written] = (
                f"{MAX_GPUS} {most} leaves out {of} of series.{one.written}: {_listed(larger)} GPUs"
            )
    return list(found.values())


# --- chosen runs ----------------------------------------------------------------------------------


def _only(whole: Campaign, text: str) -> Campaign:
    chosen = _chosen(whole, text)
    kept, sources = _with_weights(whole, chosen)
    part = _part(whole, kept)
    number = sum(map(len, kept.values()))
    limits = [f"{ONLY}: {number} of {sum(whole.repeats.values())} runs"]
    limits += [
        f"{ONLY}: with {source}, whose weights {run} starts from" for run, source in sources.items()
    ]
    left_out = (*whole.left_out, *limits, *_figures_left_out(whole, part, ONLY))
    return replace(part, only=kept, left_out=left_out)


def _chosen(whole: Campaign, text: str) -> dict[str, set[int]]:
    """Return the repeats that a text names, by configuration; InputError names what is wrong."""
    words = re.split(r"[,\s]+", text.strip(" \t\n,"))
    chosen: dict[str, set[int]] = {}
    for word in words:
        found = _CHOICE.fullmatch(word)
        if found is None:
            raise InputError(
                f"{ONLY}: '{word[:200]}'; expected CONFIGURATION/REPEAT, or CONFIGURATION for all its "
                f"repeats, such as {next(iter(whole.configurations))}/1; several with commas"
            )
        name, repeat = found[1], found[2]
        if name not in whole.configurations:
            raise InputError(_unknown(whole, name))
        repeats = whole.repeats_of(name)
        if repeat is not None and int(repeat) not in repeats:
            last = f" to {repeats[-1]}" if len(repeats) > 1 else ""
            raise InputError(f"{ONLY}: {name} has no repeat {repeat}; allowed: {repeats[0]}{last}")
        chosen.setdefault(name, set()).update(repeats if repeat is None else [int(repeat)])
    return chosen


def _unknown(campaign: Campaign, name: str) -> str:
    """Return that there is no such configuration, why, and which ones are near."""
    file = campaign.path
    if name in campaign.whole.configurations:
        gpus = campaign.whole.configurations[name].gpus
        return f"{ONLY}: {name} is of {gpus} GPUs, and {MAX_GPUS} leaves it out; allowed: a smaller one"
    if name in campaign.series:
        near = list(campaign.series[name].points.values())
        what = f"'{name}' is a series of {file}; its configurations are"
    else:
        near = difflib.get_close_matches(name, campaign.configurations, n=3, cutoff=0.6)
        what = f"no configuration '{name}' in {file}; " + ("near are" if near else "it has")
    shown = (near or list(campaign.configurations))[:_MOST_NAMES]
    return f"{ONLY}: {what} {', '.join(shown)}; `scalewatt campaign {file}` lists all"


def _with_weights(
    whole: Campaign, chosen: Mapping[str, set[int]]
) -> tuple[Repeats, dict[str, str]]:
    """Return the chosen runs with those whose weights they start from, and these by who needs them."""
    found = {id_: set(repeats) for id_, repeats in chosen.items()}
    sources: dict[str, str] = {}
    for id_, repeats in chosen.items():
        source = whole.configurations[id_].initial_weights
        if source is not None:
            more = sorted(repeats - chosen.get(source, set()))
            sources |= {f"{id_}/{repeat}": f"{source}/{repeat}" for repeat in more}
            found.setdefault(source, set()).update(repeats)
    return {id_: tuple(sorted(found[id_])) for id_ in whole.configurations if id_ in found}, sources


# --- what is left ---------------------------------------------------------------------------------


def _part(whole: Campaign, kept: Repeats) -> Campaign:
    """Return the campaign of these runs alone, with what of its series and figures is of them."""
    series = {
        name: replace(one, points={n: id_ for n, id_ in one.points.items() if id_ in kept})
        for name, one in whole.series.items()
        if set(one.points.values()) & kept.keys()
    }
    figures = {name: _figure(content, series) for name, content in whole.figures.items()}
    return replace(
        whole,
        series=series,
        configurations={id_: one for id_, one in whole.configurations.items() if id_ in kept},
        repeats={id_: len(kept[id_]) for id_ in whole.configurations if id_ in kept},
        figures={name: content for name, content in figures.items() if content is not None},
        part_of=whole.whole,
    )


def _figure(content: Mapping[str, Any], series: Mapping[str, Series]) -> dict[str, Any] | None:
    """Return what a figure shows of the series that are left; None if nothing."""
    shown = dict(content)
    if "points" in shown:
        shown["points"] = [
            point
            for point in shown["points"]
            if point["series"] in series and point["gpus"] in series[point["series"]].points
        ]
        return shown if shown["points"] else None
    for key in ("series", "baselines"):
        if key in shown:
            shown[key] = [name for name in shown[key] if name in series]
    if "baselines" in shown:  # what has none any more is compared with nothing
        kinds = {(series[name].model, series[name].phase) for name in shown["baselines"]}
        shown["series"] = [
            name for name in shown["series"] if (series[name].model, series[name].phase) in kinds
        ]
    return shown if shown["series"] else None


def _figures_left_out(whole: Campaign, part: Campaign, by: str) -> list[str]:
    names = [name for name in whole.figures if name not in part.figures]
    return [f"{by}: no run is left to show in {_listed(names)}"] if names else []


def _listed(words: list[str]) -> str:
    """Return 'a, b and c'."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
