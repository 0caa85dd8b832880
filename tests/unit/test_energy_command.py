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
    accounted,
    codes,
    counter,
    gpu,
    make_run,
    recordings,
    write_journal,
    write_perun,
)
from run_files import make_spec

from scalewatt.campaign.run_spec import read_spec
from scalewatt.cli import main
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.perun_file import open_perun_file

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


def test_text_says_the_same_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE})
    assert main(["energy", str(tmp_path / "a.hdf5")]) == 0
    text = capsys.readouterr().out
    for words in ("run time  100.000 s", "measured, gpu+cpu", "15000.0", "CUDA:1_POWER", "100.0 %"):
        assert words in text, words


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
    assert {"zero_power", "coverage"} <= codes(said["flags"])


def test_missing_gpus_are_flagged_where_their_number_is_given(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE})
    assert describe(tmp_path / "a.hdf5", gpus_per_node=2)["gpu_energy_kwh"] is not None
    said = describe(tmp_path / "a.hdf5", gpus_per_node=4)
    assert said["gpu_energy_kwh"] is None and "gpu_count" in codes(said["flags"])


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_stages_come_from_a_file_of_events(tmp_path: Path, suffix: str) -> None:
    write_journal(tmp_path / "n1.journal", "n1", NODE)
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
    said = describe(tmp_path / "n1.journal", stages=path)
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
        write_journal(stem.with_name(f"{stem.name}.n1.journal"), "n1", NODE, start=start)
    said = describe(run)
    assert said["segments"] == [0, 1] and said["runtime_s"] == pytest.approx(200)
    assert joules(said, "gpu_") == pytest.approx(2 * 100 * 200, rel=1e-4)
    assert joules(said, "unused_gpu_") == pytest.approx(2 * 100 * 100, rel=1e-4)
    energies = {row["stage"]: row["cpu_energy_j"] for row in said["stages"]}
    assert energies == pytest.approx({"train": 170 * 150, "validate": 1500, "unattributed": 3000})


def test_the_folder_of_a_runs_recordings_is_enough(tmp_path: Path) -> None:
    write_journal(tmp_path / "segment-000.n1.journal", "n1", NODE)
    said = describe(tmp_path)
    assert joules(said, "cpu_") == pytest.approx(15000)


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


def test_several_perun_files_in_a_folder_are_named_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.hdf5", "my app.hdf5"):
        write_perun(tmp_path / name, {"n1": NODE})
    assert main(["energy", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"scalewatt energy {tmp_path}/a.hdf5 '{tmp_path}/my app.hdf5'")


def test_a_pattern_that_matches_nothing_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["energy", "results/none/runs/*/1"]) == 1
    assert "results/none/runs/*/1: nothing matches" in capsys.readouterr().err


def test_other_files_of_a_call_are_still_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_perun(tmp_path / "good.hdf5", {"n1": NODE})
    (tmp_path / "bad.hdf5").write_text("{}")
    (said,) = printed(capsys, tmp_path / "bad.hdf5", tmp_path / "good.hdf5", code=1)
    assert said["path"] == str(tmp_path / "good.hdf5")


def test_damaged_events_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE})
    (tmp_path / "events.parquet").write_text("no")
    arguments = ["energy", str(tmp_path / "a.hdf5"), "--stages", str(tmp_path / "events.parquet")]
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "events.parquet" in line and "expected segment, stage" in line


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


def test_peruns_own_totals_of_the_real_file_are_met() -> None:
    said = describe(recordings() / "kit_a100_resnet50_2gpus.hdf5")
    published = {"cpu_": 256_750.92, "gpu_": 122_854.64, "ram_": 28_366.725, "": 407_972.0}
    for kind, expected in published.items():
        assert joules(said, kind) == pytest.approx(expected, rel=1e-3), kind
    assert said["flags"] == [] and said["coverage"] == 1.0


def test_a_run_folder_is_estimated_where_a_cluster_gives_the_rated_powers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 100.0)], torch_device="cpu")
    (run / "spec.json").write_text(make_spec(device="local").text)
    node = {"CPU_BUSY": np.full(N, 50.0)}
    write_journal(run / "perun" / "segment-000.n1.journal", "n1", node)
    (said,) = printed(capsys, run)
    assert (said["energy_kwh"], said["origin"]) == (None, None)
    assert "no_power_sensors" in codes(said["flags"])
    cluster = Path(__file__).parents[2] / "profiles" / "local" / "cluster.yaml"
    (said,) = printed(capsys, "--cluster", cluster, run)
    assert (joules(said), said["origin"]) == (pytest.approx(100 * 61.05), "estimated")
    ends = said["energy_low_kwh"], said["energy_high_kwh"]
    assert ends == pytest.approx((said["energy_kwh"] / 5.4, said["energy_kwh"] * 5.4))
    (stage,) = [one for one in said["stages"] if one["stage"] == "train"]
    assert stage["energy_high_j"] == pytest.approx(5.4 * stage["energy_j"])
    assert main(["energy", "--cluster", str(cluster), str(run)]) == 0
    assert f"{ends[0]:.6f} to {ends[1]:.6f} kWh" in capsys.readouterr().out


