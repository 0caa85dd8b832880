"""Work shared with forked copies of this process, which have its imports and data from the start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_MOST = 4
"""Processes: more would wait for this one, which collects what they return."""
_LEAST = 20
"""Items for each process, of such as take some milliseconds: fewer do not pay for its start."""


def mapped(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the function's results in the order of `items`, from several processes if these are many.

    Items and results are pickled. An exception of the function is raised here.
    """
    processes = min(_MOST, len(os.sched_getaffinity(0)), len(items) // _LEAST)
    if processes < 2:
        return [function(item) for item in items]
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        return list(pool.map(function, items, chunksize=-(-len(items) // processes)))


@contextmanager
def beside(function: Callable[..., _Result], *arguments: Any) -> Iterator[Future[_Result]]:
    """Call a function in a forked copy of this process while the block runs; give its future."""
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        yield pool.submit(function, *arguments)
