"""Which setting takes the least energy within a limit: of measured configurations, or predicted ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalewatt.campaign.operating_points import without_point
from scalewatt.campaign.series_expansion import without_device
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import EPOCHS_COMBINED
from scalewatt.results.tables import t_tests
from scalewatt.results.tables.estimates import ORIGINS, energy_ratio_bounds
from scalewatt.results.tables.t_tests import LogMean
from scalewatt.scaling.model.cost_terms import Array

MEASURED, PREDICTED = "measured", "predicted"
_TIME, _ENERGY = "runtime_h", "energy_kwh"
_SAME_WORK = ("model", "phase", "dataset_samples", "epochs", "protocol", "energy_scope")
"""What two settings have in common where either may be taken in place of the other, with `--any`."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; the ends are None where that is not known."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_draws(cls, draws: Array) -> Interval:
        """Return the median of a posterior's draws with its interval."""
        low, value, high = np.quantile(draws, (t_tests.LEVEL, 0.5, 1 - t_tests.LEVEL)).tolist()
        return cls(value, low, high)


@dataclass(frozen=True)
class Setting:
    """One configuration: what a run of it takes. Time in h, energy in kWh, carbon in kg CO2e."""

    configuration: str
    line: str
    group: tuple[Any, ...]
    """What it shares with all that it may be exchanged for."""
    point: dict[str, float]
    origin: str
    """measured or predicted."""
    repeats: int | None
    time_h: Interval
    energy_kwh: Interval
    carbon_kg: float | None
    row: Row = field(repr=False, compare=False)
    draws: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    """Of time and energy of a predicted run, by the names of their columns."""


@dataclass(frozen=True)
class Limits:
    """What a run may take; None: no limit."""

    slowdown: float | None = None
    """More time than the fastest setting, as a share of its time."""
    deadline_h: float | None = None
    carbon_kg: float | None = None


@dataclass(frozen=True)
class Advice:
    """The advice for settings of which any may be taken."""

    title: str
    fastest: Setting
    best: Setting | None
    """The least energy among those that keep the limits by their means; None if none does."""
    saving: Interval | None
    """Of energy beside the fastest, as a share; None where that is the best itself."""
    slowdown: Interval | None
    tied: tuple[Setting, ...]
    """Those that keep the limits and whose energy cannot be told apart from the best one's."""
    unsure: bool
    """True if the interval of the best one's time reaches over the limit."""
    settings: int
    any_setting: bool = False
    """True if they may differ in more than their operating points."""

    @property
    def saves(self) -> bool | None:
        """Return True if the saving's interval leaves out 0; None where there is no interval."""
        if self.saving is None or self.saving.low is None:
            return None
        return self.saving.low > 0

    def as_json(self) -> dict[str, Any]:
        """Return it as `scalewatt advise --json` prints it."""
        return {
            "title": self.title,
            "settings": self.settings,
            "fastest": _as_json(self.fastest),
            "best": None if self.best is None else _as_json(self.best),
            "saving": None if self.saving is None else vars(self.saving),
            "slowdown": None if self.slowdown is None else vars(self.slowdown),
            "told_apart_from_fastest": self.saves,
            "cannot_be_told_apart": [one.configuration for one in self.tied],
            "may_exceed_the_limit": self.unsure,
        }


def share_of(text: str, option: str) -> float:
    """Return a share from a text such as "10 %"; InputError if it is none from 0 to 1000 %."""
    found = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*%?\s*", text)
    if found is None or float(found[1]) > 1000:
        raise InputError(f"{option}: '{text[:40]}'; expected per cent, such as 10 %")
    return float(found[1]) / 100


def check_limits(limits: Limits) -> None:
    """Raise InputError if no limit is given, or one is no number above 0."""
    given = {name: value for name, value in vars(limits).items() if value is not None}
    if not given:
        raise InputError("advise: no limit given; expected --slowdown, --deadline-h or --carbon-kg")
    for name, value in given.items():
        if name != "slowdown" and not (math.isfinite(value) and value > 0):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option}: {value:g}; expected a number above 0")


