"""Which finished settings take the least energy within a limit: a filter of the table of configurations."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from scalewatt.campaign.operating_points import without_point
from scalewatt.common.errors import InputError
from scalewatt.results.tables.derived_quantities import is_estimated
from scalewatt.results.tables.frames import read_frame
from scalewatt.results.tables.table_schema import CONFIGURATIONS

COLUMNS = {
    "training": "training",
    "configuration": "setting",
    "n_repeats": "runs",
    "energy_scope": "scope",
    "runtime_h_mean": "hours",
    "energy_kwh_mean": "kWh",
    "energy_kwh_low": "from",
    "energy_kwh_high": "to",
    "slower": "more time",
    "saved": "less energy",
}
"""Columns of advice, with their headings; the ends of the energy are of its 95 % interval over repeats."""
LIMITED = {"slowdown": "slower", "deadline_h": "runtime_h_mean"}
"""What each limit is a limit of; a slowdown is a share of the fastest setting's time."""


def read_settings(results: Path) -> pd.DataFrame:
    """Read a campaign's configurations; InputError where its tables are missing."""
    return read_frame(results / "tables" / "configurations.parquet", CONFIGURATIONS)


def advise(settings: pd.DataFrame, **limits: float | None) -> pd.DataFrame:
    """COLUMNS of the settings that keep the limits by their means, of each training the least energy first.

    Operating points of one training are compared; a training with only one of known energy is left out.
    `limits` are those of LIMITED; InputError without any, and for one below 0.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        raise InputError("advise: no limit given; expected --slowdown or --deadline-h")
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise InputError(f"--{name.replace('_', '-')}: {value:g}; expected a number from 0")
    timed = settings.dropna(subset="runtime_h_mean")
    timed = timed.assign(training=timed["configuration"].map(without_point))
    groups = timed.groupby("training", sort=False)
    trainings = [_compare(rows) for _, rows in groups if rows["energy_kwh_mean"].count() > 1]
    if not trainings:
        raise InputError("advise: no training has several settings to choose from")
    kept = pd.concat(trainings)
    for name, value in given.items():
        kept = kept[(kept[LIMITED[name]] <= value).fillna(False).astype(bool)]
    return kept


def _compare(settings: pd.DataFrame) -> pd.DataFrame:
    """Settings of one training by scope, the least energy first, compared with the fastest one.

    An energy of another scope than the fastest one's is no share of it, nor is an unknown one.
    """
    fastest = settings.nsmallest(1, "runtime_h_mean").iloc[0]
    # Errors of estimates are a machine's, so ratios of them say nothing.
    least = math.nan if is_estimated(settings).any() else fastest["energy_kwh_mean"]
    alike = (settings["energy_scope"] == fastest["energy_scope"]).fillna(False)
    saved = (1 - settings["energy_kwh_mean"] / least).where(alike)
    slower = settings["runtime_h_mean"] / fastest["runtime_h_mean"] - 1
    compared = settings.assign(slower=slower, saved=saved)
    return compared.sort_values(["energy_scope", "energy_kwh_mean"])


def advice_text(kept: pd.DataFrame) -> str:
    """Advice for people to read."""
    shown = kept[list(COLUMNS)].rename(columns=COLUMNS).dropna(axis=1, how="all")
    shares = {
        name: "{:.1%}".format for name in (COLUMNS["slower"], COLUMNS["saved"]) if name in shown
    }
    return shown.to_string(index=False, float_format="{:.4g}".format, formatters=shares)
