"""Trainings of a campaign on one machine, one by one, in the folders that Snakemake makes."""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import atomic_path, read_json, write_json, write_text
from scalewatt.datasets.prepare import prepare_dataset

_LEFT_BEHIND = ("weights.pt", "subsets.parquet")
"""Of a run's folder: what no table is made of."""
Tell = Callable[[str], None]


def prepare_all(campaign: Campaign, cluster: Cluster, results: Path) -> dict[str, str]:
    """Prepare the datasets of a campaign; return their folders by name."""
    folders = {}
    for name, definition in campaign.datasets().items():
        folders[name] = cluster.data_folder(definition)
        marker = prepare_dataset(definition, Path(folders[name]), cluster.sources.get(name))
        path = results / "datasets" / f"{name}.json"
        # A newer file would make Snakemake train again what was trained from it.
        if not path.exists() or read_json(path) != marker:
            write_json(path, marker)
    return folders


@dataclass
class Trained:
    """What became of the runs of a campaign that were not finished."""

    failed: list[str] = field(default_factory=list)
    not_started: list[str] = field(default_factory=list)
    """For want of time."""


def train_all(
    campaign: Campaign,
    cluster: Cluster,
    cluster_file: Path,
    results: Path,
    until_s: float,
    tell: Tell,
) -> Trained:
    """Train the runs of a campaign that are not finished; return those that failed or were not started.

    Of several repeats the first are trained first, so that a study that is cut off has every point once.
    No run is started after `until_s` of the monotonic clock.
    Raises Stopped where one was asked to stop; started again, it goes on from its checkpoint.
    """
    trained = Trained()
    runs = sorted(campaign.runs(), key=lambda run: run.repeat)
    order = list(campaign.series.values())
    place = {id_: at for at, series in enumerate(order) for id_ in series.points.values()}
    runs.sort(key=lambda run: (run.repeat, place[run.configuration.id]))
    for number, run in enumerate(runs, 1):
        spec = run_spec(campaign, run.configuration.id, run.repeat)
        folder = results / "runs" / spec.configuration / str(spec.repeat)
        if (folder / "provenance.json").exists():
            continue
        if time.monotonic() > until_s:
            trained.not_started.append(spec.name)
            continue
        tell(f"[{number} of {len(runs)}] {spec.name}")
        write_text(folder / "spec.json", spec.text + "\n")
        weights = []
        if spec.initial_weights is not None:
            source = spec.initial_weights
            path = results / "runs" / source.configuration / str(source.repeat) / "weights.pt"
            weights = ["--initial-weights", str(path)]
        command = [
            *(sys.executable, "-m", "scalewatt.cli", "train", str(folder / "spec.json")),
            *("--cluster", str(cluster_file), "--work", cluster.work_root, "--out", str(folder)),
            *weights,
        ]
        code = run_to_its_end(command)
        if code == ExitCode.STOPPED:
            raise Stopped
        if code:
            trained.failed.append(spec.name)
    return trained


class Stopped(Exception):
    """A training was asked to stop, and with it the study."""


def run_to_its_end(command: Sequence[str]) -> int:
    """Run a training and return its exit code; it answers Ctrl-C and TERM itself, at its next step."""
    process = subprocess.Popen(command)
    handlers: dict[int, Any] = {
        signal.SIGINT: lambda *_: None,  # a terminal's reaches the training too
        signal.SIGTERM: lambda *_: process.terminate(),
    }
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def pack(folders: Sequence[Path], out: Path) -> None:
    """Put a study's folders into one archive, without weights; InputError if it exists already."""
    if out.exists():
        raise InputError(f"{out}: exists already; expected a new file")

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(member.name).name in _LEFT_BEHIND else member

    with atomic_path(out) as temporary, tarfile.open(temporary, "w:gz") as archive:
        for folder in folders:
            archive.add(folder, filter=kept)
