"""Runs of a submission to MLPerf Training on the lines of figures, and which of them are repeats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.registered_campaign import Point, configuration_id
from scalewatt.registration.campaign_file import point_of
from scalewatt.registration.recording_discovery import Recorded
from scalewatt.registration.run_descriptions import Description


@dataclass(frozen=True)
class FoundRun:
    """One run with all that is known of it."""

    description: Description
    recorded: Recorded
    nodes: int
    stages: tuple[dict[str, Any], ...]
    place: tuple[str, str]
    """Submission and system: only runs of the same ones are repeats."""

    @property
    def id(self) -> str:
        """Return the id of its configuration."""
        return configuration_id(self.description.entry, point_of(self.description, self.nodes))

    def at(self, point: Point) -> FoundRun:
        """Return it at another point."""
        return replace(self, description=replace(self.description, point=point))


@dataclass(frozen=True)
class LeftOut:
    """A run that is not registered, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Line:
    """A line of the figures."""

    name: str
    label: str
    runs: tuple[FoundRun, ...]


def on_lines(found: Sequence[FoundRun]) -> tuple[list[FoundRun], list[LeftOut]]:
    """Return the runs, each told its line at its global batch size and whether seeds varied there.

    A line has one configuration at each number of GPUs; runs of another one there are left out.
    """
    runs = _told_apart(found)
    placed: dict[int, FoundRun] = {}
    left_out: dict[int, LeftOut] = {}
    for line in _lines(runs, "global"):
        kept, beside = _one_configuration_each(line)
        left_out |= {id(one): _beside(one, line) for one in beside}
        varied = {"seeds": "varied"} if _seeds_vary(kept) else {}
        for one in kept:
            own = one.description
            given = {"series": line.name, "label": line.label, **own.given}
            entry = {**own.entry, **varied}
            placed[id(one)] = replace(one, description=replace(own, entry=entry, given=given))
    return (
        [placed[id(one)] for one in runs if id(one) in placed],
        [left_out[id(one)] for one in runs if id(one) in left_out],
    )


def _told_apart(found: Sequence[FoundRun]) -> list[FoundRun]:
    """Return the runs, with a variant of their own where several submissions or systems have the same.

    Those are no repeats: their nodes, and where power is read, may differ.
    """
    places: dict[str, set[tuple[str, str]]] = {}
    for one in found:
        places.setdefault(one.id, set()).add(one.place)
    return [
        one.at({**one.description.point, "variant": _variant(one, places[one.id])})
        if len(places[one.id]) > 1
        else one
        for one in found
    ]


def _variant(one: FoundRun, places: set[tuple[str, str]]) -> str:
    """Return what sets a run apart: its submission, its system or both, and the user's own variant."""
    differ = [
        part
        for part, all_of in zip(one.place, zip(*places, strict=True), strict=True)
        if len(set(all_of)) > 1
    ]
    told = one.description.point.get("variant")
    return "_".join(re.sub(r"[^A-Za-z0-9.]+", "_", part) for part in filter(None, (told, *differ)))


def _one_configuration_each(line: Line) -> tuple[list[FoundRun], list[FoundRun]]:
    """Return the runs of the configuration that most runs at a number of GPUs have, and the others."""
    if any("series" in one.description.given for one in line.runs):
        return list(line.runs), []  # the user has told their lines
    ids = {
        gpus: [one.id for one in line.runs if _gpus(one) == gpus] for gpus in map(_gpus, line.runs)
    }
    most = {gpus: max(own, key=own.count) for gpus, own in ids.items()}
    kept = [one for one in line.runs if one.id == most[_gpus(one)]]
    return kept, [one for one in line.runs if one.id != most[_gpus(one)]]


def _beside(one: FoundRun, line: Line) -> LeftOut:
    where = one.description.where
    return LeftOut(
        Path(where),
        f"{where}: is another configuration ({one.id}) than most runs of {line.label} on {_gpus(one)} "
        "GPUs; a row of --table with its path, and a variant or series, sets it apart",
    )


def _gpus(one: FoundRun) -> int:
    return int(one.description.point["gpus"])


def _seeds_vary(runs: Sequence[FoundRun]) -> bool:
    """Return True if the repeats of each configuration had a seed of their own."""
    seeds = [(str(one.description.point), one.description.given["seed"]) for one in runs]
    return all(seed is not None for _, seed in seeds) and len(set(seeds)) == len(seeds)


def series_of(runs: Sequence[FoundRun]) -> list[Line]:
    """Return the lines at one local batch size along which GPUs and global batch size grow."""
    lines = _lines(runs, "local")
    return [
        replace(line, label=f"{line.label} ({_batches(line)})")
        for line in lines
        if len(set(map(_gpus, line.runs))) > 1
        and len({_batch(one, "global") for one in line.runs}) > 1
    ]


def _batches(line: Line) -> str:
    """Return the range of a line's global batch sizes."""
    found = [_batch(one, "global") for one in line.runs]
    return f"GBS {min(found)} to {max(found)}"


def _lines(runs: Sequence[FoundRun], key: str) -> list[Line]:
    """Sort runs to lines at one `global` or `local` batch size, of one training on one device."""
    found: dict[tuple[Any, ...], list[FoundRun]] = {}
    for one in runs:
        found.setdefault((*_training(one), _batch(one, key)), []).append(one)
    word = "GBS" if key == "global" else "LBS"
    return [
        Line(
            "-".join(filter(None, (model, device, f"{word.lower()}{batch:04d}", variant))),
            ", ".join(filter(None, (model, f"{word} {batch}", variant))),
            tuple(own),
        )
        for (model, device, _, variant, batch), own in found.items()
    ]


def _training(one: FoundRun) -> tuple[Any, ...]:
    entry, point = one.description.entry, one.description.point
    return entry["model"], entry["device"], point["dataset_samples"], point.get("variant")


def _batch(one: FoundRun, key: str) -> int:
    point = one.description.point
    local = int(point["local_batch_size"])
    return local if key == "local" else local * (_gpus(one) // point.get("gpus_per_replica", 1))
