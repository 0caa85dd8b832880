"""`scalewatt register`: recordings from anywhere become runs like any other, or one clear message."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from campaign_files import LOCAL, ROOT, replaced
from energy_files import T0, counter, gpu, write_journal, write_perun
from run_files import run_row

import scalewatt
from scalewatt.archive.bag import BagInfo, write_bag
from scalewatt.archive.cluster_facts import facts_text
from scalewatt.archive.export_archive import campaign_files
from scalewatt.archive.import_archive import import_archive
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.cluster import basis, load_cluster, powers
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.campaign.run_spec import read_spec
from scalewatt.cli import main
from scalewatt.common.files import file_sha256, read_json, write_json
from scalewatt.common.settings import json_schema
from scalewatt.energies.account import read_segment, write_energy
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.registration.run_descriptions import RunDescription
from scalewatt.results.tables.run_row import RunFiles

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


class Bench:
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
        path.with_name(f"{path.name}.yaml").write_text(yaml.safe_dump(described(**changes)))
        return path

    def table(self, *rows: dict[str, Any]) -> Path:
        """A table that describes recordings."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with open(self.folder / "runs.csv", "w", newline="") as handle:
            writer = csv.DictWriter(handle, columns, restval="")
            writer.writeheader()
            for row in rows:
                cells = {
                    k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()
                }
                writer.writerow(cells)
        return self.folder / "runs.csv"

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
        paths = self.results.glob("runs/*/*/provenance.json")
        return sorted((p.parents[1].name, int(p.parent.name)) for p in paths)

    def row(self, configuration: str, repeat: int = 1) -> dict[str, Any]:
        """The run's row of the runs table, as the workflow makes it."""
        files = RunFiles(self.results, configuration, repeat)
        spec = files.folder / "spec.json"
        write_energy(files.folder, spec, NO_POWERS, files.traces, files.energy)
        return run_row(files)

    def provenance(self, configuration: str, repeat: int = 1) -> dict[str, Any]:
        path = self.results / "runs" / configuration / str(repeat) / "provenance.json"
        return dict(read_json(path))


@pytest.fixture()
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


ONE = "resnet50-h100-n001-lbs0256-s0001000-e003"


# --- what a registered run is -------------------------------------------------------------------


def test_a_perun_file_becomes_a_run_with_a_row(bench: Bench) -> None:
    file = bench.describe(bench.perun("a.hdf5"), device_name="NVIDIA H100")
    out = bench.done(file)
    assert bench.runs() == [(ONE, 1)]
    assert f"snakemake --profile profiles/local all --config campaign={bench.campaign}" in out
    row = bench.row(ONE)
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


def test_the_recording_is_copied_and_named_in_the_provenance(bench: Bench) -> None:
    file = bench.describe(bench.perun("a.hdf5"))
    before = file.read_bytes()
    bench.done(file)
    copy = bench.results / "runs" / ONE / "1" / "perun" / "segment-000.hdf5"
    assert copy.read_bytes() == file.read_bytes() == before
    provenance = bench.provenance(ONE)
    assert provenance["registered"] is True
    assert provenance["recordings"] == [
        {"file": copy.name, "original": "a.hdf5", "sha256": file_sha256(file)}
    ]
    spec = read_spec(copy.parents[1] / "spec.json")
    assert provenance["spec_sha256"] == spec.sha256
    assert provenance["gpus"] == {"n1": [0]} and provenance["hostnames"] == ["n1"]
    assert provenance["source"] in ("<path>", "a.hdf5") and "registered_by" not in provenance
    assert not {"lock", "nodes", "commit", "perun"} & provenance.keys(), "nothing is made up"
    # perun adds later runs to its file, which must not reach the copy.
    write_perun(file, {"n1": {"CUDA:0_POWER": gpu(5)}}, run_id="later")
    assert copy.read_bytes() == before


def test_a_training_to_a_target_states_samples_and_data(bench: Bench) -> None:
    values = {"protocol": "target", "epochs": None, "samples": 2500, "seeds": "varied"}
    bench.done(bench.describe(bench.perun("a.hdf5"), **values))
    id_ = "resnet50-h100-n001-lbs0256-s0001000-target"
    row = bench.row(id_)
    assert (row["samples"], row["updates"]) == (2500, round(2500 / 256))
    assert load_campaign(bench.campaign).configurations[id_].seeds == "varied"
    unknown = bench.describe(bench.perun("b.hdf5", watts=301), **values | {"samples": None})
    bench.done(unknown)
    row = bench.row(id_, 2)
    assert (row["samples"], row["updates"]) == (None, None)


