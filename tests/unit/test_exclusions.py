"""Runs that are left out or measured again: the table that says so, and what the commands do."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from status_files import CAMPAIGN, CLUSTER, ONE, TWO, Made, queue, submitted

from scalewatt.campaign.exclusions import (
    excluded_runs,
    exclusions_path,
    measurement_of,
    read_exclusions,
)
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.tracking import remeasure as remeasuring
from scalewatt.tracking.remeasure import CampaignFolders, exclude, remeasure

HEAD = "configuration,repeat,action,reason,date,measurement\n"
ROW = f"{ONE},1,exclude,a GPU was throttled,2026-01-31,0123456789ab\n"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def finished(made: Made) -> Made:
    """The campaign as files, with the two repeats of one configuration finished."""
    cluster, campaign = made.folder / "profile" / "cluster.yaml", made.folder / "made.yaml"
    cluster.parent.mkdir()
    cluster.write_text(yaml.safe_dump({**CLUSTER, "campaign": str(campaign)}))
    campaign.write_text(yaml.safe_dump(CAMPAIGN))
    placed = replace(made, campaign=replace(made.campaign, path=campaign))
    for repeat in (1, 2):
        placed.publish(TWO, repeat)
        placed.account(TWO, repeat)
    return placed


@pytest.fixture
def command(finished: Made, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `scalewatt …` for the campaign: code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        folder = finished.folder
        site, results = folder / "profile" / "cluster.yaml", folder / "results"
        given = ("--site", site, "--results", results, "--work", folder / "work")
        code = main([str(word) for word in (*arguments, *given)])
        return code, *capsys.readouterr()

    return run


def refused(answer: tuple[int, str, str]) -> str:
    """The one line of a refusal."""
    code, out, err = answer
    assert (code, out, err.count("\n")) == (1, "", 1), (code, out, err)
    return err


def table(finished: Made) -> Path:
    return exclusions_path(finished.campaign)


def measurement(finished: Made, configuration: str = TWO, repeat: int = 1) -> str:
    name = measurement_of(finished.results, configuration, repeat)
    assert name is not None
    return name


def excluded(finished: Made) -> list[dict[str, object]]:
    return excluded_runs(read_exclusions(finished.campaign), finished.results)


# --- the table ----------------------------------------------------------------------------------


WRONG = {
    "an unknown configuration": (ROW.replace("n001", "n0001"), f"did you mean '{ONE}'?"),
    "a repeat that is no number": (
        ROW.replace(",1,", ",one,"),
        'repeat: "one" does not fit: input should be a valid integer',
    ),
    "a reason of two lines": (ROW.replace("a GPU was throttled", '"a GPU\nwas"'), "one line"),
    "a cell too many": (ROW.replace("\n", ",\n"), "columns: 6"),
}


@pytest.mark.parametrize(("rows", "words"), WRONG.values(), ids=WRONG)
def test_a_table_is_refused_for(rows: str, words: str, finished: Made) -> None:
    table(finished).write_text(HEAD + rows)
    with pytest.raises(InputError) as error:
        read_exclusions(finished.campaign)
    assert str(error.value).startswith(f"{table(finished)}: line ")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_row_counts_for_the_measurement_that_it_names(finished: Made) -> None:
    table(finished).write_text(
        HEAD
        + f"{TWO},2,exclude,of before,2026-01-31,0123456789ab\n"
        + f"{TWO},1,exclude,noisy,2026-01-31,{measurement(finished)}\n"
    )
    assert excluded(finished) == [{"configuration": TWO, "repeat": 1, "reason": "noisy"}]
    finished.publish(TWO, 1, seed=5)  # measured again
    assert excluded(finished) == []
    table(finished).write_text(HEAD + f"{TWO},1,exclude,always bad,2026-01-31,\n")
    assert [run["reason"] for run in excluded(finished)] == ["always bad"]


# --- scalewatt exclude --------------------------------------------------------------------------


def test_a_run_is_excluded_with_a_reason(finished: Made, command: Command) -> None:
    code, out, _ = command("exclude", TWO, 1, "--reason", "node n3 was  \nthrottled, twice")
    assert code == 0 and f"excluded: {TWO} repeat 1: node n3" in out
    (row,) = read_exclusions(finished.campaign)
    assert (row.run, row.reason) == ((TWO, 1), "node n3 was throttled, twice")
    assert row.measurement == measurement(finished)
    again = command("exclude", TWO, 1, "--reason", "twice")
    assert "is excluded already" in refused(again)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TWO, 1, "--reason", " "), "--reason: is missing"),
        ((TWO, 3, "--reason", "a"), "has no repeat 3; allowed: 1 to 2"),
        ((ONE, 1, "--reason", "a"), "is not finished"),
    ],
)
def test_exclude_refuses(
    arguments: tuple[object, ...], words: str, finished: Made, command: Command
) -> None:
    assert words in refused(command("exclude", *arguments))
    assert not table(finished).exists()


def test_of_many_at_a_time_no_row_is_lost(finished: Made) -> None:
    wide = replace(finished.campaign, repeats={ONE: 2, TWO: 8})
    for repeat in range(3, 9):
        folder = finished.results / "runs" / TWO / str(repeat)
        folder.mkdir()
        (folder / "provenance.json").write_text(f"{repeat}")
    folders = CampaignFolders(wide, finished.cluster, finished.results, finished.work)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda r: exclude(folders, (TWO, r), "a storm"), range(1, 9)))
    assert sorted(row.repeat for row in read_exclusions(wide)) == list(range(1, 9))


def test_a_registered_run_is_excluded_and_not_measured_again(
    finished: Made,
) -> None:
    registered = replace(finished.campaign, registered=True)
    folders = CampaignFolders(registered, finished.cluster, finished.results, finished.work)
    exclude(folders, (TWO, 1), "noisy")
    assert [run["reason"] for run in excluded(finished)] == ["noisy"]
    with pytest.raises(InputError, match="nothing trains it"):
        remeasure(folders, (TWO, 1), "noisy")


# --- scalewatt remeasure ------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("set-aside.json", ".exclusions.lock")
    }


def everything_of_a_run(finished: Made) -> dict[str, bytes]:
    """All files that a finished run has, and what they are to be called when it is set aside."""
    folder = finished.work_folder()
    (folder / "result.json").write_text("{}")
    traces = finished.results / "traces" / TWO / "1.parquet"
    traces.parent.mkdir(parents=True)
    traces.write_bytes(b"traces")
    for name in ("1.epochs.parquet", "10.parquet"):
        (finished.results / "energy" / TWO / name).write_bytes(name.encode())
    kept = f"superseded/{TWO}/1/1"
    moved = {}
    for path, content in contents(finished.folder).items():
        root = path.replace("results/made/", "").replace("work/made/", "")
        if root.startswith(f"runs/{TWO}/1/"):
            moved[f"results/made/{kept}/run/{root.split('/', 3)[3]}"] = content
        elif root.startswith(f"traces/{TWO}/1."):
            moved[f"results/made/{kept}/traces.parquet"] = content
        elif root.startswith(f"energy/{TWO}/1."):
            moved[f"results/made/{kept}/energy{root.split('/1')[1]}"] = content
        elif path.startswith("work/"):
            moved[f"work/made/{kept}/{root}"] = content
        elif not path.startswith(("profile", "made.")):
            moved[path] = content
    return moved


def files_of_runs(finished: Made) -> dict[str, bytes]:
    files = contents(finished.folder).items()
    return {path: content for path, content in files if path.startswith(("results", "work"))}


def test_all_of_a_measurement_is_set_aside_and_nothing_of_another(
    finished: Made, command: Command
) -> None:
    expected = everything_of_a_run(finished)
    before = measurement(finished)
    code, out, _ = command("remeasure", TWO, 1, "--reason", "a neighbour")
    assert code == 0 and f"superseded/{TWO}/1/1" in out
    assert files_of_runs(finished) == expected
    (row,) = read_exclusions(finished.campaign)
    assert (row.action, row.reason, row.measurement) == ("remeasure", "a neighbour", before)
    assert finished.run(TWO, 1)["state"] == "not_started"


@pytest.mark.parametrize("step", range(1, 7))
def test_killed_in_between_nothing_is_lost_and_the_same_command_moves_the_rest(
    step: int, finished: Made, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_of_a_run(finished)  # traces, three tables of energy, a working directory: six moves
    before = sorted(files_of_runs(finished).values())
    rename, done = os.rename, []

    def killed(source: Path, target: Path) -> None:
        done.append(source)
        if len(done) == step:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(remeasuring.os, "rename", killed)
        assert command("remeasure", TWO, 1, "--reason", "a neighbour")[0] == 130
    assert measurement_of(finished.results, TWO, 1), "the run folder moves last"
    assert command("remeasure", TWO, 1, "--reason", "a neighbour")[0] == 0
    assert measurement_of(finished.results, TWO, 1) is None
    kept = files_of_runs(finished)
    assert sorted(kept[path] for path in kept if not path.endswith("set-aside.json")) == before
    assert [path.name for path in (finished.results / "superseded" / TWO / "1").iterdir()] == ["1"]


def test_what_was_set_aside_was_used_all_the_same(finished: Made, command: Command) -> None:
    before = finished.used()
    assert command("remeasure", TWO, 1, "--reason", "a")[0] == 0
    after = finished.used()
    assert after.pop("superseded_energy_kwh") == pytest.approx(0.45)
    assert before.pop("superseded_energy_kwh") == 0
    assert after == before
    assert finished.run(TWO, 1)["energy_kwh"] is None


def test_remeasure_refuses_what_is_not_finished_given_or_free(
    finished: Made, command: Command
) -> None:
    assert "is not finished" in refused(command("remeasure", ONE, 1, "--reason", "a"))
    assert not (finished.results / ".exclusions.lock").exists(), "a refusal leaves nothing behind"
    assert "--reason: is missing" in refused(command("remeasure", TWO, 1, "--reason", " "))
    assert not table(finished).exists()
    finished.held(finished.work_folder())
    before = contents(finished.folder)
    assert "job 7 (process 99 on n1) since" in refused(
        command("remeasure", TWO, 1, "--reason", "a")
    )
    assert contents(finished.folder) == before
    finished.publish(TWO, 1, seed=9)
    assert "its results are of another spec" in refused(
        command("remeasure", TWO, 1, "--reason", "a")
    )


def test_remeasure_refuses_a_run_in_the_queue(
    finished: Made, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.folder)
    submitted(finished)
    err = refused(command("remeasure", TWO, 1, "--reason", "a"))
    assert "its job 8 is in Slurm's queue (PENDING)" in err and "scancel 8" in err
    queue(finished)
    assert command("remeasure", TWO, 1, "--reason", "a")[0] == 0
