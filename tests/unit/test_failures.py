"""What is printed last of a job that failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from scalewatt.common.errors import InputError
from scalewatt.targets.step import failure_lines, logged


def test_the_last_lines_of_a_log_and_its_path_stand_last(tmp_path: Path) -> None:
    log = tmp_path / "energy.log"
    log.write_text("".join(f"line {number}\n\n" for number in range(9)))
    lines = failure_lines("energy of a repeat 1", [str(log)])
    assert lines[0] == "scalewatt: failed: energy of a repeat 1"
    assert lines[1:-1] == [f"  line {number}" for number in range(4, 9)]
    assert lines[-1] == f"  log: {log}"


def test_a_log_that_was_never_written_is_named(tmp_path: Path) -> None:
    assert failure_lines("plan", [str(tmp_path / "plan.log")])[1:] == [
        f"  log: {tmp_path}/plan.log"
    ]


def rule_of(log: Path) -> SimpleNamespace:
    return SimpleNamespace(log=[str(log)], output=["plan.csv"])


def test_an_input_error_is_a_single_line_of_a_steps_log(tmp_path: Path) -> None:
    log = tmp_path / "plan.log"
    with pytest.raises(SystemExit), logged(rule_of(log)):
        print("so far")
        raise InputError("model.json: is no model")
    assert log.read_text() == "so far\nscalewatt: error: model.json: is no model\n"


def test_another_error_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "plan.log"
    with pytest.raises(SystemExit), logged(rule_of(log)):
        raise ValueError("unforeseen")
    assert log.read_text().startswith("Traceback") and "ValueError: unforeseen" in log.read_text()
