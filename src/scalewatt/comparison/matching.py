"""Match the configurations of two campaigns by what they are, not by their names.

Two configurations are the same where KEY agrees. Where a campaign has several of one KEY, as of variants or
devices, what they differ in has to agree too; of those that remain, a single one of each campaign that
differ in nothing but the device are compared, and the device is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scalewatt.campaign.operating_points import LEVERS, label_of
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.comparison.compared_source import Row, Source
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.results.text.number_format import listed

KEY = (
    *("model", "phase", "gpus", "gpus_per_replica", "gradient_accumulation_steps"),
    *("local_batch_size", "global_batch_size", "dataset_fraction", "precision"),
    *LEVERS,
)
"""What two configurations must share."""
OF_CAMPAIGN = ("protocol", "sampling_period_s")
"""Keys of a spec that are the campaign's, and no model's."""
_OF_PLACE = ("nodes", "ranks_per_node")
"""What follows from the machine and n."""
DEVICE = "device"
_PASSES = ("gpus_per_replica", "gradient_accumulation_steps")


@dataclass(frozen=True)
class Training:
    """One configuration of a source, with its runs."""

    id: str
    key: tuple[Any, ...]
    """The values of KEY."""
    settings: dict[str, str]
    """All other settings as JSON, by name with dots; of several values those of all repeats."""
    rows: tuple[Row, ...]
    spec: RunSpec
    """Of its first repeat."""
    simulated: bool
    seeds: Mapping[int, int | None]
    """The seed of each repeat."""

    @property
    def device(self) -> str:
        """The device's name in its campaign."""
        return self.spec.device

    def label(self, word: str) -> str:
        """Return what it is in a few words; n counts `word`, GPUs or processes."""
        key = dict(zip(KEY, self.key, strict=True))
        parts = [
            key["model"] if key["phase"] == "train" else f"{key['model']} {key['phase']}",
            f"{word} {key['gpus']}",
            f"LBS {key['local_batch_size']}",
            f"GBS {key['global_batch_size']}",
            *(f"{name.replace('_', ' ')} {key[name]}" for name in _PASSES if key[name] > 1),
            "" if key["dataset_fraction"] == "1" else f"{key['dataset_fraction']} of the data",
            key["precision"] or "",
            label_of({lever: key[lever] for lever in LEVERS if key[lever] is not None}),
        ]
        return ", ".join(filter(None, parts))


class Pair(NamedTuple):
    """The same training in both campaigns."""

    a: Training
    b: Training


class Alone(NamedTuple):
    """A training that only one campaign has, and what the other has instead; empty if nothing alike."""

    training: Training
    why: str


class Matched(NamedTuple):
    """What two campaigns have in common, and what not."""

    pairs: list[Pair]
    only_a: list[Alone]
    only_b: list[Alone]


def trainings_of(source: Source) -> list[Training]:
    """Return a source's configurations by model and size."""
    by_id: dict[str, list[Row]] = {}
    for row in source.runs:
        by_id.setdefault(row["configuration"], []).append(row)
    trainings = [_training(id_, rows, source) for id_, rows in by_id.items()]
    return sorted(trainings, key=lambda one: ([_sortable(v) for v in one.key], one.device, one.id))


def _sortable(value: Any) -> tuple[bool, str, float]:
    """Return a key that sorts texts, numbers and nothing."""
    if value is None or isinstance(value, str):
        return value is not None, value or "", 0.0
    return True, "", float(value)


def _training(id_: str, rows: Sequence[Row], source: Source) -> Training:
    keys = [(id_, row["repeat"]) for row in rows]
    specs = [source.specs[key] for key in keys]
    first, spec = rows[0], specs[0]
    of_spec = {name: getattr(spec, name) for name in ("dataset_fraction", *_PASSES)}
    key = tuple(of_spec[name] if name in of_spec else first[name] for name in KEY)
    simulated = any(source.provenance.get(key, {}).get(SIMULATED_KEY) for key in keys)
    seeds = {spec.repeat: spec.seed for spec in specs}
    return Training(id_, key, _settings_of(specs), tuple(rows), spec, simulated, seeds)


def _settings_of(specs: Sequence[RunSpec]) -> dict[str, str]:
    """Return the settings of a configuration's specs as JSON, by name with dots, but for KEY and seeds."""
    texts: dict[str, dict[str, None]] = {}
    for spec in specs:
        names = (
            DEVICE,
            *_OF_PLACE,
            *OF_CAMPAIGN,
            "epochs",
            "dataset_samples",
            "validation_samples",
        )
        content = {name: getattr(spec, name) for name in names}
        content |= {f"dataset.{name}": value for name, value in spec.dataset.items()}
        content |= {f"settings.{n}": value for n, value in spec.settings.items() if n not in KEY}
        for name, value in content.items():
            texts.setdefault(name, {})[json.dumps(value, sort_keys=True)] = None
    return {name: ", ".join(values) for name, values in texts.items()}


def match(a: Sequence[Training], b: Sequence[Training]) -> Matched:
    """Return the pairs of the same training, in the order of `a`, and what is left of both."""
    matched = Matched([], [], [])
    for key in dict.fromkeys(training.key for training in (*a, *b)):
        ours, theirs = ([t for t in side if t.key == key] for side in (a, b))
        varied = _varied(ours) | _varied(theirs)
        left_a, left_b = ours, theirs
        for by in (varied, varied - {DEVICE}):
            pairs = _alike(left_a, left_b, by)
            matched.pairs.extend(pairs)
            left_a = [t for t in left_a if t not in [pair.a for pair in pairs]]
            left_b = [t for t in left_b if t not in [pair.b for pair in pairs]]
        matched.only_a.extend(Alone(t, _instead(t, theirs, varied)) for t in left_a)
        matched.only_b.extend(Alone(t, _instead(t, ours, varied)) for t in left_b)
    return matched


def _varied(trainings: Sequence[Training]) -> set[str]:
    """Return the settings in which configurations of one KEY differ."""
    names = {name for t in trainings for name in t.settings if name not in _OF_PLACE}
    return {name for name in names if len({t.settings.get(name) for t in trainings}) > 1}


def _alike(ours: Sequence[Training], theirs: Sequence[Training], by: set[str]) -> list[Pair]:
    """Return pairs that agree in the settings `by`, where each campaign has a single such training."""

    def agreeing(training: Training, others: Sequence[Training]) -> list[Training]:
        return [
            other
            for other in others
            if all(training.settings.get(name) == other.settings.get(name) for name in by)
        ]

    return [
        Pair(training, there[0])
        for training in ours
        if len(there := agreeing(training, theirs)) == 1 == len(agreeing(training, ours))
    ]


def _instead(training: Training, others: Sequence[Training], varied: set[str]) -> str:
    """Return what the other campaign has of the same KEY, by the settings that tell them apart."""
    if not others:
        return ""
    apart = []
    for name in sorted(varied):
        there = list(dict.fromkeys(_shown(other, name) for other in others))
        if (here := _shown(training, name)) not in there:
            short = name.removeprefix("settings.").replace("dataset.", "dataset's ")
            apart.append(f"{short} {listed(there)}, not {here}")
    if not apart:
        return f"unclear which matches: {', '.join(other.id for other in others)}"
    return f"there with {'; '.join(apart)}"


def _shown(training: Training, name: str) -> str:
    return training.settings.get(name, "null").replace('"', "").replace("null", "unset")
