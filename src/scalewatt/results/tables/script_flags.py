"""Flags of a run of a command, by what its script reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.terms import Flag, flag


def script_flags(
    spec: RunSpec, provenance: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> list[Flag]:
    """Return what a script's reports say of a run beside its numbers; nothing of other runs."""
    reports = provenance.get("reports")
    if reports is None:
        return []
    contradictions = list(_contradictions(spec, reports, history))
    found = []
    if contradictions:
        found.append(flag("contradicts_spec", None, "; ".join(contradictions)))
    if spec.gpus > 1 and reports["joined"] is False:
        detail = (
            f"{spec.gpus} ranks, and torch.distributed was not initialised when the script reported: "
            "each may have trained alone"
        )
        found.append(flag("ranks_apart", None, detail))
    if spec.gpus > 1 and reports["joined"] is None:
        detail = f"whether its {spec.gpus} ranks trained together is not known"
        found.append(flag("world_unknown", None, detail))
    if reports.get("ended"):
        ranks = ", ".join(map(str, reports["ended"]))
        detail = f"ranks {ranks} ran on after the others and were ended; energy until then counts"
        found.append(flag("rank_ended", None, detail))
    if reports["declared"]:
        names = " and ".join(reports["declared"])
        found.append(flag("declared", None, f"{names} as declared, not reported"))
    found += [
        flag("not_finite", None, _not_finite(name, epochs, history))
        for name, epochs in reports["not_finite"].items()
        if epochs
    ]
    return found


def _contradictions(
    spec: RunSpec, reports: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
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
    for name, (of_epoch, tolerance) in expected.items():
        counts = [row[name] for row in history if row[name] is not None]
        if of_epoch is None or not counts:
            continue
        total, declared = sum(counts), of_epoch * len(counts)
        if abs(total - declared) > tolerance * len(counts):
            yield f"{total} {name} were reported where {declared} were declared"


def _not_finite(name: str, epochs: Sequence[int], history: Sequence[Mapping[str, Any]]) -> str:
    last = [row["epoch"] for row in history if row["epoch"] >= min(epochs)]
    name = name.replace("_", " ")
    if set(last) <= set(epochs):
        return f"{name} not finite since epoch {min(epochs)}"
    return f"{name} not finite in {len(epochs)} epochs, first in epoch {min(epochs)}"
