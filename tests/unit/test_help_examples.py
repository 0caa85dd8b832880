"""--help: every command shows examples, they are right, and cheap ones really run."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalewatt import __version__
from scalewatt.cli import COMMANDS, command_line, main

ROOT = Path(__file__).parents[2]
LINKED = ("config.yaml", "profiles", "reference")
"""All that commands without data read; the package finds the rest by itself."""
CHEAP = ("campaign", "keys", "plan", "pilot", "claims", "completion")
_SOURCE = "source <("


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    (action,) = (a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """The examples that a command's help ends with, continuation lines joined."""
    _, heading, listed = (parser.epilog or "").partition("examples:\n")
    assert heading, parser.prog
    joined = listed.replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def arguments(example: str) -> list[str]:
    """The words after `scalewatt`, of an example that a shell would expand or source."""
    command = example.removeprefix(_SOURCE).removesuffix(")") if _SOURCE in example else example
    words = shlex.split(command.split(" | ")[0])
    assert words[0] == "scalewatt", example
    return ["{}" if word.startswith("$(") else word for word in words[1:]]


ALL = {name: examples(parser) for name, parser in parsers().items()}
EACH = [(name, example) for name, found in ALL.items() for example in found]


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    assert set(parsers()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does_and_ends_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert re.search(r"\n\n[A-Z][^\n]+\.\n", text), "no description"
    assert "\nexamples:\n  " in text
    assert max(map(len, text.split("examples:")[1].splitlines())) <= 110


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_each_argument(name: str) -> None:
    unexplained = [
        action.option_strings or action.dest
        for action in parsers()[name]._actions
        if action.help is None
    ]
    assert unexplained == []


@pytest.mark.parametrize(("name", "example"), EACH)
def test_an_example_is_right_and_of_its_command(name: str, example: str) -> None:
    assert command_line().parse_args(arguments(example)).command == name


def test_the_program_says_its_version_and_all_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, words in (("--version", [f"scalewatt {__version__}"]), ("--help", list(COMMANDS))):
        with pytest.raises(SystemExit) as ended:
            main([option])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert not [word for word in words if word not in text]


def test_the_help_lists_each_command_once_below_what_it_is_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z-]+) ", text, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    assert all(COMMANDS[name].does.split()[0] in text for name in listed)


def test_a_misspelt_command_is_told_what_comes_near_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reprodce"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "unknown 'reprodce'; allowed: " in said and "did you mean 'reproduce'?" in said


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a fresh checkout has, as far as these commands read it."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    # What examples write to, or write beside.
    (folder / "campaigns").mkdir()
    for path in (ROOT / "campaigns").glob("*.yaml"):
        (folder / "campaigns" / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("images"))
    return folder


def cheap_examples() -> dict[str, str]:
    """The first example of each cheap command that asks for no results of a campaign."""
    return {name: next(e for e in ALL[name] if "results/" not in e) for name in CHEAP}


@pytest.mark.slow
@pytest.mark.parametrize("example", cheap_examples().values(), ids=cheap_examples())
def test_an_example_that_needs_no_data_really_runs(example: str, copy: Path) -> None:
    command = shlex.join([sys.executable, "-m", "scalewatt.cli"])
    script = re.sub(r"\bscalewatt (?=[a-z])", lambda _: f"{command} ", example)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=copy,
        env={**os.environ, "SCALEWATT_ACCOUNT": "none"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
