"""`scalewatt register`: recordings from anywhere become runs like any other, or one clear message."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from campaign_files import LOCAL, ROOT, replaced
from energy_files import T0, counter, gpu, recordings, write_journal, write_perun
from made_recordings import read_perun_file

import scalewatt
from scalewatt.archive.bag import METADATA, BagInfo, write_bag
from scalewatt.archive.cluster_facts import facts_text
from scalewatt.archive.export_archive import campaign_files
from scalewatt.archive.import_archive import import_archive
from scalewatt.campaign.cluster import basis, load_cluster, powers
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.campaign.run_spec import read_spec
from scalewatt.cli import main
from scalewatt.common.files import file_sha256, read_json
from scalewatt.common.settings import json_schema
from scalewatt.energies.account import write_energy
from scalewatt.recordings.stages import EVENTS_SCHEMA, STAGES_SCHEMA
from scalewatt.registration.run_descriptions import RunDescription
from scalewatt.results.build import repeat_seeds
from scalewatt.results.tables.run_row import Facility, RunFiles, run_row

NO_POWERS: dict[str, Any] = {"cpu": {}, "gpu": None, "ram": None}
SECONDS = 40


def described(**changes: Any) -> dict[str, Any]:
    """A complete description; a key set to None is left out."""
    values = {
        "model": "resnet50",
        "device": "h100",
        "gpus": 1,
        "local_batch_size": 256,
        "dataset_samples": 1000,
        "epochs": 3,
        "metric": 24.5,
    } | changes
    return {key: value for key, value in values.items() if value is not None}


class Place:
    """A folder in which recordings are made, described and registered."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.results = folder / "results" / "mine"
        self.campaign = folder / "campaigns" / "mine.yaml"

    def perun(self, name: str, gpus: int = 1, watts: float = 300.0, **more: Any) -> Path:
        """A perun file of one node with `gpus` GPUs, one package and its memory."""
        hosts = more.pop("hosts", ("n1",))
        sensors: dict[str, Any] = {f"CUDA:{i}_POWER": gpu(SECONDS, watts) for i in range(gpus)}
        sensors |= {"cpu_0_package-0": counter(SECONDS, 120), "ram_0_dram": counter(SECONDS, 20)}
        write_perun(self.folder / name, dict.fromkeys(hosts, sensors), **more)
        return self.folder / name

    def journal(self, name: str, host: str = "n1", start: float = T0, watts: float = 300) -> Path:
        """A journal of one GPU and one package."""
        sensors = {"CUDA:0_POWER": gpu(SECONDS, watts), "cpu_0_package-0": counter(SECONDS, 120)}
        write_journal(self.folder / name, host, sensors, start=start, limits=False)
        return self.folder / name

    def describe(self, path: Path, /, **changes: Any) -> Path:
        """The description beside a recording."""
        beside = path.with_suffix(".yaml")
        beside.write_text(yaml.safe_dump(described(**changes)))
        return path

    def register(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Exit code, standard output and error of the command."""
        code = main(
            [
                *("register", "mine", *map(str, arguments)),
                *("--results", str(self.folder / "results")),
                *("--campaigns", str(self.folder / "campaigns")),
            ]
        )
        out, err = self.capsys.readouterr()
        return code, out, err

    def done(self, *arguments: str | Path) -> str:
        """Register, which must succeed."""
        code, out, err = self.register(*arguments)
        assert (code, err) == (0, "")
        return out

    def refused(self, *arguments: str | Path) -> str:
        """The one message of a refusal, which must leave everything as it was."""
        before = self.files()
        code, out, err = self.register(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("scalewatt: error: ")
        assert err.count("\n") == 1 and err.endswith("\n"), "not one message on one line"
        assert self.files() == before
        return err

    def files(self) -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in sorted(self.folder.rglob("[!.]*")) if p.is_file()}

    def runs(self) -> list[tuple[str, int]]:
        found = self.results.glob("runs/*/*/provenance.json")
        return sorted((p.parents[1].name, int(p.parent.name)) for p in found)

    def row(self, configuration: str, repeat: int = 1) -> dict[str, Any]:
        """The run's row of the runs table, as the workflow makes it."""
        files = RunFiles(self.results, configuration, repeat)
        spec = files.folder / "spec.json"
        write_energy(files.folder, spec, NO_POWERS, files.traces, files.energy)
        return run_row(files, "mine", Facility())

    def provenance(self, configuration: str, repeat: int = 1) -> dict[str, Any]:
        path = self.results / "runs" / configuration / str(repeat) / "provenance.json"
        return dict(read_json(path))


@pytest.fixture()
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


ONE = "resnet50-h100-n001-lbs0256-s0001000-e003"


# --- what a registered run is -------------------------------------------------------------------


def test_a_perun_file_becomes_a_run_with_a_row(place: Place) -> None:
    file = place.describe(place.perun("a.hdf5"), device_name="NVIDIA H100")
    out = place.done(file)
    assert place.runs() == [(ONE, 1)]
    assert f"snakemake --profile profiles/local all --config campaign={place.campaign}" in out
    row = place.row(ONE)
    account = scalewatt.energy(file)
    for kind in ("all", "gpu", "cpu", "ram"):
        kwh = row["energy_kwh" if kind == "all" else f"{kind}_energy_kwh"]
        assert kwh * 3.6e6 == pytest.approx(account.joules(kind), rel=1e-9), kind
    assert row["runtime_s"] == pytest.approx(account.runtime_s, rel=1e-9)
    seconds = SECONDS - 1
    assert row["energy_kwh"] == pytest.approx(seconds * (300 + 120 + 20) / 3.6e6, rel=1e-6)
    assert (row["samples"], row["updates"], row["metric_last"]) == (3000, 12, 24.5)
    assert (row["gpus"], row["nodes"], row["energy_scope"]) == (1, 1, "gpu+cpu+ram")
    assert (row["energy_origin"], row["device_name"]) == ("measured", "NVIDIA H100")
    assert row["train_loss"] is None and row["metric_name"] == "top1_error_percent"


def test_the_recording_is_copied_and_named_in_the_provenance(place: Place) -> None:
    file = place.describe(place.perun("a.hdf5"))
    before = file.read_bytes()
    place.done(file)
    copy = place.results / "runs" / ONE / "1" / "perun" / "segment-000.hdf5"
    assert copy.read_bytes() == file.read_bytes() == before
    provenance = place.provenance(ONE)
    assert provenance["registered"] is True
    assert provenance["recordings"] == [
        {"file": copy.name, "original": "a.hdf5", "sha256": file_sha256(file), "part": None}
    ]
    spec = read_spec(copy.parents[1] / "spec.json")
    assert provenance["spec_sha256"] == spec.sha256
    assert provenance["gpus"] == {"n1": [0]} and provenance["hostnames"] == ["n1"]
    assert provenance["source"] in ("<path>", "a.hdf5") and "registered_by" not in provenance
    assert not {"lock", "nodes", "commit", "perun"} & provenance.keys(), "nothing is made up"
    # perun adds later runs to its file, which must not reach the copy.
    write_perun(file, {"n1": {"CUDA:0_POWER": gpu(5)}}, run_id="later")
    assert copy.read_bytes() == before


def test_a_real_file_keeps_its_energy(place: Place) -> None:
    file = recordings() / "kit_a100_resnet50_2gpus.hdf5"
    table = place.folder / "runs.yaml"
    values = described(device="a100", gpus=2, local_batch_size=64, path=str(file))
    table.write_text(yaml.safe_dump({"runs": [values]}))
    place.done("--table", table)
    row = place.row("resnet50-a100-n002-lbs0064-s0001000-e003")
    # What perun itself reports of this file.
    assert row["energy_kwh"] * 3600 == pytest.approx(407.972, rel=1e-3)
    assert row["energy_kwh"] == pytest.approx(scalewatt.energy(file).joules() / 3.6e6, rel=1e-12)


def test_samples_alone_are_one_epoch(place: Place) -> None:
    one = place.describe(place.perun("a.hdf5"), dataset_samples=None, epochs=None, samples=5000)
    place.done(one)
    ((id_, _),) = place.runs()
    assert id_.endswith("-s0005000-e001")
    assert place.row(id_)["samples"] == 5000


def test_a_training_to_a_target_states_samples_and_data(place: Place) -> None:
    values = {"protocol": "target", "epochs": None, "samples": 2500, "seeds": "varied"}
    place.done(place.describe(place.perun("a.hdf5"), **values))
    id_ = "resnet50-h100-n001-lbs0256-s0001000-target"
    row = place.row(id_)
    assert (row["samples"], row["updates"]) == (2500, round(2500 / 256))
    assert load_campaign(place.campaign).configurations[id_].seeds == "varied"


def test_samples_to_a_target_may_be_unknown(place: Place) -> None:
    place.done(place.describe(place.perun("a.hdf5"), protocol="target", epochs=None))
    row = place.row("resnet50-h100-n001-lbs0256-s0001000-target")
    assert (row["samples"], row["updates"]) == (None, None)


def test_only_the_runs_own_window_counts(place: Place) -> None:
    window = {"start_s": T0 + 10, "end_s": T0 + 60}
    place.done(place.describe(place.journal("a.csv"), window=window))
    row = place.row(ONE)
    assert row["runtime_s"] == pytest.approx(50)
    assert row["recorded_energy_kwh"] * 3.6e6 == pytest.approx((SECONDS - 1 - 10) * 420, rel=1e-6)
    assert row["coverage"] == pytest.approx((SECONDS - 1 - 10) / 50)


def test_a_further_line_goes_through_the_points_of_several_series(place: Place) -> None:
    lines = {"weak": "LBS 256"}
    for gpus in (1, 2):
        path = place.perun(f"{gpus}.hdf5", gpus=gpus)
        place.done(place.describe(path, gpus=gpus, series=f"on{gpus}", lines=lines))
    campaign = load_campaign(place.campaign)
    assert campaign.series["weak"].label == "LBS 256"
    assert list(campaign.series["weak"].points) == [1, 2]
    assert list(campaign.series["on1"].points) == [1]


def test_on_a_cpu_no_gpu_is_expected(place: Place) -> None:
    place.done(place.describe(place.perun("a.hdf5", gpus=0), torch_device="cpu", gpus=2))
    row = place.row(ONE.replace("n001", "n002"))
    assert row["energy_scope"] == "cpu+ram" and row["energy_kwh"] is not None
    assert row["torch_device"] == "cpu"


def test_gpus_that_the_run_did_not_hold_count_separately(place: Place) -> None:
    file = place.describe(place.perun("a.hdf5", gpus=3), gpu_indices=[1])
    place.done(file)
    row = place.row(ONE)
    seconds = SECONDS - 1
    assert row["gpu_energy_kwh"] == pytest.approx(seconds * 300 / 3.6e6)
    assert row["unused_gpu_energy_kwh"] == pytest.approx(2 * seconds * 300 / 3.6e6)


def test_a_gpu_that_was_not_recorded_makes_the_energy_null(place: Place) -> None:
    place.done(place.describe(place.perun("a.hdf5", gpus=1), gpus=2))
    row = place.row(ONE.replace("n001", "n002"))
    assert row["energy_kwh"] is None
    assert "device_count" in row["flags"]


def test_stages_put_energy_where_the_user_says(place: Place) -> None:
    file = place.journal("a.csv")
    stages = place.folder / "stages.csv"
    stages.write_text(f"stage,start_s,end_s\nstage_data,{T0},{T0 + 9}\ntrain,{T0 + 9},{T0 + 39}\n")
    place.done(place.describe(file, events="stages.csv"))
    row = place.row(ONE)
    assert row["stage_data_energy_kwh"] == pytest.approx(9 * 420 / 3.6e6, rel=1e-6)
    assert "no_events" not in row["flags"]


def test_stages_without_a_segment_are_of_the_only_one(place: Place) -> None:
    place.journal("run/segment-003.n1.csv")
    place.describe(place.folder / "run", events="stages.csv")
    rows = f"stage,start_s,end_s\nvalidate,{T0 + 9},{T0 + 39}\ntrain,{T0},{T0 + 9}\n"
    (place.folder / "stages.csv").write_text(rows)
    place.done(place.folder / "run")
    events = pq.read_table(place.results / "runs" / ONE / "1" / "events.parquet")
    assert events.schema.equals(EVENTS_SCHEMA)
    assert [(r["segment"], r["stage"]) for r in events.to_pylist()] == [
        (3, "train"),
        (3, "validate"),
    ]


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_folder_of_ours_may_have_no_stages_or_one_that_never_ended(
    place: Place, ended: bool
) -> None:
    place.journal("run/perun/segment-000.n1.csv")
    row = {"segment": 0, "stage": "train", "epoch": 0, "start_s": T0 + 1, "end_s": None}
    table = pa.Table.from_pylist([] if ended else [row], schema=STAGES_SCHEMA)
    pq.write_table(table, place.folder / "run" / "events.parquet")
    place.done(place.describe(place.folder / "run"))
    events = pq.read_table(place.results / "runs" / ONE / "1" / "events.parquet")
    assert events.to_pylist() == table.to_pylist()
    # What was registered can be registered elsewhere.
    again = place.results / "runs" / ONE / "1"
    again.rename(place.folder / "again")
    place.done(place.describe(place.folder / "again"))


# --- journals, folders, several runs in a file ----------------------------------------------------


def test_journals_of_several_hosts_and_segments_are_one_run(place: Place) -> None:
    folder = place.folder / "run"
    for number, start in enumerate((T0, T0 + 1000)):
        for host in ("n1", "n2"):
            place.journal(f"run/segment-00{number}.{host}.csv", host, start)
    (folder / "notes.txt").write_text("nothing to read")
    place.done(place.describe(folder, gpus=2))
    ((id_, _),) = place.runs()
    perun = place.results / "runs" / id_ / "1" / "perun"
    assert sorted(p.name for p in perun.iterdir()) == [
        f"segment-00{k}.{host}.{kind}"
        for k in (0, 1)
        for host in ("n1", "n2")
        for kind in ("csv", "sensors.json")
    ]
    row = place.row(id_)
    assert (row["segments"], row["nodes"]) == (2, 2)
    assert row["energy_kwh"] == pytest.approx(4 * (SECONDS - 1) * 420 / 3.6e6, rel=1e-6)


def test_a_run_folder_of_ours_keeps_its_segments(place: Place) -> None:
    place.perun("run/perun/segment-000.hdf5")
    place.journal("run/perun/segment-000.n1.csv")
    place.journal("run/perun/segment-002.n1.csv", start=T0 + 100)
    stage = {"segment": 2, "stage": "train", "epoch": 0, "start_s": T0 + 101, "end_s": T0 + 139}
    table = pa.Table.from_pylist([stage], schema=EVENTS_SCHEMA)
    pq.write_table(table, place.folder / "run" / "events.parquet")
    place.done(place.describe(place.folder / "run"))
    assert pq.read_table(place.results / "runs" / ONE / "1" / "events.parquet").equals(table)
    segments = place.provenance(ONE)["segments"]
    assert [(s["segment"], s["outcome"]) for s in segments] == [(0, "stopped"), (2, "finished")]


def test_one_run_of_several_in_a_file_is_taken_out_whole(place: Place) -> None:
    file = place.perun("a.hdf5", run_id="2025-03-18T19:21:59.082046", watts=100)
    place.perun("a.hdf5", run_id="second", watts=200)
    place.perun("a.hdf5", run_id="second", round_id="1", watts=400)
    content = {
        **described(local_batch_size=None),
        "runs": [
            {"local_batch_size": 1, "run": "2025-03-18T19:21:59.082046"},
            {"local_batch_size": 2, "run": "second", "round": 1},
        ],
    }
    # As a user writes it: YAML takes the first name for a time, the round for a number.
    text = yaml.safe_dump(content).replace("'2025", "2025").replace("082046'", "082046")
    file.with_name("a.hdf5.yaml").write_text(text)
    place.done(file)
    for batch, watts in ((1, 100), (2, 400)):
        id_ = ONE.replace("lbs0256", f"lbs000{batch}")
        row = place.row(id_)
        assert row["gpu_energy_kwh"] == pytest.approx((SECONDS - 1) * watts / 3.6e6)
        assert "several" not in row["flags"]
    copy = place.results / "runs" / id_ / "1" / "perun" / "segment-000.hdf5"
    kept = read_perun_file(copy)
    assert (kept.run, kept.round, kept.period_s) == ("second", "1", 1.0)
    with h5py.File(copy) as ours, h5py.File(file) as theirs:
        path = "app/nodes/second/nodes/1/nodes/n1/nodes/gpu/nodes/CUDA:0_POWER/raw_data/values"
        assert np.array_equal(ours[path], theirs[path])
        assert dict(ours[path].attrs) == dict(theirs[path].attrs)


def test_a_node_that_was_not_recorded_makes_the_energy_null(place: Place) -> None:
    out = place.done(place.describe(place.perun("a.hdf5"), gpus=2, nodes=2))
    assert "1 of 2 nodes were recorded" in out
    ((id_, _),) = place.runs()
    row = place.row(id_)
    assert row["energy_kwh"] is None and "not_recorded" in row["flags"]


def test_a_hosts_name_is_never_a_path(place: Place) -> None:
    place.done(place.describe(place.journal("a.csv", host="../../n1")))
    copies = (place.results / "runs" / ONE / "1" / "perun").iterdir()
    stem = "segment-000..._.._n1"
    assert {copy.name for copy in copies} == {f"{stem}.csv", f"{stem}.sensors.json"}
    assert place.row(ONE)["energy_kwh"] is not None


def test_a_lost_campaign_file_comes_back(place: Place) -> None:
    files = [place.describe(place.perun(f"{w}.hdf5", watts=w)) for w in (300, 301)]
    place.done(*files)
    before = place.campaign.read_bytes()
    place.campaign.unlink()
    assert place.done(*files).count("already there") == 2
    assert place.campaign.read_bytes() == before


@pytest.mark.parametrize("results", ["results", "far/away"])
def test_registered_runs_are_imported_wherever_results_go(place: Place, results: str) -> None:
    place.done(place.describe(place.perun("a.hdf5")))
    campaign = load_campaign(place.campaign)
    runs = place.results / "runs"
    files = {
        **campaign_files(campaign, facts_text(campaign, load_cluster(LOCAL)).encode()),
        METADATA: b"{}",
        **{
            f"results/mine/runs/{path.relative_to(runs)}": path
            for path in runs.glob("*/*/*")
            if path.is_file()
        },
    }
    write_bag(files, BagInfo("mine", 1), place.folder / "mine.zip")
    to = place.folder / "other"
    import_archive(place.folder / "mine.zip", to / results, to / "campaigns", None)
    imported = load_campaign(to / "campaigns" / "mine.yaml")
    assert imported.configurations == campaign.configurations


def test_two_calls_at_once_lose_nothing(place: Place) -> None:
    files = [place.describe(place.perun(f"{w}.hdf5", watts=w), gpus=1) for w in (300, 301, 302)]
    where = [f"--{name}={place.folder / name}" for name in ("results", "campaigns")]
    calls = [
        subprocess.Popen([sys.executable, "-m", "scalewatt.cli", "register", "mine", file, *where])
        for file in files
    ]
    assert [call.wait() for call in calls] == [0, 0, 0]
    assert place.runs() == [(ONE, 1), (ONE, 2), (ONE, 3)]
    assert load_campaign(place.campaign).repeats == {ONE: 3}


def test_which_of_several_runs_or_rounds_must_be_given(place: Place) -> None:
    file = place.perun("a.hdf5", run_id="one")
    place.perun("a.hdf5", run_id="two")
    place.perun("a.hdf5", run_id="two", round_id="1")
    message = place.refused(place.describe(file))
    assert "not one run; name one (run) of one, two" in message
    assert "not one run 'three'" in place.refused(place.describe(file, run="three"))
    assert "not one round; name" in place.refused(place.describe(file, run="two"))
    assert "name one (round) of 0, 1" in place.refused(place.describe(file, run="two", round="7"))


# --- repeats, and the same file again -------------------------------------------------------------


def test_another_file_is_the_next_repeat_and_the_same_one_is_already_there(place: Place) -> None:
    first = place.describe(place.perun("a.hdf5"))
    second = place.describe(place.perun("b.hdf5", watts=301.0))
    place.done(first)
    before = place.files()
    assert "already there" in place.done(first)
    assert place.files() == before
    out = place.done(first, second)
    assert f"already there: {ONE} repeat 1" in out and f"registered: {ONE} repeat 2" in out
    assert place.runs() == [(ONE, 1), (ONE, 2)]
    assert load_campaign(place.campaign).repeats == {ONE: 2}


@pytest.mark.parametrize("seeds", ["same", "varied", None])
def test_seeds_of_repeats_are_those_of_their_descriptions(place: Place, seeds: str | None) -> None:
    for name, watts in (("a.hdf5", 300.0), ("b.hdf5", 301.0)):
        place.done(place.describe(place.perun(name, watts=watts), seeds=seeds))
    runs = pd.DataFrame([place.row(ONE), place.row(ONE, 2)]).assign(excluded=None)
    assert repeat_seeds(runs, place.results) == {ONE: seeds}


def test_the_number_of_a_deleted_repeat_is_free_again(place: Place) -> None:
    files = [place.describe(place.perun(f"{w}.hdf5", watts=w)) for w in (300, 301)]
    place.done(*files)
    shutil.rmtree(place.results / "runs" / ONE / "1")
    assert load_campaign(place.campaign).repeats == {ONE: 2}
    assert f"registered: {ONE} repeat 1" in place.done(*files)
    assert place.runs() == [(ONE, 1), (ONE, 2)]


def test_a_copy_under_another_name_is_the_same_recording(place: Place) -> None:
    first = place.describe(place.perun("a.hdf5"))
    copy = place.folder / "copy.hdf5"
    copy.write_bytes(first.read_bytes())
    message = place.refused(first, place.describe(copy))
    assert "copy.hdf5 is the same recording as" in message
    place.done(first)
    assert "already there" in place.done(copy)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"metric": 25.0}, ["metric 24.5, not 25.0"]),
        ({"local_batch_size": 128}, [f"as {ONE} repeat 1, not as", "lbs0128"]),
    ],
)
def test_the_same_file_with_another_description_is_refused(
    place: Place, change: dict[str, Any], parts: list[str]
) -> None:
    file = place.describe(place.perun("a.hdf5"))
    place.done(file)
    message = place.refused(place.describe(file, **change))
    assert all(part in message for part in [*parts, "delete"])


