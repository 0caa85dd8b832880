"""The modes of a campaign's series: what is constant along each, and how its dataset goes with n."""

from __future__ import annotations

from collections.abc import Mapping

from scalewatt.campaign.campaign_types import Campaign, Series


def modes_of(campaign: Campaign) -> dict[str, str]:
    """The mode of each series (see `evidence`)."""
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
    """The batch size that is the same at all points of a series, if one is."""
    there = [campaign.configurations[id_] for id_ in series.points.values()]
    name = series.constant
    values = {getattr(c, name) for c in there} if hasattr(there[0], name) else set()
    return values.pop() if len(values) == 1 else None
