"""The idle power of devices, by probes (`tables/idle`), and the baseline of runs.

A probe's mean power is its energy over its known seconds, per device kind of the node. The mean of
a device is that of its probes, with their spread; it is null if one of them may not be stated,
or where they found unlike nodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_table_with_csv
from scalewatt.energies.account import open_segment
from scalewatt.energies.checks import gpu_loads
from scalewatt.energies.estimate import node_utilisation
from scalewatt.energies.node import (
    MAX_UNCOVERED,
    KindEnergy,
    Node,
    node_kinds,
    shared_kinds,
)
from scalewatt.energies.stages import Window
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.node_names import same_node
from scalewatt.recordings.terms import Flag, flag
from scalewatt.results.columns import SEVERAL, schema
from scalewatt.results.tables.frames import column_of
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.table_schema import table
from scalewatt.results.text.flag_labels import details_of

Row = dict[str, Any]
BIN_S = 10.0
"""Length of the means whose spread within a probe is stated."""
IDLE_BUSY = 0.05
"""Busy share of cores or GPUs above which a node was not idle."""
_FILE = "tables/idle.parquet"
"""Names the table in messages."""

IDLE = schema("idle")
"""One row per device and device kind. `mean_w` is of a node: the sum of its devices of the kind."""


@dataclass(frozen=True)
class KindPower:
    """One probe's result for one device kind; powers in W of the whole node."""

    devices: int
    mean_w: float | None
    """None if it may not be stated; then a flag says why."""
    within_sd_w: float | None
    """Sample sd of the means of BIN_S; None with fewer than two."""
    energy_origin: str | None
    coverage: float


@dataclass(frozen=True)
class ProbePowers:
    """One probe's result for its node."""

    probe: Row
    kinds: dict[str, KindPower]
    flags: tuple[Flag, ...]


def write_idle(definition: Row, results: Path, out: Path) -> None:
    """Write the table `out` (Parquet and CSV) of the definition's probes.

    `definition` = {"campaign", "devices": {name: {"repeats": [number], "powers": rated powers}}}.
    """
    rows = []
    for device, entry in definition["devices"].items():
        folder = results / "idle" / device
        probes = [probe_powers(folder / str(n), entry["powers"]) for n in entry["repeats"]]
        rows += device_rows(definition["campaign"], device, probes)
    write_table_with_csv(table(rows, IDLE), out)


# --- one probe ------------------------------------------------------------------------------------


def probe_powers(folder: Path, powers: Row) -> ProbePowers:
    """Compute the mean power of each device kind during the window of the probe in `folder`.

    `powers` = {"cpu", "gpu", "ram"}: rated powers for what was not measured, or None. InputError
    if `folder` holds no finished probe.
    """
    probe = read_json(folder / "probe.json")
    try:
        window = float(probe["window"]["start_s"]), float(probe["window"]["end_s"])
        gpus = dict(probe["gpus"] or {})
        on_gpu = probe["torch_device"] != "cpu"
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / 'probe.json'}: {error!r}; expected what `scalewatt probe` writes: window, "
            "gpus, torch_device"
        ) from error
    last = max(journal_files(folder / "perun"), default=0)
    with open_segment(folder / "perun", last) as segment:
        flags = list(segment.flags)
        if not segment.hosts:
            flags.append(flag("not_recorded", None, "neither a readable HDF5 nor a journal"))
            return ProbePowers(probe, {}, tuple(flags))
        host = segment.hosts[0]
        if len(segment.hosts) > 1:
            detail = f"{', '.join(segment.hosts)} recorded, one expected: {host} is taken"
            flags.append(flag("device_count", None, detail))
        node = replace(segment.node(host), window=window, powers=powers)
    held = gpus.get(same_node(host, gpus, segment.hosts)) if on_gpu else []
    kinds = _kinds(replace(node, held=held, expected_gpus=None if held is None else len(held)))
    flags += [*node.flags, *_busy(node, window)]
    for kind in kinds:
        flags += kind.flags
    return ProbePowers(
        probe, {kind.device_kind: _power(kind, window) for kind in kinds}, tuple(flags)
    )


