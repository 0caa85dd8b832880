"""Remove secrets and identifying details (own paths, names, addresses) from text."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.common.schema_validation import PROJECT_ROOT

SECRET = (
    *("TOKEN", "KEY", "CREDENTIAL", "CREDENTIALS", "AUTH", "AUTHORIZATION", "COOKIE", "COOKIES"),
    *("ACCOUNT", "USER", "USERNAME", "MAIL", "EMAIL"),
)
"""A variable, option or assignment whose name ends with one of these words may be one."""
SECRET_WITHIN = (
    r"(?:API|ACCESS|AUTH|PRIVATE|SESSION|HF|WANDB)[-_]?(?:KEYS?|TOKENS?)",
    r"(?-i:(?<=[a-z])(?:Token|Key|User|Mail|Account))",
)
"""The same of what a name may end with within a word, as WANDBKEY and userToken."""
SECRET_ANYWHERE = (
    *("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "USER[-_]?NAME", "PRIVATE[-_]?KEY"),
    r"(?:API|ACCESS|AUTH|HF|WANDB|GITHUB|GITLAB)[-_]?TOKEN",
)
"""The same of what a name may have anywhere, as PGPASSWORD and GITHUB_TOKEN_RO."""
HIDDEN = "<secret>"
"""What stands in place of a value."""
_IN_NAME = r"[\w.+/@\[\]-]"
_IS_SECRET = (
    rf"(?={_IN_NAME}*?(?:{'|'.join(SECRET_ANYWHERE)}"
    rf"|(?:(?<![A-Za-z0-9])(?:{'|'.join(SECRET)})|{'|'.join(SECRET_WITHIN)})"
    rf"(?:[-_.]?(?:ID|\d{{1,3}}))?(?:\[[\w.+/@-]*\])*\]*(?!{_IN_NAME})))"
)
_VALUE = r"""(?:"(?:\\.|[^"\\])*(?:"|\\?\Z)|'[^']*(?:'|\Z)|\\.|[^\s"'\\;&|<>])+"""
# Each begins where a name does and gives nothing of it back (++): linear in the text's length.
_ASSIGNED = re.compile(
    rf"(?<!{_IN_NAME})(?={_IN_NAME}*+=){_IS_SECRET}(?P<name>{_IN_NAME}++=){_VALUE}", re.IGNORECASE
)
_BEHIND = re.compile(rf"(?P<name>(?<!\S)-{_IS_SECRET}{_IN_NAME}++\s++)(?!-){_VALUE}", re.IGNORECASE)
_OPTION = re.compile(rf"-{_IS_SECRET}{_IN_NAME}++", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"({_IS_SECRET}{_IN_NAME}++=).+", re.IGNORECASE | re.DOTALL)


_SECRET_NAME = re.compile(_IS_SECRET, re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return True if a name ends with a secret's word, as `AWS_ACCESS_KEY_ID`, or has a plain one."""
    return _SECRET_NAME.match(name) is not None


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


# --- keys and addresses in text ---------------------------------------------------------------------

_PASSWORD = "a password in an address"
_KEYS = {
    "a private key (PEM)": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----",
    "a key of AWS": r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    "a secret key of AWS": (
        r"(?i:aws|amazon|secret)[\w.-]{0,40}[\"'\s]{0,3}[=:][\"'\s]{0,3}"
        r"(?![0-9A-Fa-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"  # hex: a commit
    ),
    "a token of Hugging Face": r"\bhf_[A-Za-z0-9]{30,}",
    "a token of GitHub": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "a token of GitLab": r"\bgl(?:pat|ptt|rt|dt|ft|oas|soat|cbt|imt|agent)-[A-Za-z0-9_-]{20,}",
    "a key of OpenAI, Anthropic or the like": (
        r"(?<![\w-])sk-(?=[A-Za-z_-]*\d)(?=[a-z0-9_-]*[A-Z])[A-Za-z0-9_-]{20,}"
    ),
    "a token of Slack": r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    "a key of Google": r"\bAIza[A-Za-z0-9_-]{35}",
    "a token of PyPI or npm": r"\b(?:pypi-[A-Za-z0-9_-]{50,}|npm_[A-Za-z0-9]{36})",
    "a JSON web token": (r"\beyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    "an authorization header": (
        r"(?i:authorization)[\"'\s]{0,3}:[\"'\s]{0,3}(?i:bearer|basic)\s+[\w.~+/=-]{12,}"
    ),
    _PASSWORD: (  # none is $NAME or ${NAME}, which a shell fills in
        r"[A-Za-z0-9+.-]://[^\s/:@\"'<>]+:(?!\$(?:\w+|\{\w+\})@)[^\s/@\"'<>]+@[^\s\"'<>]"
    ),
}
"""Forms of keys by what they are: each is its provider's own and means nothing else."""
_KEY = re.compile(
    "|".join(f"(?P<k{number}>{pattern})" for number, pattern in enumerate(_KEYS.values()))
)
_PEM_BODY = r"[\s\S]*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\Z)"
_WHOLE_KEY = re.compile(
    "|".join(
        f"(?:{pattern}{_PEM_BODY if '-----' in pattern else ''})"
        for kind, pattern in _KEYS.items()
        if kind != _PASSWORD  # Redaction takes out the whole address
    )
)
_MAIL = re.compile(r"(?<![\w.+-])(?!git@)[\w.+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b")


def known_keys(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, and the kind of each key or password of a known form, never the key itself."""
    yield from _found(text, _KEY, tuple(_KEYS))


def mail_addresses(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 1, of each e-mail address in a text, and that it is one."""
    yield from _found(text, _MAIL, ("an e-mail address",))


def _found(text: str, pattern: re.Pattern[str], kinds: Sequence[str]) -> Iterator[tuple[int, str]]:
    line, at = 1, 0
    for found in pattern.finditer(text):
        line, at = line + text.count("\n", at, found.start()), found.start()
        yield line, kinds[int((found.lastgroup or "k0")[1:])]


# --- identifying details --------------------------------------------------------------------------


HOME, PATH, NAME, ADDRESS = "$HOME", "<path>", "<name>", "<address>"
"""What stands in place of it."""
_SYSTEM = ("usr", "lib", "lib64", "bin", "sbin", "etc", "dev", "proc", "sys")
"""Top folders that are everybody's; anybody may have a folder in /opt."""
_MEMORY = "/dev/shm/"
"""Its subfolders belong to users."""
_END = r"\s:'\"`<>()"
_HOMES = re.compile(
    rf"(?<![^{_END}])[^{_END}]*/(?:home|users)[^/{_END}]*/[^{_END}]*", re.IGNORECASE
)
"""Words with a path below what elsewhere is a folder of homes."""
_BEGINS = rf"(?:(?<![A-Za-z0-9_.])|(?<![^{_END}=,;])(?P<option>-[A-Za-z][\w-]*)(?=/))"
"""Where an absolute path may begin: not within a relative one, but in `-I/x` and `-isystem/x`."""
_ABSOLUTE = re.compile(rf"{_BEGINS}(?P<path>/[^{_END}]*|~[\w.-]*/[^{_END}]*|~[A-Za-z][\w.-]*)")
_DRIVE = re.compile(rf"(?:(?<![A-Za-z0-9])[A-Za-z]:|\\)\\[^{_END}]*")
"""Windows' own: C:\\x, \\\\server\\x."""
_BLANKS = re.compile(r"(?P<option>[\w.+-]*=)?(?P<path>(?:/|[A-Za-z]:\\).*\s.*)", re.DOTALL)
"""A word that is one path with blanks in it."""
_AT = re.compile(r"(?<![^\s,;])[^\s,;]+@[^\s,;]*")
_KEPT = re.compile("|".join(re.escape(one) for one in (HOME, PATH, NAME, ADDRESS, HIDDEN)))
_TAKEN = re.compile(rf"(?:{_KEPT.pattern})[^{_END}]*")
_WEB = re.compile(rf"\b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{1,30}}://[^{_END}]*")
_SHORT = 4
"""Characters of a name; a shorter one is looked for as a whole word only."""
_NOBODY = {"root", "nobody"}
_SYSTEMS = frozenset(
    {
        *("ubuntu", "debian", "fedora", "centos", "rocky", "alma", "redhat", "suse", "arch"),
        *("linux", "intel", "nvidia", "cuda", "python", "conda", "slurm"),
        *("admin", "user", "docker"),
    }
)
"""Names of users that are words of systems as well: taken out only where they are no such word."""
_WHO = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")
_ACCOUNTS = ("SLURM_JOB_ACCOUNT", "SLURM_ACCOUNT", "SBATCH_ACCOUNT", "SALLOC_ACCOUNT")


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
        """Return those of this process's user, by its environment and the system."""
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
        """Return a text without homes, paths outside of the system's own folders, names and addresses."""
        text = _HOMES.sub(PATH, _DRIVE.sub(PATH, self._relative(_WHOLE_KEY.sub(HIDDEN, text))))
        text = _ABSOLUTE.sub(lambda one: (one["option"] or "") + _shown(one["path"]), text)
        text = _AT.sub(ADDRESS, text)
        return self._without_names(text)

    def word(self, word: str) -> str:
        """`text` of one word of a command, in which a path may have blanks."""
        found = _BLANKS.fullmatch(word)
        if found is None:
            return self.text(word)
        path = self._relative(found["path"])
        is_own = path == found["path"] and _shown(path) == PATH
        return (
            f"{found['option'] or ''}{PATH}" if is_own or path.startswith(PATH) else self.text(word)
        )

    def _relative(self, text: str) -> str:
        """Paths in the checkout relative to it, those in a home below HOME; none that leaves either."""
        if self.project:
            inside = rf"(?<![\w.-]){re.escape(self.project)}/(?=[\w.])(?P<rest>[^{_END}]*)"
            text = re.sub(inside, lambda one: _within("", one["rest"]), text)
        for home in sorted(self.homes, key=len, reverse=True):
            word = rf"(?P<root>{re.escape(home)})(?![\w.-])"
            inside = rf"{word}(?P<rest>[^{_END}]*)"
            text = re.sub(inside, lambda one: _within(one["root"], one["rest"]), text)
            text = re.sub(word, HOME, text)
        return text

    def deep(self, value: Any) -> Any:
        """Return a value of JSON with the texts in it redacted, keys excepted."""
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
            if name.lower() in _SYSTEMS:
                word = rf"(?<=[/~]){word}(?![\w-])|^{word}$"
            elif len(name) < _SHORT:
                word = rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])"
            parts, at = [], 0
            for kept in _KEPT.finditer(text):
                parts += [re.sub(word, NAME, text[at : kept.start()], flags=re.I), kept[0]]
                at = kept.end()
            text = "".join([*parts, re.sub(word, NAME, text[at:], flags=re.I)])
        return text


def _shown(path: str) -> str:
    """Return an absolute path of the system's own folders as it is, any other as PATH."""
    if not path.strip("/"):
        return path
    whole = posixpath.normpath(f"/{path.lstrip('/')}")
    is_system = whole.split("/")[1] in _SYSTEM and not whole.startswith(_MEMORY)
    return path if path.startswith("/") and is_system else PATH


def own_paths(text: str) -> Iterator[str]:
    """Return the paths in a text that `Redaction.text` takes out whoever its user is.

    Addresses of the web and quotients, as `f(x)/n`, `m²/s²` and `samples /s`, are none.
    """
    text = _TAKEN.sub(" ", _WEB.sub(" ", text))
    yield from (found[0] for pattern in (_DRIVE, _HOMES) for found in pattern.finditer(text))
    for found in _ABSOLUTE.finditer(text):
        before = text[: found.start()][-1:]
        is_quotient = (
            before.isalnum() or before in (*")]}",) or len(found["path"].strip("/;,.")) < 2
        )
        if _shown(found["path"]) == PATH and not is_quotient:
            yield found["path"]


def _within(root: str, rest: str) -> str:
    """Return a path as `root` and the rest of it; PATH where `..` leads out."""
    leaves = posixpath.normpath(f"./{rest}").split("/")[0] == ".."
    return PATH if leaves else root + rest


def _login() -> tuple[str | None, str | None]:
    """Name and home of this process's user as the system has them; None if it does not."""
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError, OSError):
        return None, None
    return entry.pw_name, entry.pw_dir
