"""`scalewatt energy`: the energy of anybody's recording, for people and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import T0, codes, counter, gpu, make_run, record, write_journal, write_perun
from run_files import make_spec
from syrupy.assertion import SnapshotAssertion

import scalewatt
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.energies.read import read_account

N = 101
NODE = {
    "CUDA:0_POWER": gpu(N, 100) + np.arange(N) % 5,
    "CUDA:1_POWER": gpu(N, 200) + np.arange(N) % 3,
    "cpu_0_package-0": counter(N, 150),
}
CPU = {"cpu_0_package-0": counter(N, 150)}
LOST = NODE | {"CUDA:0_POWER": np.where((np.arange(N) >= 20) & (np.arange(N) < 70), 0, gpu(N))}
"""A node of which the power of a GPU is missing for half of the time."""
Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *arguments: str | Path) -> list[dict[str, Any]]:
    """Run the command with --json; an object a line."""
    assert main(["energy", "--json", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refused(capsys: Captured, *arguments: str | Path) -> str:
    """The line of the command's error."""
    assert main(["energy", *map(str, arguments)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def joules(account: dict[str, Any], kind: str = "all") -> float | None:
    return {row["device_kind"]: row["energy_j"] for row in account["totals"]}[kind]


def run_of_two_segments(folder: Path) -> Path:
    stages = [(0, "train", 0.0, 90.0), (1, "train", 210.0, 290.0), (1, "validate", 290.0, 300.0)]
    run = make_run(folder, stages=stages, gpus={"n1": [1]})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    for number in (0, 1):
        record(run, {"n1": NODE}, number, start=T0 + 200 * number, hdf5=True)
    return run


# --- what is printed ------------------------------------------------------------------------------


def test_the_command_says_this(
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_perun(Path("lost.hdf5"), {"n1": LOST})
    windows = [(0, "a", 10.0), (100, "b", 10.0), (102, "in_b", 2.0)]
    rows = "".join(f"{T0 + t},{name},{s},1000.0,{s}\n" for t, name, s in windows)
    head = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"
    Path("n1.csv").write_text(head + rows)
    run_of_two_segments(Path("run"))
    assert main(["energy", "run", "lost.hdf5", "n1.csv"]) == 0
    assert capsys.readouterr().out == snapshot


def test_json_has_energy_by_kind_and_device(tmp_path: Path, capsys: Captured) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE, "n2": NODE})
    write_perun(tmp_path / "lost.hdf5", {"n1": LOST})
    account, lost = printed(capsys, tmp_path / "a.hdf5", tmp_path / "lost.hdf5")
    expected = {"gpu": 2 * 100 * 300, "cpu": 2 * 100 * 150, "all": 2 * 100 * 450}
    for kind, energy in expected.items():
        assert joules(account, kind) == pytest.approx(energy, rel=1e-4)
    assert joules(account, "ram") is None and account["scope"] == "gpu+cpu"
    assert (account["runtime_s"], account["gpus"]) == (100.0, 4)
    assert (account["hosts"], account["flags"]) == (["n1", "n2"], [])
    assert (account["origin"], account["coverage"]) == ("measured", 1.0)
    parts = [row["energy_j"] for row in account["devices"]]
    assert len(parts) == 6 and sum(parts) == pytest.approx(joules(account))
    assert joules(lost) is joules(lost, "gpu") is None
    assert joules(lost, "cpu") == pytest.approx(100 * 150)
    assert lost["totals"][-1]["recorded_j"] > 0
    assert {"missing_samples", "coverage"} <= codes(lost["flags"])


def test_other_files_of_the_call_are_read_and_the_exit_code_is_one(
    tmp_path: Path, capsys: Captured
) -> None:
    write_perun(tmp_path / "good.hdf5", {"n1": NODE})
    (tmp_path / "note.hdf5").write_text('{"energy": 5}')
    paths = [str(tmp_path / name) for name in ("note.hdf5", "good.hdf5")]
    assert main(["energy", "--json", *paths]) == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert paths[0] in line and json.loads(out)["hosts"] == ["n1"]


# --- what is read ---------------------------------------------------------------------------------


def test_segments_count_by_time_and_not_by_number(tmp_path: Path) -> None:
    for number, start in ((0, T0 + 500), (1, T0)):
        write_journal(tmp_path / f"segment-{number:03d}.n1.csv", "n1", CPU, start=start)
    account = scalewatt.energy(tmp_path)
    assert account.joules("cpu") == pytest.approx(2 * 15000) and account.runtime_s == 200
    assert "overlap" not in codes(account.flags)


def test_a_run_of_a_perun_file_and_its_folder_is_read_by_its_name(
    tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "app.hdf5"
    short = {name: values[:51] for name, values in NODE.items()}
    write_perun(file, {"n1": NODE}, run_id="first", execution_dt="2026-11-18T10:00:00")
    write_perun(file, {"n1": short}, run_id="last")
    (tmp_path / "failed_app.hdf5").write_bytes(b"damaged")
    for run, seconds in (("last", 50.0), ("first", 100.0)):
        (account,) = printed(capsys, "--run", run, file)
        assert printed(capsys, "--run", run, tmp_path) == [account]
        assert (account["run"], account["runtime_s"]) == (run, seconds)
    write_perun(tmp_path / "other.hdf5", {"n1": NODE})
    assert "holds 2 perun files; expected one" in refused(capsys, tmp_path)


def test_the_nodes_of_a_folders_files_are_told_by_their_names(
    tmp_path: Path, capsys: Captured
) -> None:
    for rank in range(2):
        rows = [f"2026/03/02 12:00:{s:02d}.{rank}00, 0, 100.00 W" for s in range(60)]
        text = "\n".join(["timestamp, index, power.draw [W]", *rows, ""])
        (tmp_path / f"rank{rank}.csv").write_text(text)
    (apart,) = printed(capsys, "--node", "rank0.csv=n1", "--node", "rank1.csv=n2", tmp_path)
    assert apart["hosts"] == ["n1", "n2"]
    assert joules(apart) == pytest.approx(2 * 59 * 100)
    assert "rank9.csv" in refused(capsys, "--node", "rank9.csv=n1", tmp_path)


def test_the_start_of_a_perun_file_is_read_in_the_zone_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(100)}}, execution_dt="2026-07-01T12:00:00")
    begin = datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp()
    stages = tmp_path / "stages.csv"
    stages.write_text(f"stage,start_s,end_s\ntrain,{begin + 20},{begin + 70}\n")
    account = scalewatt.energy(path, stages, time_zone="Europe/Berlin")
    (train,) = account.stages.loc[account.stages["stage"] == "train", "duration_s"].unique()
    assert train == 50
    with pytest.raises(InputError, match="Berlin"):
        scalewatt.energy(path, time_zone="Berlin")


# --- refusals -------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_refused_with_what_would_make_it_readable(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "app_r1.txt").write_text("a report in words")
    line = refused(capsys, tmp_path)
    assert str(tmp_path) in line and "expected" in line
    path = tmp_path / "power.csv"
    path.write_text("when;gpu0;pdu\n1;2;3\n")
    line = refused(capsys, path)
    for part in (f"{path}: has no known format", "nvidia-smi", "dcgm", "--columns"):
        assert part in line
    assert "(text: 'when;gpu0;pdu')" in line and "HDF5" not in line


def test_a_campaigns_folder_is_refused_with_the_form_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(InputError, match=r"is a campaign; expected .*/runs/CONFIGURATION/REPEAT"):
        read_account(tmp_path)