def _kinds(node: Node) -> list[KindEnergy]:
    """Integrate the device kinds that the node has; a missing kind is not flagged here."""
    blocks = [_within(b, node.window) for b in (*node.blocks, *gpu_loads(node.telemetry))]
    kinds = node_kinds(replace(node, blocks=blocks))
    if node.shared_s > 0:
        kinds = shared_kinds(kinds, node.shared_s, False)
    return [kind for kind in kinds if kind.coverage is not None]


def _within(block: Block, window: Window) -> Block:
    """Cut a block to the window and one sample on either side, so that the edges are known."""
    inside = np.flatnonzero((block.time_s >= window[0]) & (block.time_s <= window[1]))
    first, last = (inside[0], inside[-1]) if inside.size else (0, -2)
    cut = slice(max(first - 1, 0), last + 2)
    return replace(block, time_s=block.time_s[cut], values=np.asfortranarray(block.values[cut]))


def _power(kind: KindEnergy, window: Window) -> KindPower:
    curves = [device.curve for device in kind.devices]
    seconds = [float(curve.covered_s(*window)) for curve in curves]
    mean_w = within_sd_w = None
    if kind.known and seconds and all(seconds):
        joules = [float(curve.between(*window)) for curve in curves]
        mean_w = sum(j / s for j, s in zip(joules, seconds, strict=True))
        within_sd_w = _within_sd(kind, window)
    return KindPower(kind.count, mean_w, within_sd_w, kind.origin, kind.coverage or 0.0)


def _within_sd(kind: KindEnergy, window: Window) -> float | None:
    """Sample sd in W of the means over the whole BIN_S that are known throughout."""
    edges = np.arange(window[0], window[1] + 1e-6, BIN_S)
    starts, ends = edges[:-1], edges[1:]
    covered = np.array([device.curve.covered_s(starts, ends) for device in kind.devices])
    energy = np.array([device.curve.between(starts, ends) for device in kind.devices])
    whole = (covered >= (1 - MAX_UNCOVERED) * BIN_S).all(axis=0)
    if np.count_nonzero(whole) < 2:
        return None
    return float(np.std((energy / covered)[:, whole].sum(axis=0), ddof=1))


def _busy(node: Node, window: Window) -> Iterator[Flag]:
    """Flag cores or GPUs that were not idle during the window."""
    cores = node_utilisation(node.blocks)
    for load in (*([cores] if cores else []), *gpu_loads(node.telemetry)):
        (sensor,), shares = load.sensors.itertuples(), load.values[:, 0]
        inside = (load.time_s >= window[0]) & (load.time_s <= window[1]) & np.isfinite(shares)
        share = float(shares[inside].mean()) if inside.any() else 0.0
        if share > IDLE_BUSY:
            detail = f"{node.name}: {sensor.kind} {100 * share:.0f} % busy, so not idle"
            yield flag("not_idle", str(sensor.name), detail)


# --- the probes of a device -----------------------------------------------------------------------


def device_rows(campaign: str, device: str, probes: Sequence[ProbePowers]) -> list[Row]:
    """Make the rows of IDLE of one device."""
    names = list(dict.fromkeys(name for probe in probes for name in probe.kinds))
    differences = {name: list(_differences(name, probes)) for name in names}
    flags = [
        {**each, "detail": f"repeat {probe.probe['repeat']}: {each['detail']}"}
        for probe in probes
        for each in probe.flags
    ]
    device_names = {probe.probe["device_name"] for probe in probes}
    common = {
        "campaign": campaign,
        "device": device,
        "device_name": device_names.pop() if len(device_names) == 1 else SEVERAL,
        "repeats": len(probes),
        "window_s": float(np.mean([probe.probe["seconds"] for probe in probes])),
        "flags": json.dumps(sum(differences.values(), start=flags)),
    }
    return [common | _kind_row(name, probes, not differences[name]) for name in names]