def test_nothing_is_written_if_one_of_several_is_wrong(place: Place) -> None:
    good = place.describe(place.perun("a.hdf5"))
    torn = place.describe(place.perun("b.hdf5", watts=301))
    torn.write_bytes(torn.read_bytes()[:3000])
    assert "b.hdf5" in place.refused(good, torn)
    assert not place.results.exists() and not place.campaign.exists()


# --- the campaign file ----------------------------------------------------------------------------


def test_series_follow_from_model_device_and_the_batch_size_given(place: Place) -> None:
    files = [
        place.describe(place.perun("a.hdf5")),
        place.describe(place.perun("b.hdf5", gpus=2), gpus=2),
        place.describe(
            place.perun("c.hdf5", gpus=2, watts=9),
            gpus=2,
            local_batch_size=None,
            global_batch_size=256,
        ),
        place.describe(place.perun("d.hdf5", gpus=3), gpus=3, series="own", label="My runs"),
    ]
    place.done(*files)
    campaign = load_campaign(place.campaign)
    points = {name: list(series.points) for name, series in campaign.series.items()}
    assert points == {
        "resnet50-h100-lbs0256-s0001000-e003": [1, 2],
        "resnet50-h100-gbs0256-s0001000-e003": [2],
        "own": [3],
    }
    assert campaign.series["own"].label == "My runs"
    assert set(campaign.figures) == {"figure2", "figure5", "figure6", "table1"}
    assert campaign.figures["figure2"]["series"] == list(points)


