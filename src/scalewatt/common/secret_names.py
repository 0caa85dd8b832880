"""Names that secrets have, and commands without the values that such names are given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SECRET = (
    *("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"),
    *("AUTH", "COOKIE", "PRIVATE", "ACCOUNT", "USER", "MAIL"),
)
"""A variable, option or assignment with one of these in its name may be one."""
HIDDEN = "<secret>"
"""What stands in place of a value."""
_NAME = rf"[\w.+/@-]*(?:{'|'.join(SECRET)})[\w.+/@\[\]-]*"
_VALUE = r"""(?:"(?:\\.|[^"])*"|'[^']*'|\\.|[^\s"'\\;&|<>])+"""
_ASSIGNED = re.compile(rf"(?P<name>{_NAME}=){_VALUE}", re.IGNORECASE)
_BEHIND = re.compile(rf"(?P<name>(?<!\S)-{_NAME}\s+)(?!-){_VALUE}", re.IGNORECASE)
_OPTION = re.compile(rf"-{_NAME}", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"({_NAME}=).+", re.IGNORECASE | re.DOTALL)


def is_secret(name: str) -> bool:
    """Return True if a name has a word of SECRET in it."""
    return any(word in name.upper() for word in SECRET)


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return a command's words with HIDDEN in place of what options and assignments of such names are given.

    `--wandb-key X`, `--hf-token=X` and `WANDB_API_KEY=X`, as words and within a script of `sh -c`.
    """
    return list(_hidden(words))


def _hidden(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        if _OPTION.fullmatch(before) and not word.startswith("-"):
            yield HIDDEN
        elif whole := _ASSIGNMENT.fullmatch(word):
            yield f"{whole[1]}{HIDDEN}"
        else:
            text = _ASSIGNED.sub(rf"\g<name>{HIDDEN}", word)
            yield _BEHIND.sub(rf"\g<name>{HIDDEN}", text)
        before = word
