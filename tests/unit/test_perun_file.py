"""perun's files, real and made: read by content, refused with the path, described."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
from energy_files import codes, counter, gpu, recordings, write_perun

from scalewatt.common.errors import InputError
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.perun_file import list_runs, open_perun_file, read_perun_file
from scalewatt.recordings.perun_layout import RunInfo

J_PER_KWH = 3.6e6


def test_a_run_is_picked_by_id_else_the_last_is_and_that_is_flagged(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    hosts = {"n1": {"CUDA:0_POWER": gpu(3)}}
    write_perun(path, hosts, run_id="z", execution_dt="2026-01-01T00:00:00")
    write_perun(path, {"n2": hosts["n1"]}, run_id="a", execution_dt="2026-01-02T00:00:00")
    assert read_perun_file(path).hosts == ("n2",)
    assert codes(read_perun_file(path).problems) == {"several"}
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
    assert codes(recording.problems) == {"several"}


def test_a_hosts_series_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    sensors = {"CUDA:0_POWER": gpu(5), "cpu_0_package-0": counter(5, 150)}
    write_perun(path, {"n2": sensors, "n1.cluster.org": sensors})
    with open_perun_file(path) as recording:
        assert recording.hosts == ("n1.cluster.org", "n2")
        first, again = recording.nodes["n2"], recording.nodes["n2"]
        assert [s.sensor for s in first] == ["cpu_0_package-0", "CUDA:0_POWER"]
        assert first[0] is not again[0]
        assert first[0].time_s is first[1].time_s, "equal times are kept once"
        with pytest.raises(KeyError):
            recording.nodes["n3"]
    with pytest.raises(ValueError, match=r"a\.hdf5: is closed"):
        recording.nodes["n2"]
    eager = read_perun_file(path)
    assert eager.nodes["n2"][1].values.tolist() == first[1].values.tolist()
    assert replace(eager, nodes={}).problems == recording.problems == ()


def test_all_runs_of_a_file_are_listed_in_the_order_of_their_start(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    hosts = {"n1": {"CUDA:0_POWER": gpu(3)}}
    write_perun(path, hosts, run_id="b", execution_dt="2026-01-03T00:00:00")
    write_perun(path, {"n2": hosts["n1"]}, run_id="a", execution_dt="2026-01-02T00:00:00")
    for round_id in ("10", "2", "failed"):
        write_perun(path, hosts, run_id="a", round_id=round_id, execution_dt="2026-01-02T00:00:00")
    with h5py.File(path, "a") as handle:
        handle.copy("app", "other")
        del handle["other/nodes/a"]
        handle["other/nodes/b"].attrs["execution_dt"] = "2026-01-04T00:00:00"
        handle["other/nodes/b"].attrs["perun_version"] = "0.8.10"
    first = RunInfo(
        "app", "a", ("0", "2", "10", "failed"), "2026-01-02T00:00:00", None, ("n1", "n2")
    )
    second = RunInfo("app", "b", ("0",), "2026-01-03T00:00:00", None, ("n1",))
    third = RunInfo("other", "b", ("0",), "2026-01-04T00:00:00", "0.8.10", ("n1",))
    assert list_runs(path) == [first, second, third]


@pytest.mark.parametrize("ranks", [[[0, 1], [4, 5]], ["[0, 1]", "[4, 5]"]], ids=["array", "text"])
def test_ranks_without_a_host_tell_that_its_recording_is_missing(
    tmp_path: Path, ranks: list[Any]
) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {host: {"CUDA:0_POWER": gpu(3)} for host in ("n1", "n3")})
    with h5py.File(path, "a") as handle:
        hosts = handle["app/nodes/run/nodes/0/nodes"]
        hosts["n1"].attrs["mpi_ranks"], hosts["n3"].attrs["mpi_ranks"] = ranks
    (problem,) = read_perun_file(path).problems
    assert problem["code"] == "not_recorded" and problem["detail"].endswith("of ranks 2, 3")
    with h5py.File(path, "a") as handle:
        handle["app/nodes/run/nodes/0/nodes/n3"].attrs["mpi_ranks"] = "[2, 3]"
    assert read_perun_file(path).problems == ()


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


def test_gpus_lost_midrun_make_the_energy_null_and_keep_the_raw_sum() -> None:
    said = describe(recordings() / "made-1.0.0/nvml_lost_midrun_zeros/app.hdf5")
    assert said["energy_kwh"] is said["gpu_energy_kwh"] is None
    assert codes(said["flags"]) == {"missing_samples", "coverage"}
    (reason,) = [one["detail"] for one in said["flags"] if one["code"] == "coverage"]
    assert "812.2 J were recorded" in reason
    assert said["devices"][0]["energy_j"] is None


def test_a_machine_without_sensors_has_null_energy_not_zero() -> None:
    said = describe(recordings() / "made-1.0.0/single_no_power_sensors/app.hdf5")
    for key in ("energy_kwh", "gpu_energy_kwh", "cpu_energy_kwh", "ram_energy_kwh", "coverage"):
        assert said[key] is None
    assert codes(said["flags"]) == {"not_recorded"}
    assert said["runtime_s"] == pytest.approx(4.547, abs=1e-3)


def test_a_failed_round_is_read_and_flagged() -> None:
    said = describe(recordings() / "made-1.0.0/failed_all_ranks/failed_app.hdf5")
    assert codes(said["flags"]) == {"several"}
    assert said["gpu_energy_kwh"] * J_PER_KWH == pytest.approx(2033, rel=1e-3)


def test_power_under_a_kind_that_perun_does_not_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(5), "cpu_0_package-0": counter(5, 100.0)}})
    with h5py.File(path, "a") as file:
        file.move(
            "app/nodes/run/nodes/0/nodes/n1/nodes/gpu", "app/nodes/run/nodes/0/nodes/n1/nodes/gpx"
        )
    with pytest.raises(InputError, match="under the unknown kind 'gpx'"):
        read_perun_file(path)