def test_figures_grow_until_the_user_chooses_them_and_the_file_is_never_written_again(
    place: Place,
) -> None:
    place.done(place.describe(place.perun("a.hdf5")))
    place.done(place.describe(place.perun("b.hdf5", gpus=2), gpus=2, series="second"))
    campaign = load_campaign(place.campaign)
    assert campaign.figures["figure2"]["series"] == [*campaign.series]
    first = next(iter(campaign.series))
    chosen = {"labels": {first: "As I call it"}, "figures": {"figure6": {"series": [first]}}}
    text = f"# Mine.\n{place.campaign.read_text()}{yaml.safe_dump(chosen)}"
    place.campaign.write_text(text)
    out = place.done(place.describe(place.perun("c.hdf5", watts=302)))
    place.done(place.describe(place.perun("d.hdf5", gpus=3), gpus=3, series="third"))
    assert place.campaign.read_text() == text
    again = load_campaign(place.campaign)
    assert again.figures == chosen["figures"]
    assert again.series[first].label == "As I call it"
    assert again.repeats[again.series[first].points[1]] == 2
    assert "note: series in no curve: second; name them" in out
    place.campaign.write_text(text.replace(f"{first}: As", "thrid: As"))
    assert "labels: no series 'thrid'; allowed: " in place.refused(place.folder / "a.hdf5")


