"""What estimates leave open in ratios, comparisons, fronts and claims, and that nothing else has it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from scalewatt.claims.evidence import prepared
from scalewatt.claims.outcomes import decide, ratios
from scalewatt.claims.quantities import log_contrast, quantities
from scalewatt.energies.node import FACTOR
from scalewatt.results.build import estimate_notes
from scalewatt.results.tables.derived_quantities import relative_bounds
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.scaling import scaling_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS

Row = dict[str, Any]
DEFAULT = (1 / FACTOR, FACTOR)


def configuration(
    name: str, cpu: float, gpu: float = 0.0, ends: tuple[float, float] | None = DEFAULT, **more: Any
) -> Row:
    """A configuration whose CPUs are estimated, and whose GPUs, if any, are measured."""
    result: Row = dict.fromkeys(CONFIGURATIONS.names) | {
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
            result |= {
                f"cpu_energy_{end}_kwh": factor * cpu,
                f"energy_{end}_kwh": factor * cpu + gpu,
            }
    return result | more


# --- ratios ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "ratio"), [("measured", 3.0), ("estimated", None), ("mixed", None)]
)
def test_there_is_no_energy_ratio_of_estimates(origin: str, ratio: float | None) -> None:
    rows = [
        configuration("a", 1.0, energy_origin=origin),
        configuration("b", 3.0, gpus=4, energy_origin=origin),
    ]
    series = {"name": "s", "label": "s", "points": [{"configuration": c} for c in "ab"]}
    _, last = records(scaling_of([series], frame_of(rows, CONFIGURATIONS)))
    assert last["energy_ratio"] == ratio


# --- quantities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("energy_kwh", (1 + 1 / FACTOR, 1 + FACTOR)),
        ("p_gpuh_kw", (1 + 1 / FACTOR, 1 + FACTOR)),
        ("mean_cpu_socket_power_w", (100 / FACTOR, 100 * FACTOR)),
        ("gpu_energy_kwh", None),
        ("runtime_h", None),
    ],
)
def test_a_quantity_has_the_interval_of_the_energy_that_it_is_made_of(
    name: str, ends: tuple[float, float] | None
) -> None:
    row = configuration("a", 1.0, 1.0)
    relative = relative_bounds(row, name)
    if ends is None:
        assert relative == (1.0, 1.0)
    else:
        assert relative == pytest.approx([end / row[f"{name}_mean"] for end in ends])


def test_a_share_is_open_to_both_sides_and_what_is_net_of_estimates_altogether() -> None:
    row = configuration("a", 1.0, 1.0)
    low, high = relative_bounds(row, "cpu_energy_share") or (1, 1)
    assert low < 1 / FACTOR * 2 and high > 1.6
    assert relative_bounds(row, "net_energy_kwh") is None


@pytest.mark.parametrize("origin", ["estimated", "mixed"])
@pytest.mark.parametrize("name", ["energy_per_model", "idle_energy", "discarded_energy"])
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
    measured = mixed | {"energy_origin": "measured", "energy_low_kwh": 3.0, "energy_high_kwh": 3.1}
    assert relative_bounds(measured, "energy_kwh") == (1.0, 1.0)
    assert notes_of(measured | {"energy_kwh": 3.0}) == []


def notes_of(*rows: Row) -> list[str]:
    known = [{name: row.get(name) for name in RUNS.names} for row in rows]
    return estimate_notes(frame_of(known, RUNS))


def test_figures_say_within_what_true_energies_lie() -> None:
    run = configuration("a", 1.0) | {"energy_kwh": 1.0}
    (note,) = notes_of(run)
    assert note.startswith("Energies are estimated: the true ones lie within 0.19 to 5.4 times")
    (note,) = notes_of(run, run | {"energy_origin": "measured"})
    assert note.startswith("Some energies are estimated")
    (note,) = notes_of(run | {"energy_low_kwh": None})
    assert note == "Energies are estimated, in part without an interval."


# --- statements -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "verdict"), [(DEFAULT, "undecided"), ((0.98, 1.02), "supported"), (None, "undecided")]
)
def test_a_claim_on_estimates_is_decided_as_far_as_their_interval_carries_it(
    ends: tuple[float, float] | None, verdict: str
) -> None:
    more = {"energy_kwh_sd": 0.01, "n_repeats": 3, "is_probe": False, "varies_seeds": False}
    more |= {"dataset_total": None, "chance": None}
    rows = [configuration(n, cpu, ends=ends) | more for n, cpu in (("b", 1.5), ("a", 1.0))]
    points = prepared(pd.DataFrame(rows, ["b", "a"]))
    ratio = log_contrast(quantities(points, "energy_kwh"))
    result = decide(ratios("the ratio", ratio, low=1.0, strict=True))
    assert result.verdict == verdict
    assert ends is None or "by the interval of its estimate" in result.detail
