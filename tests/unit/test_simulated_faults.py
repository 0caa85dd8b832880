"""Faults in simulated runs: the accounting finds the true energy, or says that it does not know it.

Tolerances. EXACT: what float32 clocks and whole mW leave. Where a sensor failed for a time: that time,
with a step to the next samples on both sides, at the power that the device has at most.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from energy_tables import EnergyTables
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from injected_faults import CounterWrap, Fault, NodeLoss, SensorLoss
from simulated_runs import Simulated, cluster, simulate, spec_of

from scalewatt.campaign.cluster import powers
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.scaling.simulation.assumptions import counter_range_uj

EXACT = 2e-6
MAX_UNCOVERED = 0.05
"""The part of the device seconds of a kind that may be uncovered (docs/guide/energy.md)."""
BRIDGED_S, BRIDGED_PERIODS = 30.0, 3.0
PLAUSIBLE_W = {"cpu": 2000.0, "ram": 1000.0}
"""No device draws more (docs/paper/simulate.md)."""
ON_TWO_NODES = "resnet50-a100-n008-lbs0256-s0040036"
ON_ONE_GPU = "resnet50-a100-n001-lbs0256-s0005004"
ON_H100 = "fourcastnet.pretrain-h100-n016-lbs0001-full"
MOST_W = {"a100": 450.0, "h100": 700.0, "cpu": 280.0, "ram": 60.0}
"""What a device draws at most, by the device of GPUs or the kind of others: rated, and a little more."""
KINDS = ("gpu", "cpu", "ram")

few = settings(max_examples=3, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""Not shrunk: each example takes seconds."""


@dataclass(frozen=True)
class Result:
    """A simulated run with what the accounting says of it."""

    run: Simulated
    totals: EnergyTables
    device: str

    @property
    def flags(self) -> list[dict[str, Any]]:
        return self.totals.flags

    @property
    def codes(self) -> set[str]:
        return self.totals.codes

    def is_exact(self, kind: str) -> bool:
        """Whether a kind's energy is the true one."""
        return self.totals.joules(kind) == pytest.approx(self.run.true_j(kind), rel=EXACT)


@contextmanager
def accounted(spec: RunSpec, faults: Sequence[Fault], period_s: float = 2.0) -> Iterator[Result]:
    """Simulate a run with faults, and account for it."""
    with tempfile.TemporaryDirectory() as folder:
        run = simulate(Path(folder), spec, None, faults, period_s=period_s)
        rated = powers(cluster().devices[spec.device])
        yield Result(run, EnergyTables.of(run.folder, rated), spec.device)


def counted_j(result: Result, kind: str) -> float:
    """The true energy of a device kind, without that of starts that failed and left nothing."""
    failed = {
        int(fault["detail"].split()[1])
        for fault in result.flags
        if "during start-up" in fault["detail"]
    }
    true = result.run.truth.joules("kind", "segment", "stage")[kind]
    uncounted = true[true.index.isin(failed, level="segment")]
    assert set(uncounted.index.get_level_values("stage")) <= {"startup"}
    return float(true.sum() - uncounted.sum())


def most_w(result: Result, kind: str) -> float:
    """What a device of a kind draws at most."""
    return MOST_W[result.device if kind == "gpu" else kind]


def specs(least: int = 2, most: int = 30) -> st.SearchStrategy[dict[str, Any]]:
    """Short runs: of two nodes, of one GPU of a node, of H100 nodes without a memory sensor."""
    return st.one_of(
        st.builds(
            lambda name, epochs: spec_of(name, epochs=epochs),
            st.sampled_from((ON_TWO_NODES, ON_ONE_GPU)),
            st.integers(least, most),
        ),
        st.builds(lambda repeat: spec_of(ON_H100, repeat, epochs=1), st.integers(1, 3)),
    )


def kinds_of(spec: RunSpec) -> tuple[str, ...]:
    return KINDS[:2] if spec.device == "h100" else KINDS


def assert_all_exact(result: Result, kinds: Sequence[str] = KINDS) -> None:
    for kind in kinds:
        assert result.is_exact(kind), kind
    assert result.totals.coverage == pytest.approx(1.0, abs=1e-9)
    assert result.totals.runtime_s == pytest.approx(result.run.truth.runtime_s, rel=EXACT)


