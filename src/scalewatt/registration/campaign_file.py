"""The campaign file of registered runs: new points join it, what the user edited stays."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.operating_points import point_of as operating_point
from scalewatt.campaign.registered_campaign import (
    TARGET_PROTOCOL,
    configuration_id,
    extras,
    series_key,
    work_key,
)
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.registration.run_descriptions import Description
from scalewatt.results.text.number_format import count

Content = dict[str, Any]

_HEAD = """\
# Runs that were made elsewhere, as `scalewatt register {name}` wrote them. Edit series' labels and
# the figures as you like: later registrations keep them (comments they do not keep).
"""
_SERIES_KEYS = ("model", "phase", "device", "metric_name")
_PANELS_OF_FIGURE5 = 4
_ROWS_OF_TABLE1 = 1000
"""As many as a campaign file may name."""


def new_content(name: str) -> Content:
    """Begin a campaign without series."""
    return {"registered": True, "name": name, "series": {}, "figures": {}}


def point_of(one: Description, nodes: int) -> dict[str, Any]:
    """Point of a description, with the nodes that it ran on."""
    geometry = {"gpus": one.point["gpus"], **({"nodes": nodes} if nodes > 1 else {})}
    return {**geometry, **one.point}


def with_runs(content: Content, runs: Iterable[tuple[Description, int, int]]) -> Content:
    """Add runs to the campaign (each with its nodes and repeat), in their series and points.

    InputError if a series is of something else, or has another configuration there.
    """
    content = copy.deepcopy(content)
    series_of_id: dict[str, str] = {}
    for name, entry in content["series"].items():
        for point in entry["points"]:
            series_of_id.setdefault(configuration_id(entry, point), name)
    for one, nodes, repeat in runs:
        _add_run(content["series"], series_of_id, one, point_of(one, nodes), repeat)
    return content


def _add_run(
    series: dict[str, Any],
    series_of_id: dict[str, str],
    one: Description,
    point: dict[str, Any],
    repeat: int,
) -> None:
    id_ = configuration_id(one.entry, point)
    name = _series_of(series_of_id, one, id_, point)
    phase = [one.entry["phase"]] if "phase" in one.entry else []
    words = [" ".join([one.entry["model"], *phase]), one.entry["device"]]
    label = ", ".join([*words, _batch(one, point, "{}BS {}"), *extras(point)])
    entry = series.setdefault(
        name, {"label": one.given.get("label", label), **one.entry, "points": []}
    )
    for key in _SERIES_KEYS:
        if entry.get(key) != one.entry.get(key):
            raise InputError(
                f"{one.where}: {key}: {one.entry.get(key)}, but series '{name}' has {entry.get(key)}; "
                "allowed: the same, or another series"
            )
    there = next((p for p in entry["points"] if p["gpus"] == point["gpus"]), None)
    if there is None:
        entry["points"].append({**point, "repeats": repeat})
        entry["points"].sort(key=lambda p: p["gpus"])
        series_of_id.setdefault(id_, name)
    elif configuration_id(entry, there) == id_:
        there["repeats"] = max(repeat, there.get("repeats", 1))
    else:
        raise InputError(
            f"{one.where}: series '{name}' has at {count(point['gpus'], 'GPU')} "
            f"{configuration_id(entry, there)}, not {id_}; allowed: another series for this run"
        )


def with_line(
    content: Content,
    name: str,
    label: str,
    runs: Sequence[tuple[dict[str, Any], dict[str, Any]]],
) -> Content:
    """Add a line to the campaign through points that other series have too.

    `runs`: series keys and point of each run on it; what the user made of a line of that name stays.
    """
    content = copy.deepcopy(content)
    entry = content["series"].setdefault(name, {"label": label, **runs[0][0], "points": []})
    repeats = {
        configuration_id(one, p): p.get("repeats", 1)
        for one in content["series"].values()
        for p in one["points"]
    }
    there = {configuration_id(entry, p): p for p in entry["points"]}
    for own, point in runs:
        id_ = configuration_id(own, point)
        if id_ not in there and all(p["gpus"] != point["gpus"] for p in there.values()):
            there[id_] = {**point}
        if id_ in there:
            there[id_]["repeats"] = repeats.get(id_, 1)
    entry["points"] = sorted(there.values(), key=lambda p: p["gpus"])
    return content


def _series_of(
    series_of_id: dict[str, str], one: Description, id_: str, point: dict[str, Any]
) -> str:
    wanted = one.given.get("series")
    name = series_of_id.get(id_)
    if name is not None:
        if wanted not in (None, name):
            raise InputError(
                f"{one.where}: series: '{wanted}', but {id_} is in series '{name}'; allowed: "
                f"{name}, or a variant that sets this configuration apart"
            )
        return name
    return wanted or "-".join(
        [
            series_key(one.entry),
            one.entry["device"],
            _batch(one, point, "{}bs{:04d}").lower(),
            work_key(point),
            *extras(point),
        ]
    )


def _batch(one: Description, point: dict[str, Any], form: str) -> str:
    local = point["local_batch_size"]
    replicas = point["gpus"] // point.get("gpus_per_replica", 1)
    if one.constant == "local_batch_size":
        return form.format("L", local)
    return form.format("G", local * replicas)


def with_figures(content: Content, before: Content) -> Content:
    """Add figures for the campaign's series; those that the user edited are kept."""
    edited = before["figures"] != default_figures(before["series"])
    figures = before["figures"] if edited else default_figures(content["series"])
    return {**content, "figures": figures}


