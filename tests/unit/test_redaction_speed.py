"""Keys are looked for in any text within seconds, and what only looks like one is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from scalewatt.common.redaction import (
    Redaction,
    known_keys,
    mail_addresses,
    own_paths,
    without_secrets,
)

SIZE = 200_000
PIECES = (
    *(
        "a.",
        "a",
        "A-",
        "a@",
        "a@a.",
        "a://",
        "a:",
        "a://a:",
        "://",
        "eyJaaaaaaaaaaaa-",
        "-eyJ",
        ".eyJ",
    ),
    *("-----BEGIN A ", "-----BEGIN ", "secret", "secret.", "aws=", "sk-", "sk-a", "gl", "glpat-a"),
    *(
        "authorization: ",
        "authorization:bearer ",
        " ",
        "\t\n",
        "hf_",
        "pypi-",
        "npm_a",
        "xoxa-",
        "AIza",
    ),
    *(
        "token",
        "TOKEN[",
        "key[",
        "key=",
        "key='",
        '="',
        "\\",
        "--key ",
        "-key",
        "/home",
        "/users/",
        "~a",
    ),
    *("/", "-I", "~", "C:\\", "\\\\", "file:", "git@", "a,a@", "$", "${a}", "a1A_-", 'key="\\\\'),
)
READERS: dict[str, Callable[[str], Any]] = {
    "keys": lambda text: list(known_keys(text)),
    "addresses": lambda text: list(mail_addresses(text)),
    "paths": lambda text: list(own_paths(text)),
    "redaction": Redaction(("/home/ada",), ("ada",), "/srv/project").text,
    "an option and words": lambda text: without_secrets([f"-{text}!", text]),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_200_kb_of_any_text_are_read_in_two_seconds(reader: Callable[[str], Any]) -> None:
    slow = {}
    for piece in PIECES:
        began = time.process_time()
        reader(piece * (SIZE // len(piece)) + "\0")
        took = time.process_time() - began
        if took > 2:
            slow[piece] = took
    assert slow == {}


COMMIT = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"


@pytest.mark.parametrize(
    "text",
    [
        f'"aws-ofi-nccl": "{COMMIT}"',
        f"secret_commit: {COMMIT}",
        f"secret_commit: {COMMIT.upper()}",
        "https://user:${PASS}@example.org/a",
        "https://$USER:$PASS@example.org/a",
        "sk-toggleable__label-arrow",
        "sk-estimator-doc-link-2024-x",
    ],
)
def test_commits_variables_and_classes_of_style_sheets_are_no_keys(text: str) -> None:
    assert list(known_keys(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "secret_key = " + "Ab1/" * 10,
        "https://user:$aX!@example.org/a",
        "https://user:${PASS}x@example.org/a",
        "a" * 50 + "://user:pass@example.org",
        "postgresql+asyncpg://user:pass@example.org",
        "sk-abcdefghijklmnopqrsT1",
    ],
)
def test_keys_beside_them_are_found(text: str) -> None:
    assert len(list(known_keys(text))) == 1


@pytest.mark.parametrize(
    "command",
    [
        *('KEY="hunter2', "KEY='hunter2", 'KEY="hunter2\\', 'KEY="a\\" hunter2"', "a=KEY=hunter2"),
        *("a[b]KEY=hunter2", "KEY[b]=hunter2", "--a[key] hunter2"),
    ],
)
def test_no_value_of_a_secret_is_told_however_it_is_quoted(command: str) -> None:
    assert "hunter2" not in " ".join(without_secrets([f"run {command}"]))
