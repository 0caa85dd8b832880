"""Scripts by which shells complete the command line, made of its parser: to be sourced, or kept as files.

A script holds all words, so that completing starts no Python. What takes a value of its own (a file,
a name) completes files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

SHELLS = ("bash", "zsh", "fish")
_ZSH = """\
#compdef scalewatt
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit"""


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    words: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    has_files: bool
    """Whether its value may be a file's name."""


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
    script = "\n".join(_bash(parser.prog, top, commands, for_zsh=shell == "zsh"))
    return f"{_ZSH}\n{script}\n{_zsh_first(parser.prog)}" if shell == "zsh" else script


def _zsh_first(program: str) -> str:
    """For a file in fpath: zsh reads it at the first completion, which it has to answer as well."""
    name = f"_{program.replace('-', '_')}"
    return f'[ "${{funcstack[1]}}" = {name} ] && _bash_complete -o default -F {name} || true'


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
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        allowed = tuple(map(str, action.choices or ()))
        if action.option_strings:
            words, takes = tuple(action.option_strings), action.nargs != 0
            files = takes and not allowed and action.type not in (int, float)
            options.append(Option(words, _help(action.help), takes, allowed, files))
        elif allowed:
            choices += allowed
        else:
            has_files |= action.type not in (int, float)
    return Command(name, help_, tuple(options), tuple(choices), has_files)


def _help(text: str | None) -> str:
    return " ".join((text or "").split()).replace("%%", "%")


def _bash(program: str, top: Command, commands: list[Command], for_zsh: bool) -> Iterator[str]:
    """Also for zsh's bashcompinit, which completes files itself where nothing else is found."""
    name = f"_{program.replace('-', '_')}"
    yield f"{name}() {{"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '  local command="" words="" options="" files="" i'
    yield "  COMPREPLY=()"
    # bash takes --option=value for three words.
    yield '  if [ "$word" = "=" ]; then word=""'
    yield '  elif [ "$before" = "=" ]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi'
    # No option before the command takes a value, so the first word without a dash is the command.
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
    names = quote(" ".join(command.name for command in commands))
    yield f'      "") words={names} options={_options(top)} ;;'
    for command in commands:
        words = quote(" ".join(command.choices))
        files = " files=1" if command.has_files else ""
        yield f"      {command.name}) words={words} options={_options(command)}{files} ;;"
    yield "    esac ;;"
    yield "  esac"
    yield '  case "$word" in -*) words="$options" files="" ;; esac'
    lines = 'while IFS= read -r i; do COMPREPLY+=("$i"); done'
    yield f'  if [ -n "$words" ]; then {lines} < <(compgen -W "$words" -- "$word"); fi'
    if not for_zsh:
        yield f'  if [ -n "$files" ]; then {lines} < <(compgen -f -- "$word"); fi'
    yield "  return 0"
    yield "}"
    yield f"complete -o {'default' if for_zsh else 'filenames'} -F {name} {program}"


def _values(option: Option) -> str:
    if option.choices:
        return f"words={quote(' '.join(option.choices))}"
    return "files=1" if option.has_files else ":"


def _options(command: Command) -> str:
    return quote(" ".join(word for option in command.options for word in option.words))


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
        parts.append("-r -F" if option.has_files else "-x")
    return " ".join([*parts, f"-d {quote(option.help)}"])