@pytest.mark.parametrize(("begin_s", "recorded_s"), [(10, SECONDS - 1 - 10), (1000, 0)])
def test_only_the_runs_own_window_counts(bench: Bench, begin_s: int, recorded_s: int) -> None:
    window = {"start_s": T0 + begin_s, "end_s": T0 + begin_s + 50}
    bench.done(bench.describe(bench.journal("a.csv"), window=window))
    row = bench.row(ONE)
    assert (row["runtime_s"], row["energy_kwh"]) == (pytest.approx(50), None)
    assert row["recorded_energy_kwh"] * 3.6e6 == pytest.approx(recorded_s * 420, rel=1e-6)
    assert row["coverage"] == pytest.approx(recorded_s / 50)


def test_a_window_counts_each_of_its_segments_once(bench: Bench) -> None:
    for number in (0, 1):
        bench.journal(f"run/segment-00{number}.n1.csv", "n1", T0 + number * SECONDS)
    window = {"start_s": T0 + 10, "end_s": T0 + 2 * SECONDS - 11}
    bench.done(bench.describe(bench.folder / "run", window=window))
    row = bench.row(ONE)
    assert (row["runtime_s"], row["coverage"]) == (2 * (SECONDS - 11), 1)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(2 * (SECONDS - 11) * 420, rel=1e-6)


def test_a_journal_keeps_its_telemetry(bench: Bench) -> None:
    path = bench.journal("a.csv")
    about = json.loads(path.with_name("a.sensors.json").read_text())
    name = "concurrent_samplers:0"
    about["telemetry"] = {
        name: {"quantity": name[:-2], "kind": "node", "index": 0, "unit": ""},
    }
    path.with_name("a.sensors.json").write_text(json.dumps(about))
    path.with_name("a.telemetry.csv").write_text(f"t,mono,{name}\n{T0 + 5},5,1\n{T0 + 10},10,1\n")
    bench.describe(path)
    bench.done(*sorted(bench.folder.glob("a.*")))  # as a shell names a.*
    row = bench.row(ONE)
    assert "node_shared" in row["flags"] and row["energy_kwh"] is None


def test_a_further_line_goes_through_the_points_of_several_series(bench: Bench) -> None:
    lines = {"weak": "LBS 256"}
    for gpus in (1, 2):
        path = bench.perun(f"{gpus}.hdf5", gpus=gpus)
        bench.done(bench.describe(path, gpus=gpus, series=f"on{gpus}", lines=lines))
    campaign = load_campaign(bench.campaign)
    assert campaign.series["weak"].label == "LBS 256"
    assert list(campaign.series["weak"].points) == [1, 2]
    assert list(campaign.series["on1"].points) == [1]


def test_a_gpu_that_was_not_recorded_makes_the_energy_null(bench: Bench) -> None:
    bench.done(bench.describe(bench.perun("a.hdf5", gpus=1), gpus=2))
    row = bench.row(ONE.replace("n001", "n002"))
    assert row["energy_kwh"] is None
    assert "not_recorded" in row["flags"]


# --- journals, folders, several runs in a file ----------------------------------------------------


def test_journals_of_several_hosts_and_segments_are_one_run(bench: Bench) -> None:
    folder = bench.folder / "run"
    for number, start in enumerate((T0, T0 + 1000)):
        for host in ("n1", "n2"):
            bench.journal(f"run/segment-00{number}.{host}.csv", host, start)
    (folder / "notes.txt").write_text("nothing to read")
    bench.done(bench.describe(folder, gpus=2))
    ((id_, _),) = bench.runs()
    perun = bench.results / "runs" / id_ / "1" / "perun"
    assert sorted(p.name for p in perun.iterdir()) == [
        f"segment-00{k}.{host}.{kind}"
        for k in (0, 1)
        for host in ("n1", "n2")
        for kind in ("csv", "sensors.json")
    ]
    row = bench.row(id_)
    assert (row["segments"], row["nodes"]) == (2, 2)
    assert row["energy_kwh"] == pytest.approx(4 * (SECONDS - 1) * 420 / 3.6e6, rel=1e-6)