def test_a_campaign_that_trains_is_never_touched(place: Place) -> None:
    file = place.describe(place.perun("a.hdf5"))
    place.campaign.parent.mkdir()
    place.campaign.write_text("name: mine\nprotocol: paper\n")
    assert "no campaign of registered runs" in place.refused(file)
    place.campaign.unlink()
    trained = place.results / "runs" / ONE / "1"
    trained.mkdir(parents=True)
    (trained / "provenance.json").write_text("{}")
    assert "is a trained run" in place.refused(file)


def test_only_the_clusters_own_devices_have_rated_powers(place: Place) -> None:
    place.done(
        place.describe(place.perun("a.hdf5"), device="a100"),
        place.describe(place.perun("b.hdf5", watts=301), device="local"),
    )
    cluster = load_cluster(LOCAL)
    devices = registered_devices(load_campaign(place.campaign), cluster)
    # Another profile's a100 is another machine.
    assert not any(powers(devices["a100"]).values())
    assert devices["local"] == cluster.devices["local"]
    said = basis(cluster, [devices["a100"]])
    assert said[0] == "Powers of a100 where no sensor is: not known."
    assert said[1] == "No PUE, carbon and price: local lacks a100."
    campaign = load_campaign(place.campaign)
    elsewhere = facility_cluster(campaign, cluster)
    assert (elsewhere.pue, elsewhere.carbon_intensity, elsewhere.price) == (None, None, None)
    with_a100 = replaced(cluster, devices={**cluster.devices, "a100": cluster.devices["local"]})
    assert facility_cluster(campaign, with_a100) == with_a100


