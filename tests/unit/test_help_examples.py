"""--help: every command explains its arguments."""

from __future__ import annotations

import argparse
import re

import pytest

from scalewatt import __version__
from scalewatt.cli import command_line, main
from scalewatt.cli.command import COMMANDS

STEPS = {"prepare", "train", "simulate", "probe"}
"""What the workflow's rules call."""


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    (action,) = (a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does_and_explains_each_argument(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert re.search(r"\n\n[A-Z][^\n]+\.\n", text), "no description"
    choices = [action for action in parsers()[name]._actions if action.help is None]
    assert all(action.choices for action in choices)


def test_the_program_says_its_version_and_each_command_once_on_a_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    helps = {}
    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([option])
        assert ended.value.code == 0
        helps[option] = capsys.readouterr().out
    assert helps["--version"] == f"scalewatt {__version__}\n"
    listed = re.findall(r"^  ([a-z-]+) ", helps["--help"], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS.keys() - STEPS)
    lines = helps["--help"].splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) < 80


def test_an_unknown_option_is_answered_with_the_usage_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["claims", "demo"])
    text = capsys.readouterr().err
    assert ended.value.code == 2
    assert text.startswith("usage: scalewatt claims ") and "--results FOLDER" in text
    assert text.endswith("error: unrecognized arguments: demo\n")