def test_a_run_folder_of_ours_keeps_its_segments(bench: Bench) -> None:
    bench.perun("run/perun/segment-000.hdf5")
    bench.journal("run/perun/segment-000.n1.csv")
    bench.journal("run/perun/segment-002.n1.csv", start=T0 + 100)
    stage = {"segment": 2, "stage": "train", "epoch": 0, "start_s": T0 + 101, "end_s": T0 + 139}
    table = pa.Table.from_pylist([stage], schema=EVENTS_SCHEMA)
    pq.write_table(table, bench.folder / "run" / "events.parquet")
    bench.done(bench.describe(bench.folder / "run"))
    assert pq.read_table(bench.results / "runs" / ONE / "1" / "events.parquet").equals(table)
    segments = bench.provenance(ONE)["segments"]
    assert [(s["segment"], s["outcome"]) for s in segments] == [(0, None), (2, "finished")]


def test_the_work_that_a_killed_segment_lost_stays_discarded(bench: Bench) -> None:
    run = bench.folder / "run"
    bench.journal("run/perun/segment-000.n1.csv")
    bench.journal("run/perun/segment-001.n1.csv", start=T0 + 100)
    outcomes = ("killed", "finished")
    segments = [{"segment": n, "outcome": outcome} for n, outcome in enumerate(outcomes)]
    write_json(run / "provenance.json", {"segments": segments})
    stage = {"stage": "train", "epoch": 0}
    stages = [{"segment": n, **stage, "start_s": T0 + 100 * n, "end_s": None} for n in (0, 1)]
    pq.write_table(pa.Table.from_pylist(stages, schema=EVENTS_SCHEMA), run / "events.parquet")
    bench.done(bench.describe(run))
    assert bench.provenance(ONE)["segments"] == segments
    assert bench.row(ONE)["discarded_energy_kwh"] * 3.6e6 == pytest.approx((SECONDS - 1) * 420)


def test_one_run_of_several_in_a_file_counts_alone(bench: Bench) -> None:
    file = bench.perun("a.hdf5", run_id="2025-03-18T19:21:59.082046", watts=100)
    bench.perun("a.hdf5", run_id="second", watts=200)
    bench.perun("a.hdf5", run_id="second", round_id="1", watts=400)
    runs = (
        {"local_batch_size": 1, "run": "2025-03-18T19:21:59.082046"},
        {"local_batch_size": 2, "run": "second", "round": 1},
    )
    bench.done("--table", bench.table(*(described(path="a.hdf5", **run) for run in runs)))
    for batch, watts in ((1, 100), (2, 400)):
        id_ = ONE.replace("lbs0256", f"lbs000{batch}")
        row = bench.row(id_)
        assert row["gpu_energy_kwh"] == pytest.approx((SECONDS - 1) * watts / 3.6e6)
        assert "several" not in row["flags"]
    assert bench.provenance(id_)["recordings"][0]["options"] == {"run": "second", "round": "1"}
    bench.describe(file, local_batch_size=2, run="second", round=1)
    assert "already there" in bench.done(file)


@pytest.mark.parametrize("results", ["results", "far/away"])
def test_registered_runs_are_imported_wherever_results_go(bench: Bench, results: str) -> None:
    bench.done(bench.describe(bench.perun("a.hdf5")))
    campaign = load_campaign(bench.campaign)
    runs = bench.results / "runs"
    files = {
        **campaign_files(campaign, facts_text(campaign, load_cluster(LOCAL)).encode()),
        **{
            f"results/mine/runs/{path.relative_to(runs)}": path
            for path in runs.glob("*/*/*")
            if path.is_file()
        },
    }
    metadata = METADATA, lambda _: b"{}"
    write_bag(files, BagInfo("mine", 1), bench.folder / "mine.zip", metadata)
    to = bench.folder / "other"
    import_archive(bench.folder / "mine.zip", to / results, to / "campaigns", None)
    imported = load_campaign(to / "campaigns" / "mine.yaml")
    assert imported.configurations == campaign.configurations


# --- repeats, and the same file again -------------------------------------------------------------


def test_another_file_is_the_next_repeat_and_the_same_one_is_already_there(bench: Bench) -> None:
    first = bench.describe(bench.perun("a.hdf5"))
    second = bench.describe(bench.perun("b.hdf5", watts=301.0))
    bench.done(first)
    before = bench.files()
    assert "already there" in bench.done(first)
    assert bench.files() == before
    out = bench.done(first, second)
    assert f"already there: {ONE} repeat 1" in out and f"registered: {ONE} repeat 2" in out
    assert bench.runs() == [(ONE, 1), (ONE, 2)]
    assert load_campaign(bench.campaign).repeats == {ONE: 2}


