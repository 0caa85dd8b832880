"""What the runs were made with: hardware, software, specs; where they differ; what made the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from scalewatt import __version__
from scalewatt.figures import figure_data as data
from scalewatt.provenance.versions import source_commit
from scalewatt.report.html_tables import Column, Grid, grid, texts
from scalewatt.results.text.number_format import listed

Row = dict[str, Any]
Provenance = Mapping[tuple[str, int], Row]
_MOST_VALUES = 6
"""Values of one variable that are shown; of masks of CPUs there may be one a run."""
_NONE, _UNSET = "none", "not set"
_SETTINGS = (
    "optimizer",
    "schedule",
    "parallelism",
    "torch_device",
    "threads_per_rank",
    "cudnn_deterministic",
    "cudnn_benchmark",
    "cudnn_allow_tf32",
    "matmul_allow_tf32",
    "deterministic_algorithms",
    "float32_matmul_precision",
    "cublas_workspace_config",
    "python_hash_seed",
)
_LIBRARIES = ("cudnn", "nccl")
_VERSIONS = ("cuda", "mpi")


def hardware(runs: pd.DataFrame, provenance: Provenance) -> Grid | None:
    """Return where the runs of each device were made, and when."""
    rows = []
    for device, own in data.groups(runs, "device"):
        of = _of(own, provenance)
        names = listed(own["device_name"].dropna().unique())
        hosts = sorted({str(host) for one in of for host in one.get("hostnames") or ()})
        first, last = _times(of)
        rows.append((device, names, len(hosts), listed(hosts, 6), len(own), first, last))
    headings = ["device", "hardware", "nodes", "their names", "runs", "first start", "last end"]
    return texts("hardware", "Hardware", headings, rows) if rows else None


def _times(provenance: Iterable[Row]) -> tuple[str | None, str | None]:
    segments = [segment for one in provenance for segment in one.get("segments") or ()]
    starts = [s["started_s"] for s in segments if s.get("started_s") is not None]
    ends = [s["ended_s"] for s in segments if s.get("ended_s") is not None]
    return _moment(min(starts, default=None)), _moment(max(ends, default=None))


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def software(provenance: Provenance) -> Grid | None:
    """Return each package and setting with its values, and the number of runs for each."""
    rows = [row for one in provenance.values() for row in software_of(one)]
    return _counted("software", "Software", ["of", "what", "version or value"], rows)


def software_of(provenance: Row) -> Iterable[tuple[str, str, str]]:
    """Yield each package and setting of a run: whose, its name, its version or value."""
    whose = _whose(provenance)
    for name, version in (provenance.get("packages") or {}).items():
        if version is not None:
            yield whose, str(name), str(version)
    if provenance.get("commit"):
        yield "the run", "commit of the checkout that published it", str(provenance["commit"])
    for name in (*_VERSIONS, *_SETTINGS):
        if provenance.get(name) is not None:
            yield whose, name, _setting(provenance[name])
    for name in _LIBRARIES:
        if (version := (provenance.get("software") or {}).get(name)) is not None:
            yield whose, name, str(version)


def _setting(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def specifications(runs: pd.DataFrame) -> Grid:
    """Return the specifications of the runs: a run is repeated when its specification changes."""
    headings = {
        "configuration": "configuration",
        "repeat": "repeat",
        "protocol": "protocol",
        "precision": "precision",
        "precision_used": "computed in",
        "loader": "loader",
        "initial_weights": "began from",
        "spec_sha256": "SHA-256 of spec.json",
    }
    columns = [Column(name, heading) for name, heading in headings.items()]
    return grid("specifications", "Specifications of the runs", runs, columns)


def _of(runs: pd.DataFrame, provenance: Provenance) -> list[Row]:
    """Return the provenance of each run, empty if there is none."""
    keys = zip(runs["configuration"], runs["repeat"], strict=True)
    return [provenance.get(key, {}) for key in keys]


def maker() -> str:
    """Return scalewatt's version and commit that made the page; its runs may be from another one."""
    commit = source_commit()
    return f"scalewatt {__version__}" + (f", commit {commit}" if commit else "")


# --- differences from the lock, from a commit, and between runs -----------------------------------


