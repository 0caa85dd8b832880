"""perun's files, real and made: read by content, damage named, other files refused with the path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from energy_files import codes, counter, gpu, recordings, write_perun
from energy_said import describe
from sensor_series import read_perun_file, series_of

from scalewatt.common.errors import InputError
from scalewatt.recordings.perun_file import RunInfo, list_runs, open_perun_file

J_PER_KWH = 3.6e6
GPUS = {"n1": {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9, 300)}}
HOST = "app/nodes/run/nodes/0/nodes/n1"
EXPECTED = "expected an HDF5 file written by perun"


def changed(path: Path, change: Callable[[h5py.Group], Any], inside: str = "") -> Path:
    """Change a group of host n1 of a file that `write_perun` made."""
    with h5py.File(path, "a") as handle:
        change(handle[HOST + inside])
    return path


def made(path: Path, hosts: dict[str, dict[str, Any]] = GPUS, **options: Any) -> Path:
    """Write a file in perun's layout."""
    write_perun(path, hosts, **options)
    return path


# --- runs and rounds ------------------------------------------------------------------------------


def test_a_run_is_picked_by_id_else_the_last_is_and_that_is_flagged(tmp_path: Path) -> None:
    path = made(tmp_path / "a.hdf5", run_id="z", execution_dt="2026-01-01T00:00:00")
    made(path, {"n2": GPUS["n1"]}, run_id="a", execution_dt="2026-01-02T00:00:00")
    assert read_perun_file(path).nodes.keys() == {"n2"}
    assert codes(read_perun_file(path).flags) == {"several"}
    assert read_perun_file(path, "z").nodes.keys() == {"n1"}
    assert read_perun_file(path, "z").flags == ()
    with pytest.raises(InputError, match=r"a\.hdf5: holds no run 'x'; it holds z, a"):
        read_perun_file(path, "x")