def test_a_run_in_a_file_that_has_grown_is_already_there(bench: Bench) -> None:
    file = bench.describe(bench.perun("a.hdf5", run_id="first", watts=100))
    bench.done(file)
    bench.perun("a.hdf5", run_id="second", watts=200)
    assert "already there" in bench.done(bench.describe(file, run="first"))
    assert "registered" in bench.done(bench.describe(file, run="second"))
    assert bench.runs() == [(ONE, 1), (ONE, 2)]


def test_the_zone_of_a_perun_file_is_kept_and_another_is_refused(bench: Bench) -> None:
    file = bench.describe(bench.perun("a.hdf5"), time_zone="Asia/Tokyo")
    bench.done(file)
    copy = bench.results / "runs" / ONE / "1" / "perun"
    (recording,) = read_segment(copy, 0).recordings
    assert str(recording.started).endswith("+09:00")
    message = bench.refused(bench.describe(file, time_zone="Europe/Berlin"))
    assert "time_zone Asia/Tokyo, not Europe/Berlin" in message


def test_what_a_recording_states_itself_is_not_stated_again(bench: Bench) -> None:
    for path in (bench.perun("a.hdf5"), bench.journal("a.csv")):
        assert "host: " in bench.refused(bench.describe(path, host="n2"))


def test_a_copy_under_another_name_is_the_same_recording(bench: Bench) -> None:
    first = bench.describe(bench.perun("a.hdf5"))
    copy = bench.folder / "copy.hdf5"
    copy.write_bytes(first.read_bytes())
    message = bench.refused(first, bench.describe(copy))
    assert "copy.hdf5 is the same recording as" in message
    bench.done(first)
    assert "already there" in bench.done(copy)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"metric": 25.0}, ["metric 24.5, not 25.0"]),
        ({"local_batch_size": 128}, [f"configuration {ONE}, not", "lbs0128"]),
    ],
)
def test_the_same_file_with_another_description_is_refused(
    bench: Bench, change: dict[str, Any], parts: list[str]
) -> None:
    file = bench.describe(bench.perun("a.hdf5"))
    bench.done(file)
    message = bench.refused(bench.describe(file, **change))
    assert all(part in message for part in [*parts, "delete"])


def test_nothing_is_written_if_one_of_several_is_wrong(bench: Bench) -> None:
    good = bench.describe(bench.perun("a.hdf5"))
    torn = bench.describe(bench.perun("b.hdf5", watts=301))
    torn.write_bytes(torn.read_bytes()[:3000])
    assert "b.hdf5" in bench.refused(good, torn)
    assert not bench.results.exists() and not bench.campaign.exists()


# --- the campaign file ----------------------------------------------------------------------------


def test_series_follow_from_model_device_and_the_batch_size_given(bench: Bench) -> None:
    files = [
        bench.describe(bench.perun("a.hdf5")),
        bench.describe(bench.perun("b.hdf5", gpus=2), gpus=2),
        bench.describe(
            bench.perun("c.hdf5", gpus=2, watts=9),
            gpus=2,
            local_batch_size=None,
            global_batch_size=256,
        ),
        bench.describe(bench.perun("d.hdf5", gpus=3), gpus=3, series="own", label="My runs"),
    ]
    bench.done(*files)
    campaign = load_campaign(bench.campaign)
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
    bench: Bench,
) -> None:
    bench.done(bench.describe(bench.perun("a.hdf5")))
    bench.done(bench.describe(bench.perun("b.hdf5", gpus=2), gpus=2, series="second"))
    campaign = load_campaign(bench.campaign)
    assert campaign.figures["figure2"]["series"] == [*campaign.series]
    first = next(iter(campaign.series))
    chosen = {"labels": {first: "As I call it"}, "figures": {"figure6": {"series": [first]}}}
    text = f"# Mine.\n{bench.campaign.read_text()}{yaml.safe_dump(chosen)}"
    bench.campaign.write_text(text)
    bench.done(bench.describe(bench.perun("c.hdf5", watts=302)))
    bench.done(bench.describe(bench.perun("d.hdf5", gpus=3), gpus=3, series="third"))
    assert bench.campaign.read_text() == text
    again = load_campaign(bench.campaign)
    assert again.figures == chosen["figures"]
    assert again.series[first].label == "As I call it"
    assert again.repeats[again.series[first].points[1]] == 2
    bench.campaign.write_text(text.replace(f"{first}: As", "thrid: As"))
    assert "labels: no series 'thrid'; allowed: " in bench.refused(bench.folder / "a.hdf5")


