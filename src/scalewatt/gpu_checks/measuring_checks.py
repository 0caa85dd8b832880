"""Checks of power, energy and time: what is measured, and what measuring costs."""

from __future__ import annotations

import numpy as np

from scalewatt.gpu_checks.check_types import Bench, Check, Finding

PERIODS_S = (1.0, 0.1)
"""Sampling periods: the default, and that of the paper's campaign."""
COUNTER = 0.03
"""By how much a GPU's integrated power may differ from its counter."""
COST = 0.01
"""How much longer an update may take with the sampler: the upper end of the interval."""
PHASES = 0.05
"""By how much the phases' sum may differ from the clock."""
LEFT_S = 0.01
"""How long a GPU may still have to work when the stage `train` ends: the wait for it is over by then, but
running statistics are sent between ranks after it."""
_NOT_APPLIED = "the limit is for a GPU and not applied"


def power_and_counter(bench: Bench) -> Finding:
    """Compare the energy of NVML's power, as recorded, with NVML's energy counter."""
    found = bench.part("power_and_counter")
    counter_j, power_j = found["counter_j"], found["power_j"]
    if counter_j <= 0:
        return Finding(f"{power_j:.1f} J by power, {counter_j:.1f} J by the counter", False)
    apart = power_j / counter_j - 1
    measured = (
        f"{power_j:.1f} J by power, {counter_j:.1f} J by the counter: {apart:+.2%}; "
        f"{found['samples']} samples, flags {', '.join(found['flags']) or 'none'}"
    )
    return Finding(
        measured, abs(apart) <= COUNTER, "a stand-in for NVML" if bench.rehearse else None
    )


def sampler_cost(bench: Bench) -> Finding:
    """Compare the time of updates with and without the sampler, at both sampling periods."""
    found = bench.part("sampler_cost")
    said, holds = [], True
    for period_s in PERIODS_S:
        blocks = found[f"{period_s:g}"]
        cost, low, high = cost_with_interval(blocks["without_s"], blocks["with_s"])
        step_ms = 1000 * min(blocks["without_s"]) / blocks["updates"]
        holds = holds and high <= COST
        said.append(
            f"{period_s:g} s: {cost:+.2%} ({low:+.2%} to {high:+.2%}) of {step_ms:.1f} ms an update"
        )
    note = _NOT_APPLIED if bench.rehearse else None
    return Finding("; ".join(said), holds or bench.rehearse, note)


def phases_and_stages(bench: Bench) -> Finding:
    """Compare the phases of updates with the clock, and the end of `train` with the device's.

    The median epoch counts: what else the node does shifts a short epoch's phases by a few percent.
    """
    found = bench.part("phases_and_stages")
    ratios = np.array(found["phases_s"]) / np.array(found["train_s"]) - 1
    apart, left_s = float(np.median(ratios)), max(found["left_s"])
    measured = (
        f"phases apart from the clock by {apart:+.1%}, median of {ratios.size} epochs of "
        f"{np.median(found['train_s']):.3f} s ({ratios.min():+.1%} to {ratios.max():+.1%}); "
        f"{1000 * left_s:.2f} ms left to do at the end of train"
    )
    return Finding(measured, abs(apart) <= PHASES and left_s <= LEFT_S)


def cost_with_interval(without_s: list[float], with_s: list[float]) -> tuple[float, float, float]:
    """Return the ratio with/without − 1, and the ends of its 95 % interval, over pairs of neighbours.

    Both have a block of each pair, in the order of time; the ratios' logarithms are taken to be normal.
    """
    from scalewatt.results.tables.t_tests import quantile

    logs = np.log(np.array(with_s) / np.array(without_s))
    mean = float(np.mean(logs))
    error = float(np.std(logs, ddof=1) / np.sqrt(logs.size))
    half = quantile(logs.size - 1) * error
    low, middle, high = (float(np.expm1(value)) for value in (mean - half, mean, mean + half))
    return middle, low, high


CHECKS = (
    Check(
        "power_and_counter",
        "A GPU's power, as the sampler records it and the accounting integrates it, gives the energy "
        "of NVML's counter.",
        f"within {COUNTER:.0%}",
        power_and_counter,
        alone=True,
    ),
    Check(
        "sampler_cost",
        "Updates of ResNet50 do not take longer with the sampler than without.",
        f"upper end of the 95 % interval at most {COST:.0%}, at 1 s and 0.1 s",
        sampler_cost,
        limit_s=150,
        alone=True,
    ),
    Check(
        "phases_and_stages",
        "The phases of updates add up to their time by the clock, and `train` does not end before the "
        "GPU is done.",
        f"within {PHASES:.0%}; at most {1000 * LEFT_S:g} ms of work left",
        phases_and_stages,
        alone=True,
    ),
)
