"""perun's files, real and made: read by content, damage named, other files refused with the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from energy_files import codes, counter, gpu, write_perun
from made_recordings import read_perun_file, sensors

import scalewatt
from scalewatt.common.errors import InputError

GPUS = {"n1": {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9, 300)}}
HOST = "app/nodes/run/nodes/0/nodes/n1"
EXPECTED = "expected an HDF5 file written by perun"


def made(path: Path, hosts: dict[str, dict[str, Any]] = GPUS, **options: Any) -> Path:
    """Write a file in perun's layout."""
    write_perun(path, hosts, **options)
    return path


def changed(path: Path, change: Callable[[h5py.Group], Any], inside: str = "/") -> Path:
    """Change a group of host n1 of a file that `write_perun` made."""
    with h5py.File(path, "a") as handle:
        change(handle[HOST + inside])
    return path


# --- runs and rounds ------------------------------------------------------------------------------


def test_of_several_runs_and_rounds_names_are_asked_for(tmp_path: Path) -> None:
    path = made(tmp_path / "a.hdf5", run_id="z", execution_dt="2026-01-01T00:00:00")
    for round_id, watts in (("2", 20), ("10", 100), ("failed", 1)):
        made(path, {"n2": {"CUDA:0_POWER": gpu(3, watts)}}, run_id="a", round_id=round_id)
    for name, message in ((None, "not one run"), ("x", "not one run 'x'"), ("a", "not one round")):
        with pytest.raises(InputError, match=rf"a\.hdf5: .*{message}; name one"):
            read_perun_file(path, name)
    first, tenth = read_perun_file(path, "z"), read_perun_file(path, "a", "10")
    assert (set(first.nodes), first.flags) == ({"n1"}, ())
    assert sensors(tenth)[0].values[0] == 100 and codes(tenth.flags) == {"segment_lost"}


@pytest.mark.parametrize("ranks", [[[0, 1], [4, 5]], ["[0, 1]", "[4, 5]"]], ids=["array", "text"])
def test_ranks_without_a_host_tell_that_its_recording_is_missing(
    tmp_path: Path, ranks: list[Any]
) -> None:
    path = made(tmp_path / "a.hdf5", {host: GPUS["n1"] for host in ("n1", "n3")})
    with h5py.File(path, "a") as handle:
        hosts = handle["app/nodes/run/nodes/0/nodes"]
        hosts["n1"].attrs["mpi_ranks"], hosts["n3"].attrs["mpi_ranks"] = ranks
    (flag,) = read_perun_file(path).flags
    assert flag["code"] == "not_recorded" and flag["detail"].endswith("of ranks 2, 3")


# --- sensors --------------------------------------------------------------------------------------


def test_watts_counters_and_shares_are_distinguished_by_unit(tmp_path: Path) -> None:
    of_host = {
        "CUDA:1_POWER": gpu(5, 101),
        "CUDA:0_MEM": gpu(5),
        "cpu_0_package-0": counter(5, 150),
        "CPU_USAGE": np.full(5, 50.0),
        "RAM_USAGE": np.full(5, 0.2),
    }
    recording = read_perun_file(made(tmp_path / "a.hdf5", {"n1": of_host}))
    package, share, power = sensors(recording)
    assert (power.kind, power.index, power.limit_w) == ("gpu", 1, 400)
    assert power.values.tolist() == [101.0] * 5
    assert (package.quantity, package.range_j) == ("counter", pytest.approx(262_143.32885))
    assert np.diff(package.values) == pytest.approx(150)
    assert (share.name, share.values.tolist()) == ("CPU_USAGE", [0.5] * 5)
    assert not recording.clock_known and recording.period_s == 1


MAGNITUDES = ["0.001", b"0.001", "MILI", "Magnitude.MILLI", "m", np.array([1e-3])]
UNITS = [b"W", "Unit.WATT", "Watt", np.bytes_("W"), np.array(["W"], dtype=object)]


