"""Remove secrets and identifying details (own paths, names, addresses) from text."""

from __future__ import annotations

import csv
import os
import posixpath
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalewatt.common.schema_validation import PROJECT_ROOT

HOME, PATH, NAME, ADDRESS, HIDDEN = "$HOME", "<path>", "<name>", "<address>", "<secret>"
"""Placeholders of what is taken out; HIDDEN of a secret."""

# --- what options and variables of a secret's name are given --------------------------------------

SECRET = (
    *("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "CREDENTIALS", "AUTH", "COOKIE"),
    *("ACCOUNT", "USER", "USERNAME", "MAIL", "EMAIL"),
)
"""The last word of a name whose value is not told: `--hf-token`, but not `--max-tokens`."""
_NAME_END = (
    rf"(?:(?<![A-Za-z0-9])(?:API|ACCESS|AUTH|PRIVATE|HF|WANDB)?(?:{'|'.join(SECRET)})|PASSWORD)"
    r"(?:[-_.]?(?:ID|\d{1,3}))?(?:\[[^\s\]]*\])*\]*"
)
_IN_NAME = r"[\w.+/@\[\]-]"
_VALUE = r"""(?:"(?:\\.|[^"\\])*(?:"|\\?\Z)|'[^']*(?:'|\Z)|\\.|[^\s"'\\;&|<>])+"""
_SECRET_NAME = re.compile(rf"{_NAME_END}\Z", re.IGNORECASE)
_OPTION = re.compile(rf"-{_IN_NAME}*?{_NAME_END}", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"({_IN_NAME}*?{_NAME_END}=).+", re.IGNORECASE | re.DOTALL)
_WITHIN = re.compile(
    rf"({_NAME_END}=|(?<!\S)-{_IN_NAME}*?{_NAME_END}\s+(?!-)){_VALUE}", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Tell whether a name's last word is a secret's, as of `AWS_ACCESS_KEY_ID`."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(words: Sequence[str]) -> list[str]:
    """Hide what options and assignments of a secret's name are given in a command's words.

    `--wandb-key X`, `--hf-token=X` and `WANDB_API_KEY=X`, as words and within a script of `sh -c`.
    """
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        if _OPTION.fullmatch(before) and not word.startswith("-"):
            shown.append(HIDDEN)
        elif whole := _ASSIGNMENT.fullmatch(word):
            shown.append(f"{whole[1]}{HIDDEN}")
        else:
            shown.append(_WITHIN.sub(rf"\1{HIDDEN}", word))
    return shown


# --- keys and addresses in text -------------------------------------------------------------------

with (Path(__file__).parent / "keys.csv").open(encoding="utf-8", newline="") as _file:
    _KEYS = {row["kind"]: row["pattern"] for row in csv.DictReader(_file)}
"""Forms of keys by their kind: each is its provider's own and means nothing else."""
_PASSWORD = "a password in an address"
_PEM_BODY = r"[\s\S]*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\Z)"
_WHOLE_KEY = re.compile(
    "|".join(
        f"(?:{pattern}{_PEM_BODY if 'PEM' in kind else ''})"
        for kind, pattern in _KEYS.items()
        if kind != _PASSWORD  # `Redaction` takes the whole address out
    )
)
_MAIL = r"(?<![\w.+-])(?!git@)[\w.+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b"


def known_keys(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, and the kind of each key or password of a known form, never the key itself."""
    for kind, pattern in _KEYS.items():
        yield from _lines(pattern, text, kind)


def mail_addresses(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, of each e-mail address in a text, and that it is one."""
    return _lines(_MAIL, text, "an e-mail address")


def _lines(pattern: str, text: str, kind: str) -> Iterator[tuple[int, str]]:
    for match in re.finditer(pattern, text):
        yield text.count("\n", 0, match.start()) + 1, kind


# --- identifying details --------------------------------------------------------------------------

_SYSTEM = ("usr", "lib", "lib64", "bin", "sbin", "etc", "dev", "proc", "sys")
"""Top folders that are everybody's; anybody may have a folder in /opt or /dev/shm."""
_END = r"\s:'\"`<>()"
_ABSOLUTE = re.compile(
    r"(?<![^\s'\"`=:,;(\[{>|])(?P<option>-[A-Za-z][\w-]*(?=/))?"
    rf"(?P<path>/(?!/)[^{_END}]{{2,}}|~(?:/|[A-Za-z])[^{_END}]*)"
)
"""A path, also in `-I/x`; not `f(x)/n`, `m²/s²` and `samples /s`."""
_WITH_BLANKS = re.compile(r"(?P<option>[\w.+-]*=)?(?P<path>/.*\s.*)", re.DOTALL)
_AT = re.compile(r"(?<![^\s,;])[^\s,;]+@[^\s,;]*")
_KEPT = "|".join(map(re.escape, (HOME, PATH, NAME, ADDRESS, HIDDEN)))
_SHORT = 4
"""Letters of a name; a shorter one is taken out as a whole word only."""
_ANYBODYS = {
    *("root", "nobody", "admin", "user", "docker", "slurm", "conda", "python", "linux"),
    *("ubuntu", "debian", "fedora", "centos", "rocky", "alma", "redhat", "suse", "arch"),
    *("intel", "nvidia", "cuda"),
}
"""Users' names that are words of systems as well, and stay."""
_WHO = (
    *("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER"),
    *("SLURM_JOB_ACCOUNT", "SLURM_ACCOUNT", "SBATCH_ACCOUNT", "SALLOC_ACCOUNT"),
)


@dataclass(frozen=True)
class Redaction:
    """Names, paths and addresses that must not be published."""

    homes: tuple[str, ...]
    """Home folders, absolute."""
    names: tuple[str, ...]
    """Names of users and accounts."""
    project: str | None = None
    """The checkout; paths in it are written relative to it."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Redaction:
        """Those of this process's user, by its environment and the system."""
        login = home = None
        with suppress(KeyError, OSError):  # a number without a name, as in some containers
            login, *_, home, _ = pwd.getpwuid(os.getuid())
        homes = {environment.get("HOME"), home} - {None, "", "/"}
        homes |= {os.path.realpath(path) for path in homes if path}
        names = {environment.get(name) for name in _WHO} | {login}
        return cls(
            homes=tuple(sorted(path.rstrip("/") for path in homes if path)),
            names=tuple(sorted(name for name in names if name and name.lower() not in _ANYBODYS)),
            project=str(PROJECT_ROOT),
        )

    def text(self, text: str) -> str:
        """Take keys, homes, paths outside of the system's own folders, names and addresses out."""
        text = _WHOLE_KEY.sub(HIDDEN, text).replace("file://", "file:")
        text = _ABSOLUTE.sub(lambda m: (m["option"] or "") + self._shown(m["path"]), text)
        for home in sorted(self.homes, key=len, reverse=True):
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", HOME, text)
        return self._without_names(_AT.sub(ADDRESS, text))

    def word(self, word: str) -> str:
        """`text` of one word of a command, in which a path may have blanks."""
        path = _WITH_BLANKS.fullmatch(word)
        if path is not None and self._shown(path["path"]) == PATH:
            return f"{path['option'] or ''}{PATH}"
        return self.text(word)

    def _shown(self, path: str) -> str:
        """A path relative to the checkout or the home; PATH if it is neither there nor the system's."""
        whole = posixpath.normpath(path)
        for root, name in ((self.project, ""), *((home, HOME) for home in self.homes)):
            if root and f"{whole}/".startswith(f"{root}/"):
                return name + whole.removeprefix(root) if name else whole[len(root) + 1 :] or "."
        return path if _is_everybodys(path) else PATH

    def _without_names(self, text: str) -> str:
        names = [
            re.escape(name) if len(name) >= _SHORT else rf"\b(?<!_){re.escape(name)}\b(?!_)"
            for name in sorted(self.names, key=len, reverse=True)
        ]
        pattern = re.compile("|".join([_KEPT, *names]), re.IGNORECASE)
        return pattern.sub(lambda m: m[0] if re.fullmatch(_KEPT, m[0]) else NAME, text)


def _is_everybodys(path: str) -> bool:
    """Tell whether an absolute path is in one of the system's own folders, or `~/…`."""
    whole = posixpath.normpath(path)
    top = whole.split("/")[1] if path.startswith("/") and len(whole) > 1 else ""
    is_root = not path.strip("/")
    return is_root or (top in _SYSTEM and not whole.startswith("/dev/shm/"))


def own_paths(text: str) -> Iterator[str]:
    """Paths in a text that `Redaction.text` takes out whoever its user is."""
    text = re.sub(_KEPT, "_", text.replace("file://", "file:"))
    paths = (match["path"] for match in _ABSOLUTE.finditer(text))
    return (path for path in paths if not _is_everybodys(path))
