"""Advice in words, and where it is computed from: a campaign's tables, and a scaling model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.operating_points import LEVERS, label_of
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import EPOCHS_COMBINED
from scalewatt.results.tables.read_table import CONFIGURATION_KEY, read_checked
from scalewatt.results.tables.table_schema import CONFIGURATIONS, LATER, metadata
from scalewatt.results.text.number_format import count, listed
from scalewatt.run_files.run_inventory import published_runs
from scalewatt.scaling.planning.advise import (
    PREDICTED,
    Advice,
    Interval,
    Limits,
    Setting,
    measured_settings,
    predicted_settings,
)
from scalewatt.scaling.planning.plan import POINT
from scalewatt.scaling.planning.plan_table import Plan

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING = (
    "No training has several settings with a known time and energy: there is nothing to choose from."
    " Operating points of one training are compared; --any compares all settings of one model."
)


def settings_of(
    campaign: Campaign, results: Path, plan: Plan | None, profile: Path
) -> list[Setting]:
    """Return a campaign's measured settings, and with a plan those that it predicts.

    `results`: the campaign's own folder. InputError without both.
    """
    table = _table(results)
    rows: list[dict[str, Any]] = []
    if table.is_file():
        rows = _read(table).to_pylist()
    elif plan is None:
        raise InputError(
            f"{table}: is missing; expected the tables of finished runs, which "
            f"`{_making(campaign, profile)}` makes, or a scaling model with --model"
        )
    found = measured_settings(rows, LEVERS)
    if plan is not None:
        points = plan.of_level(POINT).to_dict("records")
        found += predicted_settings(_known(points), campaign.configurations, found, plan.draws)
    return found


def outdated(campaign: Campaign, results: Path, profile: Path) -> str | None:
    """Return in a sentence that runs were published after the table was made; None if none were."""
    table, runs = _table(results), published_runs(results)
    if not table.is_file():
        return None
    made_ns = table.stat().st_mtime_ns
    newer = [
        (run.configuration.id, run.repeat)
        for run in campaign.runs()
        if (one := runs.get((run.configuration.id, run.repeat))) and one.mtime_ns > made_ns
    ]
    if not newer:
        return None
    first = " repeat ".join(map(str, newer[0]))
    return (
        f"{table}: is older than {count(len(newer), 'finished run')}, first {first}; "
        f"`{_making(campaign, profile)}` makes it anew"
    )


def without_energy(results: Path) -> str | None:
    """Return in a sentence which finished configurations have no known energy, and why; None if none are."""
    table = _table(results)
    reasons = metadata(_read(table)).get("no_energy", {}) if table.is_file() else {}
    named = listed((f"{one} ({why})" for one, why in sorted(reasons.items())), 3)
    return f"{table}: without a known energy, so not compared: {named}" if reasons else None


def _read(table: Path) -> pa.Table:
    return read_checked(table, CONFIGURATIONS, unique=CONFIGURATION_KEY, optional=LATER)


def _table(results: Path) -> Path:
    return results / "tables" / "configurations.parquet"


def _making(campaign: Campaign, profile: Path) -> str:
    return f"snakemake --profile {profile} tables --config campaign={campaign.path}"


def _known(points: list[dict[Any, Any]]) -> list[dict[str, Any]]:
    """Return rows of a plan with None where pandas has its own null."""
    return [
        {str(name): None if value != value else value for name, value in row.items()}
        for row in points
    ]


def advice_text(found: Sequence[Advice], limits: Limits) -> str:
    """Return advice for people to read."""
    return "\n\n".join(_text(one, limits) for one in found)


def _text(advice: Advice, limits: Limits) -> str:
    lines = [
        f"{advice.title}: {advice.settings} settings, within {_limit_words(limits)}",
        f"  fastest:      {_setting(advice.fastest, advice)}",
    ]
    if advice.best is None:
        unknown = limits.carbon_kg is not None and advice.fastest.carbon_kg is None
        why = " (its carbon is not known: no PUE, or no carbon intensity)" if unknown else ""
        none = "none is known to keep" if unknown else "none keeps"
        lines.append(f"  least energy: {none} the limit{why}")
        return "\n".join([*lines, *_spread_words(advice, [advice.fastest])])
    if advice.best is advice.fastest:
        lines.append("  least energy: the fastest one itself")
    else:
        lines.append(f"  least energy: {_setting(advice.best, advice)}")
        lines.append(f"    {_saving_words(advice)}")
    if advice.tied:
        names = "; ".join(_name(one, advice) for one in advice.tied)
        lines.append(f"    its energy cannot be told apart from that of: {names}")
    if advice.unsure:
        lines.append("    its time may exceed the limit: the interval reaches over it")
    return "\n".join([*lines, *_spread_words(advice, [advice.fastest, advice.best])])


def _spread_words(advice: Advice, shown: Sequence[Setting]) -> list[str]:
    """Return a line that says of which settings there are no repeats, or nothing."""
    singles = [one for one in shown if one.repeats == 1]
    if not singles:
        return []
    which = (
        "single runs"
        if len(singles) == len(shown)
        else f"{_name(singles[0], advice)}: a single run"
    )
    return [
        f"  {which}, without repeats: how far energy and time scatter is not known, so no difference can be "
        "told from chance"
    ]


def _saving_words(advice: Advice) -> str:
    assert advice.best and advice.saving is not None and advice.slowdown is not None
    saving, slower = _percent(advice.saving), _percent(advice.slowdown)
    words = f"{saving} less energy for {slower} more time than the fastest"
    if advice.best.row.get(EPOCHS_COMBINED):
        return f"{words}; of both one epoch was measured: how far that varies is not known"
    if advice.saves is None and 1 in (advice.best.repeats, advice.fastest.repeats):
        return words
    if advice.saves is None:
        return f"{words}; without repeats of both, or of an estimate, that has no interval"
    if not advice.saves:
        return f"{words}: cannot be told apart from no saving"
    return words


def _percent(share: Interval) -> str:
    if share.low is None or share.high is None:
        return f"{100 * share.value:.1f} %"
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f})"


def _setting(one: Setting, advice: Advice) -> str:
    runs = "predicted" if one.origin == PREDICTED else count(one.repeats or 0, "run")
    carbon = "" if one.carbon_kg is None else f", {one.carbon_kg:.3g} kg CO2e"
    return f"{_name(one, advice)}: {one.time_h.value:.4g} h, {one.energy_kwh.value:.4g} kWh{carbon} ({runs})"


def _name(one: Setting, advice: Advice) -> str:
    return (not advice.any_setting and label_of(one.point)) or one.configuration


def _limit_words(limits: Limits) -> str:
    words = []
    if limits.slowdown is not None:
        words.append(f"{100 * limits.slowdown:g} % more time than the fastest")
    if limits.deadline_h is not None:
        words.append(f"{limits.deadline_h:g} h")
    if limits.carbon_kg is not None:
        words.append(f"{limits.carbon_kg:g} kg CO2e")
    return " and ".join(words)