# --- two runs on one host -------------------------------------------------------------------------


def test_runs_recorded_on_one_host_at_one_time_are_concurrent(place: Place) -> None:
    place.done(place.describe(place.journal("a.csv", "n1.site")))
    assert place.provenance(ONE)["concurrent_runs"] == []
    out = place.done(
        place.describe(place.journal("b.csv", "n1", T0 + 30), gpus=1),
        place.describe(place.journal("c.csv", "n2", T0 + 30, watts=301)),
        place.describe(place.journal("d.csv", "n1", T0 + 500)),
    )
    first, second = place.provenance(ONE, 1), place.provenance(ONE, 2)
    shared = {"gpus": [0], "start_s": T0 + 30, "end_s": T0 + SECONDS - 1}
    assert first["concurrent_runs"] == [{"host": "n1.site", "run": f"{ONE} repeat 2", **shared}]
    assert second["concurrent_runs"] == [{"host": "n1", "run": f"{ONE} repeat 1", **shared}]
    assert (
        place.provenance(ONE, 3)["concurrent_runs"]
        == place.provenance(ONE, 4)["concurrent_runs"]
        == []
    )
    assert f"{ONE} repeat 2 shared n1 with {ONE} repeat 1" in out
    row = place.row(ONE)
    assert row["energy_kwh"] is None and "node_shared" in row["flags"]


