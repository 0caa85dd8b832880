"""Where the energy of a recording's device kinds comes from: repeats of one configuration are alike in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scalewatt.energies.accounting.segment_recordings import open_segment, segment_numbers
from scalewatt.recordings.series import DEVICE_KINDS, ESTIMATED, NODE, SensorSeries

Origins = dict[str, frozenset[str]]
"""Origins of a device kind's sensors of power and energy, by kind; UTILISATION of one that has load alone."""
UTILISATION = "utilisation"


def origins_of(series: Iterable[SensorSeries]) -> Origins:
    """Return the origins of a node's device kinds."""
    found: dict[str, set[str]] = {}
    for one in series:
        origin = UTILISATION if one.quantity == UTILISATION else one.origin
        found.setdefault(one.device_kind, set()).add(origin)
    return {
        kind: frozenset(origins - {UTILISATION} or {UTILISATION}) for kind, origins in found.items()
    }


def joined_origins(parts: Iterable[Origins]) -> Origins:
    """Return the origins of several nodes, files or segments of one run."""
    found: Origins = {}
    for part in parts:
        for kind, origins in part.items():
            found[kind] = found.get(kind, frozenset()) | origins
    return found


def recorded_origins(recordings: Path) -> Origins:
    """Return the origins of a registered run, by the recordings in its folder."""
    parts = []
    for number in sorted(segment_numbers(recordings)):
        with open_segment(recordings, number) as segment:
            parts += [origins_of(segment.node(host).series) for host in segment.hosts]
    return joined_origins(parts)


def counted_origins(origins: Origins, rated: Mapping[str, Any]) -> dict[str, str]:
    """Return in a word for each device kind of a run's total where its energy comes from.

    `rated`: the device's rated powers, which a load is made power with.
    """
    parts = {kind: origins[kind] for kind in DEVICE_KINDS if kind in origins}
    if NODE in origins and not any(found - {UTILISATION} for found in parts.values()):
        return {NODE: "+".join(sorted(origins[NODE]))}
    if rated.get("ram") and origins:
        parts.setdefault("ram", frozenset({UTILISATION}))
    words = {}
    for kind, found in parts.items():
        known = {ESTIMATED if one == UTILISATION else one for one in found}
        if rated.get(kind) or found != {UTILISATION}:
            words[kind] = "+".join(sorted(known))
    return words
