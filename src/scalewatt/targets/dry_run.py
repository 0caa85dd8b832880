"""What a dry run would train, as a table by series.

The workflow remembers its campaign here, and Snakemake's logger asks for the table (`snakemake -n`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.results.text.number_format import MISSING, count, number

if TYPE_CHECKING:
    from scalewatt.scaling.planning.forecast import Forecaster

Row = tuple[str, ...]
HEAD: Row = ("series", "runs", "n", "nodes", "partition", "hours", "kWh")
MOST_SERIES = 30
"""Rows of the table; of more series the last row tells the sum."""
_TRAININGS = re.compile(r"train|train_command|simulate_(?P<repeats>[0-9_]+)")
_REMEMBERED: list[tuple[Campaign, Callable[[], Forecaster | None], str]] = []


def remember(campaign: Campaign, forecaster: Callable[[], Forecaster | None], cluster: str) -> None:
    """Keep what this process's dry run is of; `cluster`: its name, which is that of the profile's folder."""
    _REMEMBERED[:] = [(campaign, forecaster, cluster)]


@dataclass(frozen=True)
class Training:
    """A job that would train runs of one configuration."""

    configuration: str
    repeats: tuple[int, ...]
    nodes: int | None
    partition: str | None
    asked_h: float | None
    """Wall time that it asks for."""
    simulated: bool = False
    """True if the scaling model takes the place of a training: it is done in seconds."""


@dataclass
class DryRun:
    """The trainings of a dry run, as its jobs are told one by one."""

    trainings: list[Training] = field(default_factory=list)

    def add(self, rule: str, wildcards: Mapping[str, str], resources: Mapping[str, Any]) -> None:
        """Take note of a job; only those that train or simulate runs count."""
        found = _TRAININGS.fullmatch(rule)
        if found is None:
            return
        several = found["repeats"]
        repeats = several.split("_") if several else [wildcards["repeat"]]
        minutes = _whole(resources.get("runtime"))
        self.trainings.append(
            Training(
                wildcards["configuration"],
                tuple(map(int, repeats)),
                _whole(resources.get("nodes")),
                resources.get("slurm_partition"),
                None if minutes is None else minutes / 60,
                several is not None,
            )
        )

    def lines(self) -> list[str]:
        """Return the table and what its numbers are; nothing without trainings, or outside the workflow."""
        if not (self.trainings and _REMEMBERED):
            return []
        campaign, forecaster, cluster = _REMEMBERED[0]
        by_series = _by_series(campaign, self.trainings)
        predicted = _predictions(campaign, forecaster(), self.trainings)
        told = [_row(campaign, name, own, predicted) for name, own in by_series.items()]
        if len(told) > MOST_SERIES:
            names = list(by_series)[MOST_SERIES - 1 :]
            others = [one for name in names for one in by_series[name]]
            label = f"{len(names)} further series"
            told = [*told[: MOST_SERIES - 1], _row(campaign, label, others, predicted)]
        total = _row(campaign, "in all", self.trainings, predicted)
        simulated = all(one.simulated for one in self.trainings)
        return [
            "Would simulate:" if simulated else "Would train:",
            *_aligned([HEAD, *told, total]),
            *_note(campaign, cluster, self.trainings, predicted),
        ]


def _whole(value: Any) -> int | None:
    """Return a resource's whole number; None where it is not yet known."""
    return value if isinstance(value, int) else None


def _by_series(campaign: Campaign, trainings: Iterable[Training]) -> dict[str, list[Training]]:
    """Return the trainings by series; one that several share counts for the first of them."""
    first: dict[str, str] = {}
    for name, series in campaign.series.items():
        for configuration in series.points.values():
            first.setdefault(configuration, name)
    found: dict[str, list[Training]] = {}
    for name in campaign.series:
        own = [one for one in trainings if first.get(one.configuration) == name]
        if own:
            found[name] = own
    return found


