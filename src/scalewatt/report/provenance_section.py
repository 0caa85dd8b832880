"""What the runs were made with: hardware, software, specs; where they differ; what made the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from scalewatt import __version__
from scalewatt.figures import figure_data as data
from scalewatt.provenance.versions import source_commit
from scalewatt.report.html_tables import Column, Grid, grid, texts
from scalewatt.results.text.number_format import count, listed

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
    found: dict[tuple[str, str, str], int] = {}
    for one in provenance.values():
        for key in software_of(one):
            found[key] = found.get(key, 0) + 1
    if not found:
        return None
    rows = [(*key, n) for key, n in sorted(found.items())]
    return texts("software", "Software", ["of", "what", "version or value", "runs"], rows)


def software_of(provenance: Row) -> Iterable[tuple[str, str, str]]:
    """Yield each package and setting of a run: whose, its name, its version or value."""
    whose = str(provenance.get("packages_of") or "the run")
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


def unknown_software(runs: pd.DataFrame, provenance: Provenance) -> str:
    """Return how many runs have no record of their packages; empty if all have."""
    silent = sum(not one.get("packages") for one in _of(runs, provenance))
    return f"{count(silent, 'run')} without a record of its packages." if silent else ""


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


def unknown_commits(runs: pd.DataFrame, provenance: Provenance) -> str:
    """Return how many runs have no record of the commit that published them; empty if all have."""
    silent = sum(not one.get("commit") for one in _of(runs, provenance))
    record = "without a record of the commit of the checkout that published them"
    return f"{count(silent, 'run')} {record}." if silent else ""


def _of(runs: pd.DataFrame, provenance: Provenance) -> list[Row]:
    """Return the provenance of each run, empty if there is none."""
    keys = zip(runs["configuration"], runs["repeat"], strict=True)
    return [provenance.get(key, {}) for key in keys]


def maker() -> str:
    """Return scalewatt's version and commit that made the page; its runs may be from another one."""
    commit = source_commit()
    return f"scalewatt {__version__}" + (f", commit {commit}" if commit else "")


# --- differences from the lock, from a commit, and between runs -----------------------------------


def lock_sentence(runs: pd.DataFrame, provenance: Provenance) -> str:
    """Return how many runs had the packages of the lock, and how many have no record of it."""
    of = _of(runs, provenance)
    noted = [one["lock"] for one in of if one.get("lock")]
    other = sum(bool(lock["differences"]) for lock in noted)
    parts = []
    if noted and not other:
        whom = "All runs" if len(noted) == len(of) else count(len(noted), "run")
        parts.append(f"{whom}: packages as locked.")
    elif other:
        parts.append(
            f"{count(other, 'run')} with packages that differ from the lock, listed above."
        )
    if len(locks := {lock.get("sha256") for lock in noted}) > 1:
        parts.append(f"They were compared with {len(locks)} different locks.")
    if silent := len(of) - len(noted):
        parts.append(f"{count(silent, 'run')} without a record of the lock.")
    return " ".join(parts)


def packages(provenance: Provenance) -> Grid | None:
    """Return each package that differs from the lock and in how many runs; None if none does."""
    found: Counter[tuple[str, ...]] = Counter()
    for one in provenance.values():
        whose = str(one.get("packages_of") or "the run")
        for other in (one.get("lock") or {}).get("differences") or ():
            versions = (other[name] or _NONE for name in ("locked", "installed"))
            found[whose, other["package"], *versions] += 1
    headings = ["of", "package", "locked", "installed", "runs"]
    return _counted("departures", "Packages that differ from the lock", headings, found)


def commit_sentence(runs: pd.DataFrame, provenance: Provenance) -> str:
    """Return how many runs were published or trained from uncommitted files; empty if none was."""
    parts = []
    of = _of(runs, provenance)
    clean = [one["commit_clean"] for one in of if one.get("commit_clean") is not None]
    if clean and all(clean):
        parts.append(f"{count(len(clean), 'run')} published from a clean checkout.")
    elif clean:
        changed = len(clean) - sum(clean)
        parts.append(f"{count(changed, 'run')} published from a checkout with changed files.")
    if moved := sum(_has_moved(one) for one in of):
        parts.append(f"{count(moved, 'run')} trained, in part, at another commit than published.")
    return " ".join(parts)


def _has_moved(provenance: Row) -> bool:
    trained = {one["commit"] for one in provenance.get("segments") or () if one.get("commit")}
    return bool(trained - {provenance.get("commit")})


def machines(provenance: Provenance) -> Grid | None:
    """Return each kind of node, by CPUs, GPUs, driver and kernel; None without any record."""
    found: Counter[tuple[str, ...]] = Counter()
    hosts: dict[tuple[str, ...], set[str]] = {}
    for one in provenance.values():
        kinds = set()
        for node in one.get("nodes") or ():
            kind = node_kind(node)
            hosts.setdefault(kind, set()).update(node["hosts"])
            kinds.add(kind)
        found.update(kinds)
    headings = ["CPUs", "GPUs", "GPU driver", "kernel", "nodes", "their names", "runs"]
    rows = [
        (*kind, len(hosts[kind]), listed(sorted(hosts[kind]), _MOST_VALUES), runs)
        for kind, runs in sorted(found.items())
    ]
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
    noted = [
        one["environment_variables"]
        for one in provenance.values()
        if one.get("environment_variables") is not None
    ]
    found: Counter[tuple[str, ...]] = Counter()
    for name in sorted({name for one in noted for name in one}):
        values = Counter(_UNSET if one.get(name) is None else one[name] for one in noted)
        if len(values) > 1:
            found.update(_fewer(name, values))
    headings = ["variable", "value", "runs"]
    return _counted("variables", "Environment variables that differ", headings, found)


def _fewer(name: str, values: Counter[str]) -> dict[tuple[str, str], int]:
    """Return the most frequent values of a variable, and the others together."""
    shown = sorted(values.items(), key=lambda one: (-one[1], one[0]))
    if len(shown) > _MOST_VALUES:
        rest = shown[_MOST_VALUES - 1 :]
        shown = shown[: _MOST_VALUES - 1]
        shown.append((f"{len(rest)} other values", sum(n for _, n in rest)))
    return {(name, value): n for value, n in shown}


def _counted(
    name: str, says: str, headings: list[str], found: Mapping[tuple[str, ...], int]
) -> Grid | None:
    """Return keys and their counts as a grid, by name; None without any."""
    rows = [(*key, n) for key, n in sorted(found.items(), key=lambda one: one[0])]
    return texts(name, says, headings, rows) if rows else None
