"""What the caption of the breakdown says: which device and stage took most, and what idle devices would."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose
from scalewatt.report.captions.least_shares import least_shares
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.number_format import count, with_unit


def uses_of_energy(rows: pd.DataFrame) -> list[str]:
    """Return what took most, what idle devices would have used, and what was lost, of known energies."""
    return [*_most(rows), *_idle(rows), *_discarded(rows)]


def _most(rows: pd.DataFrame) -> list[str]:
    """Return which device kind and which stage took most, and which of the two estimates do not tell."""
    found = {"device kind": _largest(rows, "device_kind"), "stage": _largest(rows, "stage")}
    before = {"device kind": "by", "stage": "in stage"}
    told = [f"{before[what]} {name}" for what, name in found.items() if name]
    open_ = [what for what, name in found.items() if not name]
    return [
        *([f"most {' and '.join(told)}"] if told else []),
        *(
            [f"which {' and '.join(open_)} took most is not told by these estimates"]
            if open_
            else []
        ),
    ]


def _largest(rows: pd.DataFrame, column: str) -> str | None:
    """Return the device kind or stage with the largest mean share, and its shares of configurations.

    Of estimates its least share, and None where that is not most of the energy wherever true values lie.
    """
    shares = {name: _shares(own, rows) for name, own in data.groups(rows, column)}
    name = max(shares, key=lambda one: sum(shares[one]))
    told = _span(shares[name])
    if rows["energy_origin"].isin(ORIGINS).any():
        known = [share or 0.0 for share in least_shares(rows, column, name)]
        least = min(known, default=0.0)
        if least <= 0.5:
            return None
        told = f"{'at least ' if least < 1 else ''}{math.floor(100 * least)} %"
    return f"{prose.KIND_WORDS.get(name, name)} ({told} of a configuration)"


def _shares(part: pd.DataFrame, rows: pd.DataFrame, column: str = "energy_kwh") -> list[float]:
    """Return the rows in `part` as shares of the energy of each configuration."""
    totals = rows.groupby("configuration", sort=False)["energy_kwh"].sum()
    own = part.groupby("configuration")[column].sum().reindex(totals.index, fill_value=0.0)
    return (own / totals)[totals > 0].to_list() or [0.0]


def _span(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * one:.0f}" for one in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"


def _idle(rows: pd.DataFrame) -> list[str]:
    """Return what idle devices would have used, of the configurations for which that is known.

    Estimates do not tell that: both are, and errors at two loads differ.
    """
    unknown = rows.loc[rows["idle_energy_kwh"].isna(), "configuration"].unique()
    known = rows[~rows["configuration"].isin(unknown)]
    if known.empty:
        return ["what idle devices would have used is not known"]
    if rows["energy_origin"].isin(ORIGINS).any():
        return ["how much of it idle devices would have used is not told by these estimates"]
    shares = _span(_shares(known, known, "idle_energy_kwh"))
    some = f" (not known for {count(len(unknown), 'configuration')})" if len(unknown) else ""
    return [f"idle devices would have used {shares} as much in the same time{some}"]


def _discarded(rows: pd.DataFrame) -> list[str]:
    lost = float(rows["discarded_energy_kwh"].sum())
    return [f"{with_unit(lost, 'kWh')} in all went into lost work"] if lost else []