def measured_settings(rows: Iterable[Row], levers: Iterable[str]) -> list[Setting]:
    """Return the settings of a table of configurations that have a time and an energy."""
    names = tuple(levers)
    return [
        _setting(row, names, MEASURED, ("_mean", "_low", "_high"), row["n_repeats"])
        for row in rows
        if row["energy_kwh_mean"] is not None and row["runtime_h_mean"] is not None
    ]


def predicted_settings(
    rows: Iterable[Row],
    configurations: Mapping[str, Any],
    measured: Iterable[Setting],
    draws_of: Callable[[str], Mapping[str, Array]],
) -> list[Setting]:
    """Return those of a plan's points that were not measured.

    `configurations` are the campaign's by id; `draws_of` returns what a run of one takes, in each draw.
    """
    known = {one.configuration for one in measured}
    found = []
    for row in rows:
        own = configurations.get(row["configuration"])
        if own is None or row["configuration"] in known or row["energy_kwh"] is None:
            continue
        point = own.operating_point or {}
        whole = {**row, **point, "protocol": own.protocol}
        one = _setting(whole, tuple(point), PREDICTED, ("", "_low", "_high"), None)
        draws = draws_of(row["configuration"])
        # The plan's intervals are of 90 %, those of repeats of 95 %.
        time_h, energy_kwh = (Interval.of_draws(draws[name]) for name in (_TIME, _ENERGY))
        found.append(replace(one, time_h=time_h, energy_kwh=energy_kwh, draws=draws))
    return found


def _setting(
    row: Row, levers: Sequence[str], origin: str, ends: Sequence[str], repeats: int | None
) -> Setting:
    def interval(name: str) -> Interval:
        return Interval(*(row[f"{name}{end}"] for end in ends))

    return Setting(
        configuration=row["configuration"],
        line=without_point(row["configuration"]),
        group=tuple(row.get(name) for name in _SAME_WORK),
        point={lever: row[lever] for lever in levers if row.get(lever) is not None},
        origin=origin,
        repeats=repeats,
        time_h=interval("runtime_h"),
        energy_kwh=interval("energy_kwh"),
        carbon_kg=row.get(f"carbon_kg{ends[0]}"),
        row=row,
    )


def advise(settings: Iterable[Setting], limits: Limits, any_setting: bool = False) -> list[Advice]:
    """Return the advice for each training that has several settings.

    Exchanged are the operating points of a training, or with `any_setting` all settings that do the same
    work, on whatever device, n and batch size.
    """
    groups: dict[Any, list[Setting]] = {}
    for one in settings:
        groups.setdefault(one.group if any_setting else (one.line, one.group), []).append(one)
    return [_advice(own, limits, any_setting) for own in groups.values() if len(own) > 1]


def _title(settings: Sequence[Setting], any_setting: bool) -> str:
    return " ".join(map(str, settings[0].group[:2])) if any_setting else settings[0].line


def _advice(settings: Sequence[Setting], limits: Limits, any_setting: bool) -> Advice:
    title = _title(settings, any_setting)
    fastest = min(settings, key=lambda one: one.time_h.value)
    longest_h = min(
        limits.deadline_h or math.inf,
        math.inf if limits.slowdown is None else (1 + limits.slowdown) * fastest.time_h.value,
    )
    kept = [one for one in settings if _keeps(one, longest_h, limits.carbon_kg)]
    if not kept:
        return Advice(title, fastest, None, None, None, (), False, len(settings), any_setting)
    best = min(kept, key=lambda one: one.energy_kwh.value)
    rivals = [one for one in kept if one is not best]
    tied = tuple(one for one in rivals if _apart(energy_ratio(one, best)) is False)
    saving = slowdown = None
    if best is not fastest:
        ratio = energy_ratio(best, fastest)
        saving = _over_one(ratio, -1)
        slowdown = _over_one(time_ratio(best, fastest), 1)
    high_h = best.time_h.high
    # The fastest one is as fast as itself, whatever its interval.
    most_h = longest_h if best is not fastest else limits.deadline_h or math.inf
    unsure = high_h is not None and high_h > most_h
    told = (saving, slowdown, tied, unsure, len(settings), any_setting)
    return Advice(title, fastest, best, *told)


