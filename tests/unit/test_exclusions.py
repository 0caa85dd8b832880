"""Runs that are left out or measured again: the table that says so, and what the commands do."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from energy_files import gpu
from hypothesis import given
from hypothesis import strategies as st
from status_files import CAMPAIGN, CLUSTER, ONE, TWO, Made, queue, record, submitted

from scalewatt.campaign.exclusions import (
    EXCLUDE,
    Exclusion,
    excluded_runs,
    exclusions_path,
    measurement_of,
    read_exclusions,
    write_exclusions,
)
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.results.tables.derived_quantities import with_model_energies
from scalewatt.results.tables.frames import frame_of, values
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.tracking import remeasure as remeasuring
from scalewatt.tracking.exclude import exclude, undo
from scalewatt.tracking.remeasure import Place, remeasure

HEAD = "configuration,repeat,action,reason,date,measurement\n"
ROW = f"{ONE},1,exclude,a GPU was throttled,2026-01-31,0123456789ab\n"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(made: Made) -> Made:
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
def command(place: Made, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `scalewatt …` for the campaign: code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        folder = place.folder
        code = main(
            [
                *map(str, arguments),
                *(
                    "--site",
                    str(folder / "profile" / "cluster.yaml"),
                    "--results",
                    str(folder / "results"),
                ),
                *("--work", str(folder / "work")),
            ]
        )
        return code, *capsys.readouterr()

    return run


def refused(answer: tuple[int, str, str]) -> str:
    """The one line of a refusal."""
    code, out, err = answer
    assert (code, out, err.count("\n")) == (1, "", 1), (code, out, err)
    return err


def table(place: Made) -> Path:
    return exclusions_path(place.campaign)


def measurement(place: Made, configuration: str = TWO, repeat: int = 1) -> str:
    found = measurement_of(place.results, configuration, repeat)
    assert found is not None
    return found


def excluded(place: Made) -> list[dict[str, object]]:
    return excluded_runs(read_exclusions(place.campaign), place.results)


# --- the table ----------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            Exclusion,
            configuration=st.sampled_from([ONE, TWO]),
            repeat=st.integers(1, 2),
            action=st.just(EXCLUDE),
            reason=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1),
            date=st.sampled_from(["2026-01-31", "2024-02-29T23:59:59Z"]),
            measurement=st.sampled_from(["", "0123456789ab", "ffffffffffff"]),
        ),
        unique_by=lambda one: (one.run, one.measurement),
    )
)
def test_what_is_written_is_read_again_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Exclusion]
) -> None:
    made = Made.create(tmp_path_factory.mktemp("made"))
    campaign = replace(made.campaign, path=made.folder / "made.yaml")
    write_exclusions(campaign, rows)
    assert read_exclusions(campaign) == tuple(rows)


WRONG = {
    "an unknown configuration": (ROW.replace("n001", "n0001"), f"did you mean '{ONE}'?"),
    "an unknown repeat": (ROW.replace(",1,", ",3,"), "has no repeat 3; allowed: 1 to 2"),
    "a repeat that is no number": (
        ROW.replace(",1,", ",one,"),
        'repeat: "one" does not fit: input should be a valid integer',
    ),
    "an unknown action": (ROW.replace("exclude", "exlude"), "did you mean 'exclude'?"),
    "no reason": (
        ROW.replace("a GPU was throttled", " "),
        'reason: "" does not fit; allowed: why, in one line',
    ),
    "a reason of two lines": (ROW.replace("a GPU was throttled", '"a GPU\nwas"'), "one line"),
    "a wrong measurement": (
        ROW.replace("ab\n", "\n"),
        'measurement: "0123456789" does not fit; allowed: the first',
    ),
    "a cell too many": (ROW.replace("\n", ",\n"), "columns: 6"),
}


@pytest.mark.parametrize(("rows", "words"), WRONG.values(), ids=WRONG)
def test_a_table_is_refused_for(rows: str, words: str, place: Made) -> None:
    table(place).write_text(HEAD + rows)
    with pytest.raises(InputError) as error:
        read_exclusions(place.campaign)
    assert str(error.value).startswith(f"{table(place)}: line ")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_row_counts_for_the_measurement_that_it_names(place: Made) -> None:
    table(place).write_text(
        HEAD
        + f"{TWO},2,exclude,of before,2026-01-31,0123456789ab\n"
        + f"{TWO},1,exclude,noisy,2026-01-31,{measurement(place)}\n"
    )
    assert excluded(place) == [{"configuration": TWO, "repeat": 1, "reason": "noisy"}]
    place.publish(TWO, 1, seed=5)  # measured again
    assert excluded(place) == []
    table(place).write_text(HEAD + f"{TWO},1,exclude,always bad,2026-01-31,\n")
    assert [run["reason"] for run in excluded(place)] == ["always bad"]


# --- scalewatt exclude --------------------------------------------------------------------------


def test_a_run_is_excluded_with_a_reason_and_taken_in_again(place: Made, command: Command) -> None:
    code, out, _ = command("exclude", TWO, 1, "--reason", "node n3 was  \nthrottled, twice")
    assert code == 0 and "1 of 2 finished repeats of this configuration are left" in out
    (row,) = read_exclusions(place.campaign)
    assert (row.run, row.reason) == ((TWO, 1), "node n3 was throttled, twice")
    assert row.measurement == measurement(place)
    assert "2 of 2" in command("exclude", TWO, 1, "--undo")[1]
    assert read_exclusions(place.campaign) == () and table(place).read_text() == HEAD


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TWO, 1), "--reason: is missing"),
        ((TWO, 1, "--reason", " "), "--reason: is missing"),
        ((TWO, "--reason", "a"), "expected CONFIGURATION REPEAT"),
        (("--reason", "a"), "expected CONFIGURATION REPEAT"),
        (("--undo",), "expected CONFIGURATION REPEAT"),
        ((TWO, 3, "--reason", "a"), "has no repeat 3; allowed: 1 to 2"),
        ((TWO.replace("full", "ful"), 1, "--reason", "a"), f"did you mean '{TWO}'?"),
        ((ONE, 1, "--reason", "a"), "is not finished"),
        ((TWO, 1, "--undo"), "is not excluded"),
        ((TWO, 1, "--undo", "--reason", "a"), "of no use with --undo"),
    ],
)
def test_exclude_refuses(
    arguments: tuple[object, ...], words: str, place: Made, command: Command
) -> None:
    assert words in refused(command("exclude", *arguments))
    assert not table(place).exists()


def test_of_many_at_a_time_no_row_is_lost(place: Made) -> None:
    wide = replace(place.campaign, repeats={ONE: 2, TWO: 8})
    for repeat in range(3, 9):
        folder = place.results / "runs" / TWO / str(repeat)
        folder.mkdir()
        (folder / "provenance.json").write_text(f"{repeat}")
    found = Place(wide, place.cluster, place.results, place.work)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda r: exclude(found, (TWO, r), "a storm"), range(1, 9)))
    assert sorted(one.repeat for one in read_exclusions(wide)) == list(range(1, 9))


def test_a_registered_run_stays_excluded_though_its_provenance_gets_a_neighbour(
    place: Made,
) -> None:
    registered = replace(place.campaign, registered=True)
    found = Place(registered, place.cluster, place.results, place.work)
    exclude(found, (TWO, 1), "noisy")
    place.publish(TWO, 1, seed=4)
    assert [one["reason"] for one in excluded(place)] == ["noisy"]
    assert undo(found, (TWO, 1))[0].startswith("no longer excluded")
    with pytest.raises(InputError, match="is of registered runs, which nothing trains"):
        remeasure(found, (TWO, 1), "noisy")


def model_energies(rows: list[dict[str, object]]) -> list[float | None]:
    return values(with_model_energies(frame_of(rows, RUNS))["energy_per_model_kwh"])


def test_energy_of_an_excluded_pretraining_is_in_no_models_energy() -> None:
    before = {"configuration": "a", "repeat": 1, "initial_weights": None, "excluded": None}
    before |= {"energy_kwh": 2.0, "net_energy_kwh": 1.0}
    before = dict.fromkeys(RUNS.names) | before
    after = {**before, "configuration": "b", "initial_weights": "a/1", "energy_kwh": 0.5}
    assert model_energies([before, after])[1] == 2.5
    before["excluded"] = "noisy"
    assert model_energies([before, after])[1] is None


# --- scalewatt remeasure ------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("set-aside.json", ".exclusions.lock")
    }


def everything_of_a_run(place: Made) -> dict[str, bytes]:
    """All files that a finished run has, and what they are to be called when it is set aside."""
    folder = place.work_folder()
    (folder / "result.json").write_text("{}")
    traces = place.results / "traces" / TWO / "1.parquet"
    traces.parent.mkdir(parents=True)
    traces.write_bytes(b"traces")
    for name in ("1.epochs.parquet", "10.parquet"):
        (place.results / "energy" / TWO / name).write_bytes(name.encode())
    kept = f"superseded/{TWO}/1/1"
    found = {}
    for path, content in contents(place.folder).items():
        root = path.replace("results/made/", "").replace("work/made/", "")
        if root.startswith(f"runs/{TWO}/1/"):
            found[f"results/made/{kept}/run/{root.split('/', 3)[3]}"] = content
        elif root.startswith(f"traces/{TWO}/1."):
            found[f"results/made/{kept}/traces.parquet"] = content
        elif root.startswith(f"energy/{TWO}/1."):
            found[f"results/made/{kept}/energy{root.split('/1')[1]}"] = content
        elif path.startswith("work/"):
            found[f"work/made/{kept}/{root}"] = content
        elif not path.startswith(("profile", "made.")):
            found[path] = content
    return found


def files_of_runs(place: Made) -> dict[str, bytes]:
    found = contents(place.folder).items()
    return {path: content for path, content in found if path.startswith(("results", "work"))}


def test_all_of_a_measurement_is_set_aside_and_nothing_of_another(
    place: Made, command: Command
) -> None:
    expected = everything_of_a_run(place)
    before = measurement(place)
    code, out, _ = command("remeasure", TWO, 1, "--reason", "a neighbour")
    assert code == 0 and f"superseded/{TWO}/1/1" in out
    assert files_of_runs(place) == expected
    (row,) = read_exclusions(place.campaign)
    assert (row.action, row.reason, row.measurement) == ("remeasure", "a neighbour", before)
    assert place.run(TWO, 1)["state"] == "not_started"
    assert place.run(TWO, 1)["superseded"] == 1


@pytest.mark.parametrize("step", range(1, 7))
def test_killed_in_between_nothing_is_lost_and_the_same_command_moves_the_rest(
    step: int, place: Made, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_of_a_run(place)  # traces, three tables of energy, a working directory: six moves
    before = sorted(files_of_runs(place).values())
    rename, done = os.rename, []

    def killed(source: Path, target: Path) -> None:
        done.append(source)
        if len(done) == step:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(remeasuring.os, "rename", killed)
        assert command("remeasure", TWO, 1, "--reason", "a neighbour")[0] == 130
    assert measurement_of(place.results, TWO, 1), "the run folder moves last"
    assert command("remeasure", TWO, 1, "--reason", "a neighbour")[0] == 0
    assert measurement_of(place.results, TWO, 1) is None
    kept = files_of_runs(place)
    assert sorted(kept[path] for path in kept if not path.endswith("set-aside.json")) == before
    assert [path.name for path in (place.results / "superseded" / TWO / "1").iterdir()] == ["1"]


def test_what_was_set_aside_was_used_all_the_same(place: Made, command: Command) -> None:
    before = place.used()
    assert command("remeasure", TWO, 1, "--reason", "a")[0] == 0
    after = place.used()
    assert after.kwh == pytest.approx(before.kwh) == pytest.approx(0.9)
    assert after.gpu_hours == pytest.approx(before.gpu_hours)
    assert (before.superseded_kwh, after.superseded_kwh) == (0, pytest.approx(0.45))
    assert place.run(TWO, 1)["energy_kwh"] is None


def test_without_its_energy_table_what_was_set_aside_is_counted_from_its_journals(
    place: Made, command: Command
) -> None:
    (place.results / "energy" / TWO / "1.parquet").unlink()
    record(place.results / "runs" / TWO / "1", {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9)})
    assert command("remeasure", TWO, 1, "--reason", "a")[0] == 0
    assert not any("superseded measurement 1" in name for name in place.used().unknown_runs)
    (place.results / "superseded" / TWO / "1" / "1" / "run" / "spec.json").unlink()
    assert any("superseded measurement 1" in name for name in place.used().unknown_runs)


def test_a_run_that_is_measured_again_is_excluded_no_more(place: Made, command: Command) -> None:
    command("exclude", TWO, 1, "--reason", "noisy")
    out = command("remeasure", TWO, 1, "--reason", "noisy")[1]
    assert "stays excluded" not in out and excluded(place) == []


def test_remeasure_refuses_what_is_not_finished_given_or_free(
    place: Made, command: Command
) -> None:
    assert "is not finished" in refused(command("remeasure", ONE, 1, "--reason", "a"))
    assert not (place.results / ".exclusions.lock").exists(), "a refusal leaves nothing behind"
    assert "--reason: is missing" in refused(command("remeasure", TWO, 1))
    assert not table(place).exists()
    place.held(place.work_folder())
    before = contents(place.folder)
    assert "job 7 (process 99 on n1) since" in refused(
        command("remeasure", TWO, 1, "--reason", "a")
    )
    assert contents(place.folder) == before
    place.publish(TWO, 1, seed=9)
    assert "are of another spec" in refused(command("remeasure", TWO, 1, "--reason", "a"))


def test_remeasure_refuses_a_run_in_the_queue(
    place: Made, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    submitted(place)
    err = refused(command("remeasure", TWO, 1, "--reason", "a"))
    assert "its job 8 is in Slurm's queue (PENDING)" in err and "scancel 8" in err
    queue(place)
    assert command("remeasure", TWO, 1, "--reason", "a")[0] == 0