def assert_short_by_what_is_uncovered(result: Result, kind: str) -> None:
    """What is stated lacks at most what the device can have used in the uncovered time."""
    stated, true = result.totals.joules(kind), result.run.true_j(kind)
    assert result.totals.recorded_j(kind) <= true * (1 + EXACT)
    if stated is None:
        assert result.totals.total_j is None
        return
    uncovered = 1 - result.totals.coverage_of(kind)
    assert uncovered <= MAX_UNCOVERED
    device_s = result.totals.device_seconds(kind)
    assert true - stated <= most_w(result, kind) * uncovered * device_s + EXACT * true
    assert_in_interval(result, kind)


def assert_in_interval(result: Result, kind: str) -> None:
    """The truth lies in the interval of what is stated."""
    (low, high), true = result.totals.bounds_j(kind), result.run.true_j(kind)
    assert low == result.totals.joules(kind)
    assert low <= true * (1 + EXACT) and true * (1 - EXACT) <= high


def assert_discards_are_true(result: Result, period_s: float) -> None:
    """What was done in vain is the truth's, but for the steps in which it begins and ends."""
    for kind in ("gpu", "cpu"):
        true = sum(node[kind] for node in result.run.truth.discarded)
        devices = result.totals.devices(kind)
        assert devices >= result.run.run.spec.nodes
        assert result.totals.discarded_j(kind) == pytest.approx(
            true, rel=EXACT, abs=0.05 * most_w(result, kind) * devices * period_s
        )


# Counters


@few
@given(
    specs(),
    st.floats(200.0, 300_000.0),
    st.sampled_from(("all", "cpu", "ram")),
    st.floats(0.2, 60.0),
)
def test_a_counter_that_wraps_is_exact_or_flagged_as_ambiguous(
    spec: RunSpec, range_j: float, kind: str, period_s: float
) -> None:
    with accounted(spec, [CounterWrap(range_j, kind)], period_s) as result:
        assert result.is_exact("gpu")
        for fault in kinds_of(spec)[1:]:
            wraps_j = counter_range_uj(fault, cluster().devices[spec.device]) * 1e-6
            wraps_j = range_j if kind in ("all", fault) else wraps_j
            if wraps_j > 1.2 * PLAUSIBLE_W[fault] * (period_s + 0.1):
                assert result.is_exact(fault), fault
            elif not result.is_exact(fault):
                assert "counter" in result.codes
                assert_short_by_what_is_uncovered(result, fault)


def test_a_counter_that_wraps_between_all_samples_is_null() -> None:
    spec = spec_of(ON_TWO_NODES, epochs=30)
    with accounted(spec, [CounterWrap(1000.0, "cpu")], 30.0) as result:
        assert result.totals.joules("cpu") is None
        assert result.totals.total_j is None
        assert result.is_exact("gpu") and result.is_exact("ram")


# Lost nodes


@few
@given(
    specs(),
    st.lists(st.floats(0.02, 0.98), min_size=1, max_size=3),
    st.sampled_from(("journals", "torn")),
    st.floats(0.5, 10.0),
)
def test_what_journals_keep_of_lost_nodes_is_the_truth(
    spec: RunSpec, times: list[float], leaves: str, period_s: float
) -> None:
    losses = [NodeLoss(at, node=0, leaves=leaves) for at in times]
    with accounted(spec, losses, period_s) as result:
        assert_all_exact(result, kinds_of(spec))
        assert_discards_are_true(result, period_s)
        assert "segment_lost" in result.codes
        assert ("unreadable" in result.codes) == (leaves == "torn")
        assert result.totals.discarded_j("gpu") > 0


@few
@given(specs(), st.floats(0.1, 0.95), st.sampled_from(("others", "nothing")), st.floats(0.5, 10.0))
def test_unrecorded_energy_of_a_lost_node_is_never_left_out_silently(
    spec: RunSpec, at: float, leaves: str, period_s: float
) -> None:
    with accounted(spec, [NodeLoss(at, leaves=leaves)], period_s) as result:
        for kind in kinds_of(spec):
            assert result.totals.joules(kind) is None, kind
            assert result.totals.recorded_j(kind) < result.run.true_j(kind)
        assert result.totals.total_j is None
        assert result.totals.coverage < 1
        assert "not_recorded" in result.codes
        assert "segment_lost" in result.codes


