"""What the runs were made with: hardware, software, specs; where they differ; what made the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from scalewatt import __version__
from scalewatt.provenance.versions import source_commit
from scalewatt.report.html_tables import Part, grid
from scalewatt.results.text.number_format import listed

Row = dict[str, Any]
Provenance = Mapping[tuple[str, int], Row]
_MOST_NAMED = 6
"""Names, or values of one variable, that are shown; of masks of CPUs there may be one a run."""
_SETTINGS = (
    *("cuda", "mpi", "optimizer", "schedule", "parallelism", "torch_device", "threads_per_rank"),
    *("cudnn_deterministic", "cudnn_benchmark", "cudnn_allow_tf32", "matmul_allow_tf32"),
    *("deterministic_algorithms", "float32_matmul_precision", "cublas_workspace_config"),
    "python_hash_seed",
)
_LIBRARIES = ("cudnn", "nccl")
NODE_COLUMNS = ["CPUs", "GPUs", "GPU driver", "Kernel"]
_SPECIFICATIONS = {
    "configuration": "Configuration",
    "protocol": "Protocol",
    "initial_weights": "Began from",
    "spec_sha256": "SHA-256 of spec.json",
}


def parts(runs: pd.DataFrame, provenance: Provenance) -> list[Part]:
    """Tables of the section; one without rows is left out."""
    folded = {
        "software": ("Software and settings, by the number of runs", _software(provenance)),
        "machines": ("Nodes by CPUs, GPUs, driver and kernel", _machines(provenance)),
        "variables": ("Environment variables that differ between runs", _variables(provenance)),
    }
    found = [
        Part("hardware", "Hardware", "", _grid(_hardware(runs, provenance))),
        *(Part(name, title, "", _grid(rows), folded=True) for name, (title, rows) in folded.items()),
        Part("departures", "Packages that differ from the lock", "", _grid(_departures(provenance))),
        Part(
            "specifications",
            "Specifications of the runs",
            "A run is repeated when its specification changes; the hash says which one a result is of.",
            grid(
                runs,
                ["configuration", "repeat", "protocol", "precision", "precision_used", "loader",
                 "initial_weights", "spec_sha256"],
                _SPECIFICATIONS,
            ) if len(runs) else None,
            folded=True,
        ),
    ]  # fmt: skip
    return [part for part in found if part.table]


def _grid(rows: pd.DataFrame) -> Any:
    return grid(rows, map(str, rows)) if len(rows) else None


def maker() -> str:
    """Version and commit of scalewatt that made the page; its runs may be from another one."""
    commit = source_commit()
    return f"scalewatt {__version__}" + (f", commit {commit}" if commit else "")


def _hardware(runs: pd.DataFrame, provenance: Provenance) -> pd.DataFrame:
    """Where the runs of each device were made, and when."""
    rows = []
    for device, of_device in runs.groupby("device", sort=False):
        keys = zip(of_device["configuration"], of_device["repeat"], strict=True)
        records = [provenance.get(key, {}) for key in keys]
        hosts = sorted({str(host) for record in records for host in record.get("hostnames") or ()})
        segments = [segment for record in records for segment in record.get("segments") or ()]
        times = pd.DataFrame(segments, columns=["started_s", "ended_s"], dtype=float)
        rows.append(
            {
                "Device": device,
                "Hardware": listed(of_device["device_name"].dropna().unique()) or None,
                "Nodes": len(hosts),
                "Their names": listed(hosts, _MOST_NAMED) or None,
                "Runs": len(of_device),
                "First start": _moment(times["started_s"].min()),
                "Last end": _moment(times["ended_s"].max()),
            }
        )
    return pd.DataFrame(rows)


def _moment(unix_s: float) -> str | None:
    return None if pd.isna(unix_s) else f"{pd.Timestamp(unix_s, unit='s'):%Y-%m-%d %H:%M} UTC"


# --- software -------------------------------------------------------------------------------------


def _software(provenance: Provenance) -> pd.DataFrame:
    rows = [row for record in provenance.values() for row in software_of(record)]
    return _counted(rows, ["Of", "What", "Version or value"])


def software_of(record: Row) -> Iterable[tuple[str, str, str]]:
    """Yield each package and setting of a run: whose, its name, its version or value."""
    whose = _whose(record)
    settings = {name: record.get(name) for name in _SETTINGS}
    libraries = {name: (record.get("software") or {}).get(name) for name in _LIBRARIES}
    switches = {True: "on", False: "off"}
    for name, value in ((record.get("packages") or {}) | settings | libraries).items():
        if value is not None:
            yield whose, name, switches[value] if isinstance(value, bool) else str(value)
    if record.get("commit"):
        yield "the run", "commit of the checkout that published it", str(record["commit"])


def _departures(provenance: Provenance) -> pd.DataFrame:
    """Packages that differ from the lock, and in how many runs."""
    rows = [
        (_whose(record), other["package"], other["locked"] or "none", other["installed"] or "none")
        for record in provenance.values()
        for other in (record.get("lock") or {}).get("differences") or ()
    ]
    return _counted(rows, ["Of", "Package", "Locked", "Installed"])


def _whose(record: Row) -> str:
    return str(record.get("packages_of") or "the run")


def _counted(rows: Sequence[tuple[str, ...]], columns: list[str]) -> pd.DataFrame:
    counts = pd.DataFrame(rows, columns=columns).value_counts().sort_index()
    return counts.rename("Runs").reset_index()


def _variables(provenance: Provenance) -> pd.DataFrame:
    """Environment variables whose values differ between the runs that record them."""
    recorded = [record.get("environment_variables") for record in provenance.values()]
    values = pd.DataFrame([each for each in recorded if each is not None]).fillna("not set")
    counts = {name: column.value_counts() for name, column in sorted(values.items())}
    rows = [
        (name, listed([f"{value} (runs: {n})" for value, n in count.items()], _MOST_NAMED))
        for name, count in counts.items()
        if len(count) > 1
    ]
    return pd.DataFrame(rows, columns=["Variable", "Its values"])


# --- nodes ----------------------------------------------------------------------------------------


def _machines(provenance: Provenance) -> pd.DataFrame:
    """Kinds of nodes, each with its nodes and the number of its runs."""
    rows = [
        (*node_kind(node), host, run)
        for run, record in provenance.items()
        for node in record.get("nodes") or ()
        for host in node["hosts"]
    ]
    nodes = pd.DataFrame(rows, columns=[*NODE_COLUMNS, "host", "Runs"])
    return nodes.groupby(NODE_COLUMNS).agg(
        **{"Nodes": ("host", "nunique")},
        **{"Their names": ("host", lambda hosts: listed(sorted(set(hosts)), _MOST_NAMED))},
        Runs=("Runs", "nunique"),
    ).reset_index()  # fmt: skip


def node_kind(node: Row) -> tuple[str, ...]:
    """What a node is: CPUs, GPUs, GPU driver, kernel."""
    gpus = [f"{n} × {name}" for name, n in (node.get("gpu_models") or {}).items()]
    single = [[node[key]] if node.get(key) else [] for key in ("gpu_driver", "kernel")]
    words = [node.get("cpu_models") or [], gpus, *single]
    return tuple(", ".join(each) or "not known" for each in words)


# --- records --------------------------------------------------------------------------------------


def sentences(runs: pd.DataFrame, provenance: Provenance) -> list[str]:
    """Numbers of runs by the packages of the lock and by the state of the checkout."""
    records = [
        provenance.get(key, {}) for key in zip(runs["configuration"], runs["repeat"], strict=True)
    ]
    locks = [record["lock"] for record in records if record.get("lock")]
    other = sum(bool(lock["differences"]) for lock in locks)
    clean = [r["commit_clean"] for r in records if r.get("commit_clean") is not None]
    counts = {
        "Runs with packages as locked": len(locks) - other,
        "Runs with packages that differ from the lock, listed above": other,
        "Runs without a record of the lock": len(records) - len(locks),
        "Runs without a record of their packages": sum(not r.get("packages") for r in records),
        "Runs published from a clean checkout": sum(clean),
        "Runs published from a checkout with changed files": len(clean) - sum(clean),
        "Runs trained, in part, at another commit than published": sum(map(_has_moved, records)),
        "Runs without a record of the commit of the checkout that published them": sum(
            not r.get("commit") for r in records
        ),
    }
    return [f"{text}: {count}." for text, count in counts.items() if count]


def _has_moved(record: Row) -> bool:
    trained = {s["commit"] for s in record.get("segments") or () if s.get("commit")}
    return bool(trained - {record.get("commit")})