def test_a_campaign_that_trains_is_never_touched(bench: Bench) -> None:
    file = bench.describe(bench.perun("a.hdf5"))
    bench.campaign.parent.mkdir()
    bench.campaign.write_text("name: mine\nprotocol: paper\n")
    assert "no campaign of registered runs" in bench.refused(file)
    bench.campaign.unlink()
    trained = bench.results / "runs" / ONE / "1"
    trained.mkdir(parents=True)
    (trained / "provenance.json").write_text("{}")
    assert "is a trained run" in bench.refused(file)


def test_only_the_clusters_own_devices_have_rated_powers(bench: Bench) -> None:
    bench.done(
        bench.describe(bench.perun("a.hdf5"), device="a100"),
        bench.describe(bench.perun("b.hdf5", watts=301), device="local"),
    )
    cluster = load_cluster(LOCAL)
    devices = registered_devices(load_campaign(bench.campaign), cluster)
    # Another profile's a100 is another machine.
    assert not any(powers(devices["a100"]).values())
    assert devices["local"] == cluster.devices["local"]
    words = basis(cluster, [devices["a100"]])
    assert words[0] == "Powers of a100 where no sensor is: not known."
    assert words[1] == "No PUE, carbon and price: local lacks a100."
    campaign = load_campaign(bench.campaign)
    elsewhere = facility_cluster(campaign, cluster)
    assert (elsewhere.pue, elsewhere.carbon_intensity, elsewhere.price) == (None, None, None)
    with_a100 = replaced(cluster, devices={**cluster.devices, "a100": cluster.devices["local"]})
    assert facility_cluster(campaign, with_a100) == with_a100


# --- two runs on one host -------------------------------------------------------------------------


def test_runs_recorded_on_one_host_at_one_time_are_refused(bench: Bench) -> None:
    bench.done(bench.describe(bench.journal("a.csv", "n1")))
    same = bench.describe(bench.journal("b.csv", "n1", T0 + 30))
    assert "was recorded on n1 at the same time as" in bench.refused(same)
    bench.done(
        bench.describe(bench.journal("c.csv", "n2", T0 + 30, watts=301)),
        bench.describe(bench.journal("d.csv", "n1", T0 + 500)),
    )
    assert len(bench.runs()) == 3


# --- tables ---------------------------------------------------------------------------------------


def test_a_table_describes_many_runs(bench: Bench) -> None:
    bench.perun("a.hdf5")
    bench.perun("b.hdf5", gpus=2)
    rows = [
        # epochs as pandas writes integers of which one is missing
        described(path="a.hdf5", epochs=3.0, window={"start_s": T0, "end_s": T0 + 100}),
        described(path="b.hdf5", epochs=3.0, gpus=2, gpu_indices=[0, 1], metric=None),
    ]
    out = bench.done("--table", bench.table(*rows))
    assert out.count("registered: ") == 2
    assert bench.provenance(ONE)["window"] == {"start_s": T0, "end_s": T0 + 100}


# --- wrong descriptions ---------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"modell": "x"}, ["unknown key 'modell'", "did you mean 'model'"]),
    ({"model": "ResNet50"}, ["model", '"ResNet50"', "lower-case"]),
    ({"gpus": 0}, ["gpus: 0 does not fit", "equal to 1"]),
    ({"samples": 5}, ["dataset_samples and epochs and samples given"]),
    ({"window": {"start_s": 2, "end_s": 1}}, ["window", "end_s after start_s"]),
    ({"local_batch_size": None}, ["no batch size given", "global_batch_size"]),
    ({"global_batch_size": 300}, ["global_batch_size: 300", "expected 256"]),
    ({"local_batch_size": None, "global_batch_size": 3, "gpus": 2}, ["3", "multiple of 2"]),
    ({"model": "mine"}, ["missing key 'metric_name'"]),
    ({"model": "fourcastnet"}, ["phase", "allowed: pretrain, finetune"]),
    ({"torch_device": "cpu", "gpu_indices": [0]}, ["gpu_indices", "torch_device is cpu"]),
    ({"gpu_indices": [5]}, ["gpu_indices: [5]", "n1 recorded GPUs [0]"]),
    ({"nodes": 2}, ["gpus: 1 on 2 nodes", "multiple of gpus"]),
    ({"path": "a.hdf5"}, ["path: only in tables"]),
    ({"events": "none.csv"}, ["none.csv", "No such file"]),
    ({"events": "stages.csv"}, ["stages.csv: ", "segment: 1", "recorded: 0"]),
    ({"run": "x"}, ["not one run 'x'", "name one (run) of run"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "parts"), WRONG, ids=[str(c)[:60] for c, _ in WRONG])