@few
@given(specs(), st.floats(0.2, 0.95), st.floats(0.0, 120.0))
def test_a_journal_without_its_end_is_short_by_no_more_than_its_coverage(
    spec: RunSpec, at: float, unsynced_s: float
) -> None:
    with accounted(spec, [NodeLoss(at, unsynced_s=unsynced_s)], 2.0) as result:
        for kind in kinds_of(spec):
            stated, true = result.totals.joules(kind), result.run.true_j(kind)
            if stated is None:
                gone = "not_recorded" in result.codes
                assert gone or result.totals.coverage < 1 - MAX_UNCOVERED
                assert result.totals.recorded_j(kind) < true
                continue
            devices = max(result.totals.devices(kind), 1)
            lost = (
                min(unsynced_s + 2.0, result.run.truth.runtime_s) * most_w(result, kind) * devices
            )
            assert true - lost <= stated <= true * (1 + EXACT)


# Lost sensors


@few
@given(
    st.data(),
    specs(4, 40),
    st.floats(0.0, 1.0),
    st.one_of(st.none(), st.floats(0.0, 200.0)),
    st.sampled_from(("zero", "nothing")),
    st.floats(0.5, 10.0),
)
def test_a_lost_sensor_never_makes_a_wrong_number(
    data: st.DataObject,
    spec: RunSpec,
    at: float,
    seconds: float | None,
    reads: str,
    period_s: float,
) -> None:
    kind = data.draw(st.sampled_from(kinds_of(spec)))
    node = data.draw(st.integers(0, spec.nodes - 1))
    device = data.draw(st.integers(0, 1 if kind != "gpu" else spec.ranks_per_node - 1))
    loss = SensorLoss(kind, device, node, 0, at, seconds, reads)
    with accounted(spec, [loss], period_s) as result:
        runtime_s = result.run.truth.runtime_s
        for other in set(kinds_of(spec)) - {kind}:
            assert result.is_exact(other), other
        stated, true = result.totals.joules(kind), result.run.true_j(kind)
        rest = runtime_s * (1 - at)
        lost_s = min(rest if seconds is None else seconds, rest) + 2.1 * period_s
        devices = spec.gpus if kind == "gpu" else 2 * spec.nodes
        share = lost_s / devices / runtime_s
        if stated is None:
            assert share > MAX_UNCOVERED - 1e-6
            assert "coverage" in result.codes
            assert result.totals.recorded_j(kind) <= true * (1 + EXACT)
            assert result.totals.total_j is None
            return
        assert abs(stated - true) <= most_w(result, kind) * lost_s + EXACT * true
        if not result.is_exact(kind) and not result.codes - {"absent"}:
            # Up to three periods are bridged in silence, or at an end said by the coverage alone.
            assert lost_s <= 5.2 * period_s
        uncovered_s = (1 - result.totals.coverage) * devices * runtime_s
        bridged_s = max(BRIDGED_S, BRIDGED_PERIODS * period_s)
        if kind == "gpu" and lost_s - 2.1 * period_s > bridged_s + 2.1 * period_s:
            assert uncovered_s >= lost_s - 4.2 * period_s


@pytest.mark.parametrize(("kind", "reads"), [("gpu", "zero"), ("cpu", "nothing"), ("ram", "zero")])
def test_a_sensor_lost_for_half_of_the_run_makes_its_kind_null(kind: str, reads: str) -> None:
    spec = spec_of(ON_TWO_NODES, epochs=20)
    with accounted(spec, [SensorLoss(kind, 1, 1, 0, 0.5, None, reads)]) as result:
        assert result.totals.joules(kind) is None
        assert result.totals.total_j is None
        assert result.totals.coverage < 1 - MAX_UNCOVERED
        lost = 0.5 / (8 if kind == "gpu" else 4)
        assert result.totals.coverage == pytest.approx(1 - lost, abs=0.02)
        assert "coverage" in result.codes


@pytest.mark.parametrize("kind", ["cpu", "ram"])
def test_a_failed_read_of_a_counter_is_no_phantom_energy(kind: str) -> None:
    spec = spec_of(ON_TWO_NODES, epochs=10)
    failed = SensorLoss(kind, 0, 0, 0, 0.4, 1.0)
    with accounted(spec, [failed], 1.0) as result:
        assert result.is_exact(kind)
        assert "missing_samples" in result.codes


