"""`scalewatt status` of real trainings: under way, silent, stopped, killed, refused, finished, changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from training import CLUSTER
from workspace import TINY, environment

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.energies.account import write_energy
from scalewatt.tracking.status import campaign_status

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

LONG = "fourcastnet.pretrain-local-n002-lbs0002-full"
SHORT = "resnet50-local-n002-lbs0016-full"
POWERS = {"cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}
PATIENCE_S = 120


@dataclass(frozen=True)
class Place:
    """A folder with a campaign, a profile, and what its trainings leave."""

    folder: Path
    data: Path

    @classmethod
    def create(cls, folder: Path, data: Path) -> Place:
        """The tiny campaign with a long pre-training."""
        text = TINY.read_text().replace("epochs: 3\n", "epochs: 400\n")
        (folder / "tiny.yaml").write_text(text)
        place = cls(folder, data)
        (folder / "profile").mkdir()
        site = folder / "profile" / "cluster.yaml"
        site.write_text(json.dumps(place.cluster()))
        return place

    def cluster(self, launcher: str = "mpiexec -n {gpus}") -> dict[str, Any]:
        roots = {name: str(self.data / name) for name in ("scans", "waves")}
        return {
            **CLUSTER,
            "launcher": launcher,
            "data_roots": roots,
            "campaign": str(self.folder / "tiny.yaml"),
            "work_root": str(self.folder / "work"),
        }

    def run_folder(self, configuration: str, repeat: int) -> Path:
        return self.folder / "results" / "tiny" / "runs" / configuration / str(repeat)

    def start(
        self, configuration: str, repeat: int = 1, launcher: str = "mpiexec -n {gpus}"
    ) -> subprocess.Popen[str]:
        """Start the next segment of a run, as the workflow's rule does."""
        out = self.run_folder(configuration, repeat)
        out.mkdir(parents=True, exist_ok=True)
        spec = run_spec(load_campaign(self.folder / "tiny.yaml"), configuration, repeat)
        (out / "spec.json").write_text(spec.text)
        cluster = out / "cluster.json"
        cluster.write_text(json.dumps(self.cluster(launcher)))
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "scalewatt.cli", "train", str(out / "spec.json")),
                *("--site", str(cluster), "--work", str(self.folder / "work" / "tiny")),
                *("--out", str(out)),
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        """What the command prints with --json."""
        cluster = load_cluster(self.folder / "profile" / "cluster.yaml")
        campaign = load_campaign(self.folder / "tiny.yaml", cluster)
        roots = self.folder / "results", self.folder / "work"
        return json.loads(json.dumps(campaign_status(campaign, cluster, *roots).as_json()))

    def arguments(self, *options: str) -> list[str]:
        return [
            *("status", "--site", str(self.folder / "profile" / "cluster.yaml")),
            *("--results", str(self.folder / "results"), *options),
        ]

    def run(self, configuration: str, repeat: int = 1) -> dict[str, Any]:
        """One run's status."""
        return only(self.status(), configuration, repeat)


def only(status: dict[str, Any], configuration: str, repeat: int = 1) -> dict[str, Any]:
    (found,) = (
        run
        for run in status["runs"]
        if (run["configuration"], run["repeat"]) == (configuration, repeat)
    )
    return found


def wait_for(condition: Any, what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"no {what} within {PATIENCE_S} s"
        time.sleep(0.2)


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for a training's end and for that of all its processes."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.communicate(timeout=PATIENCE_S)
    psutil.wait_procs(family, timeout=30)
    return process.returncode


def is_training(run: dict[str, Any], segment: int) -> bool:
    return run["segment"] == segment and run["samples_per_s"] is not None and run["epoch"] >= 2


@dataclass
class Seen:
    """What was seen of one story of four trainings."""

    place: Place
    at: dict[str, dict[str, Any]]
    text: str = ""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Seen]:
    place = Place.create(tmp_path_factory.mktemp("status"), data)
    story = Seen(place, {"before": place.status()})
    started: list[subprocess.Popen[str]] = []
    try:
        _tell(story, started)
        yield story
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()


def _tell(story: Seen, started: list[subprocess.Popen[str]]) -> None:
    place, at = story.place, story.at

    def start(*which: Any) -> subprocess.Popen[str]:
        started.append(place.start(*which))
        return started[-1]

    first = start(LONG, 1)
    wait_for(lambda: is_training(place.run(LONG), 0), "training")
    at["running"] = place.status()
    command = [sys.executable, "-m", "scalewatt.cli", *place.arguments()]
    story.text = subprocess.check_output(command, env=environment(), text=True)
    first.send_signal(signal.SIGSTOP)
    (holder,) = place.folder.glob("work/tiny/*/holder.json")
    os.utime(holder, (time.time() - 300, time.time() - 300))
    at["silent"] = place.status()
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGUSR1)
    assert ended(first) == 75
    at["stopped"] = place.status()

    second = start(LONG, 1)
    wait_for(lambda: place.run(LONG)["segment"] == 1, "second segment")
    wait_for(lambda: is_training(place.run(LONG), 1), "training")
    family = psutil.Process(second.pid).children(recursive=True)
    second.kill()
    second.communicate()
    psutil.wait_procs(family, timeout=30)
    at["killed"] = place.status()

    assert start(LONG, 2, "mpirunx -n {gpus}").wait() == 1
    at["refused"] = place.status()

    assert ended(start(SHORT, 1)) == 0
    at["trained"] = place.status()
    energy = place.folder / "results" / "tiny" / "energy" / SHORT / "1.parquet"
    traces = place.folder / "traces.parquet"
    out = place.run_folder(SHORT, 1)
    write_energy(out, out / "spec.json", POWERS, traces, energy)
    at["accounted"] = place.status()

    campaign = place.folder / "tiny.yaml"
    changed = campaign.read_text().replace("epochs: 2, image_size", "epochs: 3, image_size")
    campaign.write_text(changed)
    at["changed"] = place.status()


