"""Match the configurations of two campaigns by what they are, not by their names.

Two configurations are the same where KEY agrees. Where a campaign has several of one KEY, as of variants or
devices, what they differ in has to agree too; of those that remain, a single one of each campaign that
differ in nothing but the device are compared, and the device is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.operating_points import LEVERS, label_of
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.comparison.compared_source import Row, Source
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.results.text.number_format import count, listed

KEY = (
    *("model", "phase", "gpus", "gpus_per_replica", "gradient_accumulation_steps"),
    *("local_batch_size", "global_batch_size", "dataset_fraction", "precision"),
    *LEVERS,
)
"""What two configurations must share."""
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

    def label(self, word: str = "GPU") -> str:
        """Return what it is in a few words; n counts `word`."""
        return ", ".join(filter(None, self.words(word)))

    def words(self, word: str) -> tuple[str, ...]:
        """Return the same part by part; of a part that says nothing an empty text."""
        own = dict(zip(KEY, self.key, strict=True))
        model = own["model"] if own["phase"] == "train" else f"{own['model']} {own['phase']}"
        return (
            model,
            count(own["gpus"], word, "processes" if word == "process" else None),
            f"LBS {own['local_batch_size']}",
            f"GBS {own['global_batch_size']}",
            *(f"{own[n]} {n.replace('_', ' ')}" if own[n] > 1 else "" for n in _PASSES),
            f"{own['dataset_fraction']} of the data" if own["dataset_fraction"] != "1" else "",
            str(own["precision"] or ""),
            label_of({lever: own[lever] for lever in LEVERS if own[lever] is not None}),
        )


@dataclass(frozen=True)
class Pair:
    """The same training in both campaigns."""

    a: Training
    b: Training


@dataclass(frozen=True)
class Alone:
    """A training that only one campaign has."""

    training: Training
    why: str
    """What the other campaign has instead; empty if nothing alike."""


@dataclass(frozen=True)
class Matched:
    """What two campaigns have in common, and what not."""

    pairs: tuple[Pair, ...]
    only_a: tuple[Alone, ...]
    only_b: tuple[Alone, ...]


def trainings_of(source: Source) -> list[Training]:
    """Return a source's configurations by model and size."""
    by_id: dict[str, list[Row]] = {}
    for row in source.runs:
        by_id.setdefault(row["configuration"], []).append(row)
    found = [_training(id_, rows, source) for id_, rows in by_id.items()]
    return sorted(found, key=lambda one: (*_sortable(one.key), one.device, one.id))


def _sortable(values: Iterable[Any]) -> list[tuple[bool, str, float]]:
    """Return a key that sorts texts, numbers and nothing."""
    return [
        (value is not None, value if isinstance(value, str) else "", 0.0)
        if value is None or isinstance(value, str)
        else (True, "", float(value))
        for value in values
    ]


def _training(id_: str, rows: Sequence[Row], source: Source) -> Training:
    keys = [(id_, row["repeat"]) for row in rows]
    specs = [source.specs[key] for key in keys]
    first, spec = rows[0], specs[0]
    of_spec = {"dataset_fraction": spec.dataset_fraction, "precision": first["precision"]}
    of_spec |= {name: getattr(spec, name) for name in _PASSES}
    key = tuple(of_spec[name] if name in of_spec else first[name] for name in KEY)
    told = [source.provenance.get(one, {}) for one in keys]
    simulated = any(one.get(SIMULATED_KEY) for one in told)
    seeds = {one.repeat: one.seed for one in specs}
    return Training(id_, key, settings_of(specs), tuple(rows), spec, simulated, seeds)


