"""What all tests share."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

# A shell ignores Ctrl-C for what it runs in the background, and so would the processes of tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`: all tests on the one Slurm go to one worker, others by their file."""
    for item in items:
        on_slurm = item.get_closest_marker("cluster") is not None
        item.add_marker(pytest.mark.xdist_group("slurm" if on_slurm else item.path.stem))
