"""Fitting a campaign to a machine: batches that fit, samples that make energies known, a time limit."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.dataset_rules import sample_counts
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.gpu_study.trials import Asked, Trial

LEAST_UPDATES = 10
"""Of a point, however long they take."""
CLOSING_S = 6.0
"""What a run takes beside its training: its evaluation, checkpoint and perun's file. A guess, as is
PROCESS_S; both are for the time limit alone."""
PROCESS_S = 9.0
"""Of starting the processes of a run."""
COMPILE_S = 120.0
"""Of compiling a network from nothing; a guess too."""


@dataclass(frozen=True)
class Point:
    """One series of the fitted campaign, which has one point."""

    series: str
    spec: RunSpec
    """As the campaign has it."""
    trial: Trial
    repeats: int
    samples: int
    """It trains on so many."""

    @property
    def run_s(self) -> float:
        """Return the time that a run is expected to take."""
        assert self.trial.step_s is not None
        train_s = self.samples / self.trial.local_batch_size * self.trial.step_s
        compile_s = COMPILE_S if self.spec.settings["compile"] else 0.0
        return train_s + self.trial.start_s + compile_s + PROCESS_S + CLOSING_S


@dataclass(frozen=True)
class Fitted:
    """A campaign's content as it suits a machine, and what was left out of it."""

    content: dict[str, Any]
    minutes: float
    """All runs together are expected to take."""
    left_out: tuple[str, ...]


def asked_trials(campaign: Campaign, data_folders: Mapping[str, str]) -> list[Asked]:
    """Return a trial for each series, in their order; `data_folders` by the datasets' names."""
    specs = {name: _spec(campaign, name) for name in campaign.series}
    largest = _largest_of_lines(specs)
    return [
        Asked(spec, data_folders[spec.dataset["name"]], name in largest)
        for name, spec in specs.items()
    ]


def fit(
    content: Mapping[str, Any],
    campaign: Campaign,
    trials: Mapping[str, Trial],
    seconds: float,
    minutes: float,
) -> Fitted:
    """Return the campaign fitted: each point trains for `seconds`, all runs for `minutes` at most.

    Where that is too long, the most repeated series lose repeats, one at a time from the last on, then
    the last series are left out. InputError if nothing is left.
    """
    points, left_out = _points(campaign, trials, seconds)
    points, too_long = _within(points, minutes * 60)
    left_out += too_long
    if not points:
        raise InputError(
            f"{campaign.path}: nothing of it can be run in {max(minutes, 0):.1f} minutes:"
            f" {'; '.join(left_out)}"
        )
    made = copy.deepcopy(dict(content))
    made["series"] = {one.series: _entry(made["series"][one.series], one) for one in points}
    for figure in made["figures"].values():
        figure["series"] = [name for name in figure["series"] if name in made["series"]]
    total_s = sum(one.repeats * one.run_s for one in points)
    return Fitted(made, total_s / 60, tuple(left_out))


def _spec(campaign: Campaign, series: str) -> RunSpec:
    (configuration,) = campaign.series[series].points.values()
    return run_spec(campaign, configuration, 1)


def _line(spec: RunSpec) -> tuple[str, ...]:
    """Return what series share that differ in their batch alone."""
    return spec.model, spec.phase, repr(sorted(spec.settings.items())), spec.dataset["name"]


def _largest_of_lines(specs: Mapping[str, RunSpec]) -> set[str]:
    """Return, of several series that differ in their batch alone, the one with the largest.

    Fine-tuning keeps its batch, that of the pre-training before it.
    """
    lines: dict[tuple[str, ...], list[str]] = {}
    for name, spec in specs.items():
        if spec.phase == "finetune":
            continue
        lines.setdefault(_line(spec), []).append(name)
    return {
        max(names, key=lambda name: specs[name].local_batch_size)
        for names in lines.values()
        if len(names) > 1
    }


