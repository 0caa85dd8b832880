"""Data quality: what is missing, replaced, flagged or measured otherwise, as rows of topics.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.report.results import Results
from scalewatt.results.figures.superseded import Replaced
from scalewatt.results.text.flag_labels import FLAG_WORDS, read_flags
from scalewatt.results.text.number_format import MISSING, listed

Flag = dict[str, Any]
_MOST_NAMED = 8


def flag_labels(flags: Sequence[Flag], details: bool = False) -> str:
    """Labels of a run's flags, each once. A device kind without a sensor is named by the scope instead."""
    labels: dict[str, None] = {}
    for flag in flags:
        if flag["code"] != "absent":
            label, detail = _label(flag), _detail(flag) if details else ""
            labels[f"{label} ({detail})" if detail else label] = None
    return "; ".join(labels) or MISSING


def _label(flag: Flag) -> str:
    return FLAG_WORDS.get(str(flag["code"]), str(flag["code"]))


def _detail(flag: Flag) -> str:
    return " ".join(str(flag[key]) for key in ("device", "detail") if flag.get(key))


# --- rows -----------------------------------------------------------------------------------------


def missing_rows(results: Results) -> pd.DataFrame:
    """Configurations with missing runs."""
    repeats = results.missing.groupby("configuration", sort=False)["repeat"]
    names = repeats.agg(lambda repeats: listed(map(str, repeats), _MOST_NAMED))
    return pd.DataFrame({"missing": repeats.size(), "repeats": names}).reset_index()


def replaced_rows(results: Results) -> pd.DataFrame:
    """Replaced measurements, with the energy before and now."""
    rows = pd.DataFrame(map(asdict, results.replaced), columns=list(Replaced.__annotations__))
    now = results.runs[["configuration", "repeat", "energy_kwh"]]
    keys = ["configuration", "repeat"]
    return rows.merge(now, how="left", on=keys, suffixes=("_before", "_now"))


def flag_rows(results: Results) -> pd.DataFrame:
    """Each code of flags, with the runs that have it and an example."""
    flags = results.runs[["run", "parsed"]].explode("parsed").dropna()
    flags = flags.assign(
        code=[flag["code"] for flag in flags["parsed"]],
        warning=flags["parsed"].map(_label),
        example=flags["run"] + ": " + flags["parsed"].map(_detail),
    )
    rows = flags.groupby(["warning", "code"], sort=False).agg(
        n_runs=("run", "nunique"), times=("run", "size"), example=("example", "first")
    )
    return rows.sort_values("times", ascending=False, kind="stable").reset_index()


def idle_rows(results: Results) -> pd.DataFrame:
    """Idle powers with the details of their flags."""
    idle = results.table("idle")
    if idle is None:
        return pd.DataFrame()
    return idle.assign(why=[flag_labels(read_flags(flags), True) for flags in idle["flags"]])


def no_idle_rows(results: Results) -> pd.DataFrame:
    """Devices whose runs have no idle energy although there are probes, with the reason."""
    reasons = data.stored(results.runs).get("no_idle") or {}
    return pd.DataFrame(reasons.items(), columns=["device", "why"])
