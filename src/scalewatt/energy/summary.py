"""What one recording says, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.energy.journal import read_journal
from scalewatt.energy.node import KindEnergy, Window, node_kinds, node_window
from scalewatt.energy.perun_file import read_perun_file
from scalewatt.energy.samples import DEVICE_KINDS, J_PER_KWH, Flag, Recording, flag


def read_recording(path: Path | str, run_id: str | None = None) -> Recording:
    """Read a perun HDF5 file or, if the content begins like one, a journal."""
    try:
        with open(path, "rb") as handle:
            begin = handle.read(16)
    except OSError:
        begin = b""
    if begin.lstrip().startswith((b'{"t"', b'{"journal"', b'{"mono"')):
        return read_journal(path)
    return read_perun_file(path, run_id)


def describe(path: Path | str, run_id: str | None = None) -> dict[str, Any]:
    """Return energy per kind and device of one recording, ready for JSON; absent is None.

    A total is None where one of its parts is recorded but may not be stated; what was recorded
    stands in the flag `coverage`. `runtime_s` is the longest recording of a host, `coverage` the
    smallest of a kind. Raises InputError.
    """
    recording = read_recording(path, run_id)
    kinds: list[tuple[KindEnergy, Window]] = []
    flags = list(recording.problems)
    for host in recording.hosts:
        series = recording.nodes[host]
        window = node_window(series)
        if window is None:
            flags.append(flag("no_samples", None, f"{host}: no samples"))
            continue
        found = node_kinds(host, series, powers={}, period_s=recording.sampling_period_s)
        kinds += [(kind, window) for kind in found]
    present = [(kind, window) for kind, window in kinds if kind.series]
    flags += _kind_flags(kinds)
    if not present:
        flags.append(flag("no_power_sensors", None, "no sensor of power or energy was recorded"))
    energies = {kind: _energy_kwh(present, (kind,)) for kind in DEVICE_KINDS}
    coverages = [kind.coverage for kind, _ in present if kind.coverage is not None]
    return {
        "energy_kwh": _energy_kwh(present, DEVICE_KINDS),
        **{f"{kind}_energy_kwh": energy for kind, energy in energies.items()},
        "runtime_s": max((end - begin for _, (begin, end) in kinds), default=None),
        "hosts": list(recording.hosts),
        "gpus": sum(kind.devices for kind, _ in present if kind.device_kind == "gpu"),
        "origin": "measured" if present else None,
        "coverage": min(coverages, default=None),
        "flags": flags,
        "devices": [row for kind, window in present for row in _device_rows(kind, window)],
    }


def _kind_flags(kinds: list[tuple[KindEnergy, Window]]) -> list[Flag]:
    """Return the flags of all kinds; each names its host, because sensor names repeat.

    A kind that no host has is no doubt; one that only some have is.
    """
    flags = []
    present = {kind.device_kind for kind, _ in kinds if kind.series}
    for kind, _ in kinds:
        for one in kind.flags:
            if one["code"] == "absent" and kind.device_kind not in present:
                continue
            detail = one["detail"]
            if not detail.startswith(f"{kind.node}:"):
                detail = f"{kind.node}: {detail}"
            flags.append({**one, "detail": detail})
    return flags


def _energy_kwh(
    present: list[tuple[KindEnergy, Window]], device_kinds: tuple[str, ...]
) -> float | None:
    chosen = [(kind, window) for kind, window in present if kind.device_kind in device_kinds]
    if not chosen or not all(kind.known for kind, _ in chosen):
        return None
    return sum(kind.recorded_j(window) for kind, window in chosen) / J_PER_KWH


def _device_rows(kind: KindEnergy, window: Window) -> list[dict[str, Any]]:
    rows = []
    for series, curve in zip(kind.series, kind.curves, strict=True):
        covered = float(curve.covered_s(*window))
        recorded = float(curve.between(*window))
        length = window[1] - window[0]
        coverage = min(covered / length, 1.0) if length > 0 else 0.0
        energy = recorded if kind.known else None
        rows.append(
            {
                "node": kind.node,
                "device_kind": kind.device_kind,
                "device_index": series.device_index,
                "device": series.sensor,
                "energy_j": energy,
                "energy_kwh": None if energy is None else energy / J_PER_KWH,
                "mean_power_w": recorded / covered if covered > 0 else None,
                "coverage": coverage,
                "samples": int(np.count_nonzero(np.isfinite(series.values))),
            }
        )
    return rows