# --- tables ---------------------------------------------------------------------------------------


def _rows() -> list[dict[str, Any]]:
    return [
        described(path="a.hdf5"),
        described(path="b.hdf5", gpus=2, gpu_indices=[0, 1], metric=None),
    ]


def test_one_table_describes_many_runs_whatever_its_format(place: Place) -> None:
    place.perun("a.hdf5")
    place.perun("b.hdf5", gpus=2)
    columns = list(dict.fromkeys(key for row in _rows() for key in row))
    with open(place.folder / "t.csv", "w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, restval="")
        writer.writeheader()
        for row in _rows():  # epochs as pandas writes integers of which one is missing
            cells = {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()}
            writer.writerow(cells | {"epochs": 3.0})
    (place.folder / "t.yaml").write_text(yaml.safe_dump({"runs": _rows()}))
    out = place.done("--table", place.folder / "t.csv")
    assert out.count("registered: ") == 2
    assert place.done("--table", place.folder / "t.yaml").count("already there") == 2


# --- wrong descriptions ---------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"modell": "x"}, ["unknown key 'modell'", "did you mean 'model'"]),
    ({"model": None}, ["missing key 'model'"]),
    ({"model": "ResNet50"}, ["model", '"ResNet50"', "lower-case"]),
    ({"gpus": None}, ["missing key 'gpus'"]),
    ({"gpus": 0}, ["gpus: 0 does not fit", "equal to 1"]),
    ({"epochs": None}, ["dataset_samples given", "allowed: dataset_samples and epochs, or samples"]),
    ({"samples": 5}, ["dataset_samples and epochs and samples given"]),
    ({"window": {"start_s": 2, "end_s": 1}}, ["window", "end_s after start_s"]),
    ({"local_batch_size": None}, ["no batch size given", "global_batch_size"]),
    ({"global_batch_size": 300}, ["global_batch_size: 300", "allowed: 256"]),
    ({"local_batch_size": None, "global_batch_size": 3, "gpus": 2}, ["3", "multiple of 2"]),
    ({"local_batch_size": 10**9, "gpus": 3}, ["1000000000 times 3", "at most 1000000000"]),
    ({"model": "mine"}, ["missing key 'metric_name'"]),
    ({"metric": 124.5}, ["metric is 124.5, but top1_error_percent is 0 to 100"]),
    (
        {"metric": -1.0, "metric_name": "z500_rmse_m2_s2"},
        ["metric is -1, but z500_rmse_m2_s2 is 0 or more"],
    ),
    ({"model": "fourcastnet"}, ["phase", "allowed: pretrain, finetune"]),
    ({"phase": "finetune"}, ["phase: 'finetune' of resnet50", "allowed: train"]),
    ({"torch_device": "cpu", "gpu_indices": [0]}, ["gpu_indices", "torch_device is cpu"]),
    ({"gpu_indices": [5]}, ["gpu_indices: [5] on n1", "1 of [0]"]),
    ({"gpu_indices": {"n9": [0]}}, ["gpu_indices: nothing for host n1"]),
    ({"nodes": 2}, ["gpus: 1 on 2 nodes", "multiple of 2"]),
    ({"protocol": "papr"}, ["protocol", "did you mean 'paper'"]),
    ({"path": "a.hdf5"}, ["path: only in tables"]),
    ({"lines": {"a/b": "x"}}, ["lines", "letters, digits"]),
    ({"events": "none.csv"}, ["none.csv", "No such file"]),
    ({"run": "x"}, ["not one run 'x'", "name one (run) of run"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "parts"), WRONG, ids=[str(c)[:60] for c, _ in WRONG])
def test_a_wrong_description_is_refused_by_file_and_key(
    place: Place, change: dict[str, Any], parts: list[str]
) -> None:
    message = place.refused(place.describe(place.perun("a.hdf5"), **change))
    assert all(part in message for part in parts), message
    assert str(place.folder / "a") in message or str(place.folder / "none.") in message


def test_more_hosts_than_nodes_are_refused(place: Place) -> None:
    file = place.describe(place.perun("a.hdf5", hosts=("n1", "n2")), gpus=2, nodes=1)
    assert "recorded 2 hosts (n1, n2); allowed: at least 2" in place.refused(file)


def test_which_of_more_gpus_the_run_held_must_be_given(place: Place) -> None:
    message = place.refused(place.describe(place.perun("a.hdf5", gpus=3)))
    assert "missing key 'gpu_indices': n1 recorded GPUs 0, 1, 2" in message


def test_a_series_has_one_configuration_for_each_number_of_gpus(place: Place) -> None:
    place.done(place.describe(place.perun("a.hdf5"), series="own"))
    other = place.describe(place.perun("b.hdf5", watts=301), series="own", epochs=4)
    assert f"series 'own' has on 1 GPUs {ONE}" in place.refused(other)
    message = place.refused(place.describe(other, series="own", epochs=4, device="a100"))
    assert (
        "device: a100, but series 'own' has h100; allowed: the same, or another series" in message
    )
    message = place.refused(place.describe(other, series="another"))
    assert f"{ONE} is in series 'own'" in message and "variant" in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric_name": "loss"}, "metric_name: loss"),
        ({"torch_device": "cpu"}, "torch_device: cpu"),
        ({"seeds": "same"}, "seeds: same"),
        ({"device_name": "H100 PCIe"}, "device_name: H100 PCIe"),
    ],
)
def test_unlike_repeats_are_refused_with_the_remedy(
    place: Place, changes: dict[str, Any], said: str
) -> None:
    known = {"seeds": "varied", "device_name": "H100 SXM"}
    place.done(place.describe(place.perun("a.hdf5"), **known))
    other = place.describe(place.perun("b.hdf5", watts=301), **known | changes)
    message = place.refused(other)
    assert f"{said}, but another repeat of {ONE} has " in message
    assert "allowed: the same, or another variant" in message
    place.done(place.describe(other, **changes, variant="b"))


