"""A run is submitted again where that is of use, and not for ever."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_files import make_spec

from scalewatt.common.files import NO_ROOM
from scalewatt.run_files.record import reason_to_end

SPEC = make_spec()
RETRIES = 3
Segment = tuple[str, int | None, int | None]
"""Outcome, updates at its start and end."""


def run(*segments: Segment, since: int = 0, refusal: str | None = None, detail: str = "") -> Any:
    """A run's record; `detail` is that of the last segment."""
    rows = [{"outcome": o, "from_updates": a, "to_updates": b} for o, a, b in segments]
    if rows and detail:
        rows[-1]["detail"] = detail
    return {"since": since, "refusal": refusal, "segments": rows}


def why_not(record: Any) -> str | None:
    return reason_to_end(record, SPEC, RETRIES)


def stopped(*updates: int) -> list[Segment]:
    return [("stopped", a, b) for a, b in pairwise(updates)]


CRASH: Segment = ("failed", 12, 12)
KILL: Segment = ("killed", 12, 12)
LOST = [("monitor_lost", number, number + 1) for number in range(RETRIES + 1)]
UNKNOWN: Segment = ("stopped", None, None)


@pytest.mark.parametrize(
    "record",
    [
        run(),
        run(*stopped(0, 12)),
        run(*stopped(0, 12, 12)),
        run(*stopped(12, 12), ("killed", 12, 13), *stopped(13, 13)),
        run(*[CRASH] * RETRIES, detail="ValueError: a"),
        run(*[KILL] * RETRIES),
        run(*[CRASH] * 9, ("failed", 12, 13), *[KILL] * RETRIES),
        run(*LOST[:RETRIES], detail="n1: ended"),
        run(CRASH, *stopped(12, 12)),
        run(*[UNKNOWN] * 9),
        run(*[CRASH] * RETRIES, ("finished", 12, 48)),
        run(*[CRASH] * 9, since=9),
        run(*[CRASH] * 9, since=6),
    ],
)
def test_a_run_that_may_go_on_is_tried_again(record: Any) -> None:
    assert why_not(record) is None


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (run(*stopped(0, 12, 12, 12)), "no progress in 2 segments in a row, the last stopped at"),
        (run(*[CRASH] * 4, detail="ValueError: a"), "no progress in 4 segments in a row, the last"),
        (run(*[CRASH] * 4, detail="ValueError: a"), "failed at update 12 of 48 (ValueError: a)"),
        (run(CRASH, KILL, KILL, KILL), "no progress in 4 segments"),
        (run(*LOST, detail="n1: ended"), "4 segments in a row, the last monitor_lost"),
        (run(*[("failed", None, None)] * 4), "no progress in 4 segments in a row"),
        (run(("refused", 0, 0), detail="n1 has one GPU"), "n1 has one GPU"),
        (run(("failed", 0, 12), detail=f"{NO_ROOM} of /work"), f"{NO_ROOM} of /work"),
        (run(*stopped(0, 12), refusal="the budget is used up"), "the budget is used up"),
    ],
)
def test_a_run_that_is_not_tried_again_has_a_reason(record: Any, words: str) -> None:
    assert words in (why_not(record) or "")


ENDS = ["stopped", "killed", "failed", "monitor_lost"]


@given(ends=st.lists(st.sampled_from(ENDS), min_size=RETRIES + 1, max_size=RETRIES + 1))
def test_without_progress_a_run_always_comes_to_its_end(ends: list[str]) -> None:
    assert why_not(run(*((end, 7, 7) for end in ends))) is not None


@given(
    before=st.lists(st.tuples(st.sampled_from(ENDS), st.integers(0, 9), st.integers(0, 9))),
    end=st.sampled_from(["stopped", "killed", "failed"]),
    more=st.integers(1, 9),
)
def test_with_progress_a_run_always_goes_on(before: list[Segment], end: str, more: int) -> None:
    assert why_not(run(*before, (end, 7, 7 + more))) is None