def default_figures(series: dict[str, Any]) -> dict[str, Any]:
    """Choose curves and rates of two models, one device's power, and the table of all points.

    FourCastNet takes the paper's figures of it (4 and 7), any other model those of ResNet50 (2, or 3
    where the dataset grows, and 6); a second other model takes 4 and 7 if they are free. Trainings to a
    target share figures 2 and 6; in 4 and 7 are those again whose global batch size grows. Where every
    series is one operating point on one number of GPUs, no curve shows anything: the table alone.
    """
    if not series:
        return {}
    if all(len(e["points"]) == 1 and operating_point(e["points"][0]) for e in series.values()):
        return _figures_of_operating_points(series)
    if all(p.get("protocol") == TARGET_PROTOCOL for e in series.values() for p in e["points"]):
        return _figures_to_target(series)
    models = list(dict.fromkeys(entry["model"] for entry in series.values()))
    others = [model for model in models if model != "fourcastnet"]
    second = "fourcastnet" if "fourcastnet" in models else (others[1:] or [None])[0]
    shown: dict[str, list[str]] = {f"figure{n}": [] for n in (2, 3, 4, 6, 7)}
    for name, entry in series.items():
        if entry["model"] == second:
            numbers = (4, 7)
        elif entry["model"] == others[0]:
            grows = len({p["dataset_samples"] for p in entry["points"]}) > 1
            numbers = (3 if grows else 2, 6)
        else:
            continue
        for number in numbers:
            shown[f"figure{number}"].append(name)
    largest = [{"series": n, "gpus": e["points"][-1]["gpus"]} for n, e in series.items()]
    every = [{"series": n, "gpus": p["gpus"]} for n, e in series.items() for p in e["points"]]
    figures: dict[str, Any] = {f: {"series": names} for f, names in shown.items() if names}
    figures["figure5"] = {"points": largest[:_PANELS_OF_FIGURE5]}
    figures["table1"] = {"points": every}
    return dict(sorted(figures.items()))


def _figures_of_operating_points(series: dict[str, Any]) -> dict[str, Any]:
    """Choose the figure of operating points, and the table of all points where they are not too many."""
    points = [{"series": n, "gpus": e["points"][0]["gpus"]} for n, e in series.items()]
    figures: dict[str, Any] = {"operating_points": {"series": list(series)}}
    if len(points) <= _ROWS_OF_TABLE1:
        figures["table1"] = {"points": points}
    return figures


def _figures_to_target(series: dict[str, Any]) -> dict[str, Any]:
    """Choose the figures of trainings to a target, of any models: their energies share an axis."""
    several = {name: entry for name, entry in series.items() if len(entry["points"]) > 1}
    growing = [name for name, entry in several.items() if _grows(entry)]
    constant = [name for name in several if name not in growing]
    most: dict[str, dict[str, Any]] = {}
    points: dict[str, dict[str, Any]] = {}
    for name, entry in series.items():
        for point in entry["points"]:
            one = {"series": name, "gpus": point["gpus"]}
            points.setdefault(configuration_id(entry, point), one)
            if point["gpus"] > most.get(entry["model"], {"gpus": 0})["gpus"]:
                most[entry["model"]] = one
    figures: dict[str, Any] = {}
    for names, numbers in (([*constant, *growing] or list(series), (2, 6)), (growing, (4, 7))):
        figures |= {f"figure{number}": {"series": names} for number in numbers if names}
    figures["figure5"] = {"points": list(most.values())[:_PANELS_OF_FIGURE5]}
    figures["breakdown"] = {"series": [name for name in series if name not in growing]}
    figures["table1"] = {"points": list(points.values())}
    return dict(sorted(figures.items()))


def _grows(entry: dict[str, Any]) -> bool:
    """True if the global batch size grows along a series."""
    replicas = (p["gpus"] // p.get("gpus_per_replica", 1) for p in entry["points"])
    batches = {p["local_batch_size"] * n for p, n in zip(entry["points"], replicas, strict=True)}
    return len(batches) > 1


def not_drawn(content: Content) -> list[str]:
    """Names of the series that no curve shows."""
    drawn = {name for figure in content["figures"].values() for name in figure.get("series", ())}
    return [name for name in content["series"] if name not in drawn]


def write_campaign(path: Path, content: Content) -> None:
    """Write the file, human-readable and to be edited."""
    body = yaml.dump(
        content, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    write_text(path, _HEAD.format(name=content["name"]) + body)