def _predictions(
    campaign: Campaign, forecaster: Forecaster | None, trainings: Iterable[Training]
) -> dict[str, tuple[float, float | None]]:
    """Return medians of hours and kWh of one run by configuration, where the model knows it."""
    found: dict[str, tuple[float, float | None]] = {}
    if forecaster is None:
        return found
    import numpy as np

    from scalewatt.recordings.series import J_PER_KWH

    for configuration in dict.fromkeys(one.configuration for one in trainings):
        try:
            drawn = forecaster.runs(run_spec(campaign, configuration, 1))
        except InputError:  # another model or device
            continue
        energy_j = drawn.total_j
        kwh = None if energy_j is None else float(np.median(energy_j)) / J_PER_KWH
        found[configuration] = float(np.median(drawn.runtime_s)) / 3600, kwh
    return found


def _row(
    campaign: Campaign,
    label: str,
    trainings: Sequence[Training],
    predicted: Mapping[str, tuple[float, float | None]],
) -> Row:
    runs = sum(len(one.repeats) for one in trainings)
    gpus = [campaign.configurations[one.configuration].gpus for one in trainings]
    hours = [_hours(one, predicted) for one in trainings]
    kwh = [_kwh(one, predicted) for one in trainings]
    partitions = dict.fromkeys(one.partition for one in trainings if one.partition)
    return (
        label,
        number(runs),
        _range(gpus),
        _range([one.nodes for one in trainings if one.nodes is not None]),
        ", ".join(partitions) or MISSING,
        _sum(hours),
        _sum(kwh),
    )


def _hours(one: Training, predicted: Mapping[str, tuple[float, float | None]]) -> float | None:
    """Return the hours of a job's runs, one after the other: predicted, else asked for."""
    known = predicted.get(one.configuration)
    hours = one.asked_h if known is None else known[0]
    return None if hours is None else hours * len(one.repeats)


def _kwh(one: Training, predicted: Mapping[str, tuple[float, float | None]]) -> float | None:
    kwh = predicted.get(one.configuration, (0.0, None))[1]
    return None if kwh is None else kwh * len(one.repeats)


def _range(values: Sequence[int]) -> str:
    """Return `1 to 256`, `4`, or a dash."""
    ends = dict.fromkeys((min(values), max(values))) if values else ()
    return " to ".join(map(number, ends)) or MISSING


def _sum(values: Sequence[float | None]) -> str:
    """Return a sum; a dash where one of the values is unknown."""
    known = [value for value in values if value is not None]
    return number(sum(known), 3) if len(known) == len(values) else MISSING


def _aligned(rows: Sequence[Row]) -> list[str]:
    """Return rows with columns of equal width; texts begin, and numbers end, at one place."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    texts = HEAD.index("series"), HEAD.index("partition")
    return [
        "  ".join(
            cell.ljust(width) if at in texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _note(
    campaign: Campaign,
    cluster: str,
    trainings: Sequence[Training],
    predicted: Mapping[str, tuple[float, float | None]],
) -> list[str]:
    """Return where hours and kWh come from."""
    unknown = {one.configuration for one in trainings} - set(predicted)
    if not predicted:
        return [
            "hours: the wall times asked for, one run after the other (without a `step_time` all that the "
            "partition allows); kWh: not known without a scaling model that knows these trainings "
            "(docs/scaling.md)"
        ]
    if all(one.simulated for one in trainings):
        return [
            "hours and kWh: of the trainings that are simulated, in seconds, by the scaling model"
        ]
    told = [
        "hours and kWh: medians predicted by the scaling model, of whole runs, one after the other"
    ]
    if unknown:
        told[0] += (
            f"; for {count(len(unknown), 'configuration')} that it does not know, the wall times asked for"
        )
    planned = f"scalewatt plan --profile profiles/{cluster} --campaign {campaign.path}"
    return [*told, f"with intervals, cost and carbon: {planned}"]
