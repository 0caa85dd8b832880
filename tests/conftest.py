"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ON_SLURM = "tests/cluster/"
MINUTES_S = 90

settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

# A shell ignores Ctrl-C for what it runs in the background, nohup a hang-up, and so would the processes
# of tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def torchs_own_flags() -> Iterator[None]:
    """Restore the flags that a training sets for its whole process: other tests share it."""
    torch = sys.modules.get("torch")
    backends = [] if torch is None else [torch.backends.cudnn, torch.backends.cuda.matmul]
    before = [one.allow_tf32 for one in backends]
    yield
    for one, flag in zip(backends, before, strict=True):
        one.allow_tf32 = flag


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, lest one worker has it when all others are done."""
    order = ("cluster", "slow")
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in order])


def pytest_collection_finish() -> None:
    """Leave what thousands of collected tests are made of out of every garbage collection from here on."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # there is none without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, and all tests on the one Slurm to the same.

    With pytest 9.2, pytest-xdist 3.8 leaves its own `--dist loadgroup` without effect.
    """
    from xdist.scheduler import LoadFileScheduling

    # In the order of `pytest_collection_modifyitems`, not by their number of tests.
    config.option.loadscopereorder = False

    class OneSlurm(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return ON_SLURM if file.startswith(ON_SLURM) else file

    return OneSlurm(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure, and what took minutes, when it happens: who is ended from outside has no summary."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    head = f"\n{report.nodeid} {report.outcome} ({report.when}, {report.duration:.0f} s)"
    if report.failed:
        print(f"{head}:\n{report.longreprtext}", file=sys.stderr, flush=True)
    elif report.duration > MINUTES_S:
        print(f"{head}, {time.strftime('%T')}", file=sys.stderr, flush=True)