def _kind_row(name: str, probes: Sequence[ProbePowers], alike: bool) -> Row:
    """Columns of a device kind; without a power if the probes' nodes are not `alike`."""
    kinds = [probe.kinds.get(name) for probe in probes]
    known = [kind for kind in kinds if alike and kind and kind.mean_w is not None]
    power = summarise([kind.mean_w if alike and kind else None for kind in kinds])
    devices = known[0].devices if known else None
    squares = [kind.within_sd_w**2 for kind in known if kind.within_sd_w is not None]
    return {
        "device_kind": name,
        "devices": devices,
        "mean_w": power.mean,
        "mean_per_device_w": power.mean / devices if power.mean is not None and devices else None,
        "sd_w": power.sd,
        "low_w": power.low,
        "high_w": power.high,
        "within_sd_w": math.sqrt(np.mean(squares)) if squares else None,
        "energy_origin": known[0].energy_origin if known else None,
        "coverage": min(kind.coverage if kind else 0.0 for kind in kinds),
    }


def _differences(name: str, probes: Sequence[ProbePowers]) -> Iterator[Flag]:
    """Flag ways in which the probes' nodes are unlike in a device kind."""
    kinds = [probe.kinds[name] for probe in probes if name in probe.kinds]
    known = [kind for kind in kinds if kind.mean_w is not None]
    lacking = [str(p.probe["repeat"]) for p in probes if p.kinds and name not in p.kinds]
    words = [f"it is absent in repeat {', '.join(lacking)}"] if lacking else []
    for column in ("devices", "energy_origin"):
        several = sorted({str(getattr(kind, column)) for kind in known})
        if len(several) > 1:
            words.insert(0, f"{column} {', '.join(several)}")
    for text in words:
        yield flag("probes_differ", None, f"{name}: {text}: no mean of unlike nodes")


# --- the idle baseline of runs --------------------------------------------------------------------


_KEYS = ["device", "device_kind", "energy_origin"]


def idle_energies_j(path: Path | None, parts: pd.DataFrame) -> pd.Series:
    """Energy in J that devices would have used idle, by the table of idle probes in `path`.

    Columns of `parts`: device, device_kind, energy_origin, and device_s, the devices (GPUs: those held) times
    their recorded seconds. Null without a table, where a kind's idle power is not known or of another origin,
    and where a probe of the device was not idle.
    """
    watts = {
        tuple(row[key] for key in _KEYS): row["mean_per_device_w"]
        for row in _rows_of(path)
        if not details_of(row, "not_idle", _FILE)
    }
    keys = parts[_KEYS].itertuples(index=False, name=None)
    return column_of(map(watts.get, keys), pa.float64(), parts.index) * parts["device_s"]


def without_baseline(path: Path, runs: pd.DataFrame) -> dict[str, str]:
    """Say why runs (a table RUNS) with a known energy have no idle energy, by device."""
    lacking = runs[runs["energy_kwh"].notna() & runs["idle_energy_kwh"].isna()]["device"]
    return {
        device: _why([row for row in _rows_of(path) if row["device"] == device])
        for device in sorted(set(lacking))
    }


def _why(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no idle probe of it has finished"
    for code, words in (
        ("not_idle", "its nodes were not idle"),
        ("probes_differ", "its probes found unlike nodes"),
    ):
        if details := details_of(rows[0], code, _FILE):
            return f"{words}: {details[0]}"
    unknown = [row["device_kind"] for row in rows if row["mean_w"] is None]
    if unknown:
        return f"its probes do not state the power of {', '.join(unknown)}"
    return "its idle power is of another origin than the runs' energy, or of other device kinds"


def _rows_of(path: Path | None) -> list[Row]:
    return _read(path, path.stat().st_mtime_ns) if path is not None and path.exists() else []


@lru_cache(maxsize=2)
def _read(path: Path, _changed_ns: int) -> list[Row]:
    """Read the table's rows, once for all runs; they are not to be changed."""
    return read_checked(path, IDLE).to_pylist()
