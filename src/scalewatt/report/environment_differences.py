"""Where runs depart from the lock, from a commit, and from each other: packages, nodes, variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scalewatt.report.html_tables import Grid, texts
from scalewatt.results.text.number_format import count, listed

Row = dict[str, Any]
Provenance = Mapping[tuple[str, int], Row]
_MOST_VALUES = 6
"""Values of one variable that are shown; of masks of CPUs there may be one a run."""
_NONE, _UNSET = "none", "not set"


def lock_sentence(runs: Sequence[Row], provenance: Provenance) -> str:
    """How many runs were made with the packages of the lock, and how many do not say."""
    of = [provenance.get((run["configuration"], run["repeat"]), {}) for run in runs]
    noted = [one["lock"] for one in of if one.get("lock")]
    other = sum(bool(lock["differences"]) for lock in noted)
    parts = []
    if noted and not other:
        whom = "All runs" if len(noted) == len(of) else count(len(noted), "run")
        parts.append(f"{whom}: packages as locked.")
    elif other:
        parts.append(f"{count(other, 'run')} with packages that are not as locked, listed above.")
    if len(locks := {lock.get("sha256") for lock in noted}) > 1:
        parts.append(f"They were held against {len(locks)} different locks.")
    if silent := len(of) - len(noted):
        parts.append(f"{count(silent, 'run')} without a note of the lock.")
    return " ".join(parts)


def packages(provenance: Provenance) -> Grid | None:
    """Each package that is not as locked, and in how many runs; None where all are."""
    found: Counter[tuple[str, ...]] = Counter()
    for one in provenance.values():
        whose = str(one.get("packages_of") or "the run")
        for other in (one.get("lock") or {}).get("differences") or ():
            versions = (other[name] or _NONE for name in ("locked", "installed"))
            found[whose, other["package"], *versions] += 1
    headings = ["of", "package", "locked", "installed", "runs"]
    return _counted("departures", "Packages that are not as locked", headings, found)


def commit_sentence(runs: Sequence[Row], provenance: Provenance) -> str:
    """How many runs were published or trained from files that no commit has; empty where none is."""
    parts = []
    of = [provenance.get((run["configuration"], run["repeat"]), {}) for run in runs]
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
    """Each kind of node that runs had, by its CPUs, GPUs, driver and kernel; None where none says."""
    found: Counter[tuple[str, ...]] = Counter()
    hosts: dict[tuple[str, ...], set[str]] = {}
    for one in provenance.values():
        kinds = set()
        for node in one.get("nodes") or ():
            kind = _kind(node)
            hosts.setdefault(kind, set()).update(node["hosts"])
            kinds.add(kind)
        found.update(kinds)
    headings = ["CPUs", "GPUs", "GPU driver", "kernel", "nodes", "their names", "runs"]
    rows = [
        (*kind, len(hosts[kind]), listed(sorted(hosts[kind]), _MOST_VALUES), runs)
        for kind, runs in sorted(found.items())
    ]
    return texts("machines", "Nodes by what they are", headings, rows) if rows else None


def _kind(node: Row) -> tuple[str, ...]:
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
    """Each environment variable whose value is not the same in all runs that note theirs."""
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
    """The most frequent values of a variable, and the others together."""
    shown = sorted(values.items(), key=lambda one: (-one[1], one[0]))
    if len(shown) > _MOST_VALUES:
        rest = shown[_MOST_VALUES - 1 :]
        shown = shown[: _MOST_VALUES - 1]
        shown.append((f"{len(rest)} other values", sum(n for _, n in rest)))
    return {(name, value): n for value, n in shown}


def _counted(
    name: str, says: str, headings: list[str], found: Mapping[tuple[str, ...], int]
) -> Grid | None:
    """Keys and their counts as a grid, by name; None without any."""
    rows = [(*key, n) for key, n in sorted(found.items(), key=lambda one: one[0])]
    return texts(name, says, headings, rows) if rows else None
