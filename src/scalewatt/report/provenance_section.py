"""What the runs were made with: hardware, software, packages, as rows of topics.yaml."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from scalewatt import __version__
from scalewatt.provenance.description import node_kind, recorder_of, software_of
from scalewatt.provenance.versions import source_commit
from scalewatt.report.results import Results
from scalewatt.results.text.number_format import listed

_MOST_NAMED = 6
_NODE = ("CPUs", "GPUs", "GPU driver", "kernel")


def maker() -> str:
    """Version and commit of scalewatt that makes the page; its runs may be from another one."""
    commit = source_commit()
    return f"scalewatt {__version__}" + (f", commit {commit}" if commit else "")


def what_ran_rows(results: Results) -> pd.DataFrame:
    """Models by device, with the number of runs and the most GPUs and nodes."""
    kinds = ["model", "phase", "device", "device_name"]
    groups = results.runs.groupby(kinds, sort=False, dropna=False)
    return groups.agg(
        n_runs=("run", "size"), gpus=("gpus", "max"), nodes=("nodes", "max")
    ).reset_index()


def hardware_rows(results: Results) -> pd.DataFrame:
    """Where and when the runs of each device were made."""
    rows = []
    for device, runs in results.runs.groupby("device", sort=False):
        keys = zip(runs["configuration"], runs["repeat"], strict=True)
        records = [results.provenance.get(key, {}) for key in keys]
        hosts = sorted({str(host) for record in records for host in record.get("hostnames") or ()})
        segments = [segment for record in records for segment in record.get("segments") or ()]
        times = pd.DataFrame(segments, columns=["started_s", "ended_s"], dtype=float)
        names = listed(runs["device_name"].dropna().unique()) or None
        first, last = _moment(times["started_s"].min()), _moment(times["ended_s"].max())
        nodes = len(hosts), listed(hosts, _MOST_NAMED) or None
        rows.append((device, names, *nodes, len(runs), first, last))
    columns = ["device", "hardware", "nodes", "hosts", "n_runs", "first", "last"]
    return pd.DataFrame(rows, columns=columns)


def _moment(unix_s: float) -> str | None:
    return None if pd.isna(unix_s) else f"{pd.Timestamp(unix_s, unit='s'):%Y-%m-%d %H:%M} UTC"


def software_rows(results: Results) -> pd.DataFrame:
    """Packages and settings of runs, and kinds of their nodes, by the number of runs."""
    records = results.provenance.values()
    rows = [row for record in records for row in software_of(record)]
    for nodes in (record.get("nodes") or () for record in records):
        kinds = {item for node in nodes for item in zip(_NODE, node_kind(node), strict=True)}
        rows += [("its nodes", name, value) for name, value in sorted(kinds)]
    return _counted(rows, ["whose", "what", "value"])


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
    return _counted(rows, ["whose", "package", "locked", "installed"])


def state_rows(results: Results) -> pd.DataFrame:
    """Number of runs by how their packages and their checkout are recorded."""
    rows = []
    for record in results.provenance.values():
        lock = record.get("lock")
        packages = "not recorded" if not lock else "differ" if lock["differences"] else "as locked"
        checkouts = {None: "not recorded", True: "clean", False: "with changed files"}
        rows.append((packages, checkouts[record.get("commit_clean")]))
    return _counted(rows, ["packages", "checkout"])


def _counted(rows: Sequence[tuple[str, ...]], columns: list[str]) -> pd.DataFrame:
    counts = pd.DataFrame(rows, columns=columns).value_counts().sort_index()
    return counts.rename("n_runs").reset_index()