def settings_of(specs: Sequence[RunSpec]) -> dict[str, str]:
    """Return the settings of a configuration's specs as JSON, by name with dots, but for KEY and seeds."""
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        content = {
            "device": spec.device,
            "nodes": spec.nodes,
            "ranks_per_node": spec.ranks_per_node,
            "protocol": spec.protocol,
            "epochs": spec.epochs,
            "sampling_period_s": spec.sampling_period_s,
            "dataset_samples": spec.dataset_samples,
            "validation_samples": spec.validation_samples,
            **{f"dataset.{name}": value for name, value in spec.dataset.items()},
            **{f"settings.{k}": v for k, v in spec.settings.items() if k not in KEY},
        }
        for name, value in content.items():
            found.setdefault(name, {})[json.dumps(value, sort_keys=True)] = None
    return {name: ", ".join(values) for name, values in found.items()}


def match(a: Sequence[Training], b: Sequence[Training]) -> Matched:
    """Return the pairs of the same training, in the order of `a`, and what is left of both."""
    pairs: list[Pair] = []
    only_a: list[Alone] = []
    only_b: list[Alone] = []
    keys = dict.fromkeys(one.key for one in (*a, *b))
    for key in keys:
        ours, theirs = ([one for one in own if one.key == key] for own in (a, b))
        varied = _varied(ours) | _varied(theirs)
        found = _joined(ours, theirs, varied)
        found += _joined(*_rest(ours, theirs, found), varied - {DEVICE})
        pairs += found
        left_a, left_b = _rest(ours, theirs, found)
        only_a += [Alone(one, _instead(one, theirs, varied)) for one in left_a]
        only_b += [Alone(one, _instead(one, ours, varied)) for one in left_b]
    return Matched(tuple(pairs), tuple(only_a), tuple(only_b))


def _varied(own: Sequence[Training]) -> set[str]:
    """Return the settings in which configurations of one KEY differ."""
    names = {name for one in own for name in one.settings if name not in _OF_PLACE}
    return {name for name in names if len({one.settings.get(name) for one in own}) > 1}


def _joined(ours: Sequence[Training], theirs: Sequence[Training], by: set[str]) -> list[Pair]:
    """Return pairs that agree in the settings `by`, where each campaign has one such."""
    found = []
    for one in ours:
        alike_a = [other for other in ours if _agree(one, other, by)]
        alike_b = [other for other in theirs if _agree(one, other, by)]
        if len(alike_a) == len(alike_b) == 1:
            found.append(Pair(one, alike_b[0]))
    return found


def _agree(one: Training, other: Training, by: set[str]) -> bool:
    return all(one.settings.get(name) == other.settings.get(name) for name in by)


def _rest(
    ours: Sequence[Training], theirs: Sequence[Training], found: Sequence[Pair]
) -> tuple[list[Training], list[Training]]:
    paired_a, paired_b = {pair.a.id for pair in found}, {pair.b.id for pair in found}
    return (
        [one for one in ours if one.id not in paired_a],
        [one for one in theirs if one.id not in paired_b],
    )


def _instead(one: Training, others: Sequence[Training], varied: set[str]) -> str:
    """Return what the other campaign has of the same KEY, by the settings that tell them apart."""
    if not others:
        return ""
    names = [
        name
        for name in sorted(varied)
        if all(one.settings.get(name) != other.settings.get(name) for other in others)
    ]
    if not names and len(others) == 1:
        return "it is unclear which configuration here matches the one there"
    if not names:
        return f"it is unclear which of {count(len(others), 'configuration')} there matches"
    own = (f"{_short_name(n)} {listed(_values(others, n))}, not {_shown(one, n)}" for n in names)
    return f"there with {'; '.join(own)}"


def _values(some: Sequence[Training], name: str) -> list[str]:
    return list(dict.fromkeys(_shown(one, name) for one in some))


def _shown(one: Training, name: str) -> str:
    return one.settings.get(name, "null").replace('"', "").replace("null", "unset")


def _short_name(name: str) -> str:
    """Return a setting's name without where it stands in a spec."""
    return name.removeprefix("settings.").replace("dataset.", "dataset's ")
