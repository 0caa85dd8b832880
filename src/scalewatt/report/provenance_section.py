"""What the runs were done with: hardware, nodes, software, specs; and what made the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from scalewatt import __version__
from scalewatt.provenance.versions import source_commit
from scalewatt.report.html_tables import Grid, grid, stored, texts
from scalewatt.results.text.number_format import count, listed

Row = dict[str, Any]
Provenance = Mapping[tuple[str, int], Row]
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


def hardware(runs: Sequence[Row], provenance: Provenance) -> Grid | None:
    """Where the runs of each device were made, and when."""
    rows = []
    for device in dict.fromkeys(run["device"] for run in runs):
        own = [run for run in runs if run["device"] == device]
        of = [_of(run, provenance) for run in own]
        names = dict.fromkeys(str(run["device_name"]) for run in own if run["device_name"])
        hosts = sorted({str(host) for one in of for host in one.get("hostnames") or ()})
        first, last = _times(of)
        rows.append((device, listed(names), len(hosts), listed(hosts, 6), len(own), first, last))
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
    """Each package and setting with the values that runs had, and how many runs."""
    found: dict[tuple[str, str, str], int] = {}
    for one in provenance.values():
        for key in _software_of(one):
            found[key] = found.get(key, 0) + 1
    if not found:
        return None
    rows = [(*key, n) for key, n in sorted(found.items())]
    return texts("software", "Software", ["of", "what", "version or value", "runs"], rows)


def _software_of(provenance: Row) -> Iterable[tuple[str, str, str]]:
    whose = str(provenance.get("packages_of") or "the run")
    for name, version in (provenance.get("packages") or {}).items():
        if version is not None:
            yield whose, str(name), str(version)
    if provenance.get("commit"):
        yield "the run", "commit of the checkout that published it", str(provenance["commit"])
    for name in (*_VERSIONS, *_SETTINGS):
        if provenance.get(name) is not None:
            yield whose, name, _said(provenance[name])
    for name in _LIBRARIES:
        if (version := (provenance.get("software") or {}).get(name)) is not None:
            yield whose, name, str(version)


def _said(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def unknown_software(runs: Sequence[Row], provenance: Provenance) -> str:
    """How many runs do not say what they were done with; empty where all do."""
    silent = [run for run in runs if not _of(run, provenance).get("packages")]
    return f"{count(len(silent), 'run')} without a note of its packages." if silent else ""


def specifications(runs: Sequence[Row]) -> Grid:
    """What decides whether a run is run again, and which spec a result belongs to."""
    columns = (
        stored("configuration", "configuration"),
        stored("repeat", "repeat"),
        stored("protocol", "protocol"),
        stored("precision", "precision"),
        stored("precision_used", "computed in"),
        stored("loader", "loader"),
        stored("initial_weights", "began from"),
        stored("spec_sha256", "SHA-256 of spec.json"),
    )
    return grid("specifications", "Specifications of the runs", runs, columns)


def unknown_commits(runs: Sequence[Row], provenance: Provenance) -> str:
    """How many runs do not say the commit of the checkout that published them; empty where all do."""
    silent = sum(not _of(run, provenance).get("commit") for run in runs)
    return (
        f"{count(silent, 'run')} without a note of the commit of the checkout that published them."
        if silent
        else ""
    )


def _of(run: Row, provenance: Provenance) -> Row:
    return provenance.get((run["configuration"], run["repeat"]), {})


def maker() -> str:
    """What made the page, which need not be what made its runs: scalewatt's version and commit."""
    commit = source_commit()
    return f"scalewatt {__version__}" + (f", commit {commit}" if commit else "")