def records(runs: pd.DataFrame, provenance: Provenance) -> list[str]:
    """Return how many runs had the packages of the lock and a clean checkout, and how many do not say."""
    of = _of(runs, provenance)
    locks = [one["lock"] for one in of if one.get("lock")]
    other = sum(bool(lock["differences"]) for lock in locks)
    clean = [one["commit_clean"] for one in of if one.get("commit_clean") is not None]
    counts = {
        "Runs with packages as locked": len(locks) - other,
        "Runs with packages that differ from the lock, listed above": other,
        "Runs without a record of the lock": len(of) - len(locks),
        "Runs without a record of their packages": sum(not one.get("packages") for one in of),
        "Runs published from a clean checkout": sum(clean),
        "Runs published from a checkout with changed files": len(clean) - sum(clean),
        "Runs trained, in part, at another commit than published": sum(map(_has_moved, of)),
        "Runs without a record of the commit of the checkout that published them": sum(
            not one.get("commit") for one in of
        ),
    }
    if (different := len({lock.get("sha256") for lock in locks})) > 1:
        counts["Locks that they were compared with"] = different
    return [f"{label}: {count}." for label, count in counts.items() if count]


def packages(provenance: Provenance) -> Grid | None:
    """Return each package that differs from the lock and in how many runs; None if none does."""
    rows = [
        (_whose(one), other["package"], other["locked"] or _NONE, other["installed"] or _NONE)
        for one in provenance.values()
        for other in (one.get("lock") or {}).get("differences") or ()
    ]
    headings = ["of", "package", "locked", "installed"]
    return _counted("departures", "Packages that differ from the lock", headings, rows)


def _whose(provenance: Row) -> str:
    return str(provenance.get("packages_of") or "the run")


def _has_moved(provenance: Row) -> bool:
    trained = {one["commit"] for one in provenance.get("segments") or () if one.get("commit")}
    return bool(trained - {provenance.get("commit")})


def machines(provenance: Provenance) -> Grid | None:
    """Return each kind of node, by CPUs, GPUs, driver and kernel; None without any record."""
    headings = ["CPUs", "GPUs", "GPU driver", "kernel"]
    found = pd.DataFrame(
        [
            (*node_kind(node), host, run)
            for run, one in provenance.items()
            for node in one.get("nodes") or ()
            for host in node["hosts"]
        ],
        columns=[*headings, "host", "run"],
    )
    rows = [
        (*kind, len(hosts := sorted(set(nodes["host"]))), listed(hosts, _MOST_VALUES), runs)
        for kind, nodes in found.groupby(headings)
        for runs in [nodes["run"].nunique()]
    ]
    headings += ["nodes", "their names", "runs"]
    return texts("machines", "Nodes by what they are", headings, rows) if rows else None


def node_kind(node: Row) -> tuple[str, ...]:
    """Return what a node is: CPUs, GPUs, GPU driver, kernel."""
    gpus = (node.get("gpu_models") or {}).items()
    return (
        _text(node.get("cpu_models")),
        _text([f"{n} × {name}" for name, n in gpus]),
        _text([node["gpu_driver"]] if node.get("gpu_driver") else None),
        _text([node["kernel"]] if node.get("kernel") else None),
    )


def _text(words: Iterable[str] | None) -> str:
    return ", ".join(words or ()) or "not known"


def variables(provenance: Provenance) -> Grid | None:
    """Return each environment variable whose value differs between the runs that record it."""
    recorded = [
        one["environment_variables"]
        for one in provenance.values()
        if one.get("environment_variables") is not None
    ]
    counts = pd.DataFrame(recorded).fillna(_UNSET).apply(lambda values: values.value_counts())
    rows = [
        (name, listed([f"{value} ({n:.0f} runs)" for value, n in values.items()], _MOST_VALUES))
        for name, column in sorted(counts.items())
        if len(values := column.dropna().sort_values(ascending=False, kind="stable")) > 1
    ]
    headings = ["variable", "its values"]
    return texts("variables", "Variables that differ", headings, rows) if rows else None


def _counted(
    name: str, title: str, headings: list[str], rows: Sequence[tuple[str, ...]]
) -> Grid | None:
    """Return different rows and how often there is each, sorted; None without any."""
    if not rows:
        return None
    counts = pd.DataFrame(rows, columns=headings).value_counts().sort_index().reset_index()
    return texts(name, title, [*headings, "runs"], counts.itertuples(index=False, name=None))
