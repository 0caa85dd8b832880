"""Write a campaign's page, once or again and again until all its runs are done."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scalewatt.campaign.cluster import campaign_path, load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.report.status.outlook import outlook
from scalewatt.report.status.status_page import Writing, status_page
from scalewatt.scaling.planning.forecast import Forecaster, forecaster_of
from scalewatt.tracking.status import CampaignStatus, campaign_status

FINISHED = "all runs are done"
INTERRUPTED = "the command that wrote it was stopped"
FAILED = "the command that wrote it ended with an error"


def follow_campaign(
    out: Path,
    profile: Path,
    campaign: Path | None,
    results: Path,
    work: Path | None,
    every_s: float | None,
    max_gpus: int | None = None,
) -> None:
    """Write the page to `out`; with `every_s`, again so often until all runs are done.

    `max_gpus`: larger points are left out; by default those that the cluster leaves out.

    Ctrl-C, and the signals TERM and HUP, end it with a last page that says so, and KeyboardInterrupt.
    InputError if the cluster file, the campaign or the scaling model is wrong, or `out` cannot be a file.
    """
    cluster = load_cluster(profile / "cluster.yaml")
    found = load_campaign(campaign or campaign_path(cluster), cluster, max_gpus, to_run=False)
    forecaster = forecaster_of(cluster.scaling_model)
    folders = results, work or Path(cluster.work_root)
    if every_s is None:
        write_text(out, _page(campaign_status(found, cluster, *folders), forecaster, Writing()))
        print(f"{out}: written")
        return
    status = campaign_status(found, cluster, *folders)
    with _stoppable():
        try:
            write_text(out, _page(status, forecaster, _writing(status, every_s)))
            until = "until all runs are done, or Ctrl-C"
            print(f"{out}: written every {every_s:g} s {until}", flush=True)
            is_written = True
            while not (_is_finished(status) and is_written):
                time.sleep(every_s)
                status = campaign_status(found, cluster, *folders)
                is_written = _write_again(out, _page(status, forecaster, _writing(status, every_s)))
        except BaseException as error:
            ended = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
            if out.exists():
                _write_again(out, _page(status, forecaster, Writing(ended=ended)))
            raise
    print(f"{out}: {FINISHED}; it is no longer written")


def _is_finished(status: CampaignStatus) -> bool:
    return all(run.state.state == "done" for run in status.runs)


def _writing(status: CampaignStatus, every_s: float) -> Writing:
    return Writing(ended=FINISHED) if _is_finished(status) else Writing(every_s)


def _page(status: CampaignStatus, forecaster: Forecaster | None, writing: Writing) -> str:
    return status_page(status, outlook(status, forecaster), writing)


def _write_again(out: Path, page: str) -> bool:
    """Return True if the page could be written anew; a disk that is full for a while is no reason to end."""
    try:
        write_text(out, page)
    except InputError:
        raise
    except OSError as error:
        print(f"scalewatt: {out}: cannot be written now ({error.strerror})", file=sys.stderr)
        return False
    return True


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let the signals TERM and HUP do what Ctrl-C does, unless they are ignored, as by nohup."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    heard = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
