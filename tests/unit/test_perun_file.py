"""perun's files, real and made: read by content, refused with the path, described."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from energy_files import codes, counter, gpu, recordings, write_perun

from scalewatt.energy.perun_file import read_perun_file
from scalewatt.energy.summary import describe
from scalewatt.errors import InputError

J_PER_KWH = 3.6e6


def test_watts_counters_and_shares_are_told_apart_by_unit(tmp_path: Path) -> None:
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


def test_the_counter_beside_perun_1_watts_is_preferred(tmp_path: Path) -> None:
    hosts = {"n1": {"cpu_0_package-0": counter(5, 150)}}
    write_perun(tmp_path / "a.hdf5", hosts, rapl_as_watts=True)
    (series,) = read_perun_file(tmp_path / "a.hdf5").series
    assert series.quantity == "counter" and np.diff(series.values) == pytest.approx(150)


def test_a_run_is_picked_by_id_else_the_last_is_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    hosts = {"n1": {"CUDA:0_POWER": gpu(3)}}
    write_perun(path, hosts, run_id="z", execution_dt="2026-01-01T00:00:00")
    write_perun(path, {"n2": hosts["n1"]}, run_id="a", execution_dt="2026-01-02T00:00:00")
    assert read_perun_file(path).hosts == ("n2",)
    assert codes(read_perun_file(path).problems) == {"several_runs"}
    assert read_perun_file(path, "z").hosts == ("n1",)
    assert read_perun_file(path, "z").problems == ()
    with pytest.raises(InputError, match=r"a\.hdf5: holds no run 'x'; it holds z, a"):
        read_perun_file(path, "x")


def test_of_several_rounds_the_last_numbered_one_is_read_and_flagged(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    for round_id, watts in (("2", 20), ("10", 100), ("failed", 1)):
        hosts = {"n1": {"CUDA:0_POWER": gpu(3, watts)}}
        write_perun(path, hosts, round_id=round_id)
    recording = read_perun_file(path)
    assert recording.series[0].values[0] == 100
    assert codes(recording.problems) == {"several_rounds", "failed_round"}


def test_values_and_times_of_unequal_length_are_cut_and_flagged(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": {"CUDA:0_POWER": gpu(5)}}, time_s=np.arange(4))
    recording = read_perun_file(tmp_path / "a.hdf5")
    assert recording.series[0].values.size == recording.series[0].time_s.size == 4
    assert codes(recording.series[0].flags) == {"length_mismatch"}


@pytest.mark.parametrize(
    "content", [b"", b'{"a": 1}', b"\x89HDF\r\n\x1a\n" + b"\0" * 40], ids=["empty", "json", "cut"]
)
def test_a_file_that_is_no_recording_is_refused_with_its_path(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "bad.hdf5"
    path.write_bytes(content)
    for reader in (read_perun_file, describe):
        with pytest.raises(InputError, match=r"bad\.hdf5.*expected an HDF5 file written by perun"):
            reader(path)


def test_a_missing_file_and_a_foreign_hdf5_are_refused(tmp_path: Path) -> None:
    import h5py

    with pytest.raises(InputError, match=r"none\.hdf5"):
        read_perun_file(tmp_path / "none.hdf5")
    with h5py.File(tmp_path / "foreign.hdf5", "w") as handle:
        handle["x"] = [1, 2]
    with pytest.raises(InputError, match=r"foreign\.hdf5: holds no run"):
        read_perun_file(tmp_path / "foreign.hdf5")


def test_a_truncated_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(5000)}})
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(InputError, match=r"cut\.hdf5"):
        read_perun_file(path)


def test_a_host_without_a_kind_that_others_have_is_flagged(tmp_path: Path) -> None:
    both = {"CUDA:0_POWER": gpu(5), "cpu_0_package-0": counter(5, 150)}
    write_perun(tmp_path / "a.hdf5", {"n1": both, "n2": {"CUDA:0_POWER": gpu(5)}})
    said = describe(tmp_path / "a.hdf5")
    assert [one["detail"][:10] for one in said["flags"]] == ["n2: no cpu"]


def test_the_real_file_gives_peruns_own_totals_per_kind() -> None:
    said = describe(recordings() / "kit_a100_resnet50_2gpus.hdf5")
    own = {"cpu": 256_750.92, "gpu": 122_854.64, "ram": 28_366.725}
    for kind, joules in own.items():
        assert said[f"{kind}_energy_kwh"] * J_PER_KWH == pytest.approx(joules, rel=1e-3)
    assert said["energy_kwh"] * J_PER_KWH == pytest.approx(sum(own.values()), rel=1e-3)
    assert said["runtime_s"] == pytest.approx(894.153, abs=1e-3)
    assert (said["gpus"], len(said["devices"]), said["coverage"]) == (2, 6, 1.0)
    assert said["hosts"] == ["haicn1703.localdomain"] and said["flags"] == []
    assert said["origin"] == "measured"


def test_the_real_files_counters_do_wrap() -> None:
    recording = read_perun_file(recordings() / "kit_a100_resnet50_2gpus.hdf5")
    falls = [int(np.sum(np.diff(s.values) < 0)) for s in recording.series if s.valid_max]
    assert sum(falls) >= 2


def test_a_healthy_node_gives_its_stand_in_powers() -> None:
    said = describe(recordings() / "made-1.0.0/single_4gpu_2rapl/app.hdf5")
    watts = [device["mean_power_w"] for device in said["devices"]]
    assert watts == pytest.approx([100, 101, 102, 103, 150, 140, 15, 14], rel=2e-3)
    assert said["flags"] == []


def test_gpus_lost_midrun_make_the_energy_null_and_keep_the_raw_sum() -> None:
    said = describe(recordings() / "made-1.0.0/nvml_lost_midrun_zeros/app.hdf5")
    assert said["energy_kwh"] is said["gpu_energy_kwh"] is None
    assert codes(said["flags"]) == {"zero_power", "coverage"}
    (reason,) = [one["detail"] for one in said["flags"] if one["code"] == "coverage"]
    assert "812.2 J were recorded" in reason
    assert said["devices"][0]["energy_j"] is None


def test_a_machine_without_sensors_has_null_energy_not_zero() -> None:
    said = describe(recordings() / "made-1.0.0/single_no_power_sensors/app.hdf5")
    for key in ("energy_kwh", "gpu_energy_kwh", "cpu_energy_kwh", "ram_energy_kwh", "coverage"):
        assert said[key] is None
    assert codes(said["flags"]) == {"no_power_sensors"}
    assert said["runtime_s"] == pytest.approx(4.547, abs=1e-3)


def test_two_hosts_and_three_runs_are_read_one_run_at_a_time() -> None:
    path = recordings() / "made-1.0.0/mpi_2hosts_4ranks_3runids/app.hdf5"
    said = describe(path, "job1")
    assert said["hosts"] == ["hkn0001", "hkn0002"] and said["gpus"] == 8
    assert said["energy_kwh"] * J_PER_KWH == pytest.approx(3953, rel=1e-3)
    assert said["flags"] == []
    assert codes(describe(path)["flags"]) == {"several_runs", "several_rounds"}


def test_a_failed_round_is_read_and_flagged() -> None:
    said = describe(recordings() / "made-1.0.0/failed_all_ranks/failed_app.hdf5")
    assert codes(said["flags"]) == {"failed_round"}
    assert said["gpu_energy_kwh"] * J_PER_KWH == pytest.approx(2033, rel=1e-3)


def test_a_destroyed_file_is_refused() -> None:
    with pytest.raises(InputError, match=r"no_mpi_race_corrupt.app\.hdf5: is empty"):
        describe(recordings() / "made-1.0.0/no_mpi_race_corrupt/app.hdf5")


def test_a_recording_is_never_written_to(tmp_path: Path) -> None:
    source = recordings() / "made-1.0.0/single_4gpu_2rapl/app.hdf5"
    copy = tmp_path / "app.hdf5"
    shutil.copy(source, copy)
    copy.chmod(0o400)
    before = copy.read_bytes()
    describe(copy)
    assert copy.read_bytes() == before
