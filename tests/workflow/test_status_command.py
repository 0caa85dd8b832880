"""`scalewatt status` of real trainings: under way, stopped, killed, and finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import PATIENCE_S, wait_for
from training import CLUSTER
from workspace import TINY, environment

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.energies.account import write_energy

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

LONG = "fourcastnet.pretrain-local-n002-lbs0002-full"
SHORT = "resnet50-local-n001-lbs0016-full"
POWERS = {"cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}


@dataclass
class Story:
    """A folder with the tiny campaign, whose pre-training is long, and what its status was when."""

    folder: Path
    at: dict[str, dict[str, Any]] = field(default_factory=dict)
    text: str = ""

    def command(self, *options: str) -> list[str]:
        site = str(self.folder / "cluster.json")
        return ["status", "--site", site, "--results", str(self.folder / "results"), *options]

    def start(self, configuration: str) -> subprocess.Popen[str]:
        """Start the next segment of a run, as the workflow's rule does."""
        out = self.folder / "results" / "tiny" / "runs" / configuration / "1"
        out.mkdir(parents=True, exist_ok=True)
        spec = run_spec(load_campaign(self.folder / "tiny.yaml"), configuration, 1)
        (out / "spec.json").write_text(spec.text)
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "scalewatt.cli", "train", str(out / "spec.json")),
                *("--site", str(self.folder / "cluster.json"), "--out", str(out)),
                *("--work", str(self.folder / "work" / "tiny")),
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def print_status(self, *options: str) -> str:
        """What the command prints."""
        with redirect_stdout(StringIO()) as printed:
            assert main(self.command(*options)) == 0
        return printed.getvalue()

    def look(self, when: str = "now") -> dict[str, Any]:
        self.at[when] = json.loads(self.print_status("--json"))
        return self.at[when]

    def run(self, when: str, configuration: str = LONG) -> dict[str, Any]:
        rows = self.at[when]["runs"]
        return next(r for r in rows if (r["configuration"], r["repeat"]) == (configuration, 1))

    def is_training(self, segment: int) -> bool:
        self.look()
        run = self.run("now")
        is_at_work = run["segment"] == segment and run["samples_per_s"] is not None
        return is_at_work and run["epoch"] >= 2


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Story]:
    story = Story(tmp_path_factory.mktemp("status"))
    text = TINY.read_text().replace("epochs: 3\n", "epochs: 400\n")
    (story.folder / "tiny.yaml").write_text(text)
    cluster = {
        **CLUSTER,
        "data_roots": {name: str(data / name) for name in ("scans", "waves")},
        "campaign": str(story.folder / "tiny.yaml"),
        "work_root": str(story.folder / "work"),
    }
    (story.folder / "cluster.json").write_text(json.dumps(cluster))
    story.look("before")
    first = story.start(LONG)
    try:
        wait_for(lambda: story.is_training(0))
        story.look("running")
        story.text = story.print_status()
        first.send_signal(signal.SIGUSR1)
        first.communicate(timeout=PATIENCE_S)
        assert first.returncode == 75
        story.look("stopped")
        second = story.start(LONG)
        wait_for(lambda: story.is_training(1))
        family = psutil.Process(second.pid).children(recursive=True)
        second.kill()
        second.communicate()
        psutil.wait_procs(family, timeout=30)
        story.look("killed")
    finally:
        first.kill()
    short = story.start(SHORT)
    output, _ = short.communicate(timeout=PATIENCE_S)
    assert short.returncode == 0, output
    story.look("trained")
    out = story.folder / "results" / "tiny" / "runs" / SHORT / "1"
    energy = story.folder / "results" / "tiny" / "energy" / SHORT / "1.parquet"
    write_energy(out, out / "spec.json", POWERS, story.folder / "traces.parquet", energy)
    story.look("accounted")
    yield story


def test_a_run_that_nobody_started_is_not_started(story: Story) -> None:
    before = story.at["before"]
    assert before["counts"]["not_started"] == before["runs_total"] == len(before["runs"])
    assert (before["energy_kwh"], before["updates"]) == (0, 0)
    assert story.run("before")["energy_kwh"] is None


def test_a_running_one_says_how_far_and_how_fast_it_is_and_what_it_used(story: Story) -> None:
    run = story.run("running")
    assert (run["state"], run["segment"], run["epochs"]) == ("running", 0, 400)
    updates = run["epoch"] * run["steps"] + run["step"]
    assert run["updates"] == updates == story.at["running"]["updates"] > 0
    assert run["updates_total"] == 400 * run["steps"]
    assert run["host"] == os.uname().nodename and run["job"] is None
    assert run["silent_s"] is None and run["reason"] is None
    assert Path(run["log"]).name == "train.log"
    seconds = run["progress_written_s"] - run["since_s"]
    per_update_s = run["left_s"] / (run["updates_total"] - run["updates"])
    assert per_update_s < seconds / run["updates"], "without its start-up"
    assert run["power_w"] is None, "this machine has no sensor"
    assert 0 < run["energy_kwh"] < 150 * (seconds + 30) / 3.6e6
    assert run["energy_known"]
    assert f"{LONG} 1 " in story.text and "samples_per_s" in story.text
    others = story.at["running"]["runs_total"] - 1
    assert f"1 running, {others} not started" in story.text


def test_one_that_was_stopped_or_killed_waits_at_its_checkpoint_and_what_it_used_counts(
    story: Story,
) -> None:
    running, stopped, killed = (story.run(when) for when in ("running", "stopped", "killed"))
    assert (stopped["state"], stopped["segment"]) == ("stopped", 0)
    assert running["updates"] <= stopped["updates"] <= killed["updates"] < stopped["updates_total"]
    assert (killed["state"], killed["segment"]) == ("stopped", 1)
    assert running["energy_kwh"] < stopped["energy_kwh"] < killed["energy_kwh"]
    assert story.at["killed"]["energy_kwh"] == pytest.approx(killed["energy_kwh"])


def test_a_finished_one_is_done_and_counts_before_it_is_accounted_for(story: Story) -> None:
    trained, accounted = (story.run(when, SHORT) for when in ("trained", "accounted"))
    for run in (trained, accounted):
        assert run["state"] == "done"
        assert run["updates"] == run["updates_total"] > 0
    # The journal is what perun's file is made from.
    assert trained["energy_kwh"] == pytest.approx(accounted["energy_kwh"], rel=0.05)


def test_a_wrong_site_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--site", "profiles/horka"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "--site profiles/horka: neither a cluster file nor" in errors
    assert errors.endswith("did you mean 'horeka'?\n")
