"""Taking out of a text what tells who somebody is: home folders, other own paths, names, addresses."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.validation import PROJECT_ROOT

HOME, PATH, NAME, ADDRESS = "$HOME", "<path>", "<name>", "<address>"
"""What stands in place of it."""
_SYSTEM = ("usr", "opt", "lib", "lib64", "bin", "sbin", "etc", "dev", "proc", "sys")
"""Top folders that are everybody's."""
_END = r"\s:'\"`<>()"
_HOMES = re.compile(
    rf"(?<![^{_END}])[^{_END}]*/(?:home|users)[^/{_END}]*/[^{_END}]*", re.IGNORECASE
)
"""Words with a path below what elsewhere is a folder of homes."""
_BEGINS = r"(?:(?<![\w.])|(?<=\s-[A-Za-z])|(?<=^-[A-Za-z]))"
"""Where an absolute path may begin: not within a relative one, but in `-I/x`."""
_ABSOLUTE = re.compile(rf"{_BEGINS}(?:/[^{_END}]*|~[\w.-]*/[^{_END}]*|~[A-Za-z][\w.-]*)")
_AT = re.compile(r"[^\s,;]+@[^\s,;]*")
_KEPT = re.compile("|".join(re.escape(one) for one in (HOME, PATH, NAME, ADDRESS)))
_SHORT = 4
"""Characters of a name; a shorter one is looked for as a whole word only."""
_NOBODY = {"root", "nobody"}
_WHO = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")
_ACCOUNTS = ("SLURM_JOB_ACCOUNT", "SLURM_ACCOUNT", "SBATCH_ACCOUNT", "SALLOC_ACCOUNT")


@dataclass(frozen=True)
class Redaction:
    """What is somebody's own."""

    homes: tuple[str, ...]
    """Home folders, absolute."""
    names: tuple[str, ...]
    """Names of users and accounts."""
    project: str | None = None
    """The checkout; paths in it are written relative to it."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Redaction:
        """Of the user of this process, as its environment and the system name him."""
        login, home = _login()
        homes = {environment.get("HOME"), home}
        homes |= {os.path.realpath(one) for one in homes if one}
        names = {environment.get(name) for name in (*_WHO, *_ACCOUNTS)} | {login}
        return cls(
            homes=tuple(sorted(one.rstrip("/") for one in homes if one and one.rstrip("/"))),
            names=tuple(sorted(name for name in names if name and name not in _NOBODY)),
            project=str(PROJECT_ROOT),
        )

    def text(self, text: str) -> str:
        """A text without homes, paths outside of the system's own folders, names and addresses."""
        if self.project:
            text = re.sub(rf"(?<![\w.-]){re.escape(self.project)}/(?=[\w.])", "", text)
        for home in sorted(self.homes, key=len, reverse=True):
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", HOME, text)
        text = _HOMES.sub(PATH, text)
        text = _ABSOLUTE.sub(lambda found: _shown(found[0]), text)
        text = _AT.sub(ADDRESS, text)
        return self._without_names(text)

    def deep(self, value: Any) -> Any:
        """A value of JSON with the texts in it redacted, keys excepted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.deep(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.deep(one) for one in value]
        return value

    def _without_names(self, text: str) -> str:
        for name in sorted(self.names, key=len, reverse=True):
            word = re.escape(name)
            if len(name) < _SHORT:
                word = rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])"
            parts, at = [], 0
            for kept in _KEPT.finditer(text):
                parts += [re.sub(word, NAME, text[at : kept.start()], flags=re.I), kept[0]]
                at = kept.end()
            text = "".join([*parts, re.sub(word, NAME, text[at:], flags=re.I)])
        return text


def _shown(path: str) -> str:
    """An absolute path of the system's own folders as it is, any other as PATH."""
    if not path.strip("/"):
        return path
    top = posixpath.normpath(f"/{path.lstrip('/')}").split("/")[1]
    return path if path.startswith("/") and top in _SYSTEM else PATH


def _login() -> tuple[str | None, str | None]:
    """Name and home of this process's user as the system has them; None where it does not."""
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError, OSError):
        return None, None
    return entry.pw_name, entry.pw_dir
