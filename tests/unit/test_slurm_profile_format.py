"""Slurm's profiles, in the layout that Slurm 22.05 wrote (test_slurm_profiles.py has real ones)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.energies.integration.integrate import validate
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.formats.detect import find_format, read_foreign
from scalewatt.recordings.formats.format import Options

T0 = 1_795_523_681
ONE_FILE = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Columns = Mapping[str, Sequence[int]]


def table(begin: int, columns: Columns) -> np.ndarray:
    """Return samples a second apart, as the plugin lays them out."""
    seconds = np.arange(len(next(iter(columns.values()))), dtype=np.uint64)
    every = {"ElapsedTime": seconds, "EpochTime": seconds + np.uint64(begin), **columns}
    found = np.zeros(seconds.size, dtype=[(name, "<u8") for name in every])
    for name, values in every.items():
        found[name] = values
    return found


def add(group: h5py.Group, node: str, samples: np.ndarray, name: str = "Energy") -> None:
    of_node = group.require_group(node)
    of_node.attrs["Node Name"] = np.array([node.encode()])
    of_node.create_dataset(name, data=samples, chunks=(10,), maxshape=(None,))
    tasks = of_node.require_group("Tasks")
    tasks.create_dataset("0", data=table(T0, {"RSS": [1, 2, 3]}))


def node_file(path: Path, columns: Columns, node: str = "a1") -> Path:
    """Write what one node leaves of one step."""
    with h5py.File(path, "w") as file:
        add(file, node, table(T0, columns))
    return path


def job_file(path: Path, steps: Mapping[str, Mapping[str, Sequence[int]]]) -> Path:
    """Write what sh5util merges: the powers of each node of each step."""
    with h5py.File(path, "w") as file:
        for place, (step, nodes) in enumerate(steps.items()):
            group = file.create_group(f"Steps/{step}/Nodes")
            for node, powers in nodes.items():
                add(group, node, table(T0 + 100 * place, {"Power": powers}))
    return path


def codes(problems: Sequence[dict]) -> list[str]:
    return [one["code"] for one in problems]


def test_a_nodes_file_gives_its_power_by_unix_time(tmp_path: Path) -> None:
    path = node_file(tmp_path / "7_0_a1.h5", {"Power": [250, 260, 270, 280]})
    found = read_foreign(path, Options(kind="node"))
    assert found.format == "slurm-profile" and found.t0_known and found.hosts == ("a1",)
    (one,) = found.series
    assert (one.device_kind, one.quantity) == ("node", "power") and not found.problems
    assert one.time_s.tolist() == [T0, T0 + 1, T0 + 2, T0 + 3]
    assert one.values.tolist() == [250, 260, 270, 280]


def test_what_the_power_is_of_is_told_or_flagged(tmp_path: Path) -> None:
    path = node_file(tmp_path / "7_0_a1.h5", {"Power": [250, 260]})
    assumed = read_foreign(path)
    assert assumed.series[0].device_kind == "node" and codes(assumed.problems) == ["kind_assumed"]
    told = read_foreign(path, Options(kind="cpu"))
    assert told.series[0].device_kind == "cpu" and not told.problems
    with pytest.raises(InputError, match="kind ram; allowed: node, cpu"):
        read_foreign(path, Options(kind="ram"))


def test_columns_of_the_other_plugins(tmp_path: Path) -> None:
    columns = {
        "GPU0Power": [300, 301],
        "GPU1Power": [400, 401],
        "NodePower": [900, 901],
        "FansPower": [50, 51],
    }
    found = read_foreign(node_file(tmp_path / "a.h5", columns), Options(kind="node"))
    devices = {(one.device_kind, one.device_index): one.values.tolist() for one in found.series}
    assert devices == {("gpu", 0): [300, 301], ("gpu", 1): [400, 401], ("node", 0): [900, 901]}
    (told,) = found.problems
    assert told["code"] == "not_counted" and "FansPower" in told["detail"]


def test_gpus_alone_need_no_kind(tmp_path: Path) -> None:
    path = node_file(tmp_path / "a.h5", {"GPU0Power": [300, 301]})
    assert not read_foreign(path).problems
    assert describe(path)["gpu_energy_j"] == pytest.approx(300.5)


@pytest.mark.parametrize("nothing", [2**32 - 2, 2**64 - 2])
def test_no_value_is_missing_and_not_a_huge_power(nothing: int, tmp_path: Path) -> None:
    path = node_file(tmp_path / "a.h5", {"Power": [250, nothing, 270]})
    assert np.isnan(read_foreign(path).series[0].values).tolist() == [False, True, False]


@pytest.mark.parametrize("column", ["NodePower", "CurrPower"])
def test_a_column_that_says_its_kind_is_the_nodes_whatever_is_told(
    column: str, tmp_path: Path
) -> None:
    path = node_file(tmp_path / "7_0_a1.h5", {column: [250, 260, 270]})
    for kind in (None, "cpu"):
        found = read_foreign(path, Options(kind=kind))
        assert [one.device_kind for one in found.series] == ["node"] and not found.problems


def test_links_into_other_files_are_not_followed(tmp_path: Path) -> None:
    node_file(tmp_path / "7_0_a1.h5", {"Power": [250, 260, 270]})
    job_file(tmp_path / "job_7.h5", {"0": {"a1": [1, 2]}})
    for name, link in (("a1", "/a1"), ("Steps", "/Steps")):
        other = "7_0_a1.h5" if name == "a1" else "job_7.h5"
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file[name] = h5py.ExternalLink(other, link)
            file.create_group("b1/Energy" if name == "a1" else "x/Energy")
        with pytest.raises(InputError, match=r"no table Energy|known format"):
            read_foreign(tmp_path / f"{name}.h5")


STEPS = {
    "0": {"a1": [100, 100, 100], "a2": [200, 200, 200]},
    "1": {"a1": [300, 300, 300], "a2": [400, 400, 400]},
    "10": {"a1": [500, 500, 500]},
    "batch": {"a1": [50] * 9},
}


def test_the_last_numbered_step_of_a_job_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    path = job_file(tmp_path / "job_7.h5", STEPS)
    found = read_foreign(path, Options(kind="node"))
    assert found.run_id == "10" and found.hosts == ("a1",)
    assert codes(found.problems) == ["several_runs"]
    assert "others: 0, 1, batch" in found.problems[0]["detail"]


def test_a_step_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = job_file(tmp_path / "job_7.h5", STEPS)
    found = describe(path, run_id="1")
    assert found["run"] == "1" and found["hosts"] == ["a1", "a2"]
    assert found["node_energy_j"] == pytest.approx(2 * 700)
    assert describe(path, run_id="batch")["node_energy_j"] == pytest.approx(400)
    with pytest.raises(InputError, match="no step 2; allowed: 0, 1, 10, batch"):
        read_foreign(path, Options(run="2"))


def test_the_nodes_of_a_job_keep_their_names(tmp_path: Path) -> None:
    path = job_file(tmp_path / "job_7.h5", {"0": STEPS["0"]})
    assert read_foreign(path, Options(node="other")).hosts == ("a1", "a2")
    alone = node_file(tmp_path / "7_0_a1.h5", {"Power": [1, 2]})
    assert read_foreign(alone, Options(node="other")).hosts == ("other",)


def test_old_files_have_their_tables_below_time_series(tmp_path: Path) -> None:
    path = tmp_path / "old.h5"
    with h5py.File(path, "w") as file:
        samples = np.zeros(3, dtype=[("Date_Time", "S20"), ("Time", "<u8"), ("Power", "<u8")])
        samples["Time"], samples["Power"] = [0, 1, 2], [100, 110, 120]
        add(file.create_group("Steps/0/Nodes"), "a1", samples, "Time Series/Energy")
    found = read_foreign(path)
    assert not found.t0_known
    assert found.series[0].values.tolist() == [100, 110, 120]


def test_a_first_sample_that_comes_twice_is_no_clock_that_went_back(tmp_path: Path) -> None:
    samples = table(T0, {"Power": [250 + i % 3 for i in range(60)]})
    with h5py.File(tmp_path / "7_0_a1.h5", "w") as file:
        add(file, "a1", np.concatenate([samples[:1], samples]))
    found = describe(tmp_path / "7_0_a1.h5", options=Options(kind="node"))
    assert codes(found["flags"]) == ["duplicate_rows"]
    assert [one["samples"] for one in found["devices"]] == [60]


@ONE_FILE
@given(data=st.data())
def test_a_known_power_is_accounted_for_whatever_samples_are_lost(
    data: st.DataObject, tmp_path: Path
) -> None:
    start, slope = data.draw(st.integers(100, 900)), data.draw(st.integers(1, 3))
    size = data.draw(st.integers(3, 60))
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=2))))
    samples = table(T0, {"Power": [start + slope * i for i in range(size)]})[kept]
    twice = np.repeat(samples, data.draw(st.integers(1, 2)))
    with h5py.File(tmp_path / "7_0_a1.h5", "w") as file:
        add(file, "a1", twice)
    (series,) = read_foreign(tmp_path / "7_0_a1.h5").series
    steps, power = np.diff(kept), start + slope * kept
    known = steps <= max(30.0, 3 * float(np.median(steps)))
    truth = float(np.sum((0.5 * (power[1:] + power[:-1]) * steps)[known]))
    assert validate(series).curve.energy_j[-1] == pytest.approx(truth)


def write_odd(path: Path, what: str) -> None:
    with h5py.File(path, "w") as file:
        nodes = file.create_group("Steps/0/Nodes")
        if what == "no nodes":
            return
        if what == "a table of no columns":
            nodes["a1/Energy"] = np.arange(5)
        elif what == "a group for a table":
            nodes.create_group("a1/Energy")
        elif what == "nothing but times":
            add(nodes, "a1", table(T0, {"Frequency": [1, 2]}))
        elif what == "text for powers":
            nodes["a1/Energy"] = np.array(
                [(1, b"300")], dtype=[("EpochTime", "<u8"), ("Power", "S3")]
            )
        elif what == "no times":
            nodes["a1/Energy"] = np.array([(1.0,)], dtype=[("Power", "<f8")])


ODD = (
    "no nodes",
    "a table of no columns",
    "a group for a table",
    "nothing but times",
    "text for powers",
    "no times",
)


@pytest.mark.parametrize("what", ODD)
def test_a_file_is_refused_with(what: str, tmp_path: Path) -> None:
    path = tmp_path / "job_7.h5"
    write_odd(path, what)
    assert find_format(path) is not None
    with pytest.raises(InputError) as caught:
        read_foreign(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@settings(ONE_FILE, max_examples=25)
@given(cut=st.integers(100, 20000), place=st.integers(8, 20000), byte=st.integers(0, 255))
def test_a_damaged_file_is_read_or_refused(cut: int, place: int, byte: int, tmp_path: Path) -> None:
    path = job_file(tmp_path / "job_7.h5", {"0": STEPS["0"]})
    whole = bytearray(path.read_bytes())
    whole[place % len(whole)] = byte
    path.write_bytes(bytes(whole[:cut]) if cut % 2 else bytes(whole))
    try:
        found = read_foreign(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.series


def test_other_hdf5_files_are_none_of_slurms(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["app/run_0/nodes/x"] = [1]
    assert find_format(tmp_path / "a.h5") is None