def test_a_wrong_description_is_refused_by_file_and_key(
    bench: Bench, change: dict[str, Any], parts: list[str]
) -> None:
    (bench.folder / "stages.csv").write_text("stage,start_s,end_s,segment\ntrain,1,2,1\n")
    message = bench.refused(bench.describe(bench.perun("a.hdf5"), **change))
    assert all(part in message for part in [f"{bench.folder}/", *parts]), message


def test_more_hosts_than_nodes_are_refused(bench: Bench) -> None:
    file = bench.describe(bench.perun("a.hdf5", hosts=("n1", "n2")), gpus=2, nodes=1)
    assert "recorded hosts: n1, n2; expected at least 2 nodes" in bench.refused(file)


def test_which_of_more_gpus_the_run_held_must_be_given(bench: Bench) -> None:
    message = bench.refused(bench.describe(bench.perun("a.hdf5", gpus=3)))
    assert "gpu_indices: missing, but n1 recorded GPUs [0, 1, 2]" in message


def test_a_series_has_one_configuration_for_each_number_of_gpus(bench: Bench) -> None:
    bench.done(bench.describe(bench.perun("a.hdf5"), series="own"))
    other = bench.describe(bench.perun("b.hdf5", watts=301), series="own", epochs=4)
    assert f"1 GPUs: {ONE[:-1]}4, but series 'own' has {ONE}" in bench.refused(other)
    message = bench.refused(bench.describe(other, series="own", epochs=4, device="a100"))
    assert (
        "device: a100, but series 'own' has h100; expected the same, or another series" in message
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"metric_name": "loss"}, "metric_name: loss"),
        ({"torch_device": "cpu"}, "torch_device: cpu"),
        ({"seeds": "same"}, "seeds: same"),
        ({"device_name": "H100 PCIe"}, "device_name: H100 PCIe"),
        ({"series": "other"}, "series: other"),
    ],
)
def test_unlike_repeats_are_refused_with_the_remedy(
    bench: Bench, changes: dict[str, Any], problem: str
) -> None:
    known = {"seeds": "varied", "device_name": "H100 SXM"}
    bench.done(bench.describe(bench.perun("a.hdf5"), **known))
    other = bench.describe(bench.perun("b.hdf5", watts=301), **known | changes)
    message = bench.refused(other)
    assert f"{problem}, but another repeat of {ONE} has " in message
    assert "expected the same, or another variant" in message
    bench.done(bench.describe(other, **changes, variant="b"))


def test_repeats_of_which_one_lacks_a_device_are_refused(bench: Bench) -> None:
    bench.done(bench.describe(bench.perun("a.hdf5")))
    message = bench.refused(bench.describe(bench.journal("b.csv")))
    assert (
        "kinds: ['cpu', 'gpu'], but another repeat" in message
        and "['cpu', 'gpu', 'ram']" in message
    )


def test_a_damaged_recording_in_a_folder_is_no_file_of_others(bench: Bench) -> None:
    bench.journal("run/segment-000.n1.csv")
    bench.describe(bench.folder / "run")
    torn = bench.perun("run/segment-000.hdf5")
    for content in (torn.read_bytes()[:3000], b""):
        torn.write_bytes(content)
        assert "segment-000.hdf5: cannot be read" in bench.refused(bench.folder / "run")


# --- the document ---------------------------------------------------------------------------------


def _blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "recordings.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_document_are_two_ways_to_say_the_same(bench: Bench) -> None:
    alone, *_ = _blocks("yaml")
    (rows,) = _blocks("csv")
    for name, gpus in (("vit_1gpu", 3), ("vit_1gpu_again", 3), ("vit_2gpus", 2)):
        bench.perun(f"runs/{name}.hdf5", gpus=gpus, watts=200 + len(name))
    for name, text in (("vit_2gpus.hdf5.yaml", alone), ("runs.csv", rows)):
        (bench.folder / "runs" / name).write_text(text)
    runs = bench.folder / "runs"
    assert bench.done(runs / "vit_2gpus.hdf5").count("registered: ") == 1
    out = bench.done("--table", runs / "runs.csv")
    assert (out.count("registered: "), out.count("already there: ")) == (2, 1)
    assert [repeat for _, repeat in bench.runs()] == [1, 2, 1]


def test_the_document_explains_every_key() -> None:
    table = (ROOT / "docs" / "recordings.md").read_text().split("| key |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [key for cell in first for key in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(json_schema(RunDescription)["properties"])