def test_a_finished_run_is_estimated_from_the_rated_powers_that_it_was_made_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rated = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}
    noted = {"torch_device": "cpu", "rated_powers": rated}
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 100.0)], **noted)
    (run / "spec.json").write_text(make_spec(device="local").text)
    node = {"CPU_BUSY": np.full(N, 50.0)}
    write_journal(run / "perun" / "segment-000.n1.journal", "n1", node)
    (said,) = printed(capsys, run)
    assert (joules(said), said["origin"]) == (pytest.approx(2 * 100 * 61.05), "estimated")
    profile = Path(__file__).parents[2] / "profiles" / "local"
    for options in (["--cluster", profile / "cluster.yaml"], ["--profile", profile]):
        (said,) = printed(capsys, *options, run)
        assert joules(said) == pytest.approx(100 * 61.05)


# --- the same as in the tables of the run -------------------------------------------------------


def run_of(folder: Path, hosts: dict[str, dict[str, Any]], **provenance: Any) -> Path:
    """A run of one segment with its spec."""
    stages = [(0, "startup", 0.0, 10.0), (0, "train", 10.0, 95.0)]
    run = make_run(folder, stages=stages, hostnames=tuple(hosts), **provenance)
    (run / "spec.json").write_text(make_spec(nodes=len(hosts)).text)
    for host, sensors in hosts.items():
        if sensors:
            write_journal(run / "perun" / f"segment-000.{host}.journal", host, sensors)
    return run


