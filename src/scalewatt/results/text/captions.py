"""Captions of figures and of Table 1: one template, `captions.j2`, and the facts of a table that fill it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, Template

from scalewatt.results.columns import SEVERAL, metric_label
from scalewatt.results.tables.derived_quantities import ORIGINS
from scalewatt.results.text.number_format import MISSING, listed, with_unit

ASSUMED = (
    "Simulated: run times and whole energies are the scaling model's. Errors that were not published, the "
    "parts of GPUs, CPUs and memory in the energy if the model does not know them, power over time and the "
    "scatter of repeats are assumed."
)
UNEQUAL_SCOPES = "Totals of unequal scope are not comparable."
ORIGIN_WORDS = {
    "measured": "measured by sensors",
    "estimated": "estimated from utilisation and rated powers",
    "simulated": "simulated with the scaling model",
    "published": "as published by Huber et al. (2025)",
    "mixed": "partly measured and partly estimated",
}
"""What an energy's origin means, after the word `energy`."""
BARS = {
    "interval": "95 % t interval of the mean over repeats",
    "sd": "sample standard deviation over repeats",
    "population_sd": "population standard deviation over repeats, as the paper prints",
}
"""What error bars may be, by the campaign's word for it; `none` is the fourth."""
MOST_NAMED = 4
"""Configurations of a list; of more, the others are counted."""
_COLUMNS = (
    *("configuration", "n_repeats", "device", "device_name"),
    *("energy_kwh", "energy_origin", "energy_scope"),
)


def caption(rows: pd.DataFrame, figure: str = "", **facts: Any) -> list[str]:
    """Sentences on the rows of a table, by its metadata (`attrs`) and a figure's own `facts`.

    Energies count where they have an origin and, in tables with their values, a value.
    """
    lines = _template().render(_facts(rows) | {"figure": figure} | facts).splitlines()
    sentences = (re.sub(" +", " ", line).strip(" ") for line in lines)
    return [sentence for sentence in sentences if sentence]


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    environment.filters["named"] = lambda ids: listed(dict.fromkeys(ids), MOST_NAMED)
    environment.globals |= {"UNEQUAL_SCOPES": UNEQUAL_SCOPES, "BARS": BARS}
    return environment.get_template("captions.j2")


def _facts(table: pd.DataFrame) -> dict[str, Any]:
    metadata = table.attrs
    rows = table.reindex(columns=_COLUMNS).astype(object)
    if "n_repeats" in table:
        rows = rows[rows["n_repeats"].notna()]
    known = rows[rows["energy_origin"].notna()]
    if "energy_kwh" in table:
        known = known[known["energy_kwh"].notna()]
    names = rows.dropna(subset="device_name").groupby("device", sort=False)["device_name"]
    why = metadata.get("no_energy", {})
    excluded = metadata.get("excluded", [])
    repeats = rows["n_repeats"].dropna()
    return {
        "has_runs": len(rows) > 0,
        "energies": {
            ORIGIN_WORDS[str(origin)]: {
                scope: ", ".join(devices.dropna().unique())
                for scope, devices in kind.groupby("energy_scope", sort=False)["device"]
            }
            for origin, kind in known.groupby("energy_origin", sort=False)
        },
        "unequal_scopes": known["energy_scope"].nunique() > 1,
        "gpu_word": metadata.get("gpu_word", "GPUs"),
        "devices": {device: list(column.unique()) for device, column in names},
        "has_repeats": bool((repeats > 1).any()),
        "has_single": bool((repeats == 1).any()),
        "no_energy": _grouped((why[i], i) for i in rows["configuration"].unique() if i in why),
        "missing": metadata.get("missing", []),
        "excluded": _grouped(
            (run["reason"].rstrip("."), f"{run['configuration']}/{run['repeat']}")
            for run in excluded
        ),
        "notes": metadata.get("notes", []),
    }


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group ids by what is said of them."""
    groups: dict[str, list[str]] = {}
    for words, id_ in pairs:
        groups.setdefault(words, []).append(id_)
    return groups


def prediction_facts(rows: pd.DataFrame) -> dict[str, Any]:
    """Facts of the figure `prediction`: its model, and what this was calibrated on."""
    rows = rows[rows["quantity"].isin(["runtime_h", "energy_kwh"])]
    known = rows["calibrated_on"].astype(bool)
    return {
        "model": rows.attrs.get("scaling_model"),
        "sources": rows.attrs.get("sources", []),
        "calibrated_on": list(rows.loc[known, "configuration"]),
    }


def metric_words(rows: pd.DataFrame) -> str:
    """Label of the metric of rows of one model (columns model, metric_name)."""
    names = rows["metric_name"].dropna().unique()
    name = SEVERAL if len(names) > 1 else next(iter(names), None)
    return metric_label(rows["model"].iloc[0], name)


def larger_is_better(rows: pd.DataFrame) -> list[str]:
    """Metrics of rows that are better the larger they are, with their models."""
    larger = rows[rows["metric_goal"].eq("max").fillna(False)]
    models = larger.groupby(["model", "phase"], sort=False)
    return list(dict.fromkeys(f"{metric_words(group)} of {key[0]}" for key, group in models))


def interval_words(origin: str | None, low_kwh: float | None, high_kwh: float | None) -> str:
    """Interval of an energy that is estimated, or whose uncovered time shows; else nothing."""
    low, high = with_unit(low_kwh, "kWh"), with_unit(high_kwh, "kWh")
    if origin not in ORIGINS and low == high:
        return ""
    if MISSING in (low, high):
        return "no interval of the estimate is known"
    return f"the true value lies between {low} and {high}"


def nothing_sentence(table: pd.DataFrame) -> str:
    """Why there is nothing to draw, by the metadata of a table."""
    if table.attrs.get("missing") or not table.attrs.get("excluded"):
        return "No run of these series has finished; with results_only none is started."
    return "All finished runs of these series are excluded."
