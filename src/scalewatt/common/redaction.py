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
"""Placeholders of what is removed; HIDDEN of a secret."""

# --- values of options and variables whose name is a secret's -------------------------------------

SECRET = (
    *("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "CREDENTIALS", "AUTH", "COOKIE"),
    *("ACCOUNT", "USER", "USERNAME", "MAIL", "EMAIL"),
)
"""Last words of names whose values are hidden: `--hf-token`, but not `--max-tokens`."""
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
        elif assigned := _ASSIGNMENT.fullmatch(word):
            shown.append(f"{assigned[1]}{HIDDEN}")
        else:
            shown.append(_WITHIN.sub(rf"\1{HIDDEN}", word))
    return shown


# --- keys and e-mail addresses in text ------------------------------------------------------------

with (Path(__file__).parent / "keys.csv").open(encoding="utf-8", newline="") as _file:
    _KEYS = {row["kind"]: row["pattern"] for row in csv.DictReader(_file)}
"""Forms of keys by their kind: each is its provider's own and means nothing else."""
_PEM_BODY = r"[\s\S]*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\Z)"
_WHOLE_KEY = re.compile(
    "|".join(
        f"(?:{pattern}{_PEM_BODY if 'PEM' in kind else ''})"
        for kind, pattern in _KEYS.items()
        if "address" not in kind  # `Redaction` removes the whole address
    )
)
_MAIL = r"(?<![\w.+-])(?!git@)[\w.+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b"


def known_keys(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, and the kind of each key or password of a known form, never the key itself."""
    for kind, pattern in _KEYS.items():
        yield from ((line, kind) for line in _lines(pattern, text))


def mail_addresses(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, of each e-mail address in a text, and that it is one."""
    return ((line, "an e-mail address") for line in _lines(_MAIL, text))


def _lines(pattern: str, text: str) -> Iterator[int]:
    return (text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text))


# --- paths and names ------------------------------------------------------------------------------

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/dev", "/proc", "/sys")
"""Top folders that are the same on all machines; /opt and /dev/shm may have a user's folders."""
_END = r"\s:'\"`<>()"
_ABSOLUTE = re.compile(
    r"(?<![^\s'\"`=:,;(\[{>|])(?P<option>-[A-Za-z][\w-]*(?=/))?"
    rf"(?P<path>/(?!/)[^{_END}]{{2,}}|~(?:/|[A-Za-z])[^{_END}]*)"
)
"""A path, also in `-I/x`; not `f(x)/n`, `m²/s²` and `samples /s`."""
_AT = re.compile(r"(?<![^\s,;])[^\s,;]+@[^\s,;]*")
_COMMON_NAMES = {
    *("root", "nobody", "admin", "user", "docker", "slurm", "conda", "python", "linux"),
    *("ubuntu", "debian", "fedora", "centos", "rocky", "alma", "redhat", "suse", "arch"),
    *("intel", "nvidia", "cuda"),
}
"""Users' names that are words of systems as well, and stay."""
_USER_VARIABLES = (
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
        """Collect those of this process's user, by its environment and the system."""
        names = {environment.get(name) for name in _USER_VARIABLES}
        homes = {environment.get("HOME")}
        with suppress(KeyError):  # a number without a name, as in some containers
            user = pwd.getpwuid(os.getuid())
            names, homes = names | {user.pw_name}, homes | {user.pw_dir}
        paths = {path for home in homes if home for path in (home, os.path.realpath(home))}
        return cls(
            homes=tuple(sorted({path.rstrip("/") for path in paths} - {""})),
            names=tuple(sorted(n for n in names if n and n.lower() not in _COMMON_NAMES)),
            project=str(PROJECT_ROOT),
        )

    def text(self, text: str) -> str:
        """Remove keys, homes, paths outside of the system's folders, names and addresses."""
        text = _WHOLE_KEY.sub(HIDDEN, text).replace("file://", "file:")
        text = _ABSOLUTE.sub(lambda m: (m["option"] or "") + self._shown(m["path"]), text)
        for home in sorted(self.homes, key=len, reverse=True):
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", HOME, text)
        text = _AT.sub(ADDRESS, text)
        for name in sorted(self.names, key=len, reverse=True):
            # A name of three letters may be a part of another word.
            pattern = re.escape(name) if len(name) > 3 else rf"\b(?<!_){re.escape(name)}\b(?!_)"
            text = re.sub(pattern, NAME, text, flags=re.IGNORECASE)
        return text

    def word(self, word: str) -> str:
        """`text` of a word of a command, in which a path may have blanks."""
        option, slash, rest = word.partition("/")
        is_path = re.fullmatch(r"([\w.+-]*=)?", option) and re.search(r"\s", rest)
        return option + PATH if is_path and self._shown(slash + rest) == PATH else self.text(word)

    def _shown(self, path: str) -> str:
        """A path relative to the checkout or the home; PATH if it is neither there nor the system's."""
        whole = posixpath.normpath(path)
        if self.project and f"{whole}/".startswith(f"{self.project}/"):
            return posixpath.relpath(whole, self.project)
        for home in self.homes:
            if f"{whole}/".startswith(f"{home}/"):
                return HOME + whole.removeprefix(home)
        return path if _is_of_system(path) else PATH


def _is_of_system(path: str) -> bool:
    """Tell whether a path is in one of the folders that are the same on all machines."""
    whole = f"{posixpath.normpath(path)}/"
    in_system = any(whole.startswith(f"{top}/") for top in _SYSTEM)
    return not path.strip("/") or (in_system and not re.match(r"/dev/shm/.", whole))


def absolute_paths(text: str) -> Iterator[str]:
    """Paths in a text that `Redaction.text` removes whoever its user is."""
    paths = (match["path"] for match in _ABSOLUTE.finditer(text.replace("file://", "file:")))
    return (path for path in paths if not _is_of_system(path))
