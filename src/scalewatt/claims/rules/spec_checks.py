"""Specs that claims on settings look at, and whether a departure of theirs contradicts the paper.

The series count of which a run has finished, with all their points as the campaign defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scalewatt.claims.evidence.claim_types import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    Check,
    NotTestable,
    Outcome,
    check,
)
from scalewatt.claims.evidence.evidence import PAPER_DEVICES, Evidence, Line, Row
from scalewatt.results.tables.published import FULL_SAMPLES


def specs_of(
    evidence: Evidence,
    model: str | None = None,
    phase: str | None = None,
    mode: str | None = None,
    device: str | None = None,
) -> list[Row]:
    """Specs of the configurations in series of this description, each once; commands have none.

    NotTestable where the campaign defines none, or no run of these has finished.
    """
    lines = [
        line
        for line in evidence.lines
        if model in (None, line.model)
        and phase in (None, line.phase)
        and device in (None, line.device)
        and has_mode(line.mode, mode)
    ]
    words = " ".join(word for word in (model, phase, mode, device) if word) or "a known model"
    if not _specs(evidence, lines):
        raise NotTestable(f"The campaign defines no configuration of {words}.")
    found = _specs(evidence, begun(evidence, lines))
    if not found:
        raise NotTestable(f"No finished run of {words}.")
    return found


def _specs(evidence: Evidence, lines: Iterable[Line]) -> list[Row]:
    ids = dict.fromkeys(id_ for line in lines for id_ in _configurations(evidence, line.name))
    specs = [evidence.specs[id_] for id_ in ids if id_ in evidence.specs]
    return [spec for spec in specs if spec["dataset"].get("format") != "command"]


def begun(evidence: Evidence, lines: Iterable[Line]) -> list[Line]:
    """Lines with a finished run; the paper's own are all finished."""
    return [line for line in lines if line.points or evidence.published]


def setting(*ids: str, model: str | None = None) -> Callable[[Check], Check]:
    """Register the check of what the campaign sets.

    One that is none of the paper's contradicts nothing where it sets another value.
    """

    def register(function: Check) -> Check:
        def checked(evidence: Evidence) -> Outcome:
            found = function(evidence)
            if found.verdict != NOT_REPRODUCED or _is_of_paper(evidence, model):
                return found
            more = "The campaign is none of the paper's: it departs, and contradicts nothing."
            return Outcome(NOT_TESTABLE, None, f"{found.detail} {more}")

        check(*ids)(checked)
        return function

    return register


def _is_of_paper(evidence: Evidence, model: str | None) -> bool:
    """Whether trainings of the model are on a device, the full dataset and the protocol of the paper."""
    lines = [line for line in evidence.lines if model in (None, line.model)]
    return any(
        spec["device"] in PAPER_DEVICES
        and spec["protocol"] == "paper"
        and training_samples(spec) == FULL_SAMPLES.get(spec["model"], -1)
        for spec in _specs(evidence, begun(evidence, lines))
    )


def _configurations(evidence: Evidence, series: str) -> Iterable[str]:
    there = {} if evidence.campaign is None else evidence.campaign.series
    return there[series].points.values() if series in there else ()


def has_mode(mode: str, asked: str | None) -> bool:
    """Whether a mode is the asked one, or begins so; any where none is asked."""
    return asked is None or mode == asked or mode.startswith(f"{asked}_")


def training_samples(spec: Row) -> Any:
    """Samples of the whole dataset; where all of it is used, those that are."""
    whole = spec["dataset_fraction"] == "1"
    return spec["dataset_samples"] if whole else spec["dataset"].get("train_samples")
