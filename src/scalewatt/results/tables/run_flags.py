"""Flags of a run beside those of its energy: shared GPUs, its simulation, and its script's reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.terms import Flag, flag

History = Sequence[Mapping[str, Any]]


def shared_gpus(spec: RunSpec, provenance: Mapping[str, Any]) -> list[Flag]:
    """Flag that several ranks shared a GPU: n then counts processes."""
    held = [len(gpus) for gpus in (provenance.get("gpus") or {}).values() if gpus is not None]
    if not held or min(held) >= spec.ranks_per_node:
        return []
    detail = f"{spec.ranks_per_node} ranks a node on {min(held)} GPUs"
    return [flag("gpus_shared", None, detail)]


def simulation_flags(provenance: Mapping[str, Any]) -> list[Flag]:
    """Flags on what the scaling model did not know of a simulated run, by its provenance."""
    simulated = provenance.get("simulated") or {}
    assumed = [flag("extrapolated", None, simulated["assumed"])] if simulated.get("assumed") else []
    return assumed + [flag("extrapolated", None, text) for text in simulated.get("warnings") or []]


def script_flags(spec: RunSpec, provenance: Mapping[str, Any], history: History) -> Iterator[Flag]:
    """Flag what a script's reports say of a run beside its numbers; nothing of other runs."""
    reports = provenance.get("reports")
    if reports is None:
        return
    if contradictions := "; ".join(_contradictions(spec, reports["epochs"], history)):
        yield flag("contradicts_spec", None, contradictions)
    if spec.gpus > 1 and reports["joined"] is False:
        apart = "torch.distributed was not initialised: each may have trained alone"
        yield flag(
            "contradicts_spec", None, f"when the script of {spec.gpus} ranks reported, {apart}"
        )
    if spec.gpus > 1 and reports["joined"] is None:
        unknown = f"whether its {spec.gpus} ranks trained together is not known"
        yield flag("unconfirmed", None, unknown)
    if reports.get("ended"):
        ranks = ", ".join(map(str, reports["ended"]))
        detail = "ran on after the others and were ended; energy until then counts"
        yield flag("rank_ended", None, f"ranks {ranks} {detail}")
    if reports["declared"]:
        names = " and ".join(reports["declared"])
        yield flag("declared", None, f"{names} as declared, not reported")
    for name, epochs in reports["not_finite"].items():
        if epochs:
            since = {row["epoch"] for row in history if row["epoch"] >= min(epochs)} <= set(epochs)
            first = f"in {len(epochs)} epochs, first in" if not since else "since"
            detail = f"{name.replace('_', ' ')} not finite {first} epoch {min(epochs)}"
            yield flag("not_finite", None, detail)


def _contradictions(spec: RunSpec, done: int | None, history: History) -> Iterator[str]:
    """Yield where reports differ from the spec by more than how an epoch's last batch is filled."""
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
