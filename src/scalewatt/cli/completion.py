"""Scripts by which shells complete the command line: to be sourced, or kept as files.

A script holds all words, so that completing starts no Python.
"""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "fish")

_SPLIT_OPTIONS = """
# bash takes --option=value for three words.
_scalewatt() {
  local words=() at=$COMP_CWORD i
  for i in "${!COMP_WORDS[@]}"; do
    if [ "${COMP_WORDS[i]}" != "=" ]; then words+=("${COMP_WORDS[i]}")
    elif [ "$i" -eq "$COMP_CWORD" ]; then words+=("")
    elif [ "$i" -lt "$COMP_CWORD" ]; then at=$((at - 1)); fi
  done
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$at
  _shtab_scalewatt
}
complete -o filenames -F _scalewatt scalewatt"""


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script for a shell of SHELLS, to be sourced there."""
    import shtab

    _complete_files(parser, shtab.FILE)
    script = shtab.complete(parser, shell=shell)
    return script + _SPLIT_OPTIONS if shell == "bash" else script


def _complete_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Let each value that is neither a choice nor a number be completed as a file's name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _complete_files(one, files)
        elif action.nargs != 0 and not action.choices and action.type not in (int, float):
            action.complete = files  # type: ignore[attr-defined]
