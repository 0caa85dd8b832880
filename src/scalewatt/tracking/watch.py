"""Printing the status of a campaign, once or again and again."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.tracking.status import campaign_status
from scalewatt.tracking.status_text import status_json, status_text

_CLEAR = "\x1b[H\x1b[2J"


def show_status(
    profile: Path,
    campaign: Path | None,
    results: Path,
    work: Path | None,
    every_run: bool = False,
    as_json: bool = False,
    watch_s: float | None = None,
) -> int:
    """Print the status of a campaign; with `watch_s`, again so often until it is interrupted.

    InputError where the cluster file or the campaign is wrong.
    """
    cluster = load_cluster(profile / "cluster.yaml")
    found = load_campaign(campaign or Path(cluster.campaign), cluster)
    while True:
        status = campaign_status(found, cluster, results, work or Path(cluster.work_root))
        if as_json:
            text = json.dumps(status_json(status), indent=None if watch_s else 1, allow_nan=False)
        else:
            text = status_text(status, every_run)
        clear = watch_s is not None and not as_json and sys.stdout.isatty()
        print((_CLEAR if clear else "") + text, flush=True)
        if watch_s is None:
            return 0
        time.sleep(watch_s)
