"""Work shared with forked processes: in order, with its errors, and none for a few items."""

from __future__ import annotations

import os

import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.processes import beside, mapped


def squared(number: int) -> tuple[int, int]:
    """The square, and who worked it out."""
    if number < 0:
        raise InputError(f"{number}: allowed: from 0")
    return number * number, os.getpid()


def test_results_come_in_order_from_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    found = mapped(squared, range(100))
    assert [square for square, _ in found] == [n * n for n in range(100)]
    others = {pid for _, pid in found}
    assert others and os.getpid() not in others


@pytest.mark.parametrize(("cores", "items"), [(1, 100), (2, 30), (2, 0)])
def test_one_core_or_few_items_need_no_other_process(
    cores: int, items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert mapped(squared, range(items)) == [(n * n, os.getpid()) for n in range(items)]


def test_an_error_there_is_one_here() -> None:
    with pytest.raises(InputError, match="-1: allowed: from 0"):
        mapped(squared, [*range(60), -1])
    with (
        pytest.raises(InputError, match="-2: allowed: from 0"),
        beside(squared, -2) as other,
    ):
        other.result()


def test_one_call_goes_on_beside_what_this_process_does() -> None:
    with beside(squared, 7) as other:
        own = squared(8)
    assert (other.result()[0], own[0]) == (49, 64)
    assert other.result()[1] != own[1]
