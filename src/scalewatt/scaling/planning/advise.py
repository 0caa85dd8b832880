"""Which finished settings take the least energy within a limit: a filter of the table of configurations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from scalewatt.campaign.operating_points import without_point
from scalewatt.common.errors import InputError
from scalewatt.results.tables.estimates import is_estimated
from scalewatt.results.tables.frames import read_frame
from scalewatt.results.tables.table_schema import CONFIGURATIONS

COLUMNS = {
    "training": "training",
    "configuration": "setting",
    "n_repeats": "runs",
    "runtime_h_mean": "hours",
    "energy_kwh_mean": "kWh",
    "energy_kwh_low": "from",
    "energy_kwh_high": "to",
    "carbon_kg_mean": "kg CO2e",
    "slower": "more time",
    "saved": "less energy",
}
"""Columns of advice, with their headings; the ends of the energy are of its 95 % interval over repeats."""


@dataclass(frozen=True)
class Limits:
    """What a run may take; None: no limit."""

    slowdown: float | None = None
    """More time than the fastest setting, as a share of its time."""
    deadline_h: float | None = None
    carbon_kg: float | None = None


def settings_in(results: Path) -> pd.DataFrame:
    """Read a campaign's configurations; InputError where its tables are missing."""
    path = results / "tables" / "configurations.parquet"
    if not path.is_file():
        raise InputError(f"{path}: is missing; expected what `snakemake tables` makes")
    return read_frame(path, CONFIGURATIONS)


def advise(settings: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    """COLUMNS of the settings that keep the limits by their means, of each training the least energy first.

    Exchanged are the operating points of a training; trainings of a single one are left out. InputError
    for no limit, one that is no number from 0, and one of carbon that no setting states.
    """
    given = {name: value for name, value in vars(limits).items() if value is not None}
    if not given:
        raise InputError("advise: no limit given; expected --slowdown, --deadline-h or --carbon-kg")
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise InputError(f"--{name.replace('_', '-')}: {value:g}; expected a number from 0")
    known = settings.dropna(subset=["runtime_h_mean", "energy_kwh_mean"])
    if limits.carbon_kg is not None and known["carbon_kg_mean"].isna().all():
        raise InputError(
            "--carbon-kg: no carbon is known; expected pue and carbon_intensity in the cluster file"
        )
    known = known.assign(training=known["configuration"].map(without_point))
    groups = known.groupby(["training", "energy_scope"], sort=False, dropna=False)
    trainings = [_compared(rows) for _, rows in groups if len(rows) > 1]
    if not trainings:
        raise InputError("advise: no training has several settings to choose from")
    compared = pd.concat(trainings)
    kept = compared["runtime_h_mean"] <= given.get("deadline_h", math.inf)
    kept &= compared["slower"] <= given.get("slowdown", math.inf)
    if limits.carbon_kg is not None:
        kept &= (compared["carbon_kg_mean"] <= limits.carbon_kg).fillna(False)
    return compared[kept]


def _compared(settings: pd.DataFrame) -> pd.DataFrame:
    """Settings of one training, the least energy first, as shares of the fastest one's time and energy."""
    fastest = settings.nsmallest(1, "runtime_h_mean").iloc[0]
    # Errors of estimates are a machine's, so ratios of them say nothing.
    least = math.nan if is_estimated(settings).any() else fastest["energy_kwh_mean"]
    saved = 1 - settings["energy_kwh_mean"] / least
    slower = settings["runtime_h_mean"] / fastest["runtime_h_mean"] - 1
    return settings.assign(slower=slower, saved=saved).sort_values("energy_kwh_mean")


def advice_text(kept: pd.DataFrame) -> str:
    """Advice for people to read."""
    shares = {
        name: kept[name].map("{:.1%}".format, na_action="ignore") for name in ("slower", "saved")
    }
    shown = kept.assign(**shares)[list(COLUMNS)].rename(columns=COLUMNS).dropna(axis=1, how="all")
    return shown.to_string(index=False, float_format="{:.4g}".format)