CPU = {"cpu_0_package-0": counter(N, 150)}
RAM = {"ram_0_dram": counter(N, 15)}
RUNS = {
    "healthy": ({"n1": NODE, "n2": NODE}, {}),
    "a node not recorded": ({"n1": NODE, "n2": {}}, {}),
    "a kind on one node only": ({"n1": CPU | RAM, "n2": CPU}, {"torch_device": "cpu"}),
    "held GPUs without a sensor": ({"n1": CPU}, {"gpus": {"n1": [0, 1]}}),
    "some GPUs held": ({"n1": NODE}, {"gpus": {"n1": [1]}}),
    "killed": ({"n1": NODE}, {"segments": [{"segment": 0, "outcome": "killed"}]}),
    "a segment without a recording": (
        {"n1": NODE},
        {"segments": [{"segment": 0, "outcome": "finished"}, {"segment": 1, "outcome": "killed"}]},
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_run_folder_is_described_as_its_tables_say(tmp_path: Path, case: str) -> None:
    hosts, provenance = RUNS[case]
    run = run_of(tmp_path, hosts, **provenance)
    found = accounted(run, read_spec(run / "spec.json"), {})
    totals, said = found.totals, describe(run)
    for kind in ("gpu", "cpu", "ram", "unused_gpu"):
        assert said[f"{kind}_energy_j"] == totals.joules(kind), kind
    assert said["energy_j"] == totals.total_j
    assert said["energy_scope"] == "+".join(totals.scope)
    assert (said["origin"], said["coverage"]) == (totals.origin, totals.coverage)
    assert codes(said["flags"]) == found.codes() - {"absent"}
    if case not in ("healthy", "some GPUs held", "killed", "a segment without a recording"):
        assert said["energy_kwh"] is None and said["recorded_energy_kwh"] > 0
        assert said["coverage"] < 1 or case == "a kind on one node only"


def test_a_kind_that_only_some_nodes_have_is_unknown(tmp_path: Path) -> None:
    said = describe(run_of(tmp_path, {"n1": CPU | RAM, "n2": CPU}, torch_device="cpu"))
    assert said["ram_energy_kwh"] is None and said["energy_scope"] == "cpu+ram"
    assert joules(said, "cpu_") == pytest.approx(2 * 15000)
    assert "kind_missing" in codes(said["flags"])


def test_a_host_without_a_sample_makes_the_file_unknown(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE})
    write_perun(tmp_path / "a.hdf5", {"n2": {name: [] for name in NODE}}, time_s=[])
    said = describe(tmp_path / "a.hdf5")
    assert said["energy_kwh"] is None and "missing_host" in codes(said["flags"])
    assert said["coverage"] == pytest.approx(0.5)


def test_a_damaged_host_of_a_file_is_an_error_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": NODE, "n2": NODE})
    before, _, after = (tmp_path / "a.hdf5").read_bytes().rpartition(b"TREE")
    (tmp_path / "a.hdf5").write_bytes(before + b"TORN" + after)
    assert main(["energy", str(tmp_path / "a.hdf5")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "a.hdf5") in line and "B-tree" in line
    with open_perun_file(tmp_path / "a.hdf5") as recording:
        assert recording.nodes["n1"]


def test_gpus_that_must_be_there_and_are_not_make_the_energy_unknown(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": CPU})
    assert describe(tmp_path / "a.hdf5")["energy_scope"] == "cpu"
    said = describe(tmp_path / "a.hdf5", gpus_per_node=4)
    assert said["energy_kwh"] is None and said["energy_scope"] == "gpu+cpu"
    assert {"gpu_count", "unknown_power"} <= codes(said["flags"])


def test_segments_count_by_time_and_not_by_number(tmp_path: Path) -> None:
    for number, start in ((0, T0 + 500), (1, T0)):
        write_journal(tmp_path / f"segment-{number:03d}.n1.journal", "n1", CPU, start=start)
    said = describe(tmp_path)
    assert joules(said, "cpu_") == pytest.approx(2 * 15000) and said["runtime_s"] == 200
    assert "segments_overlap" not in codes(said["flags"])


def test_segments_without_a_clock_are_not_taken_to_overlap(tmp_path: Path) -> None:
    for number in (0, 1):
        write_perun(tmp_path / f"segment-{number:03d}.hdf5", {"n1": CPU}, execution_dt="unknown")
    said = describe(tmp_path)
    assert joules(said, "cpu_") == pytest.approx(2 * 15000) and said["runtime_s"] == 200


def test_a_host_with_and_without_its_domain_is_one(tmp_path: Path) -> None:
    write_perun(tmp_path / "segment-000.hdf5", {"n1": CPU})
    write_journal(tmp_path / "segment-000.n1.a.de.journal", "n1.a.de", CPU)
    said = describe(tmp_path)
    assert said["hosts"] == ["n1"] and joules(said, "cpu_") == pytest.approx(15000)


def test_one_stage_over_everything_is_shown(tmp_path: Path) -> None:
    write_journal(tmp_path / "n1.journal", "n1", CPU)
    rows = [{"stage": "train", "start_s": T0, "end_s": T0 + 100}]
    pa.csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "events.csv")
    said = describe(tmp_path / "n1.journal", stages=tmp_path / "events.csv")
    assert [(s["stage"], s["cpu_energy_j"]) for s in said["stages"]] == [("train", 15000)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("spec.json", "[]"),
        ("provenance.json", "[]"),
        ("provenance.json", '{"segments": [{}]}'),
        ("provenance.json", '{"segments": 3}'),
        ("provenance.json", '{"gpus": [1]}'),
        ("provenance.json", '{"concurrent_runs": [{}]}'),
        ("provenance.json", "{"),
    ],
)
def test_damaged_files_of_a_run_folder_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    run = run_of(tmp_path, {"n1": NODE})
    (run / name).write_text(content)
    assert main(["energy", str(run)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(run / name) in line


@pytest.mark.parametrize("content", ["{", "[]", '{"consumed_energy_j": "many"}'])
def test_a_torn_figure_of_slurms_is_a_flag(tmp_path: Path, content: str) -> None:
    run = run_of(tmp_path, {"n1": NODE})
    (run / "perun" / "segment-000.slurm-energy.json").write_text(content)
    said = describe(run)
    assert said["energy_kwh"] is not None and "slurm_energy_unreadable" in codes(said["flags"])


def test_a_run_is_asked_for_only_where_there_are_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_journal(tmp_path / "segment-000.n1.journal", "n1", CPU)
    for path in (tmp_path, tmp_path / "segment-000.n1.journal"):
        assert main(["energy", "--run", "x", str(path)]) == 1
        assert "holds one run" in capsys.readouterr().err


def test_one_round_of_several_can_be_chosen(tmp_path: Path) -> None:
    write_perun(tmp_path / "a.hdf5", {"n1": CPU})
    write_perun(tmp_path / "a.hdf5", {"n1": {k: v[:51] for k, v in CPU.items()}}, round_id="1")
    assert describe(tmp_path / "a.hdf5")["runtime_s"] == 50
    said = describe(tmp_path / "a.hdf5", round_id="0")
    assert said["runtime_s"] == 100 and said["runs"][0]["rounds"] == ["0", "1"]


def test_mean_powers_are_those_of_one_device_also_where_they_are_estimated(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, {"n1": {"CPU_BUSY": np.full(N, 100.0)}}, torch_device="cpu")
    powers = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}}
    said = describe(run, powers=lambda device, run: powers)
    assert said["cpu_mean_power_w"] == pytest.approx(0.74 * 150)


def test_gpus_are_those_of_a_segment_not_of_all_together(tmp_path: Path) -> None:
    for number, host in ((0, "n1"), (1, "n2")):
        start = T0 + 500 * number
        write_journal(tmp_path / f"segment-{number:03d}.{host}.journal", host, NODE, start=start)
    assert describe(tmp_path)["gpus"] == 2


def test_a_table_of_unknown_columns_is_refused_with_what_would_make_it_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "power.csv"
    path.write_text("when;gpu0;pdu\n1;2;3\n")
    assert main(["energy", str(path)]) == 1
    said = capsys.readouterr().err
    for part in (f"{path}: is no recording of a known format", "nvidia-smi, dcgm", "--columns"):
        assert part in said
    assert "(this one's columns: 'when', 'gpu0', 'pdu')" in said and "HDF5" not in said
    path.write_text(",".join(f"c{n}" for n in range(40)) + "\n")
    assert main(["energy", str(path)]) == 1
    assert "'c11', and 28 more)" in capsys.readouterr().err
