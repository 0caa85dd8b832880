"""The idle power of devices, by probes (`tables/idle`), and the baseline of runs.

A probe's mean power is its energy over its known seconds, per device kind of the node. The mean of a device
is that of its probes, with their spread; it is null if one of them may not be stated, or if their nodes are
unlike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.columns import schema
from scalewatt.common.files import read_json_object
from scalewatt.energies.account import read_segment
from scalewatt.energies.checks import GPU_LOAD, as_sensors
from scalewatt.energies.node import KindEnergy, Node, node_kinds, node_utilisation
from scalewatt.energies.stages import Window
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.terms import Flag, flag
from scalewatt.results.columns import SEVERAL
from scalewatt.results.tables.frames import column_of, frame_of, read_checked, write_frame
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.text.flag_labels import details_of

Row = dict[str, Any]
IDLE_BUSY = 0.05
"""Busy share of cores or GPUs above which a node was not idle."""
_UNKNOWN: Row = {"devices": None, "mean_w": None, "energy_origin": None, "coverage": 0.0}

IDLE = schema("idle")
"""One row per device and device kind. `mean_w` is of a node: the sum of its devices of the kind."""


class ProbePowers(NamedTuple):
    """One probe's result for its node.

    `kinds` has by device kind the number of its `devices`, `energy_origin`, `coverage`, and `mean_w`, the
    mean power of the whole node in W, None if it may not be stated (then a flag says why).
    """

    probe: Row
    kinds: dict[str, Row]
    flags: list[Flag]


def write_idle(definition: Row, results: Path, out: Path) -> None:
    """Write the table `out` (Parquet and CSV) of the definition's probes.

    `definition` = {"campaign", "devices": {name: {"repeats": [number], "powers": rated powers}}}.
    """
    rows = []
    for device, entry in definition["devices"].items():
        folder = results / "idle" / device
        probes = [probe_powers(folder / str(n), entry["powers"]) for n in entry["repeats"]]
        rows += device_rows(definition["campaign"], device, probes)
    write_frame(frame_of(rows, IDLE), out, IDLE)


# --- one probe ------------------------------------------------------------------------------------


def probe_powers(folder: Path, powers: Row) -> ProbePowers:
    """Compute the mean power of each device kind during the window of the probe in `folder`.

    `powers` = {"cpu", "gpu", "ram"}: rated powers for what was not measured, or None. InputError
    if `folder` holds no finished probe.
    """
    probe = read_json_object(folder / "probe.json", "window", "gpus", "torch_device")
    window = float(probe["window"]["start_s"]), float(probe["window"]["end_s"])
    gpus = probe["gpus"] or {}
    recorded = folder / "perun"
    segment = read_segment(recorded, max(journal_files(recorded), default=0))
    flags = list(segment.flags)
    if not segment.hosts:
        flags.append(flag("not_recorded", None, "neither a readable HDF5 nor a journal"))
        return ProbePowers(probe, {}, flags)
    host = segment.hosts[0]
    if len(segment.hosts) > 1:
        detail = f"{', '.join(segment.hosts)} recorded, one expected: {host} is taken"
        flags.append(flag("not_recorded", None, detail))
    node = replace(segment.node(host), window=window, powers=powers)
    on_gpu = probe["torch_device"] != "cpu"
    held = gpus.get(host) if on_gpu else []
    flags += [*node.flags, *_busy(node, window)]
    kinds = {}
    for kind in _kinds(replace(node, held=held, expected_gpus=None if held is None else len(held))):
        flags += kind.flags
        curves = [device.curve for device in kind.devices]
        covered_s = [float(curve.covered_s(*window)) for curve in curves]
        is_known = kind.known and curves and all(covered_s)
        joules = (float(curve.between(*window)) for curve in curves)
        kinds[kind.device_kind] = {
            "devices": kind.count,
            "mean_w": sum(j / s for j, s in zip(joules, covered_s, strict=True))
            if is_known
            else None,
            "energy_origin": kind.origin,
            "coverage": kind.coverage or 0.0,
        }
    return ProbePowers(probe, kinds, flags)


def _kinds(node: Node) -> list[KindEnergy]:
    """Integrate the device kinds that the node has; a missing kind is not flagged here."""
    blocks = [_cut(b, node.window) for b in (*node.blocks, *as_sensors(node.telemetry, GPU_LOAD))]
    kinds = node_kinds(replace(node, blocks=blocks))
    # On a node with another run no kind is known: what its GPUs do warms these, too.
    shared = node.shared_s > 0
    return [replace(kind, shared=shared) for kind in kinds if kind.coverage is not None]


def _cut(block: Block, window: Window) -> Block:
    """Cut a block to the window and one sample on either side, so that the edges are known."""
    first = int(np.searchsorted(block.time_s, window[0], side="left"))
    end = int(np.searchsorted(block.time_s, window[1], side="right"))
    cut = slice(max(first - 1, 0), end + 1 if first < end else 0)
    return replace(block, time_s=block.time_s[cut], values=np.asfortranarray(block.values[cut]))


def _busy(node: Node, window: Window) -> Iterator[Flag]:
    """Flag cores or GPUs that were not idle during the window."""
    cores = node_utilisation(node.blocks)
    for load in (*([cores] if cores else []), *as_sensors(node.telemetry, GPU_LOAD)):
        (sensor,), shares = load.sensors.itertuples(), load.values[:, 0]
        inside = (load.time_s >= window[0]) & (load.time_s <= window[1]) & np.isfinite(shares)
        share = float(shares[inside].mean()) if inside.any() else 0.0
        if share > IDLE_BUSY:
            detail = f"{node.name}: {sensor.kind} {100 * share:.0f} % busy, so not idle"
            yield flag("not_idle", str(sensor.name), detail)


# --- the probes of a device -----------------------------------------------------------------------


def device_rows(campaign: str, device: str, probes: Sequence[ProbePowers]) -> list[Row]:
    """Make the rows of IDLE of one device; there is no power of nodes that are unlike in a kind."""
    flags = [
        {**each, "detail": f"repeat {probe.probe['repeat']}: {each['detail']}"}
        for probe in probes
        for each in probe.flags
    ]
    rows = []
    for kind in dict.fromkeys(kind for probe in probes for kind in probe.kinds):
        by_probe = [probe.kinds.get(kind, _UNKNOWN) for probe in probes]
        differences = list(_differences(kind, probes))
        flags += differences
        known = [row for row in by_probe if row["mean_w"] is not None and not differences]
        first = known[0] if known else _UNKNOWN
        power = summarise([None if differences else row["mean_w"] for row in by_probe])
        mean_w = power["mean"]
        rows.append(
            {
                "device_kind": kind,
                **{name: first[name] for name in ("devices", "energy_origin")},
                **{f"{part}_w": value for part, value in power.items()},
                "mean_per_device_w": None if mean_w is None else mean_w / first["devices"],
                "coverage": min(row["coverage"] for row in by_probe),
            }
        )
    names = {probe.probe["device_name"] for probe in probes}
    common = {
        "campaign": campaign,
        "device": device,
        "device_name": names.pop() if len(names) == 1 else SEVERAL,
        "repeats": len(probes),
        "window_s": float(np.mean([probe.probe["seconds"] for probe in probes])),
        "flags": json.dumps(flags),
    }
    return [common | row for row in rows]


def _differences(kind: str, probes: Sequence[ProbePowers]) -> Iterator[Flag]:
    """Flag ways in which the probes' nodes are unlike in a device kind."""
    known = [row for p in probes if (row := p.kinds.get(kind)) and row["mean_w"] is not None]
    words = []
    for column in ("energy_origin", "devices"):
        several = sorted({str(row[column]) for row in known})
        if len(several) > 1:
            words.append(f"{column} {', '.join(several)}")
    if lacking := [str(p.probe["repeat"]) for p in probes if p.kinds and kind not in p.kinds]:
        words.append(f"it is absent in repeat {', '.join(lacking)}")
    for text in words:
        yield flag("probes_differ", None, f"{kind}: {text}: no mean of unlike nodes")


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
        for row in _read(path)
        if not details_of(row, "not_idle")
    }
    keys = parts[_KEYS].itertuples(index=False, name=None)
    return column_of(map(watts.get, keys), pa.float64(), parts.index) * parts["device_s"]


def without_baseline(path: Path, runs: pd.DataFrame) -> dict[str, str]:
    """Name why runs (a table RUNS) with a known energy have no idle energy, by device."""
    lacking = runs[runs["energy_kwh"].notna() & runs["idle_energy_kwh"].isna()]["device"]
    rows = {row["device"]: row for row in _read(path)}
    why = {device: "no idle probe of it has finished" for device in sorted(set(lacking))}
    for device in why.keys() & rows.keys():
        details = (details_of(rows[device], code) for code in ("not_idle", "probes_differ"))
        usual = "its probes state no power of the runs' device kinds and energy origin"
        why[device] = next((words[0] for words in details if words), usual)
    return why


def _read(path: Path | None) -> list[Row]:
    """Rows of the table, none where there is no table."""
    return [] if path is None or not path.exists() else read_checked(path, IDLE).to_pylist()
