"""Remove secrets, the user's name and paths of this machine from text that is published."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewatt.common.files import csv_rows
from scalewatt.common.project_files import PROJECT_ROOT

HOME, PATH, NAME, HIDDEN = "$HOME", "<path>", "<name>", "<secret>"
"""Placeholders of what is removed; HIDDEN of a secret."""

# --- values of options and variables whose name is a secret's -------------------------------------

_WORDS = r"(?:(?:API|AUTH|ACCESS)?(?:TOKEN|KEY)|[A-Z]*PASSWORD|SECRET|CREDENTIALS?)"
_SECRET = rf"(?i:(?:[\w.+/@-]*[_.+/@-])?{_WORDS})"
"""A name whose last word is a secret's: `--hf-token`, but not `--max-tokens`."""
_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\s"';&|<>])+"""
_IN_SCRIPT = re.compile(rf"(?<![\w.+/@-])({_SECRET}=|-{_SECRET}\s+(?!-)){_VALUE}")
_LOGIN = re.compile(r"(\w:/{1,2})[^\s/@]+@")
"""Name and password in an address; as a path it has one slash."""


def is_secret(name: str) -> bool:
    """Tell whether a name's last word is a secret's, as of `WANDB_API_KEY`."""
    return re.fullmatch(_SECRET, name) is not None


def without_logins(text: str) -> str:
    """Hide the names and passwords in addresses of the web."""
    return _LOGIN.sub(rf"\1{HIDDEN}@", text)


def without_secrets(words: Sequence[str]) -> list[str]:
    """Hide what options and assignments of a secret's name are given in a command's words, and logins.

    `--wandb-key X`, `--hf-token=X` and `WANDB_API_KEY=X`, as words and within a script of `sh -c`.
    """
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, _ = word.partition("=")
        if before.startswith("-") and is_secret(before) and not word.startswith("-"):
            shown.append(HIDDEN)
        elif equals and is_secret(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(without_logins(_IN_SCRIPT.sub(rf"\1{HIDDEN}", word)))
    return shown


# --- keys in text ---------------------------------------------------------------------------------

_rows = csv_rows(Path(__file__).with_name("keys.csv")).values()
_KEYS = {row["kind"]: row["pattern"] for row in _rows}
"""Forms of keys by their kind: each is its provider's own and means nothing else."""


def known_keys(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, and the kind of each key or password of a known form, never the key itself."""
    for kind, pattern in _KEYS.items():
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start()) + 1, kind


# --- paths and names ------------------------------------------------------------------------------

_SYSTEM = re.compile(r"/(?:usr|lib|lib64|bin|sbin|etc|dev(?!/shm/.)|proc|sys)?(?:/|\Z)")
"""Begins of paths that are the same on all machines; /opt and /dev/shm may have a user's folders."""
_ABSOLUTE = re.compile(
    r"(?:(?<![^\s'\"`=:,;(\[{>|])|(?<=file://))"
    r"(?:/(?!/)[^\s:'\"`<>()]{2,}|~(?:/|[A-Za-z])[^\s:'\"`<>()]*)"
)
"""A path; not `f(x)/n`, `m²/s²` and `samples /s`."""
_USER_VARIABLES = ("USER", "LOGNAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SBATCH_ACCOUNT")


@dataclass(frozen=True)
class Redaction:
    """Home folder, names of the user and of accounts, and the checkout, which must not be published."""

    home: str | None
    names: tuple[str, ...]
    project: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Redaction:
        """Collect those of this process's user, by its environment."""
        names = {environment.get(name) for name in _USER_VARIABLES} - {None, "", "root"}
        home = environment.get("HOME", "").rstrip("/") or None
        return cls(home, tuple(sorted(map(str, names))), str(PROJECT_ROOT))

    def text(self, text: str) -> str:
        """Remove keys, logins, names, and paths outside of the system's folders.

        A path in the checkout is written relative to it, and one in the home with HOME.
        """
        text = without_logins(text)
        for pattern in _KEYS.values():
            text = re.sub(pattern, HIDDEN, text)
        text = _ABSOLUTE.sub(lambda match: self._shown(match[0]), text)
        for name in self.names:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", NAME, text)
        return text

    def _shown(self, path: str) -> str:
        whole = posixpath.normpath(path)
        if self.project and f"{whole}/".startswith(f"{self.project}/"):
            return posixpath.relpath(whole, self.project)
        if self.home and f"{whole}/".startswith(f"{self.home}/"):
            return HOME + whole.removeprefix(self.home)
        return path if _SYSTEM.match(whole) else PATH


def absolute_paths(text: str) -> Iterator[str]:
    """Yield the paths in a text that `Redaction.text` removes whoever its user is."""
    paths = _ABSOLUTE.findall(text)
    return (path for path in paths if not _SYSTEM.match(posixpath.normpath(path)))
