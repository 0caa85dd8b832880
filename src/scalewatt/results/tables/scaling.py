"""The table `scaling`: how time and energy of each series go with n."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scalewatt.results.tables.repeat_statistics import Summary, quotient, summary_of
from scalewatt.results.tables.table_schema import SCALING

Row = dict[str, Any]
_ENDS = (("", "mean"), ("_sd", "sd"), ("_low", "low"), ("_high", "high"))
_NOTHING = Summary(0, None)


def scaling_rows(series: Iterable[Row], configurations: Sequence[Row]) -> list[Row]:
    """One row per series and point that has runs, beside the series' smallest n that has runs.

    efficiency is speedup/n; the ratios are those of GPU hours and of energy to n0's. Their sd and 95 %
    interval follow by first-order propagation, and need repeats of both.
    """
    by_id = {row["configuration"]: row for row in configurations}
    rows = []
    for one in series:
        present = [by_id[p["configuration"]] for p in one["points"] if p["configuration"] in by_id]
        rows += [_row(one, row, present[0]) for row in present]
    return rows


def speedup(row: Row, smallest: Row) -> Summary:
    """S(n) = n0·T(n0)/T(n) of two configurations, n0 the series' smallest n that has runs.

    Null where they train on unequal datasets. sd and interval follow from those of both times by
    first-order propagation, and need repeats at both ends.
    """
    if row["dataset_samples"] != smallest["dataset_samples"]:
        return _NOTHING
    first, own = summary_of(smallest, "runtime_h"), summary_of(row, "runtime_h")
    return quotient(first, own, row is smallest, factor=smallest["gpus"])


def _row(series: Row, row: Row, smallest: Row) -> Row:
    gain = speedup(row, smallest)
    ratios = {
        "speedup": gain,
        "efficiency": gain.times(1 / row["gpus"]),
        "gpu_hours_ratio": _ratio(row, smallest, "gpu_hours"),
        "energy_ratio": _ratio(row, smallest, "energy_kwh") if _like(row, smallest) else _NOTHING,
    }
    found = {name: row[name] for name in SCALING.names if name in row}
    found |= {
        "series": series["name"],
        "label": series["label"],
        "smallest_gpus": smallest["gpus"],
        "smallest_n_repeats": smallest["n_repeats"],
    }
    return found | {
        f"{name}{end}": getattr(one, part) for name, one in ratios.items() for end, part in _ENDS
    }


def _ratio(row: Row, smallest: Row, name: str) -> Summary:
    return quotient(summary_of(row, name), summary_of(smallest, name), row is smallest)


def _like(row: Row, smallest: Row) -> bool:
    return all(row[key] == smallest[key] for key in ("energy_origin", "energy_scope"))
