"""Extraction by as many processes as this one may use cores."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.parent_death import die_with
from scalewatt.datasets.imagenet.tar_extraction import ClassTask, extract_class, md5_of, obey

_SHOWN = 3


@dataclass(frozen=True)
class Work:
    """Classes to extract below `root`, and files (by kind) whose MD5 is wanted."""

    root: str
    classes: list[ClassTask]
    digests: dict[str, str]


def say(text: str) -> None:
    """A line about the progress, for whoever reads the log."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def run_tasks(work: Work, on_digest: Callable[[str, str], None]) -> None:
    """Do all of it in parallel; `on_digest(kind, md5)` is called as soon as one is known.

    Classes that cannot be extracted are named together at the end. A disk or memory that gives out,
    or an error of `on_digest`, ends it at once, whatever other processes are at. They end with this
    one.
    """
    if not (work.classes or work.digests):
        return
    context = multiprocessing.get_context("spawn")
    # No lock guards it: a process that is killed with a lock would stop the others.
    abandoned = context.RawValue("b", 0)
    pool = ProcessPoolExecutor(
        max_workers=min(len(os.sched_getaffinity(0)), len(work.classes) + len(work.digests)),
        mp_context=context,
        initializer=_begin,
        initargs=(os.getpid(), abandoned),
    )
    try:
        # A digest takes as long as its file's slowest reading: it begins first.
        digests = {pool.submit(md5_of, path): kind for kind, path in work.digests.items()}
        classes = [pool.submit(extract_class, task, work.root) for task in work.classes]
        _collect(digests, classes, on_digest)
    except (OSError, BrokenProcessPool) as error:
        reason = error.strerror if isinstance(error, OSError) else "a process was killed"
        raise InputError(f"{work.root}: the extraction stopped: {reason or error}") from error
    finally:
        abandoned.value = 1
        pool.shutdown(cancel_futures=True)


def _begin(parent: int, abandoned: Any) -> None:
    """What each process of the pool does first."""
    die_with(parent)
    obey(lambda: bool(abandoned.value))


def _collect(
    digests: dict[Future[str], str],
    classes: list[Future[int]],
    on_digest: Callable[[str, str], None],
) -> None:
    refused, done, written = [], 0, 0
    futures: list[Future[Any]] = [*digests, *classes]
    for future in as_completed(futures):
        try:
            result = future.result()
        except InputError as error:
            refused.append(str(error))
            continue
        if isinstance(result, str):
            on_digest(digests[future], result)
            continue
        done, written = done + 1, written + result
        if len(classes) >= 100 and done * 10 // len(classes) > (done - 1) * 10 // len(classes):
            say(f"  {done} of {len(classes)} classes, {written / 1e9:.1f} GB")
    if refused:
        more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise InputError("; ".join(sorted(refused)[:_SHOWN]) + more)