def _points(
    campaign: Campaign, trials: Mapping[str, Trial], seconds: float
) -> tuple[list[Point], list[str]]:
    points: dict[str, Point] = {}
    left_out = []
    seen: set[tuple[Any, ...]] = set()
    for name, series in campaign.series.items():
        spec = _spec(campaign, name)
        trial = trials[spec.configuration]
        if trial.step_s is None:
            left_out.append(f"{name}: not even a batch of 1 fits into the memory")
            continue
        key = (*_line(spec), trial.local_batch_size)
        if key in seen:
            left_out.append(
                f"{name}: LBS {trial.local_batch_size}, the largest that fits, is another's already"
            )
            continue
        seen.add(key)
        train, validation = sample_counts(spec.dataset)
        # A part of the dataset has as small a part of its validation samples: one at least.
        least = math.ceil(-(-train // validation) / trial.local_batch_size)
        steps = max(LEAST_UPDATES, least, math.ceil(seconds / trial.step_s))
        points[name] = Point(
            name, spec, trial, series.repeats, _whole_batches(spec, trial.local_batch_size, steps)
        )
    return _as_before_fine_tuning(points, left_out)


def _whole_batches(spec: RunSpec, batch: int, steps: int) -> int:
    """Return the samples of so many updates; of data, whole passes where one is not enough."""
    wanted, whole = batch * steps, _whole(spec)
    return wanted if wanted <= whole else math.ceil(wanted / whole) * whole


def _whole(spec: RunSpec) -> int:
    """Return the samples of the whole dataset."""
    return sample_counts(spec.dataset)[0]


def _as_before_fine_tuning(
    points: dict[str, Point], left_out: list[str]
) -> tuple[list[Point], list[str]]:
    """Let fine-tuning train on as many samples as the pre-training that it starts from, and both on enough.

    A fine-tuning without its pre-training, or with another batch than it, is left out.
    """
    for name, own in list(points.items()):
        before = _before(own, points.values()) if own.spec.phase == "finetune" else None
        if own.spec.phase != "finetune":
            continue
        if before is None:
            del points[name]
            left_out.append(
                f"{name}: the pre-training that it starts from is left out, or does not fit"
            )
            continue
        samples = max(own.samples, before.samples)
        points[name] = replace(own, samples=samples)
        points[before.series] = replace(before, samples=samples)
    return list(points.values()), left_out


def _before(own: Point, points: Iterable[Point]) -> Point | None:
    batch = own.trial.local_batch_size
    for one in points:
        same = one.spec.configuration == own.spec.configuration.replace(".finetune-", ".pretrain-")
        if same and one.trial.local_batch_size == batch:
            return one
    return None


def _within(points: Sequence[Point], limit_s: float) -> tuple[list[Point], list[str]]:
    """Return the points whose runs take `limit_s` at most, and what was left out for that."""
    kept, left_out = list(points), []
    while kept and sum(one.repeats * one.run_s for one in kept) > limit_s:
        most = max(one.repeats for one in kept)
        at = max(i for i, one in enumerate(kept) if one.repeats == most)
        if most > 1:
            left_out.append(f"{kept[at].series}: a repeat, for lack of time")
            kept[at] = replace(kept[at], repeats=most - 1)
            continue
        gone = kept.pop()
        left_out.append(f"{gone.series}: for lack of time")
        kept = [
            one for one in kept if one.spec.phase != "finetune" or _before(one, kept) is not None
        ]
    return _with_enough_repeats(kept), left_out


def _with_enough_repeats(points: Sequence[Point]) -> list[Point]:
    """Let no fine-tuning have more repeats than the pre-training that it starts from."""
    return [
        replace(one, repeats=min(one.repeats, before.repeats))
        if one.spec.phase == "finetune" and (before := _before(one, points)) is not None
        else one
        for one in points
    ]


def _entry(entry: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Return a series' entry with the point's batch, samples and repeats."""
    whole = _whole(point.spec)
    made = {**entry, "local_batch_size": point.trial.local_batch_size, "repeats": point.repeats}
    made.pop("dataset_fraction", None)
    if point.samples < whole:
        made["dataset_fraction"] = f"{point.samples}/{whole}"
    elif point.samples > whole:
        made["settings"] = {**entry.get("settings", {}), "epochs": point.samples // whole}
    return made
