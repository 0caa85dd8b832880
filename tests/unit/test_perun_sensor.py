"""The sensors of perun's files: what a series is follows from what its datasets say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from energy_files import codes, counter, gpu, write_perun

from scalewatt.energies.views.describe import describe
from scalewatt.recordings.perun_file import read_perun_file

J_PER_KWH = 3.6e6


@contextmanager
def changed(path: Path, inside: str) -> Iterator[h5py.Group]:
    """Give a group of host n1 of a file that `write_perun` made, to be changed."""
    with h5py.File(path, "a") as handle:
        yield handle[f"app/nodes/run/nodes/0/nodes/n1/nodes/{inside}"]


def test_watts_counters_and_shares_are_distinguished_by_unit(tmp_path: Path) -> None:
    sensors = {
        "CUDA:1_POWER": gpu(5, 101),
        "CUDA:0_MEM": gpu(5),
        "cpu_0_package-0": counter(5, 150),
        "CPU_USAGE": np.full(5, 50.0),
        "RAM_USAGE": np.full(5, 0.2),
    }
    write_perun(tmp_path / "a.hdf5", {"n1": sensors})
    recording = read_perun_file(tmp_path / "a.hdf5")
    found = {s.sensor: s for s in recording.series}
    assert set(found) == {"CUDA:1_POWER", "cpu_0_package-0", "CPU_USAGE"}
    assert found["CUDA:1_POWER"].values.tolist() == [101.0] * 5
    assert (found["CUDA:1_POWER"].device_kind, found["CUDA:1_POWER"].device_index) == ("gpu", 1)
    assert found["CUDA:1_POWER"].limit_w == 400
    assert found["cpu_0_package-0"].quantity == "counter"
    assert found["cpu_0_package-0"].valid_max == pytest.approx(262_143.32885)
    assert np.diff(found["cpu_0_package-0"].values) == pytest.approx(150)
    assert found["CPU_USAGE"].values.tolist() == [0.5] * 5
    assert not recording.t0_known and recording.sampling_period_s == 1


def test_the_counter_is_preferred_to_perun_1_watts(tmp_path: Path) -> None:
    hosts = {"n1": {"cpu_0_package-0": counter(5, 150)}}
    write_perun(tmp_path / "a.hdf5", hosts, rapl_as_watts=True)
    (series,) = read_perun_file(tmp_path / "a.hdf5").series
    assert series.quantity == "counter" and np.diff(series.values) == pytest.approx(150)


MAGNITUDES = [1e-3, "0.001", b"0.001", "MILLI", "MILI", "Magnitude.MILLI", "m", np.array([1e-3])]
UNITS = ["W", b"W", "WATT", "Unit.WATT", "Watt", np.bytes_("W"), np.array(["W"], dtype=object)]


SPELLINGS = [(unit, 1e-3) for unit in UNITS] + [("W", mag) for mag in MAGNITUDES]


@pytest.mark.parametrize(("unit", "mag"), SPELLINGS, ids=repr)
def test_a_unit_and_its_magnitude_are_understood_as_any_version_spells_them(
    tmp_path: Path, unit: Any, mag: Any
) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(2, 250)}})
    with changed(path, "gpu/nodes/CUDA:0_POWER/raw_data") as raw:
        raw["values"].attrs["unit"], raw["values"].attrs["mag"] = unit, mag
    (series,) = read_perun_file(path).series
    assert (series.quantity, series.limit_w) == ("power", 400)
    assert series.values == pytest.approx([250, 250])


def spoil_text(raw: h5py.Group) -> None:
    attributes = dict(raw["values"].attrs)
    del raw["values"]
    raw.create_dataset("values", data=["a", "b"]).attrs.update(attributes)


def spoil_shape(raw: h5py.Group) -> None:
    attributes = dict(raw["values"].attrs)
    del raw["values"]
    raw.create_dataset("values", data=5.0).attrs.update(attributes)


def spoil_times(raw: h5py.Group) -> None:
    del raw["timesteps"]


def spoil_values(raw: h5py.Group) -> None:
    del raw["values"]


def spoil_unit(raw: h5py.Group) -> None:
    del raw["values"].attrs["unit"]


def spoil_unit_by_another(raw: h5py.Group) -> None:
    raw["values"].attrs["unit"] = "kWh"


def spoil_magnitude(raw: h5py.Group) -> None:
    raw["values"].attrs["mag"] = "some"


def spoil_magnitudes(raw: h5py.Group) -> None:
    raw["values"].attrs["mag"] = np.full(5000, 1e-3)


def spoil_magnitude_by_a_bit(raw: h5py.Group) -> None:
    raw["values"].attrs["mag"] = 0.016


def spoil_magnitude_of_times(raw: h5py.Group) -> None:
    raw["timesteps"].attrs["mag"] = 2.0


def spoil_unit_by_a_bit(raw: h5py.Group) -> None:
    raw["values"].attrs["unit"] = "V"


SPOILS = [
    (spoil_text, "its values are no list of numbers"),
    (spoil_shape, "its values are no list of numbers"),
    (spoil_times, "it holds no timesteps"),
    (spoil_values, "it holds no values"),
    (spoil_unit, "its values have no unit that perun knows"),
    (spoil_unit_by_another, "its values have no unit that perun knows"),
    (spoil_magnitude, "its magnitude is 'some'"),
    (spoil_magnitudes, "its magnitude is '[0.001 0.001 0.001 .'"),
    (spoil_magnitude_by_a_bit, "its magnitude is 0.016"),
    (spoil_magnitude_of_times, "its magnitude is 2"),
    (spoil_unit_by_a_bit, "its unit is none of power of a gpu, but CUDA:1_POWER in V"),
]


@pytest.mark.parametrize(("spoil", "detail"), SPOILS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_sensor_that_cannot_be_read_makes_its_kind_unknown_and_is_named(
    tmp_path: Path, spoil: Any, detail: str
) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9)}})
    with changed(path, "gpu/nodes/CUDA:1_POWER/raw_data") as raw:
        spoil(raw)
    first, second = read_perun_file(path).series
    assert first.values.size == 9 and first.flags == ()
    assert second.values.size == second.time_s.size == 0
    assert second.flags == ({"code": "unreadable", "device": "CUDA:1_POWER", "detail": detail},)
    assert describe(path)["gpu_energy_kwh"] is None


@pytest.mark.parametrize("name", ["CTDA:1_POWER", "MODEL_GPU1_POWER", "anything"])
def test_power_by_any_backend_counts_for_its_device(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9, 300)}})
    with changed(path, "gpu/nodes") as sensors:
        sensors.move("CUDA:1_POWER", name)
        sensors[name].attrs["source"] = "a model of ours"
    said = describe(path)
    assert said["gpu_energy_j"] == pytest.approx(8 * 400) and said["gpus"] == 2
    assert [one["device"] for one in said["devices"]] == ["CUDA:0_POWER", name]
    (told,) = (one for one in said["flags"] if one["code"] == "assumed")
    assert told["device"] == name and "source: a model of ours" in told["detail"]


def test_perun_reads_a_device_and_another_backends_sensor_of_it_is_not_added(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9, 300)}})
    with changed(path, "gpu/nodes") as sensors:
        sensors.copy("CUDA:0_POWER", "A_MODEL_GPU1_POWER")
    said = describe(path)
    assert [one["device"] for one in said["devices"]] == ["CUDA:0_POWER", "CUDA:1_POWER"]
    assert said["gpu_energy_j"] == pytest.approx(8 * 400) and "second_sensor" in codes(
        said["flags"]
    )


def note_totals(path: Path, **totals: float) -> None:
    """Note energies of host n1 as perun does."""
    with h5py.File(path, "a") as handle:
        host = handle["app/nodes/run/nodes/0/nodes/n1"]
        for name, joules in totals.items():
            facts = {"value": np.float32(joules), "mag": 1.0, "unit": "J"}
            host.require_group(f"metrics/{name}").attrs.update(facts)


def test_samples_that_do_not_add_up_to_peruns_own_total_are_flagged(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(
        path, {"n1": {f"CUDA:{i}_POWER": gpu(1001) + (np.arange(1001) + i) % 2 for i in (0, 1)}}
    )
    note_totals(path, GPU_ENERGY=200_000 * 1.008)
    assert describe(path)["flags"] == []
    note_totals(path, GPU_ENERGY=100_000)
    (found,) = describe(path)["flags"]
    assert found["code"] == "disagrees"
    assert "gpu 200001.0 J by its samples, 100000.0 J by perun's own total" in found["detail"]


def test_a_device_kind_that_perun_had_a_total_of_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(9), "CPU_USAGE": np.full(9, 50.0)}})
    note_totals(path, CPU_ENERGY=900)
    said = describe(path)
    assert said["energy_kwh"] is None and said["energy_scope"] == "gpu+cpu"
    assert "perun computed 900 J" in str(said["flags"])


def watts_of_a_counter(path: Path, reads_j: list[float]) -> None:
    """Write only the watts that perun computes of a counter with the package's range."""
    top = 262_143.32885
    steps = np.diff(np.asarray(reads_j, dtype=float))
    steps[steps < 0] += top
    write_perun(path, {"n1": {"cpu_0_package-0": np.zeros(len(reads_j))}})
    with changed(path, "cpu/nodes/cpu_0_package-0/raw_data") as raw:
        del raw["values"]
        watts = np.concatenate((steps[:1], steps)).astype("float32")
        raw.create_dataset("values", data=watts).attrs.update(
            {"unit": "W", "mag": 1.0, "valid_max": np.finfo("float32").max, "fill": -1.0}
        )


