"""Which finished settings take the least energy within a limit: a filter of the table of configurations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.operating_points import without_point
from scalewatt.common.errors import InputError
from scalewatt.results.tables.estimates import is_estimated
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.table_schema import CONFIGURATIONS

SAME_WORK = ["model", "phase", "dataset_samples", "epochs", "protocol", "energy_scope"]
"""What two settings have in common where either may be taken in place of the other, with `--any`."""
SHOWN = 3
"""Settings of least energy that are named of each training."""
COLUMNS = {
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


@dataclass(frozen=True, eq=False)
class Advice:
    """The settings of one training that keep the limits by their means, least energy first."""

    training: str
    settings: int
    """How many there were to choose from."""
    kept: pd.DataFrame
    """COLUMNS of SHOWN rows at most: `slower` and `saved` as shares of the fastest setting's means."""

    def as_json(self) -> dict[str, Any]:
        """Return it as `scalewatt advise --json` prints it."""
        return {
            "training": self.training,
            "settings": self.settings,
            "kept": records(self.kept[list(COLUMNS)]),
        }


def check_limits(limits: Limits) -> None:
    """Raise InputError if no limit is given, or one is not a number from 0."""
    given = {name: value for name, value in vars(limits).items() if value is not None}
    if not given:
        raise InputError("advise: no limit given; expected --slowdown, --deadline-h or --carbon-kg")
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise InputError(f"--{name.replace('_', '-')}: {value:g}; expected a number from 0")


def settings_in(results: Path) -> pd.DataFrame:
    """Read a campaign's configurations; InputError where its tables are missing."""
    path = results / "tables" / "configurations.parquet"
    if not path.is_file():
        raise InputError(f"{path}: is missing; expected what `snakemake tables` makes")
    return read_frame(path, CONFIGURATIONS)


def advise(settings: pd.DataFrame, limits: Limits, any_setting: bool = False) -> list[Advice]:
    """Return the advice for each training with several settings of known time and energy.

    Exchanged are the operating points of a training, or with `any_setting` all settings that do the same
    work, on whatever device, n and batch size. InputError for a limit of carbon that no setting states.
    """
    known = settings.dropna(subset=["runtime_h_mean", "energy_kwh_mean"])
    if limits.carbon_kg is not None and known["carbon_kg_mean"].isna().all():
        raise InputError(
            "--carbon-kg: no carbon is known; expected pue and carbon_intensity in the cluster file"
        )
    lines = known["configuration"].map(without_point)
    known = known.assign(
        training=known["model"] + " " + known["phase"] if any_setting else lines,
        line="" if any_setting else lines,
    )
    return list(_of_trainings(known, limits))


def _of_trainings(known: pd.DataFrame, limits: Limits) -> Iterator[Advice]:
    for _, own in known.groupby(["line", *SAME_WORK], sort=False, dropna=False):
        if len(own) < 2:
            continue
        fastest = own.nsmallest(1, "runtime_h_mean").iloc[0]
        estimated = is_estimated(own)  # their errors are a machine's, so ratios of them say nothing
        own = own.assign(
            slower=own["runtime_h_mean"] / fastest["runtime_h_mean"] - 1,
            saved=math.nan
            if estimated.any()
            else 1 - own["energy_kwh_mean"] / fastest["energy_kwh_mean"],
        )
        kept = own["runtime_h_mean"] <= (limits.deadline_h or math.inf)
        if limits.slowdown is not None:
            kept &= own["slower"] <= limits.slowdown
        if limits.carbon_kg is not None:
            kept &= (own["carbon_kg_mean"] <= limits.carbon_kg).fillna(False)
        least = own[kept].nsmallest(SHOWN, "energy_kwh_mean")
        yield Advice(str(own["training"].iloc[0]), len(own), least)


def advice_text(found: list[Advice]) -> str:
    """Return advice for people to read: a table of each training."""
    return "\n\n".join(
        f"{one.training} (settings: {one.settings})\n{_table(one.kept)}" for one in found
    )


def _table(kept: pd.DataFrame) -> str:
    if kept.empty:
        return "none keeps the limit"
    shares = {
        name: kept[name].map("{:.1%}".format, na_action="ignore") for name in ("slower", "saved")
    }
    shown = kept.assign(**shares)[list(COLUMNS)].rename(columns=COLUMNS).dropna(axis=1, how="all")
    return shown.to_string(index=False, float_format="{:.4g}".format)