def test_of_several_rounds_the_last_numbered_one_is_read_and_flagged(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    for round_id, watts in (("2", 20), ("10", 100), ("failed", 1)):
        made(path, {"n1": {"CUDA:0_POWER": gpu(3, watts)}}, round_id=round_id)
    recording = read_perun_file(path)
    assert series_of(recording)[0].values[0] == 100
    assert ["2 rounds" in one["detail"] for one in recording.flags] == [True, False]


def test_all_runs_of_a_file_are_listed_in_the_order_of_their_start(tmp_path: Path) -> None:
    path = made(tmp_path / "a.hdf5", run_id="b", execution_dt="2026-01-03T00:00:00")
    for round_id in ("10", "2", "0", "failed"):
        made(path, run_id="a", round_id=round_id, execution_dt="2026-01-02T00:00:00")
    with h5py.File(path, "a") as handle:
        handle.copy("app", "other")
        del handle["other/nodes/a"]
        handle["other/nodes/b"].attrs["execution_dt"] = "2026-01-04T00:00:00"
    assert list_runs(path) == [
        RunInfo("app", "a", "a", ("0", "2", "10", "failed"), "2026-01-02T00:00:00"),
        RunInfo("app", "b", "app/b", ("0",), "2026-01-03T00:00:00"),
        RunInfo("other", "b", "other/b", ("0",), "2026-01-04T00:00:00"),
    ]


@pytest.mark.parametrize("ranks", [[[0, 1], [4, 5]], ["[0, 1]", "[4, 5]"]], ids=["array", "text"])
def test_ranks_without_a_host_tell_that_its_recording_is_missing(
    tmp_path: Path, ranks: list[Any]
) -> None:
    path = made(tmp_path / "a.hdf5", {host: GPUS["n1"] for host in ("n1", "n3")})
    with h5py.File(path, "a") as handle:
        hosts = handle["app/nodes/run/nodes/0/nodes"]
        hosts["n1"].attrs["mpi_ranks"], hosts["n3"].attrs["mpi_ranks"] = ranks
    (problem,) = read_perun_file(path).flags
    assert problem["code"] == "not_recorded" and problem["detail"].endswith("of ranks 2, 3")


def test_hosts_are_read_when_asked_for_sensors_of_one_time_axis_side_by_side(
    tmp_path: Path,
) -> None:
    sensors = {"CUDA:0_POWER": gpu(5), "cpu_0_package-0": counter(5, 150)}
    path = made(tmp_path / "a.hdf5", {"n2": sensors, "n1.cluster.org": sensors})
    made(path, {"n2": {"CUDA:1_POWER": gpu(7, 250)}})
    with open_perun_file(path) as recording:
        assert list(recording.nodes) == ["n1.cluster.org", "n2"]
        first, second = recording.nodes["n2"]
    assert first.sensors["name"].tolist() == ["CUDA:0_POWER", "cpu_0_package-0"]
    assert first.values.shape == (5, 2) and first.values.flags.f_contiguous
    assert second.sensors["name"].tolist() == ["CUDA:1_POWER"]
    assert second.values[:, 0].tolist() == [250.0] * 7


# --- sensors --------------------------------------------------------------------------------------


def test_watts_counters_and_shares_are_distinguished_by_unit(tmp_path: Path) -> None:
    sensors = {
        "CUDA:1_POWER": gpu(5, 101),
        "CUDA:0_MEM": gpu(5),
        "cpu_0_package-0": counter(5, 150),
        "CPU_USAGE": np.full(5, 50.0),
        "RAM_USAGE": np.full(5, 0.2),
    }
    recording = read_perun_file(made(tmp_path / "a.hdf5", {"n1": sensors}))
    series = {s.sensor: s for s in series_of(recording)}
    assert set(series) == {"CUDA:1_POWER", "cpu_0_package-0", "CPU_USAGE"}
    one = series["CUDA:1_POWER"]
    assert (one.device_kind, one.device_index, one.limit_w) == ("gpu", 1, 400)
    assert one.values.tolist() == [101.0] * 5
    package = series["cpu_0_package-0"]
    assert (package.quantity, package.valid_max) == ("counter", pytest.approx(262_143.32885))
    assert np.diff(package.values) == pytest.approx(150)
    assert series["CPU_USAGE"].values.tolist() == [0.5] * 5
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
    (series,) = series_of(read_perun_file(path))
    assert (series.quantity, series.limit_w) == ("power", 400)
    assert series.values == pytest.approx([250, 250])


def replaced(raw: h5py.Group, content: Any) -> None:
    """Put other content into a sensor's values."""
    attributes = dict(raw["values"].attrs)
    del raw["values"]
    raw.create_dataset("values", data=content).attrs.update(attributes)


SPOILS: dict[str, tuple[Callable[[h5py.Group], Any], str]] = {
    "text": (lambda raw: replaced(raw, ["a", "b"]), "its values are not a list of numbers"),
    "scalar": (lambda raw: replaced(raw, 5.0), "its values are not a list of numbers"),
    "no times": (lambda raw: raw.pop("timesteps"), "it holds no timesteps"),
    "no values": (lambda raw: raw.pop("values"), "it holds no values"),
    "no unit": (lambda raw: raw["values"].attrs.pop("unit"), "its unit is not stated"),
    "kWh": (lambda raw: raw["values"].attrs.update(unit="kWh"), "its unit is kWh; expected W or J"),
    "V": (lambda raw: raw["values"].attrs.update(unit="V"), "its unit is V; expected W or J"),
    "word": (lambda raw: raw["values"].attrs.update(mag="some"), "its magnitude is 'some'"),
    "0.016": (lambda raw: raw["values"].attrs.update(mag=0.016), "its magnitude is '0.016'"),
    "of times": (lambda raw: raw["timesteps"].attrs.update(mag=2.0), "its magnitude is '2.0'"),
}


@pytest.mark.parametrize(("spoil", "detail"), SPOILS.values(), ids=SPOILS)
def test_a_sensor_that_cannot_be_read_makes_its_kind_unknown_and_is_named(
    tmp_path: Path, spoil: Any, detail: str
) -> None:
    path = changed(made(tmp_path / "a.hdf5"), spoil, "/nodes/gpu/nodes/CUDA:1_POWER/raw_data")
    first, second = series_of(read_perun_file(path))
    assert first.values.size == 9 and first.flags == ()
    assert second.values.size == second.time_s.size == 0
    (problem,) = second.flags
    assert (problem["code"], problem["device"]) == ("unreadable", "CUDA:1_POWER")
    assert detail in problem["detail"]
    assert describe(path)["gpu_energy_kwh"] is None


def test_samples_without_a_partner_or_a_time_are_left_out_and_flagged(tmp_path: Path) -> None:
    path = made(tmp_path / "a.hdf5", time_s=[*range(8), np.nan, 9, 10])
    first, second = series_of(read_perun_file(path))
    assert first.time_s.tolist() == second.time_s.tolist() == [*range(8)]
    assert "9 values but 11 times" in first.flags[0]["detail"]
    assert "1 of 9 samples without a time" in first.flags[1]["detail"]
    assert codes(first.flags) == {"damaged"}


@pytest.mark.parametrize("name", ["CTDA:1_POWER", "MODEL_GPU1_POWER", "anything"])
def test_power_by_any_backend_counts_for_its_device(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "a.hdf5")

    def rename(sensors: h5py.Group) -> None:
        sensors.move("CUDA:1_POWER", name)
        sensors[name].attrs["source"] = "a model of ours"

    first, second = series_of(read_perun_file(changed(path, rename, "/nodes/gpu/nodes")))
    assert [(one.sensor, one.device_index) for one in (first, second)] == [
        ("CUDA:0_POWER", 0),
        (name, 1),
    ]
    (problem,) = second.flags
    assert problem["code"] == "assumed" and "source: a model of ours" in problem["detail"]


def test_perun_reads_a_device_and_another_backends_sensor_of_it_is_not_added(
    tmp_path: Path,
) -> None:
    path = made(tmp_path / "a.hdf5")
    changed(
        path, lambda sensors: sensors.copy("CUDA:0_POWER", "A_MODEL_GPU1_POWER"), "/nodes/gpu/nodes"
    )
    said = describe(path)
    assert said["gpu_energy_j"] == pytest.approx(8 * 400)
    assert "second_sensor" in codes(said["flags"])


def test_a_device_kind_that_perun_does_not_have_is_refused(tmp_path: Path) -> None:
    path = changed(made(tmp_path / "a.hdf5"), lambda host: host.move("nodes/gpu", "nodes/gpx"), "/")
    with pytest.raises(InputError, match="of an unknown kind, gpx"):
        read_perun_file(path)


# --- perun's own totals ---------------------------------------------------------------------------


def with_total(path: Path, name: str, joules: float) -> Path:
    """Note an energy of host n1 as perun does."""
    facts = {"value": np.float32(joules), "mag": 1.0, "unit": "J"}
    return changed(
        path, lambda host: host.require_group(f"metrics/{name}").attrs.update(facts), "/"
    )


def test_samples_that_do_not_add_up_to_peruns_own_total_are_flagged(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    made(path, {"n1": {f"CUDA:{i}_POWER": gpu(1001) + (np.arange(1001) + i) % 2 for i in (0, 1)}})
    assert describe(with_total(path, "GPU_ENERGY", 200_000 * 1.008))["flags"] == []
    (problem,) = describe(with_total(path, "GPU_ENERGY", 100_000))["flags"]
    assert "its own total: 100000 J over 1000 s, recorded 200001 J" in problem["detail"]


def test_a_device_kind_that_perun_had_a_total_of_is_missed(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.hdf5", {"n1": {"CUDA:0_POWER": gpu(9), "CPU_USAGE": np.full(9, 50.0)}}
    )
    said = describe(with_total(path, "CPU_ENERGY", 900))
    assert said["energy_kwh"] is None and said["energy_scope"] == "gpu+cpu"
    assert "perun computed 900 J" in str(said["flags"])


def test_the_real_file_gives_peruns_own_totals_per_kind() -> None:
    path = recordings() / "kit_a100_resnet50_2gpus.hdf5"
    totals = {"cpu": 256_750.92, "gpu": 122_854.64, "ram": 28_366.725}
    said = describe(path)
    for kind, joules in totals.items():
        assert said[f"{kind}_energy_kwh"] * J_PER_KWH == pytest.approx(joules, rel=1e-3)
    assert said["runtime_s"] == pytest.approx(894.153, abs=1e-3)
    assert (said["gpus"], len(said["devices"]), said["coverage"]) == (2, 6, 1.0)
    assert said["hosts"] == ["haicn1703.localdomain"] and said["flags"] == []
    with open_perun_file(path) as recording:
        assert recording.perun_j == {
            ("haicn1703.localdomain", kind): pytest.approx(total, rel=1e-6)
            for kind, total in totals.items()
        }


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


def test_the_counter_is_preferred_to_perun_1_watts(tmp_path: Path) -> None:
    hosts = {"n1": {"cpu_0_package-0": counter(5, 150)}}
    (series,) = series_of(read_perun_file(made(tmp_path / "a.hdf5", hosts, rapl_as_watts=True)))
    assert series.quantity == "counter" and np.diff(series.values) == pytest.approx(150)


def test_watts_that_perun_computed_of_a_counter_are_means(tmp_path: Path) -> None:
    path = watts_of_a_counter(tmp_path / "a.hdf5", [1000, 1100, 1300, 1350])
    (series,) = series_of(read_perun_file(path))
    assert (series.quantity, series.limit_w) == ("mean_power", None)
    assert describe(path)["cpu_energy_kwh"] * J_PER_KWH == pytest.approx(350)


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
    said = describe(path)
    assert said["cpu_energy_kwh"] * J_PER_KWH == pytest.approx(599 * 150, rel=1e-3)
    assert len(said["flags"]) == 1


# --- files perun made on stand-in sensors, and files of others ------------------------------------

MADE = {
    "nvml_lost_midrun_zeros/app.hdf5": "coverage",
    "single_no_power_sensors/app.hdf5": "",
}


@pytest.mark.parametrize(("name", "code"), MADE.items())
def test_lost_gpus_and_no_sensors_have_null_energy_not_zero(name: str, code: str) -> None:
    said = describe(recordings() / "made-1.0.0" / name)
    assert said["gpu_energy_kwh"] is None
    assert said["flags"] and (not code or code in codes(said["flags"]))


def test_gpus_that_two_hosts_of_a_run_name_count_for_both_and_are_flagged() -> None:
    said = describe(recordings() / "made-1.0.0" / "failed_all_ranks" / "failed_app.hdf5")
    assert said["gpu_energy_kwh"] * J_PER_KWH == pytest.approx(2033, rel=1e-3)
    assert codes(said["flags"]) == {"several", "duplicate"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "cannot be read"),
        (b'{"a": 1}', "signature"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 4000, "cannot be read"),
    ],
)
def test_a_file_that_is_not_a_recording_of_perun_is_refused_by_name(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.hdf5"
    if content is not None:
        path.write_bytes(content)
    for read in (list_runs, read_perun_file):
        with pytest.raises(InputError, match=f"^{path}: .*{words}.*{EXPECTED}"):
            read(path)


def test_an_hdf5_file_of_others_holds_no_run(tmp_path: Path) -> None:
    path = tmp_path / "foreign.hdf5"
    with h5py.File(path, "w") as handle:
        handle["x"] = [1, 2]
        handle.create_group("group/nodes")
        handle["other/nodes"] = [1, 2]
    assert list_runs(path) == []
    for read in (read_perun_file, describe):
        with pytest.raises(InputError, match=f"^{path}: holds no run; {EXPECTED}"):
            read(path)


@pytest.mark.parametrize("inside", ["app/nodes/r1", "app/nodes/r1/nodes/0", "app/nodes/r1/nodes"])
def test_a_run_without_hosts_is_listed_and_not_read(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "hostless.hdf5"
    with h5py.File(path, "w") as handle:
        handle.create_group(inside)
    assert [run.run_id for run in list_runs(path)] == ["r1"]
    for read in (read_perun_file, describe):
        with pytest.raises(InputError, match=r"hostless\.hdf5: run r1 holds no host; expected"):
            read(path)


HOLDS = """
import h5py, sys
held = h5py.File(sys.argv[1], "r+", locking=True)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_has_locked_is_read_and_flagged(tmp_path: Path) -> None:
    path = made(tmp_path / "held.hdf5")
    command = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        recording = read_perun_file(path)
        holder.communicate("")
    assert series_of(recording)[0].values.tolist() == [100] * 9
    assert codes(recording.flags) == {"damaged"}


def test_other_files_of_the_call_are_read_and_the_exit_code_is_one(tmp_path: Path) -> None:
    good, note = made(tmp_path / "good.hdf5"), tmp_path / "note.hdf5"
    note.write_text('{"energy": 5}')
    command = [sys.executable, "-m", "scalewatt.cli", "energy", "--json", str(note), str(good)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(note) in line and "Traceback" not in line
    assert '"n1"' in done.stdout and "NaN" not in done.stdout
