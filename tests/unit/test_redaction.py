"""Keys in texts are hidden, and what only looks like one is left alone."""

from __future__ import annotations

import pytest

from scalewatt.common.redaction import (
    known_keys,
    without_secrets,
)

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
