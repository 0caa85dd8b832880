"""`scalewatt energy`: the energy of anybody's recording, for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from energy_files import (
    T0,
    codes,
    counter,
    gpu,
    make_run,
    write_journal,
    write_perun,
)
from run_files import make_spec

from scalewatt.cli import main
from scalewatt.energies.views.describe import describe

N = 101
NODE = {
    "CUDA:0_POWER": gpu(N, 100) + np.arange(N) % 5,
    "CUDA:1_POWER": gpu(N, 200) + np.arange(N) % 3,
    "cpu_0_package-0": counter(N, 150),
}
KEYS = (
    "energy_kwh",
    "gpu_energy_kwh",
    "cpu_energy_kwh",
    "ram_energy_kwh",
    "runtime_s",
    "hosts",
    "gpus",
    "origin",
    "coverage",
    "flags",
    "devices",
)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> list[Any]:
    """Run the command with --json; one object a line."""
    assert main(["energy", "--json", *map(str, arguments)]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def joules(said: dict[str, Any], kind: str = "") -> float:
    return said[f"{kind}energy_kwh"] * 3.6e6


def test_json_has_energy_by_kind_and_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE, "n2": NODE})
    (said,) = printed(capsys, tmp_path / "a.hdf5")
    assert set(KEYS) <= set(said)
    assert joules(said, "gpu_") == pytest.approx(2 * 100 * 300, rel=1e-4)
    assert joules(said, "cpu_") == pytest.approx(2 * 100 * 150)
    assert joules(said) == pytest.approx(joules(said, "gpu_") + joules(said, "cpu_"))
    assert said["ram_energy_kwh"] is None and said["energy_scope"] == "gpu+cpu"
    assert (said["runtime_s"], said["gpus"], said["hosts"]) == (100.0, 4, ["n1", "n2"])
    assert (said["origin"], said["coverage"]) == ("measured", 1.0)
    assert [set(flag) for flag in said["flags"]] == [{"code", "device", "detail"}] * len(
        said["flags"]
    )
    parts = [d["energy_j"] for d in said["devices"]]
    assert len(parts) == 6 and sum(parts) == pytest.approx(joules(said))


def test_unknown_energy_is_a_word_for_people_and_null_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = gpu(N, 100)
    lost[20:70] = 0
    write_perun(tmp_path / "a.hdf5", {"n1": NODE | {"CUDA:0_POWER": lost}})
    assert main(["energy", str(tmp_path / "a.hdf5")]) == 0
    text = capsys.readouterr().out
    assert "energy    unknown" in text and "nan" not in text.lower()
    (said,) = printed(capsys, tmp_path / "a.hdf5")
    assert said["energy_kwh"] is None and said["gpu_energy_kwh"] is None
    assert joules(said, "cpu_") == pytest.approx(100 * 150)
    assert said["recorded_energy_kwh"] > 0
    assert {"missing_samples", "coverage"} <= codes(said["flags"])


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
    said = describe(tmp_path / "n1.csv", stages=path)
    energies = {row["stage"]: row["cpu_energy_j"] for row in said["stages"]}
    assert energies == pytest.approx(
        {"startup": 1500, "train": 7500, "validate": 3000, "unattributed": 3000}
    )
    if suffix != ".parquet":
        assert [(row["epoch"], row["cpu_energy_j"]) for row in said["epochs"]] == [(0, 10500)]


def test_a_run_folder_adds_up_its_segments_with_its_own_stages(tmp_path: Path) -> None:
    stages = [(0, "train", 0.0, 90.0), (1, "train", 210.0, 290.0), (1, "validate", 290.0, 300.0)]
    run = make_run(tmp_path / "run", stages=stages, gpus={"n1": [1]})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    for number, start in ((0, T0), (1, T0 + 200)):
        stem = run / "perun" / f"segment-{number:03d}"
        write_perun(stem.with_suffix(".hdf5"), {"n1": NODE})
        write_journal(stem.with_name(f"{stem.name}.n1.csv"), "n1", NODE, start=start)
    said = describe(run)
    assert said["segments"] == [0, 1] and said["runtime_s"] == pytest.approx(200)
    assert joules(said, "gpu_") == pytest.approx(2 * 100 * 200, rel=1e-4)
    assert joules(said, "unused_gpu_") == pytest.approx(2 * 100 * 100, rel=1e-4)
    energies = {row["stage"]: row["cpu_energy_j"] for row in said["stages"]}
    assert energies == pytest.approx({"train": 170 * 150, "validate": 1500, "unattributed": 3000})


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
    assert (said["energy_kwh"], said["origin"]) == (None, None)
    assert "not_recorded" in codes(said["flags"])
    cluster = Path(__file__).parents[2] / "profiles" / "local" / "cluster.yaml"
    (said,) = printed(capsys, "--cluster", cluster, run)
    assert (joules(said), said["origin"]) == (pytest.approx(100 * 61.05), "estimated")
    ends = said["energy_low_kwh"], said["energy_high_kwh"]
    assert ends == pytest.approx((said["energy_kwh"] / 5.4, said["energy_kwh"] * 5.4))
    (stage,) = [one for one in said["stages"] if one["stage"] == "train"]
    assert stage["energy_high_j"] == pytest.approx(5.4 * stage["energy_j"])
    assert main(["energy", "--cluster", str(cluster), str(run)]) == 0
    assert f"{ends[0]:.6f} to {ends[1]:.6f} kWh" in capsys.readouterr().out


# --- the same as in the tables of the run -------------------------------------------------------


CPU = {"cpu_0_package-0": counter(N, 150)}


def test_gpus_that_must_be_there_and_are_not_make_the_energy_unknown(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": CPU})
    assert describe(tmp_path / "a.hdf5")["energy_scope"] == "cpu"
    said = describe(tmp_path / "a.hdf5", gpus_per_node=4)
    assert said["energy_kwh"] is None and said["energy_scope"] == "gpu+cpu"
    assert {"device_count", "not_recorded"} <= codes(said["flags"])


def test_segments_count_by_time_and_not_by_number(tmp_path: Path) -> None:
    for number, start in ((0, T0 + 500), (1, T0)):
        write_journal(tmp_path / f"segment-{number:03d}.n1.csv", "n1", CPU, start=start)
    said = describe(tmp_path)
    assert joules(said, "cpu_") == pytest.approx(2 * 15000) and said["runtime_s"] == 200
    assert "overlap" not in codes(said["flags"])


def test_a_host_with_and_without_its_domain_is_one(tmp_path: Path) -> None:
    write_perun(tmp_path / "segment-000.hdf5", {"n1": CPU})
    write_journal(tmp_path / "segment-000.n1.a.de.csv", "n1.a.de", CPU)
    said = describe(tmp_path)
    assert said["hosts"] == ["n1"] and joules(said, "cpu_") == pytest.approx(15000)


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