@pytest.mark.parametrize(
    ("unit", "mag"), [*((u, 1e-3) for u in UNITS), *(("W", m) for m in MAGNITUDES)], ids=repr
)
def test_a_unit_and_its_magnitude_are_understood_as_any_version_spells_them(
    tmp_path: Path, unit: Any, mag: Any
) -> None:
    path = made(tmp_path / "a.hdf5", {"n1": {"CUDA:0_POWER": gpu(2, 250)}})
    values = "/nodes/gpu/nodes/CUDA:0_POWER/raw_data/values"
    changed(path, lambda data: data.attrs.update({"unit": unit, "mag": mag}), values)
    (sensor,) = sensors(read_perun_file(path))
    assert (sensor.quantity, sensor.limit_w) == ("power", 400)
    assert sensor.values == pytest.approx([250, 250])


def replaced(raw: h5py.Group, content: Any) -> None:
    """Put other content into a sensor's values."""
    attributes = dict(raw["values"].attrs)
    del raw["values"]
    raw.create_dataset("values", data=content).attrs.update(attributes)


def nan_time(times: h5py.Dataset) -> None:
    """Make a time no number."""
    times[7] = np.nan


SPOILS: dict[str, Callable[[h5py.Group], Any]] = {
    "text": lambda raw: replaced(raw, ["a", "b"]),
    "no times": lambda raw: raw.pop("timesteps"),
    "no unit": lambda raw: raw["values"].attrs.pop("unit"),
    "V": lambda raw: raw["values"].attrs.update(unit="V"),
    "pairs": lambda raw: replaced(raw, [1, 2]),
    "time": lambda raw: nan_time(raw["timesteps"]),
    "word": lambda raw: raw["values"].attrs.update(mag="some"),
    "of times": lambda raw: raw["timesteps"].attrs.update(mag=2.0),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_sensor_that_cannot_be_read_makes_its_kind_unknown_and_is_named(
    tmp_path: Path, spoil: Any
) -> None:
    path = changed(made(tmp_path / "a.hdf5"), spoil, "/nodes/gpu/nodes/CUDA:1_POWER/raw_data")
    first, second = sensors(read_perun_file(path))
    assert (first.values.size, first.flags, second.values.size) == (9, [], 0)
    assert [flag["code"] for flag in second.flags] == ["unreadable"]
    assert scalewatt.energy(path).joules("gpu") is None


@pytest.mark.parametrize("name", ["CTDA:1_POWER", "MODEL_GPU1_POWER", "anything"])
def test_power_by_any_backend_counts_for_its_device(tmp_path: Path, name: str) -> None:
    def rename(group: h5py.Group) -> None:
        group.move("CUDA:1_POWER", name)
        group[name].attrs["source"] = "a model of ours"

    path = changed(made(tmp_path / "a.hdf5"), rename, "/nodes/gpu/nodes")
    first, second = sensors(read_perun_file(path))
    assert [(s.name, s.index) for s in (first, second)] == [("CUDA:0_POWER", 0), (name, 1)]
    (flag,) = second.flags
    assert flag["code"] == "assumed" and "source: a model of ours" in flag["detail"]


# --- perun's own totals ---------------------------------------------------------------------------


def with_total(path: Path, name: str, joules: float) -> Path:
    """Note an energy of host n1 as perun does."""
    facts = {"value": np.float32(joules), "mag": 1.0, "unit": "J"}
    return changed(path, lambda host: host.require_group(f"metrics/{name}").attrs.update(facts))


def test_samples_that_do_not_add_up_to_peruns_own_total_are_flagged(tmp_path: Path) -> None:
    watts = gpu(1001) + np.arange(1001) % 2
    path = made(tmp_path / "a.hdf5", {"n1": {f"CUDA:{i}_POWER": watts + i for i in (0, 1)}})
    assert scalewatt.energy(with_total(path, "GPU_ENERGY", 200_000 * 1.008)).flags.empty
    (detail,) = scalewatt.energy(with_total(path, "GPU_ENERGY", 100_000)).flags["detail"]
    assert "perun: 100000 J over 1000 s, recorded 200002 J" in detail


def test_a_device_kind_that_perun_had_a_total_of_is_missed(tmp_path: Path) -> None:
    host = {"CUDA:0_POWER": gpu(9), "CPU_USAGE": np.full(9, 50.0)}
    path = made(tmp_path / "a.hdf5", {"n1": host})
    account = scalewatt.energy(with_total(path, "CPU_ENERGY", 900))
    assert account.joules() is None and account.scope == "gpu+cpu"
    assert account.flags["detail"].str.contains("perun computed 900 J").any()


# --- counters as watts ----------------------------------------------------------------------------


def watts_of_a_counter(path: Path, reads_j: list[float]) -> Path:
    """Write only the watts that perun computes of a counter with the package's range."""
    steps = np.diff(np.asarray(reads_j, dtype=float))
    steps[steps < 0] += 262_143.32885
    watts = np.concatenate((steps[:1], steps)).astype("float32")
    facts = {"unit": "W", "mag": 1.0, "valid_max": np.finfo("float32").max, "fill": -1.0}

    def as_watts(raw: h5py.Group) -> None:
        replaced(raw, watts)
        raw["values"].attrs.update(facts)

    made(path, {"n1": {"cpu_0_package-0": np.zeros(len(reads_j))}})
    return changed(path, as_watts, "/nodes/cpu/nodes/cpu_0_package-0/raw_data")


def test_watts_that_perun_computed_of_a_counter_are_means(tmp_path: Path) -> None:
    path = watts_of_a_counter(tmp_path / "a.hdf5", [1000, 1100, 1300, 1350])
    (sensor,) = sensors(read_perun_file(path))
    assert sensor.quantity == "mean_power" and np.isnan(sensor.limit_w)
    assert scalewatt.energy(path).joules("cpu") == pytest.approx(350)


@pytest.mark.parametrize("form", ["watts", "counter", "counter beside watts"])
def test_a_failed_read_adds_no_phantom_energy(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.hdf5"
    if form == "watts":
        reads = [100_000 + 150.0 * i for i in range(600)]
        watts_of_a_counter(path, [*reads[:300], 0.0, *reads[301:]])
    else:
        counts = counter(600, 150)
        counts[300] = 0
        made(path, {"n1": {"cpu_0_package-0": counts}}, rapl_as_watts=form != "counter")
    account = scalewatt.energy(path)
    assert account.joules("cpu") == pytest.approx(599 * 150, rel=1e-3)
    assert len(account.flags) == 1


# --- files of others ------------------------------------------------------------------------------


def hdf5(*groups: str, **datasets: Any) -> Callable[[Path], None]:
    """A file of HDF5 with some groups and datasets."""

    def write(path: Path) -> None:
        with h5py.File(path, "w") as handle:
            for group in groups:
                handle.create_group(group)
            for name, values in datasets.items():
                handle[name] = values

    return write


def bytes_of(content: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, f"No such file.*{EXPECTED}"),
        (bytes_of(b""), f"cannot be read.*{EXPECTED}"),
        (bytes_of(b'{"a": 1}'), f"signature.*{EXPECTED}"),
        (bytes_of(b"\x89HDF\r\n\x1a\n" + b"\0" * 4000), f"cannot be read.*{EXPECTED}"),
        (hdf5("group/nodes", x=[1, 2], other=[1, 2]), f"holds no run; {EXPECTED}"),
        (hdf5("app/nodes/r1"), "run r1 holds no host; expected"),
        (hdf5("app/nodes/r1/nodes/0"), "run r1 holds no host; expected"),
    ],
    ids=["none", "empty", "JSON", "cut off", "others' HDF5", "no round", "no host"],
)
def test_a_file_without_a_recording_is_refused_by_name(
    tmp_path: Path, write: Callable[[Path], Any], words: str
) -> None:
    path = tmp_path / "bad.hdf5"
    write(path)
    with pytest.raises(InputError, match=f"^{path}: .*{words}"):
        read_perun_file(path)
