"""Files that perun itself recorded on stand-in sensors, against the energies that were true.

recordings/README.md says how they were made. Bounds: a counter is exact but for the stand-in's own
steps and perun's time stamps (0.2 %); a power is sampled every 0.25 s while it swings (0.2 %).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from energy_files import codes
from energy_said import describe
from sensor_series import SensorSeries, read_perun_file, series_of
from true_power import total_j

from scalewatt.energies.integrate import validate

MADE = Path(__file__).parent / "recordings"
TRUTH: dict[str, Any] = json.loads((MADE / "truth.json").read_text())
BOUND = 2e-3
OLD = ("0.8.10", "0.9.1")
SPOILT = "cpu_0_package-0"
# In W/s: the first package swings by 30 W, once in 6 s.
PACKAGE_SLOPE = 30 * 2 * np.pi / 6
ROUNDS = [
    (name, run_id, round_id)
    for name, runs in TRUTH.items()
    for run_id, rounds in runs.items()
    for round_id in rounds
]
# Parts and wholes of what is counted; perun adds none of them up either.
NOT_COUNTED = ("grace_power", "module_power", "sysio_power")
J_PER_KWH = 3.6e6


def made(name: str) -> Path:
    """Return a recording's path."""
    return MADE / f"{name}.hdf5"


def true_energies(name: str, run_id: str, round_id: str) -> dict[tuple[str, str], float]:
    """Return the true energy in J of each host's sensors that count."""
    return {
        (host, sensor): energy
        for host, energies in TRUTH[name][run_id][round_id].items()
        for sensor, energy in energies.items()
        if sensor != "seconds" and not sensor.startswith(NOT_COUNTED)
    }


def energy_j(series: SensorSeries, period_s: float | None) -> float:
    """Return the energy of a whole series."""
    return total_j(validate(series.block, 0, period_s))


@pytest.mark.parametrize(("name", "run_id", "round_id"), ROUNDS)
def test_every_sensors_energy_is_the_true_one(name: str, run_id: str, round_id: str) -> None:
    recording = read_perun_file(made(name), run_id, round_id)
    assert recording.period_s == 0.25
    found = {
        (series.node, series.sensor): energy_j(series, recording.period_s)
        for series in series_of(recording)
        if series.quantity != "utilisation"
    }
    assert found == pytest.approx(true_energies(name, run_id, round_id), rel=BOUND)


@pytest.mark.parametrize("version", OLD)
def test_a_node_of_an_older_perun_has_all_kinds_and_no_flag(version: str) -> None:
    said = describe(made(f"perun-{version}-node"))
    true = true_energies(f"perun-{version}-node", "run1", "0")
    for kind, begin in (("gpu", "CUDA:"), ("cpu", "cpu_"), ("ram", "ram_")):
        expected = sum(energy for (_, name), energy in true.items() if name.startswith(begin))
        assert said[f"{kind}_energy_kwh"] * J_PER_KWH == pytest.approx(expected, rel=BOUND)
    assert said["energy_kwh"] * J_PER_KWH == pytest.approx(sum(true.values()), rel=BOUND)
    assert (said["gpus"], said["flags"]) == (2, [])
    gpus = [s for s in series_of(read_perun_file(made(f"perun-{version}-node"))) if s.limit_w]
    assert [s.uuid for s in gpus] == ["GPU-stand-in-0", "GPU-stand-in-1"]


@pytest.mark.parametrize("version", OLD)
def test_failed_reads_cost_nothing_where_perun_counts_the_counters_whole_range(
    version: str,
) -> None:
    path = made(f"perun-{version}-unreadable")
    (spoilt,) = [s for s in series_of(read_perun_file(path)) if s.sensor == SPOILT]
    assert np.count_nonzero(spoilt.values == 0) >= 2
    assert codes(validate(spoilt.block, 0, 0.25).flags) == {"missing_samples"}
    with h5py.File(path) as handle:
        own = handle["app/nodes/run1/nodes/0/metrics/CPU_ENERGY"].attrs["value"]
    assert own > 260_000 > 1000 > energy_j(spoilt, 0.25)


def in_watts(name: str, copy: Path) -> list[SensorSeries]:
    """Return the series of a recording of which the counters were taken out of `copy`."""
    shutil.copy(made(name), copy)
    with h5py.File(copy, "a") as handle:
        counters: list[str] = []
        handle.visit(lambda one: counters.append(one) if one.endswith("alt_values") else None)
        for one in counters:
            del handle[one]
    return series_of(read_perun_file(copy))


@pytest.mark.parametrize("version", OLD)
def test_without_the_counter_perun_s_watts_are_as_good(tmp_path: Path, version: str) -> None:
    name = f"perun-{version}-node"
    series = in_watts(name, tmp_path / "watts.hdf5")
    means = {(s.node, s.sensor): s for s in series if s.quantity == "mean_power"}
    true = true_energies(name, "run1", "0")
    assert set(means) == {key for key in true if not key[1].startswith("CUDA:")}
    assert len(means) == 4
    for one, mean in means.items():
        assert energy_j(mean, 0.25) == pytest.approx(true[one], rel=BOUND)


@pytest.mark.parametrize("version", OLD)
def test_without_the_counter_all_watts_that_failed_reads_spoilt_are_left_out(
    tmp_path: Path, version: str
) -> None:
    name = f"perun-{version}-unreadable"
    (counter,) = [s for s in series_of(read_perun_file(made(name))) if s.sensor == SPOILT]
    (mean,) = [s for s in in_watts(name, tmp_path / "watts.hdf5") if s.sensor == SPOILT]
    validated = validate(mean.block, 0, 0.25)
    assert codes(validated.flags) == {"over_limit"}
    failed = np.flatnonzero(counter.values == 0)
    spoilt = set(failed) | {failed[-1] + 1}
    assert spoilt <= set(np.flatnonzero(validated.sample_flags))
    time = validated.curve.time_s
    energy = validated.curve.between(time[:-1], time[1:])
    true = validate(counter.block, 0, 0.25).curve.between(time[:-1], time[1:])
    covered = validated.curve.covered_s(time[:-1], time[1:]) > 0
    exact = ~np.isnan(validated.power_w[1:])
    assert energy[exact] == pytest.approx(true[exact], rel=1e-5)
    # Between h before and h after, H s are bridged: wrong by slope · H (H + 2h) at most.
    bridged_s = float(np.diff(time)[covered & ~exact].sum())
    bound = PACKAGE_SLOPE * bridged_s * (bridged_s + 2 * 0.26)
    assert abs((energy - true)[covered].sum()) <= bound + 0.01
    assert np.diff(time)[~covered].sum() + bridged_s <= (failed.size + 3) * 0.26
