"""Completion in real shells."""

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

from scalewatt.cli import COMMANDS, command_line
from scalewatt.cli.reproducing import SHELLS, completion_script
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.figures.draw_figure import NAMED

ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _scalewatt
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "completion"
    path.write_text(completion_script("bash", command_line()))
    return path


def bash(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """What bash would offer after these words, the last of which is not finished."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK_BASH, "bash", str(script), *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_every_command(script: Path) -> None:
    assert set(bash(script, "scalewatt", "")) == set(COMMANDS)
    assert bash(script, "scalewatt", "pla") == ["plan"]
    assert bash(script, "scalewatt", "--v") == ["--version"]


def test_bash_completes_a_commands_options_and_no_others(script: Path) -> None:
    assert bash(script, "scalewatt", "plan", "--dead") == ["--deadline-h"]
    assert bash(script, "scalewatt", "doctor", "--") == ["--help", "--profile", "--json"]
    assert bash(script, "scalewatt", "--help", "doctor", "--j") == ["--json"]


def test_bash_completes_choices(script: Path) -> None:
    assert bash(script, "scalewatt", "completion", "") == list(SHELLS)
    assert set(NAMED) < set(bash(script, "scalewatt", "figure", ""))


@pytest.mark.parametrize(
    "before", [["campaign"], ["plan", "--profile"], ["plan", "--profile", "="], ["energy", "a"]]
)
def test_bash_completes_files_where_files_may_stand(
    before: list[str], script: Path, tmp_path: Path
) -> None:
    (tmp_path / "cluster-one.yaml").touch()
    given = ["scalewatt", *before, "clus"]
    assert bash(script, *given, folder=tmp_path) == ["cluster-one.yaml"]


def test_bash_offers_options_where_a_dash_was_typed(script: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster-one.yaml").touch()
    for before in (["campaign"], ["energy", "a"]):
        offered = bash(script, "scalewatt", *before, "--", folder=tmp_path)
        assert "--cluster" in offered and "cluster-one.yaml" not in offered


@pytest.mark.parametrize(
    "before", [["plan", "--from"], ["plan", "--deadline-h"], ["prepare", "--processes"]]
)
def test_bash_offers_no_files_for_numbers(before: list[str], script: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster-one.yaml").touch()
    assert bash(script, "scalewatt", *before, "", folder=tmp_path) == []


def test_no_option_of_a_command_is_left_out(script: Path) -> None:
    (action,) = (a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction))
    text = script.read_text()
    for name, parser in action.choices.items():
        shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
        words = {word for one in shown for word in one.option_strings}
        prefix = f"_shtab_scalewatt_{name.replace('-', '_')}"
        (listed,) = re.findall(rf"^{prefix}_option_strings=\((.*)\)$", text, re.MULTILINE)
        assert set(shlex.split(listed)) == words


def test_what_it_prints_has_no_errors_for_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which the lines of the documents were typed."""
    page = (PROJECT_ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```sh\n(.*?)```", page.partition("## Completion")[2], re.DOTALL)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {"HOME": str(tmp_path), "PATH": path}
    subprocess.run(["bash", "-euc", lines], env=environment, check=True)
    return tmp_path


@pytest.mark.slow
def test_the_documents_lines_leave_a_file_for_each_shell(home: Path) -> None:
    files = {
        "bash": ".local/share/bash-completion/completions/scalewatt",
        "zsh": ".zfunc/_scalewatt",
        "fish": ".config/fish/completions/scalewatt.fish",
    }
    for shell, file in files.items():
        written = (home / file).read_text(encoding="utf-8")
        assert written == completion_script(shell, command_line()) + "\n"
    assert bash(home / files["bash"], "scalewatt", "pla") == ["plan"]


TYPED = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($HOME/.zfunc \\$fpath); autoload -U compinit; compinit -u -D; echo re''ady"
zpty -r shell said '*ready*'
zpty -w -n shell $'scalewatt completion f\t'
zpty -r shell said '*fish*' && echo "$said"
zpty -d shell
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_from_a_file_at_the_first_tab(home: Path) -> None:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb"}
    done = subprocess.run(
        ["zsh", "-f", "-c", TYPED], env=environment, capture_output=True, text=True, timeout=60
    )
    assert "completion fish" in done.stdout


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pla", "plan"),
        ("completion f", "fish"),
        ("doctor --js", "--json"),
        ("figure par", "pareto"),
    ],
)
def test_fish_completes(typed: str, offered: str, tmp_path: Path) -> None:
    path = tmp_path / "completion"
    path.write_text(completion_script("fish", command_line()))
    ask = f"source {path}; complete -C 'scalewatt {typed}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [offered]
