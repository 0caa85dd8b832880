"""Launchers in a command: refused, because the cluster's launcher has started the ranks already."""

from __future__ import annotations

import re
import shlex
from itertools import groupby, pairwise
from pathlib import PurePath

LAUNCHERS = {
    *("torchrun", "accelerate-launch", "deepspeed", "horovodrun"),
    *("mpiexec", "mpirun", "mpiexec.hydra", "orterun", "prun", "srun", "aprun", "jsrun", "ibrun"),
}
"""Programs that start ranks."""
_BY_FIRST_WORD = {"accelerate": "launch", "fabric": "run"}
"""Programs that start ranks if this is the word after their name."""
_MODULES = {
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    *("deepspeed.launcher.runner", "horovod.runner.launch"),
}
_WRAPPERS = {
    *("exec", "env", "time", "nice", "ionice", "nohup", "setsid", "timeout", "stdbuf", "command"),
    *("numactl", "taskset", "chrt", "unbuffer", "xargs", "sudo"),
    *("conda", "mamba", "micromamba", "uv", "poetry", "pipenv", "pixi", "pdm", "hatch", "rye"),
    *("apptainer", "singularity", "docker", "podman", "shifter", "enroot"),
    *("nsys", "ncu", "perf", "strace", "py-spy", "coverage"),
}
"""Programs that start the one named among their arguments."""
_KEYWORDS = {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}"}
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?:(?<=\s)|^)#.*$""", re.MULTILINE)
"""A comment, or what is quoted (in a group): there a # begins none."""
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_OPTIONS_WITH_VALUE = {"-W", "-X"}
"""Options of Python's own before its script or module."""
_SEPARATORS = "();<>|&\n"


def launcher_in(command: str, shell: bool) -> str | None:
    """Return the first launcher that a command starts, as it is named there; None without any.

    Programs and shell lines are looked at, not what a script does. ValueError if a quote is open.
    """
    commands = _commands_of_line(command) if shell else [shlex.split(command)]
    return next(filter(None, map(_launcher, commands)), None)


def _commands_of_line(line: str) -> list[list[str]]:
    """Return the words of each command of a shell line."""
    line = _COMMENT.sub(lambda match: match[1] or "", line.replace("\\\n", " "))
    words = shlex.shlex(line.replace("`", ";"), posix=True, punctuation_chars=_SEPARATORS)
    words.whitespace_split, words.commenters, words.whitespace = True, "", " \t\r"
    parts = groupby(words, key=lambda word: bool(word) and set(word) <= set(_SEPARATORS))
    return [list(part) for is_separator, part in parts if not is_separator]


def _launcher(words: list[str]) -> str | None:
    """Return the launcher that a command of these words starts."""
    while words and (words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    if not words:
        return None
    program, *others = words
    name = PurePath(program).name
    if name in LAUNCHERS:
        return program
    if name in _BY_FIRST_WORD and others[:1] == [_BY_FIRST_WORD[name]]:
        return f"{program} {others[0]}"
    if _PYTHON.fullmatch(name):
        return _launcher_of_python(program, others)
    if name in _SHELLS:
        return next(
            (
                launcher_in(line, shell=True)
                for option, line in pairwise(others)
                if re.fullmatch(r"-\w*c", option)
            ),
            None,
        )
    if name in _WRAPPERS:
        rests = (others[place:] for place, word in enumerate(others) if _starts_another(word))
        return next(map(_launcher, rests), None)
    return None


def _launcher_of_python(program: str, others: list[str]) -> str | None:
    """Return the launcher that Python runs, as a module or by the path of its program."""
    for place, word in enumerate(others):
        if place and others[place - 1] in _OPTIONS_WITH_VALUE:
            continue
        module = re.fullmatch(r"-[A-Za-z]*m(.*)", word)
        if module:
            name = module[1] or next(iter(others[place + 1 :]), "")
            return f"{program} -m {name}" if name in _MODULES else None
        if not word.startswith("-"):
            return word if PurePath(word).name in LAUNCHERS else None
    return None


def _starts_another(word: str) -> bool:
    name = PurePath(word).name
    known = name in LAUNCHERS or name in _BY_FIRST_WORD or name in _SHELLS
    return known or bool(_PYTHON.fullmatch(name))
