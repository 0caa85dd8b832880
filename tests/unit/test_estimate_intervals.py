"""What estimates leave open in ratios, comparisons, fronts and claims, and that nothing else has it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scalewatt.claims.evidence.evidence import Point
from scalewatt.claims.numbers.decisions import sign
from scalewatt.claims.numbers.uncertain_number import quantity
from scalewatt.energies.integration.rated_power import FACTOR, SHAPE_FACTOR
from scalewatt.results.figures import pareto_table
from scalewatt.results.figures.figure_schema import PARETO
from scalewatt.results.figures.footnotes import estimate_notes
from scalewatt.results.figures.variants_table import variants
from scalewatt.results.tables.comparisons import comparisons_of
from scalewatt.results.tables.estimates import (
    energy_ratio_bounds,
    quantity_bounds,
    relative_bounds,
)
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.scaling import scaling_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS

Row = dict[str, Any]
DEFAULT = (1 / FACTOR, FACTOR)
CURVE = (0.77, 1.28)


def configuration(
    name: str, cpu: float, gpu: float = 0.0, ends: tuple[float, float] | None = DEFAULT, **more: Any
) -> Row:
    """A configuration whose CPUs are estimated, and whose GPUs, if any, are measured."""
    found: Row = dict.fromkeys(CONFIGURATIONS.names) | {
        **{"configuration": name, "device": "local", "n_repeats": 1, "gpus": 1},
        **{"model": "resnet50", "phase": "train", "metric_goal": "min"},
        "energy_origin": "mixed" if gpu else "estimated",
        "energy_scope": "gpu+cpu" if gpu else "cpu",
        **{"energy_kwh_mean": cpu + gpu, "cpu_energy_kwh_mean": cpu, "p_gpuh_kw_mean": 2.0},
        **{"gpu_energy_kwh_mean": gpu or None, "mean_cpu_socket_power_w_mean": 100.0},
        **{"gpu_energy_low_kwh": gpu or None, "gpu_energy_high_kwh": gpu or None},
    }
    if ends is not None:
        for end, factor in zip(("low", "high"), ends, strict=True):
            found |= {
                f"cpu_energy_{end}_kwh": factor * cpu,
                f"energy_{end}_kwh": factor * cpu + gpu,
            }
    return found | more


# --- ratios ---------------------------------------------------------------------------------------


def test_the_ratio_of_two_estimates_on_a_machine_is_open_by_the_shape_alone() -> None:
    found = energy_ratio_bounds(configuration("a", 3.0), configuration("b", 1.0))
    assert found == pytest.approx((3 / SHAPE_FACTOR, 3 * SHAPE_FACTOR))


def test_between_devices_nothing_cancels() -> None:
    found = energy_ratio_bounds(configuration("a", 3.0), configuration("b", 1.0, device="other"))
    assert found == pytest.approx((3 / FACTOR**2, 3 * FACTOR**2))


def test_of_measured_curves_the_whole_of_both_intervals_counts() -> None:
    pair = (configuration(name, cpu, ends=CURVE) for name, cpu in (("a", 3.0), ("b", 1.0)))
    assert energy_ratio_bounds(*pair) == pytest.approx((3 * 0.77 / 1.28, 3 * 1.28 / 0.77))


@pytest.mark.parametrize("ends", [(1 / 6, 6.0), (1 / 5, 5.0), (0.2, 5.4), (0.5, 5.0)])
def test_nothing_cancels_between_intervals_of_ones_own_or_of_energies_estimated_in_part(
    ends: tuple[float, float],
) -> None:
    pair = (configuration(name, cpu, ends=ends) for name, cpu in (("a", 3.0), ("b", 1.0)))
    low, high = ends
    assert energy_ratio_bounds(*pair) == pytest.approx((3 * low / high, 3 * high / low))


def test_a_configuration_over_itself_is_one_and_an_unknown_interval_is_none() -> None:
    own = configuration("a", 3.0)
    assert energy_ratio_bounds(own, own) == (1.0, 1.0)
    assert energy_ratio_bounds(own, configuration("b", 1.0, ends=None)) is None
    measured = {"energy_origin": "measured"}
    pair = configuration("a", 3.0, **measured), configuration("b", 1.0, **measured)
    assert energy_ratio_bounds(*pair) == (3.0, 3.0)


@given(
    energies=st.tuples(*[st.floats(0.1, 100)] * 4),
    errors=st.tuples(*[st.floats(1 / FACTOR, FACTOR)] * 2),
)
def test_no_error_that_is_allowed_leads_out_of_a_ratios_interval(
    energies: tuple[float, ...], errors: tuple[float, float]
) -> None:
    assume(1 / SHAPE_FACTOR <= errors[0] / errors[1] <= SHAPE_FACTOR)
    rows = [
        configuration(n, cpu, gpu) for n, cpu, gpu in (("a", *energies[:2]), ("b", *energies[2:]))
    ]
    found = energy_ratio_bounds(*rows)
    assert found is not None
    true = (energies[1] + errors[0] * energies[0]) / (energies[3] + errors[1] * energies[2])
    assert found[0] * (1 - 1e-9) <= true <= found[1] * (1 + 1e-9)


def test_a_ratios_interval_is_reached() -> None:
    rows = configuration("a", 3.0, 2.0), configuration("b", 1.0, 5.0)
    errors = [1 / FACTOR, FACTOR, SHAPE_FACTOR / FACTOR, FACTOR / SHAPE_FACTOR]
    true = [
        (2 + 3 * one) / (5 + other)
        for one, other in product(errors, errors)
        if one / other * (1 + 1e-9) >= 1 / SHAPE_FACTOR and one / other <= SHAPE_FACTOR * (1 + 1e-9)
    ]
    assert energy_ratio_bounds(*rows) == pytest.approx((min(true), max(true)))


def test_the_scaling_table_says_what_estimates_leave_open_of_its_ratios() -> None:
    rows = [configuration("a", 1.0), configuration("b", 3.0, gpus=4)]
    series = {"name": "s", "label": "s", "points": [{"configuration": c} for c in "ab"]}
    first, last = records(scaling_of([series], frame_of(rows, CONFIGURATIONS)))
    assert last["energy_ratio"] == pytest.approx(3)
    assert last["energy_ratio_estimate_low"] == pytest.approx(3 / SHAPE_FACTOR)
    assert last["energy_ratio_estimate_high"] == pytest.approx(3 * SHAPE_FACTOR)
    assert first["energy_ratio_estimate_low"] == first["energy_ratio_estimate_high"] == 1
    measured = [row | {"energy_origin": "measured"} for row in rows]
    *_, last = records(scaling_of([series], frame_of(measured, CONFIGURATIONS)))
    assert last["energy_ratio_estimate_low"] is last["energy_ratio_estimate_high"] is None


# --- quantities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("energy_kwh", (1 + 1 / FACTOR, 1 + FACTOR)),
        ("p_gpuh_kw", (1 + 1 / FACTOR, 1 + FACTOR)),
        ("mean_cpu_socket_power_w", (100 / FACTOR, 100 * FACTOR)),
        ("gpu_energy_kwh", (None, None)),
        ("runtime_h", (None, None)),
    ],
)
def test_a_quantity_has_the_interval_of_the_energy_that_it_is_made_of(
    name: str, ends: tuple[float | None, float | None]
) -> None:
    frame = frame_of([configuration("a", 1.0, 1.0)], CONFIGURATIONS)
    (found,) = records(quantity_bounds(frame, name))
    assert (found["low"], found["high"]) == (ends if None in ends else pytest.approx(ends))


@pytest.mark.parametrize("origin", ["measured", "simulated", "published"])
def test_energies_of_other_origins_have_no_interval_of_an_estimate(origin: str) -> None:
    row = configuration("a", 1.0, ends=None, energy_origin=origin)
    assert relative_bounds(row, "energy_kwh") == (1.0, 1.0)
    (found,) = records(quantity_bounds(frame_of([row], CONFIGURATIONS), "energy_kwh"))
    assert found == {"low": None, "high": None}
    assert estimate_notes([{**row, "energy_kwh": 1.0, "excluded": None}]) == []


def test_a_share_is_open_to_both_sides_and_what_is_net_of_estimates_altogether() -> None:
    row = configuration("a", 1.0, 1.0)
    low, high = relative_bounds(row, "cpu_energy_share") or (1, 1)
    assert low < 1 / FACTOR * 2 and high > 1.6
    assert relative_bounds(row, "net_energy_kwh") is None


@pytest.mark.parametrize("origin", ["estimated", "mixed"])
@pytest.mark.parametrize(
    "name", ["energy_per_model", "idle_energy", "discarded_energy", "distinct_energy"]
)
def test_an_estimated_energy_without_an_interval_is_not_taken_for_measured(
    name: str, origin: str
) -> None:
    row = configuration("a", 1.0, 1.0, energy_origin=origin)
    row |= {f"{name}_kwh_mean": 1.5}
    assert relative_bounds(row, f"{name}_kwh") is None
    assert relative_bounds(row | {"energy_origin": "measured"}, f"{name}_kwh") == (1.0, 1.0)


def test_what_uncovered_time_can_have_cost_is_nothing_that_estimates_leave_open() -> None:
    mixed = configuration("a", 1.0, gpu=2.0, gpu_energy_high_kwh=2.1)
    mixed |= {"energy_high_kwh": FACTOR + 2.1, "mean_gpu_power_w_mean": 300.0}
    for name in ("gpu_energy_kwh", "mean_gpu_power_w"):
        assert relative_bounds(mixed, name) == (1.0, 1.0)
        found = quantity_bounds(frame_of([mixed], CONFIGURATIONS), name)
        assert found.isna().all(axis=None)
    measured = mixed | {"energy_origin": "measured", "energy_low_kwh": 3.0, "energy_high_kwh": 3.1}
    assert relative_bounds(measured, "energy_kwh") == (1.0, 1.0)
    assert estimate_notes([measured | {"energy_kwh": 3.0}]) == []


def test_uncovered_time_leaves_the_common_error_of_two_estimates_on_a_machine() -> None:
    gapped = configuration("a", 3.0, ends=(1 / FACTOR, 1.02 * FACTOR))
    found = energy_ratio_bounds(gapped, configuration("b", 1.0))
    assert found == pytest.approx((3 / SHAPE_FACTOR, 1.02 * 3 * SHAPE_FACTOR))
    found = energy_ratio_bounds(configuration("a", 3.0), gapped | {"configuration": "b"})
    assert found == pytest.approx((1 / SHAPE_FACTOR / 1.02, SHAPE_FACTOR))


def test_no_row_says_whether_switches_were_measured_and_a_nodes_meter_always_measures() -> None:
    for origin in ("estimated", "measured"):
        row = configuration("a", 1.0, energy_origin=origin)
        assert relative_bounds(row, "network_energy_kwh") is None
        assert relative_bounds(row, "node_energy_kwh") == (1.0, 1.0)


def test_figures_say_within_what_true_energies_lie() -> None:
    run = configuration("a", 1.0) | {"energy_kwh": 1.0, "excluded": None}
    (note,) = estimate_notes([run])
    assert note.startswith("Energies are estimated: the true ones lie within 0.19 to 5.4 times")
    (note,) = estimate_notes([run, run | {"energy_origin": "measured"}])
    assert note.startswith("Some energies are estimated")
    (note,) = estimate_notes([run | {"energy_low_kwh": None}])
    assert "states no interval: nothing is concluded" in note


def test_variants_say_what_estimates_leave_open_of_energies_and_of_their_ratios() -> None:
    joules = {"a": 5.0, "b": 15.0}
    rows = [
        configuration(name, cpu, energy_per_sample_j_mean=joules[name], energy_kwh_mean=cpu)
        for name, cpu in (("a", 1.0), ("b", 3.0))
    ]
    entry = dict.fromkeys(("series", "label", "group", "differs"), "x") | {"baseline": "a"}
    made = {"variants": [entry | {"configuration": name} for name in "ab"]}
    base, other = records(variants(made, frame_of(rows, CONFIGURATIONS)))
    assert base["energy_per_sample_ratio_estimate_low"] == 1
    for end, factor in (("low", 1 / FACTOR), ("high", FACTOR)):
        assert other[f"energy_kwh_estimate_{end}"] == pytest.approx(3 * factor)
        assert other[f"energy_per_sample_j_estimate_{end}"] == pytest.approx(15 * factor)
        assert other[f"mean_cpu_socket_power_w_estimate_{end}"] == pytest.approx(100 * factor)
        assert other[f"mean_gpu_power_w_estimate_{end}"] is None
    assert other["energy_per_sample_ratio_estimate_high"] == pytest.approx(3 * SHAPE_FACTOR)


# --- statements -----------------------------------------------------------------------------------


def compared(factor: float | None, cpu: float) -> Row:
    rows = []
    for device, energy in (("a100", 1.0), ("h100", cpu)):
        for repeat, scatter in enumerate((0.99, 1.0, 1.01), 1):
            kwh = scatter * energy
            rows.append(
                dict.fromkeys(RUNS.names)
                | {"configuration": f"resnet50-{device}-n001", "device": device, "repeat": repeat}
                | {"model": "resnet50", "phase": "train", "energy_scope": "cpu", "gpus": 1}
                | {"energy_origin": "estimated" if factor else "measured", "gpu_hours": 1.0}
                | {"cpu_energy_kwh": kwh, "energy_kwh": kwh}
                | {"cpu_energy_low_kwh": kwh / factor if factor else kwh}
                | {"cpu_energy_high_kwh": kwh * factor if factor else kwh}
            )
    (found,) = [
        row
        for row in records(comparisons_of(frame_of(rows, RUNS)))
        if row["quantity"] == "energy_kwh"
    ]
    return found


@pytest.mark.parametrize(
    ("factor", "cpu", "verdict"),
    [
        (None, 2.0, "different"),
        (1.2, 2.0, "different"),
        (FACTOR, 2.0, "unresolved"),
        (None, 1.0, "equivalent"),
        (1.001, 1.0, "equivalent"),
        (1.2, 1.0, "unresolved"),
    ],
)
def test_devices_are_compared_as_far_as_estimates_carry_it(
    factor: float | None, cpu: float, verdict: str
) -> None:
    found = compared(factor, cpu)
    assert found["verdict"] == verdict
    assert (found["ratio_estimate_low"] is None) == (factor is None)
    if factor:
        assert found["ratio_estimate_high"] / found["ratio"] == pytest.approx(factor**2)
        assert found["repeats_needed"] is None


def front(points: list[Row]) -> list[bool | None]:
    shown = [
        dict.fromkeys(PARETO.names)
        | {name: value for name, value in row.items() if name in PARETO.names}
        | {"panel": "A", "x_name": "energy_kwh", "x": row["energy_kwh_mean"], "y": y}
        for y, row in enumerate(points, 1)
    ]
    frame = frame_of(shown, PARETO)
    more = frame_of(points, CONFIGURATIONS)
    whole = frame.assign(**{name: more[name] for name in more if name not in frame})
    return [row["non_dominated"] for row in records(pareto_table.with_front(whole))]


def test_a_front_is_as_far_known_as_estimates_carry_it() -> None:
    assert front([configuration("a", 1.0), configuration("b", 2.0)]) == [True, None]
    assert front([configuration("a", 1.0), configuration("b", 20.0)]) == [True, False]
    measured = {"energy_origin": "measured"}
    assert front([configuration("a", 1.0, **measured), configuration("b", 2.0, **measured)]) == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("ends", "verdict"), [(DEFAULT, "undecided"), ((0.98, 1.02), "supported"), (None, "undecided")]
)
def test_a_claim_on_estimates_is_decided_as_far_as_their_interval_carries_it(
    ends: tuple[float, float] | None, verdict: str
) -> None:
    spread = {"energy_kwh_sd": 0.01, "n_repeats": 3}
    small, large = (
        quantity(
            Point(
                configuration(n, cpu, ends=ends)
                | spread
                | {"energy_kwh_low": cpu - 0.02, "energy_kwh_high": cpu + 0.02}
            ),
            "energy_kwh",
        )
        for n, cpu in (("a", 1.0), ("b", 1.5))
    )
    found = sign("the ratio", large / small, rises=True)
    assert found.verdict == verdict
    assert ends is None or "by the interval of its estimate" in found.detail