def test_a_run_that_nobody_started_is_not_started(seen: Seen) -> None:
    before = seen.at["before"]
    assert before["counts"]["not_started"] == before["runs_total"] == len(before["runs"])
    assert (before["energy_kwh"], before["updates"]) == (0, 0)
    assert only(before, LONG)["energy_kwh"] is None


def test_a_running_one_says_how_far_and_how_fast_it_is(seen: Seen) -> None:
    status = seen.at["running"]
    run = only(status, LONG)
    assert (run["state"], run["segment"], run["epochs"]) == ("running", 0, 400)
    assert run["updates"] == run["epoch"] * run["steps"] + run["step"] == status["updates"] > 0
    assert run["updates_total"] == 400 * run["steps"]
    assert run["host"] == os.uname().nodename and run["job"] is None
    assert run["samples_per_s"] > 0
    assert run["silent_s"] is None and run["reason"] is None
    assert Path(run["log"]).name == "train.log"


def test_what_is_left_of_a_running_one_goes_by_its_pace(seen: Seen) -> None:
    status = seen.at["running"]
    run = only(status, LONG)
    per_update_s = run["left_s"] / (run["updates_total"] - run["updates"])
    seconds = run["progress_written_s"] - run["since_s"]
    assert per_update_s < seconds / run["updates"], "without its start-up"


def test_a_running_ones_energy_is_that_of_its_journal(seen: Seen) -> None:
    run = only(seen.at["running"], LONG)
    assert run["power_w"] is None, "this machine has no sensor"
    seconds = run["progress_written_s"] - run["since_s"]
    assert 0 < run["energy_kwh"] < 150 * (seconds + 30) / 3.6e6
    assert run["energy_known"]


def test_the_text_names_what_runs(seen: Seen) -> None:
    assert f"{LONG} 1 " in seen.text
    others = seen.at["running"]["runs_total"] - 1
    assert f"1 running, {others} not started" in seen.text
    assert "samples_per_s" in seen.text


def test_a_frozen_one_is_running_and_its_silence_is_told(seen: Seen) -> None:
    run = only(seen.at["silent"], LONG)
    assert run["state"] == "running"
    assert 290 < run["silent_s"] < 400


def test_one_stopped_at_a_checkpoint_waits_for_its_next_job(seen: Seen) -> None:
    run = only(seen.at["stopped"], LONG)
    assert (run["state"], run["segment"]) == ("stopped", 0)
    assert only(seen.at["running"], LONG)["updates"] <= run["updates"] < run["updates_total"]
    assert run["power_w"] is None
    assert run["energy_kwh"] > only(seen.at["running"], LONG)["energy_kwh"]


def test_one_whose_launcher_was_killed_waits_at_its_ranks_checkpoint_and_what_it_used_counts(
    seen: Seen,
) -> None:
    run, stopped = only(seen.at["killed"], LONG), only(seen.at["stopped"], LONG)
    assert (run["state"], run["segment"]) == ("stopped", 1)
    assert Path(run["log"]).exists()
    assert run["updates"] >= stopped["updates"]
    assert run["energy_kwh"] > stopped["energy_kwh"]
    assert seen.at["killed"]["energy_kwh"] == pytest.approx(run["energy_kwh"])


def test_one_whose_launcher_is_not_there_is_refused_with_the_reason(seen: Seen) -> None:
    run = only(seen.at["refused"], LONG, 2)
    assert run["state"] == "refused"
    assert "'mpirunx' is not found" in run["reason"]
    assert (run["segment"], run["energy_kwh"]) == (None, None)


def test_a_finished_one_is_done_and_its_energy_is_counted_before_it_is_accounted_for(
    seen: Seen,
) -> None:
    trained, accounted = (only(seen.at[when], SHORT) for when in ("trained", "accounted"))
    for run in (trained, accounted):
        assert run["state"] == "done"
        assert run["updates"] == run["updates_total"] > 0
    # The journal is what perun's file is made from.
    assert trained["energy_kwh"] == pytest.approx(accounted["energy_kwh"], rel=0.05)
    counts = seen.at["accounted"]["counts"]
    assert (counts["done"], counts["stopped"], counts["refused"]) == (1, 1, 1)


def test_results_of_another_spec_are_out_of_date_and_what_they_used_was_used(seen: Seen) -> None:
    before, after = seen.at["accounted"], seen.at["changed"]
    run = only(after, SHORT)
    assert (run["state"], run["updates"]) == ("out_of_date", None)
    assert "another spec" in run["reason"]
    assert after["energy_kwh"] == pytest.approx(before["energy_kwh"])
    spent = only(before, SHORT)["energy_kwh"]
    assert after["superseded_energy_kwh"] == pytest.approx(spent)
    assert only(after, LONG)["state"] == "stopped"


def test_the_command_prints_one_object_with_all_runs(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(seen.place.arguments("--json")) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    now, before = json.loads(printed.out), seen.at["changed"]
    assert {**now, "asked_s": 0} == {**before, "asked_s": 0}


def test_a_wrong_site_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--site", "profiles/horka"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "--site profiles/horka: neither a cluster file nor" in errors
    assert errors.endswith("did you mean 'horeka'?\n")