def _keeps(one: Setting, longest_h: float, carbon_kg: float | None) -> bool:
    within = one.carbon_kg is not None and carbon_kg is not None and one.carbon_kg <= carbon_kg
    return one.time_h.value <= longest_h and (carbon_kg is None or within)


def ratio_of(top: Setting, bottom: Setting, name: str) -> Interval:
    """Return the ratio of two times or energies, by the name of the column; without an interval where one has
    none.

    Predictions share the model's errors: theirs is the ratio within each draw.
    """
    if top.draws and bottom.draws:
        return Interval.of_draws(top.draws[name] / bottom.draws[name])
    one, other = (s.time_h if name == _TIME else s.energy_kwh for s in (top, bottom))
    value = one.value / other.value
    over, under = _log_mean(top, name), _log_mean(bottom, name)
    if over is None or under is None:
        return Interval(value)
    return Interval(value, *t_tests.log_ratio(over, under).ends)


def _log_mean(one: Setting, name: str) -> LogMean | None:
    if one.draws:
        if (one.draws[name] <= 0).any():
            return None
        logs = np.log(one.draws[name])
        return LogMean(float(np.median(logs)), float(np.var(logs)), math.inf)
    return LogMean.of_mean(one.row[f"{name}_mean"], one.row[f"{name}_sd"], one.repeats)


def _of_repeats(one: Setting, other: Setting, ratio: Interval) -> Interval:
    """Return a ratio, without an interval where repeats do not tell of it (EPOCHS_COMBINED)."""
    combined = one.row.get(EPOCHS_COMBINED) or other.row.get(EPOCHS_COMBINED)
    return Interval(ratio.value) if combined and _nameless(one) == _nameless(other) else ratio


def _nameless(one: Setting) -> str:
    """Return what settings share whose trainings are the same but for device, clocks and limits."""
    return without_device(one.line, one.row["device"])


def time_ratio(one: Setting, other: Setting) -> Interval:
    """Return the ratio of two times."""
    return _of_repeats(one, other, ratio_of(one, other, _TIME))


def energy_ratio(one: Setting, other: Setting) -> Interval:
    """Return the ratio of two energies, whose interval includes what estimates leave open."""
    found = _of_repeats(one, other, ratio_of(one, other, _ENERGY))
    estimated = [s for s in (one, other) if s.row["energy_origin"] in ORIGINS]
    if not estimated or found.low is None or found.high is None:
        return found
    measured = MEASURED in (one.origin, other.origin)
    bounds = energy_ratio_bounds(dict(one.row), dict(other.row)) if measured else None
    if bounds is None:
        return Interval(found.value)
    return Interval(found.value, min(found.low, bounds[0]), max(found.high, bounds[1]))


def _over_one(ratio: Interval, sign: int) -> Interval:
    """Return by what share a ratio is above 1, or with sign −1 below it."""
    if ratio.low is None or ratio.high is None:
        return Interval(sign * (ratio.value - 1))
    low, high = sorted((sign * (ratio.low - 1), sign * (ratio.high - 1)))
    return Interval(sign * (ratio.value - 1), low, high)


def _apart(ratio: Interval) -> bool | None:
    """Return True if a ratio's interval leaves out 1; None where there is none."""
    if ratio.low is None or ratio.high is None:
        return None
    return ratio.low > 1 or ratio.high < 1


def _as_json(one: Setting) -> dict[str, Any]:
    return {
        "configuration": one.configuration,
        **one.point,
        "origin": one.origin,
        "repeats": one.repeats,
        "runtime_h": vars(one.time_h),
        "energy_kwh": vars(one.energy_kwh),
        "carbon_kg": one.carbon_kg,
    }
