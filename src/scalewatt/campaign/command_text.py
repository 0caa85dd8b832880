"""Commands that a user writes, with placeholders in braces."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from string import Formatter

from pydantic import AfterValidator

from scalewatt.common.errors import nearest


def placeholders(command: str) -> set[str]:
    """Names in braces of a command."""
    return {name for _, name, _, _ in Formatter().parse(command) if name}


def words_with(allowed: Collection[str]) -> AfterValidator:
    """Validator of a command: words of a shell, with these placeholders at most."""

    def check(command: str) -> str:
        try:
            for _, name, form, conversion in Formatter().parse(command):
                if name is not None and (name not in allowed or form or conversion):
                    raise ValueError(f"unknown placeholder '{{{name}}}'{nearest(name, allowed)}")
            if not shlex.split(command.format(**dict.fromkeys(allowed, 1))):
                raise ValueError("is empty")
        except ValueError as error:
            names = " ".join(f"{{{name}}}" for name in allowed)
            raise ValueError(
                f"{error}; allowed: words as in a shell with {names}; a brace of the command itself is "
                "doubled: {{"
            ) from error
        return command

    return AfterValidator(check)
