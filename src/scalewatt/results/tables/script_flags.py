"""Flags of a run of a command, by what its script reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.terms import Flag, flag

History = Sequence[Mapping[str, Any]]


def script_flags(spec: RunSpec, provenance: Mapping[str, Any], history: History) -> list[Flag]:
    """Flags on what a script's reports say of a run beside its numbers; none of other runs."""
    reports = provenance.get("reports")
    return [] if reports is None else [flag(*pair) for pair in _flags(spec, reports, history)]


def _flags(
    spec: RunSpec, reports: Mapping[str, Any], history: History
) -> Iterator[tuple[str, None, str]]:
    if contradictions := "; ".join(_contradictions(spec, reports, history)):
        yield "contradicts_spec", None, contradictions
    if spec.gpus > 1 and reports["joined"] is False:
        detail = "and torch.distributed was not initialised when the script reported: each may"
        yield "ranks_apart", None, f"{spec.gpus} ranks, {detail} have trained alone"
    if spec.gpus > 1 and reports["joined"] is None:
        yield "world_unknown", None, f"whether its {spec.gpus} ranks trained together is not known"
    if reports.get("ended"):
        ranks = ", ".join(map(str, reports["ended"]))
        detail = "ran on after the others and were ended; energy until then counts"
        yield "rank_ended", None, f"ranks {ranks} {detail}"
    if reports["declared"]:
        names = " and ".join(reports["declared"])
        yield "declared", None, f"{names} as declared, not reported"
    for name, epochs in reports["not_finite"].items():
        if epochs:
            since = {row["epoch"] for row in history if row["epoch"] >= min(epochs)} <= set(epochs)
            when = f"since epoch {min(epochs)}"
            if not since:
                when = f"in {len(epochs)} epochs, first in epoch {min(epochs)}"
            yield "not_finite", None, f"{name.replace('_', ' ')} not finite {when}"


def _contradictions(spec: RunSpec, reports: Mapping[str, Any], history: History) -> Iterator[str]:
    """Yield where reports differ from the spec by more than how an epoch's last batch is filled."""
    done = reports["epochs"]
    if done is None:
        return
    if done != spec.epochs:
        yield f"{done} of {spec.epochs} epochs were reported"
    expected = {
        "samples": (spec.dataset_samples, spec.global_batch_size),
        "updates": (spec.updates_per_epoch, 1),
    }
    for name, (per_epoch, tolerance) in expected.items():
        counts = [row[name] for row in history if row[name] is not None]
        if per_epoch is not None and counts:
            total, declared = sum(counts), per_epoch * len(counts)
            if abs(total - declared) > tolerance * len(counts):
                yield f"{total} {name} were reported where {declared} were declared"
