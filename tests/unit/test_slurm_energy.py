"""Slurm's ConsumedEnergy, asked of a stand-in `sacct`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scalewatt.common.files import read_json, write_json
from scalewatt.slurm import step_energy as slurm_energy
from scalewatt.slurm.step_energy import (
    note_slurm_energies,
    slurm_step,
)

STEP = {"job": "4711", "step": "0"}


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that prints what the test writes to `answer`, and notes how it was called.

    The steps began and ended now.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "sacct"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/calls\n'
        'case "$SLURM_TIME_FORMAT" in "%s") ;; *) exit 1;; esac\n'
        f'sed "s/$/|$(date +%s)|$(date +%s)/" {tmp_path}/answer\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(slurm_energy, "LAG_S", 0.0)
    return program


def note(folder: Path, answer: str, slurm: dict[str, str] | None = STEP) -> Path:
    (folder / "answer").write_text(answer)
    write_json(folder / "segment-000.json", {"hostnames": ["n1"], "slurm": slurm})
    out = folder / "segment-000.slurm-energy.json"
    note_slurm_energies([(folder / "segment-000.json", out)])
    return out


def test_slurm_s_energy_of_the_step_is_noted(tmp_path: Path, sacct: Path) -> None:
    out = note(tmp_path, "4711|99|3600|2\n4711.0|1234567|605|2\n")
    noted = read_json(out)
    assert noted.pop("asked_s") > 1.7e9
    measured = {"consumed_energy_j": 1_234_567.0, "elapsed_s": 605.0, "nodes": 2}
    assert noted == {"job": "4711", "step": "0"} | measured
    assert (tmp_path / "calls").read_text().split("\n")[0] == (
        "-n -P -j 4711.0 --format=JobIDRaw,ConsumedEnergyRaw,ElapsedRaw,NNodes,Start,End"
    )


@pytest.mark.parametrize("energy", ["", "0", "18446744073709551614", "4294967294"])
def test_a_cluster_that_does_not_measure_gives_null(
    tmp_path: Path, sacct: Path, energy: str
) -> None:
    noted = read_json(note(tmp_path, f"4711.0|{energy}|605|2\n"))
    assert (noted["consumed_energy_j"], noted["elapsed_s"]) == (None, 605.0)


def test_a_step_whose_end_is_not_known_is_reported(
    tmp_path: Path, sacct: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sacct.write_text('#!/bin/sh\necho "4711.0|0|0|1|$(date +%s)|Unknown"\n')
    assert not note(tmp_path, "").exists()
    assert "sacct knows no end of 4711.0" in capsys.readouterr().err


def test_a_step_that_did_not_run_when_it_was_described_is_another(
    tmp_path: Path, sacct: Path
) -> None:
    sacct.write_text("#!/bin/sh\necho '4711.0|77|1|1|100|200'\n")
    assert not note(tmp_path, "").exists()


def test_a_missing_cross_check_never_fails_a_training(
    tmp_path: Path, sacct: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "answer").write_text("4711.0|5|1|1\n")
    (tmp_path / "damaged.json").write_text("{")
    write_json(tmp_path / "good.json", {"slurm": STEP})
    outs = [tmp_path / "1.json", tmp_path / "2.json"]
    descriptions = ("damaged.json", "good.json")
    note_slurm_energies([(tmp_path / d, out) for d, out in zip(descriptions, outs, strict=True)])
    assert not outs[0].exists() and read_json(outs[1])["consumed_energy_j"] == 5.0
    note_slurm_energies([(tmp_path / "good.json", tmp_path / "good.json" / "0.json")])
    sacct.write_text("#!/bin/sh\nexit 1\n")
    note_slurm_energies([(tmp_path / "good.json", tmp_path / "3.json")])
    assert capsys.readouterr().err.count("not noted") == 2


def test_all_segments_are_asked_for_in_one_call(tmp_path: Path, sacct: Path) -> None:
    (tmp_path / "answer").write_text("4711.0|5|1|1\n4712.3|6|1|1\n")
    segments = []
    for number, step in enumerate((STEP, {"job": "4712", "step": "3"}, None)):
        write_json(tmp_path / f"{number}.in", {"slurm": step})
        segments.append((tmp_path / f"{number}.in", tmp_path / f"{number}.out"))
    note_slurm_energies(segments)
    assert "-j 4711.0,4712.3 " in (tmp_path / "calls").read_text()
    assert [read_json(out)["consumed_energy_j"] for _, out in segments[:2]] == [5.0, 6.0]
    assert not segments[2][1].exists()


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
