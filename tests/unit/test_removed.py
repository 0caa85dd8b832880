"""A command or an option that is gone is answered with what to do instead."""

from __future__ import annotations

import pytest

from scalewatt.cli import command_line, main
from scalewatt.cli.removed import REMOVED


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_command_or_option_says_what_to_do_instead(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "some.file"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {name} {REMOVED[name]}\n")


def test_a_removed_option_is_answered_before_what_else_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(REMOVED, "calibrate --gone", "was removed; leave it out")
    for words in (["calibrate", "--gone"], ["calibrate", "reference", "--out", "m", "--gone=3"]):
        with pytest.raises(SystemExit):
            command_line().parse_args(words)
        message = capsys.readouterr().err
        assert message.endswith("error: calibrate --gone was removed; leave it out\n")
