"""Commands that a user writes, with placeholders in braces."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from string import Formatter

from scalewatt.common.errors import nearest


def placeholders(command: str) -> set[str]:
    """Names in braces of a command."""
    return {name for _, name, _, _ in Formatter().parse(command) if name}


def check_words(command: str, allowed: Collection[str]) -> None:
    """Raise ValueError unless a command is words of a shell, with these placeholders at most."""
    hint = ""
    try:
        for _, name, form, conversion in Formatter().parse(command):
            if name is not None and name not in allowed:
                hint = nearest(name, allowed)
                raise ValueError(f"unknown placeholder '{{{name}}}'")
            if form or conversion:
                raise ValueError(f"'{{{name}}}' has more than its name in the braces")
        if not shlex.split(command.format(**dict.fromkeys(allowed, 1))):
            raise ValueError("is empty")
    except ValueError as error:
        names = ", ".join(f"{{{name}}}" for name in allowed)
        raise ValueError(
            f"{error}; allowed: words as in a shell with the placeholders {names}{hint}; "
            "a brace of the command itself is doubled: {{"
        ) from error