def test_repeats_of_which_one_lacks_a_device_are_refused(place: Place) -> None:
    place.done(place.describe(place.perun("a.hdf5")))
    message = place.refused(place.describe(place.journal("b.csv")))
    assert (
        "kinds: ['cpu', 'gpu'], but another repeat" in message
        and "['cpu', 'gpu', 'ram']" in message
    )


@pytest.mark.parametrize("content", [b"", b"{}", b"\x89HDF\r\n\x1a\n", b"text"])
def test_what_is_no_recording_is_refused(place: Place, content: bytes) -> None:
    file = place.folder / "a.hdf5"
    file.write_bytes(content)
    assert "a.hdf5" in place.refused(place.describe(file))


def test_a_folder_without_files_named_by_their_segment_is_refused(place: Place) -> None:
    folder = place.folder / "run"
    folder.mkdir()
    place.describe(folder, gpus=2)
    place.perun("run/a.hdf5")
    place.journal("run/c.csv")
    message = place.refused(folder)
    assert "neither a perun file nor a journal named by its segment" in message
    assert "segment-000.<host>.csv" in message


def test_a_damaged_recording_in_a_folder_is_no_file_of_others(place: Place) -> None:
    place.journal("run/segment-000.n1.csv")
    place.describe(place.folder / "run")
    torn = place.perun("run/segment-000.hdf5")
    for content in (torn.read_bytes()[:3000], b""):
        torn.write_bytes(content)
        assert "segment-000.hdf5: cannot be read" in place.refused(place.folder / "run")


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ("stage,start_s,end_s\ntraining,1,2\n", ['stage: "training"', "did you mean 'train'"]),
        ("stage,start_s,end_s\ntrain,2,1\n", ["end_s: ", "expected a time after start_s"]),
        ("stage,start_s,end_s,segment\ntrain,1,2,1\n", ["segment: ", "recorded: 0"]),
    ],
)
def test_wrong_stages_are_refused(place: Place, rows: str, parts: list[str]) -> None:
    (place.folder / "stages.csv").write_text(rows)
    message = place.refused(place.describe(place.perun("a.hdf5"), events="stages.csv"))
    assert all(part in message for part in ["stages.csv", *parts]), message


