"""The paper's claims on campaigns of other models, and work in replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from claims_made import Made, evidence, judged, line, runs_of

from scalewatt.claims.evidence import Evidence
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    NOT_TESTABLE,
    PORTABLE_TABLE,
    SET_UP,
    SUPPORTED,
    read_checks,
)
from scalewatt.claims.verdicts import EACH

DEVICE = "mi300x"
GROWTH, HOURS = 1.25, 0.19


def at_constant_gbs(model: str, values: Mapping[int, tuple[float, float]]) -> Made:
    """A series of GBS 256, of a model that the paper lacks, trained to a target, with meters of nodes.

    Run time in h and energy in kWh by n; of nodes of 8 GPUs.
    """
    given = {n: {"runtime_h": hours, "energy_kwh": kwh} for n, (hours, kwh) in values.items()}
    columns = {"protocol": "target", "energy_scope": "node"}
    made = line(model, "train", DEVICE, "fd_gbs_s", 256, given, **columns)
    points = [point | {"nodes": point["gpus"] // 8} for point in made.points]
    return made._replace(points=points)


def both(growth: float = GROWTH, hours: float = HOURS) -> list[Made]:
    """Two trainings on 8 and 64 GPUs: energy grows, GPU hours are 8 · `hours` of what they were."""
    return [
        at_constant_gbs(model, {8: (1.0, kwh), 64: (hours, kwh * growth)})
        for model, kwh in (("t5", 6.8), ("vit", 6.9))
    ]


def foreign(growth: float = GROWTH, hours: float = HOURS, *more: Made) -> Evidence:
    return evidence([*both(growth, hours), *more])


@pytest.mark.parametrize(
    ("id_", "growth", "hours", "expected"),
    [
        ("E05", 1.25, 0.19, CONTRADICTED),
        ("E05", 1.25, 0.13, SUPPORTED),
        ("E08", 1.25, 0.19, CONTRADICTED),
        ("E08", 1.50, 0.19, SUPPORTED),
        ("E09", 1.25, 0.19, SUPPORTED),
        ("E09", 0.90, 0.19, CONTRADICTED),
        ("H14", 1.25, 0.19, SUPPORTED),
        ("H19", 1.25, 0.19, SUPPORTED),
        ("K08", 1.25, 0.19, SUPPORTED),
        ("K09", 1.25, 0.19, SUPPORTED),
        ("K09", 1.80, 0.19, CONTRADICTED),
    ],
)
def test_every_training_takes_the_papers_place(
    id_: str, growth: float, hours: float, expected: str
) -> None:
    decided = judged(id_, foreign(growth, hours))
    assert decided.verdict == expected, decided.detail
    assert "t5 mi300x" in decided.detail and "vit mi300x" in decided.detail


def test_a_training_without_the_series_is_named_and_decides_nothing() -> None:
    single = at_constant_gbs("gpt", {8: (1.0, 7.0)})
    decided = judged("E05", foreign(GROWTH, HOURS, single))
    assert decided.verdict == CONTRADICTED
    assert "known at 1 of the 2 points" in decided.detail


def test_factors_are_compared_at_equal_n_alone() -> None:
    few = at_constant_gbs("gpt", {8: (1.0, 8.0)})
    many = at_constant_gbs("vit", {64: (0.19, 6.0)})
    apart = evidence([few, many])
    assert judged("A02", apart).verdict == NOT_TESTABLE
    assert judged("A02", foreign()).verdict == CONTRADICTED
    high = at_constant_gbs("gpt", {8: (1.0, 9.5)})
    decided = judged("A02", foreign(GROWTH, HOURS, high))
    assert decided.verdict == SUPPORTED
    assert "gpt mi300x (n = 8) over that of t5 mi300x (n = 8)" in decided.detail


# --- the table -----------------------------------------------------------------------------------


def test_portable_rows_are_of_checked_claims_and_keep_their_bounds() -> None:
    of_paper = read_checks()
    assert list(read_checks(PORTABLE_TABLE)) == [
        id_ for id_ in of_paper if id_ in read_checks(PORTABLE_TABLE)
    ]
    for id_, checks in read_checks(PORTABLE_TABLE).items():
        assert {check.model for check in checks} in ({EACH}, {""}), id_
        bounds = {check.expects for check in of_paper[id_]} | {"", "..1", "1..", "0.."}
        assert {check.expects for check in checks} <= bounds, id_
        assert checks[0].expected and checks[0].stands_in.endswith("."), id_


# --- work ----------------------------------------------------------------------------------------


def run_to_target(**given: Any) -> Evidence:
    row = {
        "configuration": "t5-n064",
        "repeat": 1,
        "gpus": 64,
        "gpus_per_replica": 8,
        "local_batch_size": 1,
        "global_batch_size": 8,
        "dataset_samples": 3901,
        "epochs": 1,
        "protocol": "target",
        "updates": 384,
        "samples": 3072,
    }
    return replace(foreign(), runs=runs_of([row | given]))


def test_work_counts_replicas_and_each_runs_own_samples() -> None:
    assert judged("A05", run_to_target()).reason == SET_UP
    assert "Updates · replicas · LBS" in judged("A05", run_to_target()).detail
    assert judged("A05", run_to_target(gpus_per_replica=4)).verdict == CONTRADICTED
    assert judged("A05", run_to_target(samples=3901)).verdict == CONTRADICTED
    of_epochs = run_to_target(protocol="paper", dataset_samples=3072, samples=None)
    assert judged("A05", of_epochs).reason == SET_UP
    assert judged("A05", run_to_target(samples=None)).verdict == NOT_TESTABLE