def test_watts_that_perun_computed_of_a_counter_are_means(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    watts_of_a_counter(path, [1000, 1100, 1300, 1350])
    (series,) = read_perun_file(path).series
    assert (series.quantity, series.limit_w) == ("mean_power", None)
    assert describe(path)["cpu_energy_kwh"] * J_PER_KWH == pytest.approx(350)


def test_a_failed_read_in_watts_alone_adds_no_phantom_energy(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    reads = [100_000 + 150.0 * i for i in range(600)]
    reads[300] = 0.0
    watts_of_a_counter(path, reads)
    said = describe(path)
    assert said["cpu_energy_kwh"] * J_PER_KWH == pytest.approx(599 * 150, rel=1e-3)
    assert codes(said["flags"]) == {"over_limit"}


@pytest.mark.parametrize("as_watts", [False, True], ids=["counter", "counter beside watts"])
def test_a_failed_read_of_a_counter_costs_nothing(tmp_path: Path, as_watts: bool) -> None:
    path = tmp_path / "a.hdf5"
    reads = counter(60, 150)
    reads[30] = 0
    write_perun(path, {"n1": {"cpu_0_package-0": reads}}, rapl_as_watts=as_watts)
    said = describe(path)
    assert said["cpu_energy_kwh"] * J_PER_KWH == pytest.approx(59 * 150)
    assert codes(said["flags"]) == {"missing_samples"}
