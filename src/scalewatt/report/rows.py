"""Rows of tables of the page that are not simply those of a table of results, by `source` in topics.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from scalewatt.provenance.description import node_kind, recorder_of, software_of
from scalewatt.report.results import Results
from scalewatt.results.tables.frames import RUN_KEY
from scalewatt.results.text.flag_labels import FLAG_WORDS, read_flags
from scalewatt.results.text.number_format import MISSING, listed, percent

_MOST_NAMED = 8
_NODE = ("CPUs", "GPUs", "GPU driver", "kernel")


# --- tables of results ----------------------------------------------------------------------------


def run_rows(results: Results) -> pd.DataFrame:
    """Runs with the labels and details of their flags, and a link to their pages."""
    runs = results.runs
    shares = [share if pd.isna(share) else percent(share) for share in runs["coverage"]]
    return runs.assign(
        share=pd.Series(shares, runs.index, dtype=object),
        flag_labels=runs["parsed"].map(flag_labels),
        flag_details=[flag_labels(flags, True) for flags in runs["parsed"]],
        page=_mark_up('<a href="figures/runs/{0}.svg">{0}</a>', runs["run"]),
    )


def configuration_rows(results: Results) -> pd.DataFrame | None:
    """Configurations, as targets of the links of figures."""
    table = results.table("configurations")
    if table is None:
        return None
    targets = _mark_up('<span id="configuration-{0}">{0}</span>', table["configuration"])
    return table.assign(configuration=targets)


def _mark_up(template: str, values: pd.Series) -> pd.Series:
    marked = [Markup(template).format(value) for value in values]
    return pd.Series(marked, values.index, dtype=object)


def scaling_rows(results: Results) -> pd.DataFrame | None:
    """Series with several n: a single point says nothing of scaling."""
    table = results.table("scaling")
    if table is None:
        return None
    return table[table.groupby("series")["gpus"].transform("nunique") > 1]


# --- data quality ---------------------------------------------------------------------------------


def missing_rows(results: Results) -> pd.DataFrame:
    """Configurations with missing runs."""
    repeats = results.missing.groupby("configuration", sort=False)["repeat"]
    names = repeats.agg(lambda repeats: listed(map(str, repeats), _MOST_NAMED))
    return pd.DataFrame({"missing": repeats.size(), "repeats": names}).reset_index()


def replaced_rows(results: Results) -> pd.DataFrame:
    """Replaced measurements, with the energy before and now."""
    now = results.runs[[*RUN_KEY, "energy_kwh"]]
    return results.replaced.merge(now, "left", RUN_KEY, suffixes=("_before", "_now"))


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


def flag_labels(flags: Sequence[dict[str, Any]], details: bool = False) -> str:
    """Labels of a run's flags, each once. A device kind without a sensor is named by the scope instead."""
    labels: dict[str, None] = {}
    for flag in flags:
        if flag["code"] != "absent":
            label, detail = _label(flag), _detail(flag) if details else ""
            labels[f"{label} ({detail})" if detail else label] = None
    return "; ".join(labels) or MISSING


def _label(flag: Mapping[str, Any]) -> str:
    return FLAG_WORDS.get(str(flag["code"]), str(flag["code"]))


def _detail(flag: Mapping[str, Any]) -> str:
    return " ".join(str(flag[key]) for key in ("device", "detail") if flag.get(key))


def idle_rows(results: Results) -> pd.DataFrame:
    """Idle powers with the details of their flags."""
    idle = results.table("idle")
    if idle is None:
        return pd.DataFrame()
    return idle.assign(why=[flag_labels(read_flags(flags), True) for flags in idle["flags"]])


def no_idle_rows(results: Results) -> pd.DataFrame:
    """Devices whose runs have no idle energy although there are probes, with the reason."""
    reasons = results.runs.attrs.get("no_idle") or {}
    return pd.DataFrame(reasons.items(), columns=["device", "why"])


# --- provenance -----------------------------------------------------------------------------------


def what_ran_rows(results: Results) -> pd.DataFrame:
    """Models by device, with the number of runs and the most GPUs and nodes."""
    kinds = ["model", "phase", "device", "device_name"]
    groups = results.runs.groupby(kinds, sort=False, dropna=False)
    sizes = groups.agg(n_runs=("run", "size"), gpus=("gpus", "max"), nodes=("nodes", "max"))
    return sizes.reset_index()


def hardware_rows(results: Results) -> pd.DataFrame:
    """Where and when the runs of each device were made."""
    rows = []
    for device, runs in results.runs.groupby("device", sort=False):
        keys = zip(runs["configuration"], runs["repeat"], strict=True)
        records = [results.provenance.get(key, {}) for key in keys]
        hosts = sorted({str(host) for record in records for host in record.get("hostnames") or ()})
        segments = [segment for record in records for segment in record.get("segments") or ()]
        times = pd.DataFrame(segments, columns=["started_s", "ended_s"], dtype=float)
        row = {
            "device": device,
            "hardware": listed(runs["device_name"].dropna().unique()) or None,
            "nodes": len(hosts),
            "hosts": listed(hosts, _MOST_NAMED) or None,
            "n_runs": len(runs),
            "first": _moment(times["started_s"].min()),
            "last": _moment(times["ended_s"].max()),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _moment(unix_s: float) -> str | None:
    return None if pd.isna(unix_s) else f"{pd.Timestamp(unix_s, unit='s'):%Y-%m-%d %H:%M} UTC"


def software_rows(results: Results) -> pd.DataFrame:
    """Packages and settings of runs, and kinds of their nodes, by the number of runs."""
    checkouts = {None: "not recorded", True: "clean", False: "with changed files"}
    rows: list[tuple[str, str, str]] = []
    for record in results.provenance.values():
        rows += software_of(record)
        lock = record.get("lock")
        packages = "not recorded" if not lock else "differ" if lock["differences"] else "as locked"
        rows.append(("the run", "packages", packages))
        rows.append(
            ("the run", "checkout that published it", checkouts[record.get("commit_clean")])
        )
        kinds = {
            item
            for node in record.get("nodes") or ()
            for item in zip(_NODE, node_kind(node), strict=True)
        }
        rows += [("its nodes", name, value) for name, value in sorted(kinds)]
    return _count(rows, ["whose", "what", "value"])


def departure_rows(results: Results) -> pd.DataFrame:
    """Packages that differ from the lock, by the number of runs."""
    rows = [
        (
            recorder_of(record),
            other["package"],
            other["locked"] or "none",
            other["installed"] or "none",
        )
        for record in results.provenance.values()
        for other in (record.get("lock") or {}).get("differences") or ()
    ]
    return _count(rows, ["whose", "package", "locked", "installed"])


def _count(rows: Sequence[tuple[str, ...]], columns: list[str]) -> pd.DataFrame:
    counts = pd.DataFrame(rows, columns=columns).value_counts().sort_index()
    return counts.rename("n_runs").reset_index()


ROWS: dict[str, Callable[[Results], pd.DataFrame | None]] = {
    "runs": run_rows,
    "configurations": configuration_rows,
    "scaling": scaling_rows,
    "idle": idle_rows,
    "missing": missing_rows,
    "replaced": replaced_rows,
    "flags": flag_rows,
    "no_idle": no_idle_rows,
    "what_ran": what_ran_rows,
    "hardware": hardware_rows,
    "departures": departure_rows,
    "software": software_rows,
}
"""Functions by the source that they make the rows of."""
