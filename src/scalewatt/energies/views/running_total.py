"""The energy recorded in journals so far."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.energies.accounting.node_energy import (
    LEAST_OF_A_NODE,
    MAX_UNCOVERED,
    Window,
    node_kinds,
    node_window,
)
from scalewatt.energies.accounting.run_inputs import Run
from scalewatt.energies.accounting.segment_recordings import NodeRecording
from scalewatt.energies.accounting.throttling import gpu_utilisation
from scalewatt.recordings.journal import read_journal
from scalewatt.recordings.series import DEVICE_KINDS, Recording, SensorSeries
from scalewatt.recordings.telemetry import read_telemetry, telemetry_files


@dataclass(frozen=True)
class KindSum:
    """The recorded energy and time of one device kind."""

    recorded_j: float = 0.0
    covered_s: float = 0.0
    """Device seconds with a known power."""
    device_s: float = 0.0
    """Device seconds of which the power should be known."""
    origin: str | None = None
    low_j: float = 0.0
    """The interval of what was used: what estimates and uncovered time leave open."""
    high_j: float = 0.0

    def __add__(self, other: KindSum) -> KindSum:
        return KindSum(
            self.recorded_j + other.recorded_j,
            self.covered_s + other.covered_s,
            self.device_s + other.device_s,
            self.origin or other.origin,
            self.low_j + other.low_j,
            self.high_j + other.high_j,
        )

    @property
    def known(self) -> bool:
        """Return True if enough was recorded for the energy to be stated."""
        return self.covered_s >= (1 - MAX_UNCOVERED) * self.device_s

    @property
    def is_recorded(self) -> bool:
        """Return True if, of one node, enough was recorded to be stated among others."""
        return self.covered_s >= LEAST_OF_A_NODE * self.device_s


@dataclass(frozen=True)
class JournalSum:
    """The energy in one journal, of the device kinds in scope."""

    host: str
    first_s: float
    """Unix s."""
    last_s: float
    kinds: Mapping[str, KindSum] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        """Return the seconds between first and last sample."""
        return self.last_s - self.first_s

    @property
    def recorded_j(self) -> float:
        """Return the energy of all kinds, as far as it was recorded."""
        return sum(kind.recorded_j for kind in self.kinds.values())

    @property
    def known(self) -> bool:
        """Return True if the energy of all kinds in scope may be stated, and there is one."""
        return bool(self.kinds) and all(kind.known for kind in self.kinds.values())


def read_so_far(path: Path, run: Run) -> JournalSum | None:
    """Count the journal at `path` of a segment of `run`; None without a readable sample.

    `run` gives the GPUs held and the rated powers.
    """
    try:
        recording = read_journal(path)
    except InputError:
        return None
    return _sum_of(path, run, recording, recording.series)


def last_power(path: Path, run: Run, records: int) -> tuple[JournalSum, float] | None:
    """Return the sum of a journal's last records, and their mean power in W; None if unknown."""
    try:
        recording = read_journal(path, -records)
        series = [_cut(s, max(s.time_s.size - records, 0), s.time_s.size) for s in recording.series]
        found = _sum_of(path, run, recording, series)
    except (InputError, OSError):
        return None
    if found is None or not found.known or found.length_s <= 0:
        return None
    return found, found.recorded_j / found.length_s


def _sum_of(
    path: Path, run: Run, recording: Recording, series: Iterable[SensorSeries]
) -> JournalSum | None:
    """Account for samples of one host, as the energy of a finished run is accounted for."""
    found = list(series)
    window = node_window(found)
    if window is None:
        return None
    host = found[0].node
    held = run.used_gpus(host, found)
    kinds = node_kinds(
        host,
        [*found, *_loads(path, run, found, window)],
        powers=run.powers,
        period_s=recording.sampling_period_s or run.spec.sampling_period_s,
        used_gpus=held,
        expected_gpus=run.spec.ranks_per_node if held is None else len(held),
        window=window,
    )
    sums = {}
    for kind in kinds:
        if kind.device_kind not in DEVICE_KINDS or kind.coverage is None:
            continue
        # Devices that nothing was recorded of have been there for the whole window.
        device_s = kind.device_s if kind.series else window[1] - window[0]
        covered_s = kind.coverage * device_s
        recorded_j = kind.recorded_j(window)
        ends = kind.bounds_j(window)
        sums[kind.device_kind] = KindSum(recorded_j, covered_s, device_s, kind.origin, *ends)
    return JournalSum(host, *window, sums)


def _loads(
    path: Path, run: Run, series: Sequence[SensorSeries], window: Window
) -> list[SensorSeries]:
    """Return the load of GPUs that have no power sensor but a rated power, from the journal's telemetry."""
    if not run.powers.get("gpu") or any(s.device_kind == "gpu" for s in series):
        return []
    telemetry, _ = read_telemetry(telemetry_files(path.parent, glob.escape(path.stem)))
    node = NodeRecording(series[0].node, tuple(series), (), None, tuple(telemetry), ())
    return [_between(load, window) for load in gpu_utilisation(node)]


def _between(series: SensorSeries, window: Window) -> SensorSeries:
    """Return the samples of a window, and one beyond each of its ends."""
    inside = (series.time_s >= window[0]) & (series.time_s <= window[1])
    found = inside.nonzero()[0]
    first, last = (found[0], found[-1]) if found.size else (1, -1)
    return _cut(series, max(first - 1, 0), last + 2)


def _cut(series: SensorSeries, first: int, last: int) -> SensorSeries:
    return replace(series, time_s=series.time_s[first:last], values=series.values[first:last])
