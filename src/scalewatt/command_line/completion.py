"""Scripts by which shells complete the command line, made of its parser.

A script holds all words, so that completing starts no Python. What takes a value of its own (a file,
a name) completes files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    words: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """One command: its options, and what its positional arguments may be (none: files)."""

    name: str
    help: str
    options: tuple[Option, ...]
    choices: tuple[str, ...]
    has_files: bool


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script for a shell of SHELLS, to be sourced there."""
    top, commands = commands_of(parser)
    if shell == "fish":
        return "\n".join(_fish(parser.prog, top, commands))
    bash = "\n".join(_bash(parser.prog, top, commands))
    if shell == "bash":
        return bash
    return (
        f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{bash}"
    )


def commands_of(parser: argparse.ArgumentParser) -> tuple[Command, list[Command]]:
    """The program itself and its commands."""
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    commands = [
        _command(name, _help(chosen.help), action.choices[name])
        for action in actions
        for name, chosen in zip(action.choices, action._choices_actions, strict=True)
    ]
    return _command(parser.prog, parser.description or "", parser), commands


def _command(name: str, help_: str, parser: argparse.ArgumentParser) -> Command:
    options: list[Option] = []
    choices: list[str] = []
    has_files = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        allowed = tuple(map(str, action.choices or ()))
        if action.option_strings:
            words, takes = tuple(action.option_strings), action.nargs != 0
            options.append(Option(words, _help(action.help), takes, allowed))
        elif allowed:
            choices += allowed
        else:
            has_files = True
    return Command(name, help_, tuple(options), tuple(choices), has_files)


def _help(text: str | None) -> str:
    return " ".join((text or "").split()).replace("%%", "%")


def _bash(program: str, top: Command, commands: list[Command]) -> Iterator[str]:
    """Also for zsh, by its bashcompinit."""
    name = f"_{program.replace('-', '_')}"
    yield f"{name}() {{"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '  local command="" words="" files="" i'
    yield "  COMPREPLY=()"
    # A profile or version before it takes no value, so the first word without a dash is the command.
    yield "  for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '    case "${COMP_WORDS[i]}" in -*) ;; *) command="${COMP_WORDS[i]}"; break ;; esac'
    yield "  done"
    yield '  case "$command $before" in'
    for command in commands:
        for option in command.options:
            if option.takes_value:
                patterns = "|".join(quote(f"{command.name} {word}") for word in option.words)
                yield f"    {patterns}) {_values(option)} ;;"
    yield '    *) case "$command" in'
    yield f'      "") words={quote(" ".join([*(c.name for c in commands), *_words(top)]))} ;;'
    for command in commands:
        words = quote(" ".join([*command.choices, *_words(command)]))
        files = " files=1" if command.has_files else ""
        yield f"      {command.name}) words={words}{files} ;;"
    yield "    esac ;;"
    yield "  esac"
    yield '  case "$word" in -*) files="" ;; esac'
    yield '  if [ -n "$words" ]; then'
    yield '    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -W "$words" -- "$word")'
    yield "  fi"
    yield '  if [ -n "$files" ]; then'
    yield '    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$word")'
    yield "  fi"
    yield "  return 0"
    yield "}"
    yield f"complete -o filenames -F {name} {program}"


def _values(option: Option) -> str:
    return f"words={quote(' '.join(option.choices))}" if option.choices else "files=1"


def _words(command: Command) -> list[str]:
    return [word for option in command.options for word in option.words]


def _fish(program: str, top: Command, commands: list[Command]) -> Iterator[str]:
    yield f"complete -c {program} -f"
    first = f"complete -c {program} -n __fish_use_subcommand"
    for option in top.options:
        yield f"{first} {_fish_option(option)}"
    for command in commands:
        yield f"{first} -a {quote(command.name)} -d {quote(command.help)}"
    for command in commands:
        within = f"complete -c {program} -n {quote(f'__fish_seen_subcommand_from {command.name}')}"
        if command.has_files:
            yield f"{within} -F"
        if command.choices:
            yield f"{within} -a {quote(' '.join(command.choices))}"
        for option in command.options:
            yield f"{within} {_fish_option(option)}"


def _fish_option(option: Option) -> str:
    parts = [f"-{'l' if w.startswith('--') else 's'} {w.lstrip('-')}" for w in option.words]
    if option.choices:
        parts.append(f"-x -a {quote(' '.join(option.choices))}")
    elif option.takes_value:
        parts.append("-r -F")
    return " ".join([*parts, f"-d {quote(option.help)}"])
