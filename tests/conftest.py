"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from workspace import Workspace

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


# --- the checkout's own results, work and campaigns -------------------------------------------------

CHECKOUT = Path(__file__).resolve().parents[1]
OF_THE_USER = tuple(f"{CHECKOUT / name}{os.sep}" for name in ("results", "work", "campaigns"))
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_touched: list[str] = []


def _note_touched(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what this process opens of the user's; the campaigns that ship may be read."""
    if event == "subprocess.Popen":
        _note_process(*arguments[1:3])
    if event not in ("open", "os.listdir", "os.scandir"):
        return
    if sys._getframe(1).f_globals.get("__name__") == "pkgutil":
        return  # Snakemake looks for its plugins on sys.path, where the checkout may be
    path, mode, flags = arguments if event == "open" else (arguments[0], "r", 0)
    if not isinstance(path, str | bytes | os.PathLike):
        return
    if mode is None and not os.path.isabs(path):
        return  # of os.open: it may be relative to an open folder, as rmtree asks
    with suppress(OSError, ValueError):  # there may be no working directory
        whole = f"{os.path.abspath(os.fsdecode(path))}{os.sep}"
        touches = OF_THE_USER if (flags or 0) & WRITES else OF_THE_USER[:2]
        if whole.startswith(touches):
            _touched.append(f"{event} {os.path.relpath(whole, CHECKOUT)}")


def _note_process(arguments: Any, folder: Any) -> None:
    """Note a workflow that is started in the checkout itself: it looks into all of these."""
    words = [os.fsdecode(word) for word in arguments if isinstance(word, str | bytes | os.PathLike)]
    runs = {"snakemake", "rules_of_workflow.py"} & {Path(word).name for word in words}
    if runs and Path(os.fsdecode(folder or os.getcwd())).resolve() == CHECKOUT:
        _touched.append(f"started {' '.join(words)}")


sys.addaudithook(_note_touched)


@pytest.fixture(autouse=True)
def users_files_are_left_alone() -> Iterator[None]:
    """Fail a test that reads or writes the checkout's own results: what it finds there is anybody's."""
    yield
    touched = list(dict.fromkeys(_touched))
    _touched.clear()
    assert not touched, f"a test uses the checkout's own files; take tmp_path: {touched[:5]}"


@pytest.fixture(scope="session", autouse=True)
def users_files_stay_as_they_are() -> Iterator[None]:
    """Fail where a process that tests have started writes to the checkout's own results."""
    before = _users_files()
    _touched.clear()
    yield
    now = _users_files()
    changed = sorted(path for path in before | now if before.get(path) != now.get(path))
    _touched.clear()
    assert not changed, f"the checkout's own files changed while tests ran: {changed[:5]}"


def _users_files() -> dict[str, tuple[int, int]]:
    paths = (path for folder in OF_THE_USER for path in [Path(folder), *Path(folder).rglob("*")])
    states = {}
    for path in paths:
        with suppress(OSError):
            state = path.stat()
            states[str(path.relative_to(CHECKOUT))] = state.st_size, state.st_mtime_ns
    return states


@pytest.fixture(autouse=True)
def torchs_own_flags() -> Iterator[None]:
    """Restore the flags that a training sets for its whole process: other tests share it."""
    torch = sys.modules.get("torch")
    backends = [] if torch is None else [torch.backends.cudnn, torch.backends.cuda.matmul]
    before = [backend.allow_tf32 for backend in backends]
    yield
    for backend, flag in zip(backends, before, strict=True):
        backend.allow_tf32 = flag


# --- a finished workflow, and the order of tests ------------------------------------------------------


@pytest.fixture(scope="session")
def finished_workspace(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Workspace:
    """The tiny campaign run to its end, for tests that read it; to change it, `.copy(…)` it."""
    kept = Workspace.kept(Path(pytestconfig.cache.mkdir("finished")), Workspace.finished)
    return kept.copy(tmp_path_factory.mktemp("finished") / "project")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, lest one worker has it when all others are done.

    First of all a file that makes the finished workspace; those that wait for it come after other slow ones.
    """
    needing = dict.fromkeys(
        item.path for item in items if "finished_workspace" in item.fixturenames
    )
    first = next(iter(needing), None)

    def place(item: pytest.Item) -> list[bool]:
        is_slow = [item.get_closest_marker(name) is not None for name in ("cluster", "slow")]
        return [not is_slow[0], item.path != first, not is_slow[1], item.path in needing]

    items.sort(key=place)


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
