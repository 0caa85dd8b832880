"""The third check: compare the history of a re-run with that of the first run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.reproduction.check_result import DIFFERS, HISTORY, SAME, Finding, not_checked
from scalewatt.reproduction.file_diff import same_value

GPU_RELATIVE = 0.05
GPU_POINTS = 1.0
"""Metrics in percent may differ by so many percentage points, however small they are."""
TOLERANCE = (
    f"On a GPU a value may differ by {GPU_RELATIVE:.0%} of the larger one, a metric in percent by "
    f"{GPU_POINTS:g} percentage point where that is more. Kernels and reductions between GPUs add in "
    "another order each time, so last digits differ from the first update on, and each update carries "
    "that further. The tolerance is our choice, not a measurement: it allows for such growth in a "
    "small run, but not for another learning rate, batch size or dataset. Counts of epochs, samples and "
    "updates, and learning rates, must be bitwise equal there too."
)
OF_THE_MACHINE = ("segment", "peak_memory_bytes")
"""Columns about a run's execution, not about what it learnt, as those that end in `_s`."""
_EXACT = ("epoch", "samples", "updates", "learning_rate")
"""Exact on a GPU too: they are not computed there."""
_METRICS = ("metric", "train_metric")
_CONTEXT = ("device_name", "cuda", "mpi", "precision_used", "commit", "dataset_sha256")
"""Keys of the provenance that may explain a difference, besides packages."""
_MOST = 3


@dataclass(frozen=True)
class Exactness:
    """The tolerance of a column's values."""

    relative: float = 0.0
    absolute: float = 0.0
    bits: bool = True

    def holds(self, one: Any, two: Any) -> bool:
        """Return True if two values are within it; null equals only null."""
        if self.bits or one is None or two is None or same_value(one, two):
            return same_value(one, two)
        near = max(self.relative * max(abs(one), abs(two)), self.absolute)
        return bool(abs(one - two) <= near)  # of NaN and infinity it does not hold


def is_timing(column: str) -> bool:
    """Return True if a column is about duration or machine, not about what was learnt."""
    return column.endswith("_s") or column in OF_THE_MACHINE


def exactness(column: str, on_gpu: bool, metric_name: str | None) -> Exactness:
    """Return the tolerance of a column's values, on a CPU or on GPUs."""
    if not on_gpu or column in _EXACT:
        return Exactness()
    # The columns of the metric do not contain its name; a model's own results do.
    name = (metric_name or "") if column in _METRICS else column
    percent = "percent" in name.split("_")
    return Exactness(GPU_RELATIVE, GPU_POINTS if percent else 0.0, bits=False)


def history_findings(
    run: str,
    first: pa.Table,
    again: pa.Table,
    on_gpu: bool,
    metric_name: str | None = None,
    context: str | None = None,
) -> list[Finding]:
    """Return one row for each learning column of two histories, and one for their number of epochs.

    Where both have no value of anything learnt, nothing is checked: counts alone prove nothing.
    `context`: what differs between the two runs' machines and packages.
    """
    names = [name for name in first.column_names if not is_timing(name)]
    more = [n for n in again.column_names if not is_timing(n) and n not in names]
    findings = [_epochs(run, len(first), len(again))]
    for name in [*names, *more]:
        what = f"{run}: {name}"
        if name not in again.column_names or name not in first.column_names:
            where = "the repeat" if name in names else "the first run"
            findings.append(Finding(HISTORY, what, DIFFERS, detail=f"{where} has no such column"))
            continue
        alike = exactness(name, on_gpu, metric_name)
        findings.append(_column(what, first[name], again[name], alike, context))
    counts = {f"{run}: {name}" for name in ("epochs", *_EXACT)}
    compared = {one.what for one in findings if one.outcome == SAME} - counts
    if compared or any(one.outcome == DIFFERS for one in findings):
        return findings
    why = "what it learnt is not known of both: the histories have no epoch, or only nulls"
    return [not_checked(HISTORY, run, why, expected=len(first), found=len(again))]


def _epochs(run: str, first: int, again: int) -> Finding:
    outcome = SAME if first == again else DIFFERS
    return Finding(HISTORY, f"{run}: epochs", outcome, first, again)


def _column(
    what: str,
    first: pa.ChunkedArray,
    again: pa.ChunkedArray,
    alike: Exactness,
    context: str | None,
) -> Finding:
    if first.type != again.type:
        said = "columns of other types"
        return Finding(HISTORY, what, DIFFERS, str(first.type), str(again.type), said)
    pairs = list(zip(first.to_pylist(), again.to_pylist(), strict=False))
    if all(one is None and two is None for one, two in pairs):
        why = "it is null in every row of both" if pairs else "one of them has no row"
        return not_checked(HISTORY, what, why)
    differing = [(at, *pair) for at, pair in enumerate(pairs) if not alike.holds(*pair)]
    asked = "bit by bit" if alike.bits else "within the tolerance for GPUs"
    if not differing:
        one, two = pairs[-1]
        said = f"{len(pairs)} values, {asked}; the last ones are shown"
        return Finding(HISTORY, what, SAME, finite(one), finite(two), said)
    _, one, two = differing[0]
    named = "; ".join(f"row {at + 1}: {a!r} and {b!r}" for at, a, b in differing[:_MOST])
    count = f"{len(differing)} of {len(pairs)} values are not the same {asked}"
    why = f" ({context})" if context else ""
    return Finding(HISTORY, what, DIFFERS, finite(one), finite(two), f"{count}: {named}{why}")


def finite(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity as text."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value


def read_table(path: Path) -> pa.Table:
    """Read a history as it is stored, whatever its columns; InputError where it is unreadable."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, ValueError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{path}: is no readable Parquet file ({said})") from error


def other_circumstances(first: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Return the differences between the provenances of a run and its re-run."""
    own, other = first.get("packages") or {}, again.get("packages") or {}
    pairs = [(name, own.get(name), other.get(name)) for name in sorted({*own, *other})]
    pairs += [(name.replace("_", " "), first.get(name), again.get(name)) for name in _CONTEXT]
    return [f"{name}: {one}, then {two}" for name, one, two in pairs if one != two]
