"""A call that goes on in a forked copy of this process."""

from __future__ import annotations

import os

import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.processes import beside


def squared(number: int) -> tuple[int, int]:
    """The square, and who worked it out."""
    if number < 0:
        raise InputError(f"{number}: allowed: from 0")
    return number * number, os.getpid()


def test_one_call_goes_on_beside_what_this_process_does() -> None:
    with beside(squared, 7) as other:
        own = squared(8)
    assert (other.result()[0], own[0]) == (49, 64)
    assert other.result()[1] != own[1]


def test_an_error_there_is_one_here() -> None:
    with (
        pytest.raises(InputError, match="-2: allowed: from 0"),
        beside(squared, -2) as other,
    ):
        other.result()