# --- the document ---------------------------------------------------------------------------------


def _blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "register.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_document_are_three_ways_to_say_the_same(place: Place) -> None:
    alone, together, _ = _blocks("yaml")
    (rows,) = _blocks("csv")
    for name, gpus in (("vit_1gpu", 3), ("vit_1gpu_again", 3), ("vit_2gpus", 2)):
        place.perun(f"runs/{name}.hdf5", gpus=gpus, watts=200 + len(name))
    for name, text in (("vit_2gpus.yaml", alone), ("runs.csv", rows), ("runs.yaml", together)):
        (place.folder / "runs" / name).write_text(text)
    runs = place.folder / "runs"
    assert place.done(runs / "vit_2gpus.hdf5").count("registered: ") == 1
    assert place.done("--table", runs / "runs.csv").count("registered: ") == 2
    assert place.done("--table", runs / "runs.yaml").count("already there: ") == 2
    assert [repeat for _, repeat in place.runs()] == [1, 2, 1]


def test_the_document_explains_every_key() -> None:
    table = (ROOT / "docs" / "register.md").read_text().split("| key |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [key for cell in first for key in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(json_schema(RunDescription)["properties"])


# --- powers that a GPU cannot have ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("watts", "described", "words"),
    [
        (940.0, {}, "drew 940 W on average, more than 700 W, the rated_w of 'h100' in config"),
        (0.3, {}, "drew 0.3 W on average, which no GPU does that trains; expected powers in W"),
        (
            330.0,
            {"gpu_power_limit_w": 300},
            "more than 300 W, the gpu_power_limit_w of its description",
        ),
    ],
)
def test_a_power_that_a_gpu_cannot_have_is_noted(
    place: Place, watts: float, described: dict[str, Any], words: str
) -> None:
    out = place.done(place.describe(place.journal("one.csv", watts=watts), **described))
    (note,) = [line for line in out.splitlines() if line.startswith("note: ")]
    assert "one.csv: GPU 0 of n1 " in note and words in note
    assert len(place.runs()) == 1, "it is registered all the same"


@pytest.mark.parametrize(
    ("watts", "described"),
    [(700.0, {}), (734.0, {}), (314.0, {"gpu_power_limit_w": 300}), (5000.0, {"device": "own"})],
)
def test_what_a_gpu_may_draw_as_far_as_is_known_is_not_noted(
    place: Place, watts: float, described: dict[str, Any]
) -> None:
    out = place.done(place.describe(place.journal("one.csv", watts=watts), **described))
    assert "on average" not in out


def test_the_power_of_a_gpu_that_the_run_did_not_hold_is_not_noted(place: Place) -> None:
    path = place.perun("two.hdf5", gpus=2, watts=940)
    out = place.done(place.describe(path, gpu_indices=[1]))
    assert "GPU 1 of n1 drew 940 W" in out and "GPU 0" not in out
    assert "more than 400 W, its limit in the recording" in out