def test_a_gpu_that_the_run_does_not_hold_may_lose_its_sensor() -> None:
    spec = spec_of(ON_ONE_GPU, epochs=20)
    with accounted(spec, [SensorLoss("gpu", 3, at=0.1)]) as result:
        for kind in KINDS:
            assert result.is_exact(kind)
        assert result.totals.joules("unused_gpu") is None


# All at once


@few
@given(st.data(), specs(4, 40), st.floats(0.5, 20.0))
def test_a_few_faults_together_make_no_wrong_number(
    data: st.DataObject, spec: RunSpec, period_s: float
) -> None:
    assert_never_wrong(data, spec, period_s)


def assert_never_wrong(data: st.DataObject, spec: RunSpec, period_s: float) -> None:
    """Whatever is stated is the truth but for the seconds that sensors were lost."""
    words = ("journals", "others", "nothing", "torn")
    kinds = st.sampled_from(kinds_of(spec))
    loss = st.builds(
        SensorLoss,
        kind=kinds,
        device=st.integers(0, 0 if spec.gpus == 1 else 1),
        node=st.integers(0, spec.nodes - 1),
        at=st.floats(0, 1),
        seconds=st.one_of(st.none(), st.floats(0, 100)),
        reads=st.sampled_from(("zero", "nothing")),
    )
    died = st.builds(
        NodeLoss,
        at=st.floats(0.05, 0.95),
        node=st.integers(0, spec.nodes - 1),
        leaves=st.sampled_from(words),
        unsynced_s=st.floats(0, 20),
    )
    wrap = st.builds(CounterWrap, range_j=st.floats(1e3, 3e5))
    faults: list[Fault] = data.draw(st.lists(st.one_of(loss, died), max_size=4))
    faults += data.draw(st.lists(wrap, max_size=1))
    with accounted(spec, faults, period_s) as result:
        runtime_s = result.run.truth.runtime_s
        lost_s = sum(
            min((1 - fault.at) * runtime_s, runtime_s if fault.seconds is None else fault.seconds)
            + 2.1 * period_s
            for fault in faults
            if isinstance(fault, SensorLoss)
        )
        lost_s += sum(
            4 * (fault.unsynced_s + period_s) for fault in faults if isinstance(fault, NodeLoss)
        )
        for kind in kinds_of(spec):
            stated, true = result.totals.joules(kind), counted_j(result, kind)
            assert (
                result.totals.recorded_j(kind)
                <= true + most_w(result, kind) * lost_s + EXACT * true
            )
            if stated is None:
                assert_null_is_needed(result, spec, kind, faults, period_s)
                continue
            ambiguous = (1 - result.totals.coverage_of(kind)) * result.totals.device_seconds(kind)
            off = most_w(result, kind) * (lost_s + ambiguous)
            assert abs(stated - true) <= off + EXACT * true
            if not result.is_exact(kind) and not result.codes - {"absent"}:
                assert lost_s <= 5.2 * period_s * len(faults)


def assert_null_is_needed(
    result: Result, spec: RunSpec, kind: str, faults: Sequence[Fault], period_s: float
) -> None:
    """A node was not recorded, or over 5 % of device seconds are lost, by a sensor or between wraps."""
    if "not_recorded" in result.codes:
        assert any(isinstance(fault, NodeLoss) for fault in faults)
        return
    assert result.totals.coverage_of(kind) < 1 - MAX_UNCOVERED
    if kind != "gpu" and any("a further wrap" in fault["detail"] for fault in result.flags):
        return
    runtime_s = result.run.truth.runtime_s
    each = spec.ranks_per_node if kind == "gpu" else 2
    lost_s = 0.0
    for fault in faults:
        if isinstance(fault, SensorLoss) and fault.kind == kind:
            lost_s += min(runtime_s, fault.seconds or runtime_s) + 4.2 * period_s
        if isinstance(fault, NodeLoss):
            lost_s += each * (fault.unsynced_s + 4.2 * period_s)
    assert lost_s > MAX_UNCOVERED * each * spec.nodes * runtime_s
