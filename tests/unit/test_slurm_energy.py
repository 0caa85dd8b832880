"""Slurm's ConsumedEnergy, asked of a stand-in `sacct`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.common.files import read_json, write_json
from scalewatt.slurm import step_energy as slurm_energy
from scalewatt.slurm.step_energy import (
    note_slurm_energies,
    parse_elapsed,
    slurm_step,
)

STEP = {"job": "4711", "step": "0"}


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that prints what the test writes to `answer`, and notes how it was called.

    The steps began when the test wrote to `start`, else now.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "sacct"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/calls\n'
        'case "$SLURM_TIME_FORMAT" in "%s") ;; *) exit 1;; esac\n'
        f"start=$(cat {tmp_path}/start 2> /dev/null || date +%s)\n"
        f'sed "s/$/|$start/" {tmp_path}/answer\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(slurm_energy, "TRIES_S", 0.0)
    monkeypatch.setattr(slurm_energy, "PAUSE_S", 0.01)
    return program


def note(folder: Path, answer: str, slurm: dict[str, str] | None = STEP) -> Path:
    (folder / "answer").write_text(answer)
    write_json(folder / "segment-000.json", {"hostnames": ["n1"], "slurm": slurm})
    out = folder / "segment-000.slurm-energy.json"
    note_slurm_energies([(folder / "segment-000.json", out)])
    return out


def test_slurm_s_energy_of_the_step_is_noted(tmp_path: Path, sacct: Path) -> None:
    out = note(tmp_path, "4711|COMPLETED|99|01:00:00|2\n4711.0|COMPLETED|1234567|00:10:05|2\n")
    found = read_json(out)
    assert found.pop("asked_s") > 1.7e9
    assert found == {
        "job": "4711",
        "step": "0",
        "consumed_energy_j": 1_234_567.0,
        "elapsed_s": 605.0,
        "nodes": 2,
    }
    assert (tmp_path / "calls").read_text().split("\n")[0] == (
        "-n -P -j 4711.0 --format=JobIDRaw,State,ConsumedEnergyRaw,Elapsed,NNodes,Start"
    )


@pytest.mark.parametrize("energy", ["", "0", "18446744073709551614", "4294967294"])
def test_a_cluster_that_does_not_measure_gives_null(
    tmp_path: Path, sacct: Path, energy: str
) -> None:
    found = read_json(note(tmp_path, f"4711.0|COMPLETED|{energy}|00:10:05|2\n"))
    assert found["consumed_energy_j"] is None
    assert found["elapsed_s"] == 605.0


def test_the_accounting_is_asked_again_until_the_step_has_ended(
    tmp_path: Path, sacct: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_energy, "TRIES_S", 60.0)
    sacct.write_text(
        f"#!/bin/sh\necho call >> {tmp_path}/calls\n"
        f'if [ $(wc -l < {tmp_path}/calls) -gt 3 ]; then echo "4711.0|FAILED|77|00:01|1|$(date +%s)"\n'
        f"elif [ $(wc -l < {tmp_path}/calls) -gt 1 ]; then echo '4711.0|RUNNING|5|00:00|1|9'; fi\n"
    )
    assert read_json(note(tmp_path, ""))["consumed_energy_j"] == 77.0
    assert len((tmp_path / "calls").read_text().splitlines()) == 4


def test_a_missing_cross_check_never_fails_a_training(
    tmp_path: Path, sacct: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "answer").write_text("4711.0|COMPLETED|5|00:01|1\n")
    (tmp_path / "a-file").write_text("")
    (tmp_path / "damaged.json").write_text("{")
    write_json(tmp_path / "segment-001.json", {"slurm": STEP})
    outs = [tmp_path / "a-file" / "0.json", tmp_path / "1.json", tmp_path / "2.json"]
    descriptions = ("segment-001.json", "damaged.json", "segment-001.json")
    note_slurm_energies([(tmp_path / d, out) for d, out in zip(descriptions, outs, strict=True)])
    assert capsys.readouterr().err.count("not noted") == 2
    assert not outs[1].exists()
    assert read_json(outs[2])["consumed_energy_j"] == 5.0


def test_all_segments_are_asked_for_in_one_call(tmp_path: Path, sacct: Path) -> None:
    (tmp_path / "answer").write_text("4711.0|COMPLETED|5|00:01|1\n4712.3|FAILED|6|00:01|1\n")
    segments = []
    for number, step in enumerate((STEP, {"job": "4712", "step": "3"}, None)):
        write_json(tmp_path / f"{number}.in", {"slurm": step})
        segments.append((tmp_path / f"{number}.in", tmp_path / f"{number}.out"))
    note_slurm_energies(segments)
    assert "-j 4711.0,4712.3 " in (tmp_path / "calls").read_text()
    assert [read_json(out)["consumed_energy_j"] for _, out in segments[:2]] == [5.0, 6.0]
    assert not segments[2][1].exists()


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_elapsed_times_are_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    expected = 86_400 * days + 3600 * hours + 60 * minutes + seconds
    assert parse_elapsed(f"{days}-{text}" if days else text) == expected


@pytest.mark.parametrize(
    ("environment", "step"),
    [
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, STEP),
        ({"SLURM_JOBID": "4711", "SLURM_STEPID": "0"}, STEP),
        ({"SLURM_JOB_ID": "4711"}, None),
        ({}, None),
    ],
)
def test_a_rank_knows_its_step(environment: dict[str, str], step: dict[str, str] | None) -> None:
    assert slurm_step(environment) == step
