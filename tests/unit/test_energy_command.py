"""`scalewatt energy`: the energy of anybody's recording, for people and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from energy_files import T0, counter, gpu, make_run, write_journal, write_perun
from run_files import make_spec
from syrupy.assertion import SnapshotAssertion

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.energies.account_text import account_text
from scalewatt.energies.read import Reading, read_account

N = 101
NODE = {
    "CUDA:0_POWER": gpu(N, 100) + np.arange(N) % 5,
    "CUDA:1_POWER": gpu(N, 200) + np.arange(N) % 3,
    "cpu_0_package-0": counter(N, 150),
}
CPU = {"cpu_0_package-0": counter(N, 150)}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> list[Any]:
    """Run the command with --json; one object a line."""
    assert main(["energy", "--json", *map(str, arguments)]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def joules(said: dict[str, Any], kind: str = "all") -> float | None:
    return {row["device_kind"]: row["energy_j"] for row in said["totals"]}[kind]


def by(frame: pd.DataFrame, name: str, kind: str) -> dict[Any, float]:
    """Energies of a device kind by stage or epoch."""
    rows = frame[(frame.device_kind == kind) & frame[name].notna()]
    return rows.groupby(name).energy_j.sum(skipna=False).to_dict()


def run_of_two_segments(folder: Path) -> Path:
    stages = [(0, "train", 0.0, 90.0), (1, "train", 210.0, 290.0), (1, "validate", 290.0, 300.0)]
    run = make_run(folder, stages=stages, gpus={"n1": [1]})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    for number, start in ((0, T0), (1, T0 + 200)):
        stem = run / "perun" / f"segment-{number:03d}"
        write_perun(stem.with_suffix(".hdf5"), {"n1": NODE})
        write_journal(stem.with_name(f"{stem.name}.n1.csv"), "n1", NODE, start=start)
    return run


def test_the_command_says_this(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.chdir(tmp_path)
    lost = gpu(N, 100)
    lost[20:70] = 0
    write_perun(Path("lost.hdf5"), {"n1": NODE | {"CUDA:0_POWER": lost}})
    windows = [(0, "a", 10.0), (100, "b", 10.0), (102, "in\x1bb", 2.0)]
    rows = "".join(f"{T0 + t},{name},{s},1000.0,{s}\n" for t, name, s in windows)
    head = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"
    Path("n1.csv").write_text(head + rows)
    run_of_two_segments(Path("run"))
    assert main(["energy", "run", "lost.hdf5", "n1.csv"]) == 0
    assert capsys.readouterr().out == snapshot


@pytest.mark.parametrize(("wide_j", "is_printed"), [(2.0, False), (40.0, True)])
def test_an_interval_is_printed_if_the_digits_show_it(
    tmp_path: Path, wide_j: float, is_printed: bool
) -> None:
    write_perun(tmp_path / "cpu.hdf5", {"n1": CPU})
    known = read_account(tmp_path / "cpu.hdf5")
    # Rounded, the ends differ in their last digit.
    ends = {"energy_low_j": 3.6e6 - wide_j / 2 + 1.8, "energy_high_j": 3.6e6 + wide_j / 2 + 1.8}
    text = account_text(replace(known, totals=known.totals.assign(**ends)))
    assert ("may lie anywhere between" in text) == is_printed


def test_json_has_energy_by_kind_and_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE, "n2": NODE})
    (said,) = printed(capsys, tmp_path / "a.hdf5")
    assert joules(said, "gpu") == pytest.approx(2 * 100 * 300, rel=1e-4)
    assert joules(said, "cpu") == pytest.approx(2 * 100 * 150)
    assert joules(said) == pytest.approx(joules(said, "gpu") + joules(said, "cpu"))
    assert joules(said, "ram") is None and said["scope"] == "gpu+cpu"
    assert (said["runtime_s"], said["gpus"], said["hosts"]) == (100.0, 4, ["n1", "n2"])
    assert (said["origin"], said["coverage"]) == ("measured", 1.0)
    assert said["flags"] == []
    parts = [d["energy_j"] for d in said["devices"]]
    assert len(parts) == 6 and sum(parts) == pytest.approx(joules(said))


def test_unknown_energy_is_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = gpu(N, 100)
    lost[20:70] = 0
    write_perun(tmp_path / "a.hdf5", {"n1": NODE | {"CUDA:0_POWER": lost}})
    (said,) = printed(capsys, tmp_path / "a.hdf5")
    assert joules(said) is joules(said, "gpu") is None
    assert joules(said, "cpu") == pytest.approx(100 * 150)
    assert said["totals"][-1]["recorded_j"] > 0
    assert {"missing_samples", "coverage"} <= {one["code"] for one in said["flags"]}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_stages_come_from_a_file_of_events(tmp_path: Path, suffix: str) -> None:
    write_journal(tmp_path / "n1.csv", "n1", NODE)
    stages = [("startup", None, 0, 10), ("train", 0, 10, 60), ("validate", 0, 60, 80)]
    rows = [
        {"segment": 0, "stage": s, "epoch": e, "start_s": T0 + a, "end_s": T0 + b}
        for s, e, a, b in stages
    ]
    path = tmp_path / f"events{suffix}"
    if suffix == ".jsonl":
        marks = [{k: v for k, v in row.items() if k != "end_s"} for row in rows]
        marks.append({"segment": 0, "stage": None, "epoch": None, "start_s": T0 + 80})
        path.write_text("".join(json.dumps(mark) + "\n" for mark in marks))
    elif suffix == ".csv":
        pa.csv.write_csv(pa.Table.from_pylist(rows), path)
    else:
        make_run(tmp_path, stages=[(0, s, a, b) for s, _, a, b in stages])
    found = read_account(tmp_path / "n1.csv", Reading(stages=path))
    assert by(found.stages, "stage", "cpu") == pytest.approx(
        {"startup": 1500, "train": 7500, "validate": 3000, "unattributed": 3000}
    )
    if suffix != ".parquet":
        assert by(found.epochs, "epoch", "cpu") == {0: 10500}


def test_a_run_folder_adds_up_its_segments_with_its_own_stages(tmp_path: Path) -> None:
    found = read_account(run_of_two_segments(tmp_path))
    assert found.segments == [0, 1] and found.runtime_s == pytest.approx(200)
    assert found.joules("gpu") == pytest.approx(2 * 100 * 200, rel=1e-4)
    assert found.joules("unused_gpu") == pytest.approx(2 * 100 * 100, rel=1e-4)
    assert by(found.stages, "stage", "cpu") == pytest.approx(
        {"train": 170 * 150, "validate": 1500, "unattributed": 3000}
    )


def test_a_folder_without_a_recording_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app_r1.txt").write_text("a report in words")
    assert main(["energy", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line and "expected" in line


def test_the_folder_that_perun_writes_to_is_its_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "app.hdf5"
    write_perun(file, {"n1": NODE}, run_id="first", execution_dt="2026-11-18T10:00:00")
    write_perun(file, {"n1": NODE}, run_id="last")
    (tmp_path / "app_r1.txt").write_text("a report in words")
    (tmp_path / "failed_app.hdf5").write_bytes(b"damaged")
    assert printed(capsys, tmp_path) == printed(capsys, file)
    assert printed(capsys, "--run", "first", tmp_path) == printed(capsys, "--run", "first", file)


def smi_of_each_rank(folder: Path) -> None:
    """Write what two ranks of a node logged, each of all GPUs."""
    for rank in range(2):
        rows = [f"2026/03/02 12:00:{s:02d}.{rank}00, 0, {100 + s % 7}.00 W" for s in range(60)]
        text = "\n".join(["timestamp, index, power.draw [W]", *rows])
        (folder / f"rank{rank}.csv").write_text(text + "\n")


def test_the_nodes_of_a_folders_files_are_told_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smi_of_each_rank(tmp_path)
    assert main(["energy", str(tmp_path)]) == 1
    assert "--node FILE=NAME" in capsys.readouterr().err
    (said,) = printed(capsys, "--node", "rank0.csv=n1", "--node", "rank1.csv=n1", tmp_path)
    assert said["hosts"] == ["n1"] and said["gpus"] == 1
    (apart,) = printed(capsys, "--node", "rank0.csv=n1", "--node", "rank1.csv=n2", tmp_path)
    assert apart["hosts"] == ["n1", "n2"]
    assert joules(apart) == pytest.approx(2 * joules(said), rel=0.01)
    assert main(["energy", "--node", "rank9.csv=n1", str(tmp_path)]) == 1
    assert "rank9.csv" in capsys.readouterr().err


def test_one_run_of_several_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_perun(
        tmp_path / "a.hdf5", {"n1": NODE}, run_id="first", execution_dt="2026-01-01T00:00:00"
    )
    short = {name: values[:51] for name, values in NODE.items()}
    write_perun(
        tmp_path / "a.hdf5", {"n1": short}, run_id="second", execution_dt="2026-01-02T00:00:00"
    )
    (last,) = printed(capsys, tmp_path / "a.hdf5")
    assert (last["run"], last["runtime_s"]) == ("second", 50.0)
    assert [run["run"] for run in last["runs"]] == ["first", "second"]
    (first,) = printed(capsys, "--run", "first", tmp_path / "a.hdf5")
    assert (first["run"], first["runtime_s"]) == ("first", 100.0)


def test_a_run_folder_is_estimated_where_a_cluster_gives_the_rated_powers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 100.0)], torch_device="cpu")
    (run / "spec.json").write_text(make_spec(device="local").text)
    node = {"CPU_BUSY": np.full(N, 50.0)}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", node)
    (said,) = printed(capsys, run)
    assert (joules(said), said["origin"]) == (None, None)
    assert [one["code"] for one in said["flags"]].count("not_recorded") == 1
    cluster = Path(__file__).parents[2] / "profiles" / "local" / "cluster.yaml"
    (said,) = printed(capsys, "--cluster", cluster, run)
    assert (joules(said), said["origin"]) == (pytest.approx(100 * 61.05), "estimated")
    for rows in (said["totals"], said["stages"]):
        for row in rows:
            ends = [row["energy_low_j"], row["energy_high_j"]]
            joule = row["energy_j"]
            assert ends == (
                [None] * 2 if joule is None else pytest.approx([joule / 5.4, joule * 5.4])
            )
    assert main(["energy", "--cluster", str(cluster), str(run)]) == 0
    assert "0.000314 to 0.00915" in capsys.readouterr().out


# --- the same as in the tables of the run -------------------------------------------------------


def test_gpus_that_must_be_there_and_are_not_make_the_energy_unknown(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": CPU})
    assert read_account(tmp_path / "a.hdf5").scope == "cpu"
    found = read_account(tmp_path / "a.hdf5", Reading(gpus_per_node=4))
    assert found.joules() is None and found.scope == "gpu+cpu"
    assert {"device_count", "not_recorded"} <= set(found.flags.code)


def test_segments_count_by_time_and_not_by_number(tmp_path: Path) -> None:
    for number, start in ((0, T0 + 500), (1, T0)):
        write_journal(tmp_path / f"segment-{number:03d}.n1.csv", "n1", CPU, start=start)
    found = read_account(tmp_path)
    assert found.joules("cpu") == pytest.approx(2 * 15000) and found.runtime_s == 200
    assert "overlap" not in set(found.flags.code)


def test_a_host_with_and_without_its_domain_is_one(tmp_path: Path) -> None:
    write_perun(tmp_path / "segment-000.hdf5", {"n1": CPU})
    write_journal(tmp_path / "segment-000.n1.a.de.csv", "n1.a.de", CPU)
    found = read_account(tmp_path)
    assert found.hosts == ["n1"] and found.joules("cpu") == pytest.approx(15000)


def test_a_table_of_unknown_columns_is_refused_with_what_would_make_it_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "power.csv"
    path.write_text("when;gpu0;pdu\n1;2;3\n")
    assert main(["energy", str(path)]) == 1
    said = capsys.readouterr().err
    for part in (f"{path}: has no known format", "nvidia-smi", "dcgm", "--columns"):
        assert part in said
    assert "(this one's columns: 'when', 'gpu0', 'pdu')" in said and "HDF5" not in said
    path.write_text(",".join(f"c{n}" for n in range(40)) + "\n")
    assert main(["energy", str(path)]) == 1
    assert "'c11', and 28 more)" in capsys.readouterr().err


def test_the_start_of_a_perun_file_is_read_in_the_zone_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(100)}}, execution_dt="2026-07-01T12:00:00")
    begin = datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp()
    stages = tmp_path / "stages.csv"
    stages.write_text(f"stage,start_s,end_s\ntrain,{begin + 20},{begin + 70}\n")
    account = read_account(path, Reading(stages=stages, time_zone="Europe/Berlin"))
    (train,) = account.stages.loc[account.stages["stage"] == "train", "duration_s"].unique()
    assert train == 50
    with pytest.raises(InputError, match="Berlin"):
        read_account(path, Reading(time_zone="Berlin"))


def test_a_kind_that_there_is_not_is_refused(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": {"CUDA:0_POWER": gpu(100)}})
    with pytest.raises(ValueError, match="allowed: gpu, cpu, ram"):
        read_account(tmp_path / "a.hdf5").joules("memory")
