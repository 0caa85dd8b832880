"""Ranks whose CPUs are of other NUMA nodes than their GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalewatt.recordings.series import Flag, flag

_NAMED = 4
"""How many ranks a flag names."""


def remote_ranks(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the ranks, as a segment of the provenance notes them, that are far from their GPU.

    Where either NUMA node is unknown nothing is said; nor of a rank that may use CPUs of several
    nodes, its GPU's among them.
    """
    found = []
    for one in ranks:
        near, own = one.get("gpu_numa"), one.get("numa")
        if near is None or near < 0 or not own or min(own) < 0 or near in own:
            continue
        name = f"rank {one['rank']}" if one.get("rank") is not None else "a rank"
        cpus = ", ".join(map(str, own))
        found.append(f"{name} on {one['host']}: CPUs of {cpus}, GPU of {near}")
    return found


def remote_flags(number: int, ranks: Sequence[Mapping[str, Any]]) -> list[Flag]:
    """Return a flag if ranks of segment `number` are far from their GPU."""
    far = remote_ranks(ranks)
    if not far:
        return []
    named = "; ".join(far[:_NAMED]) + ("; …" if len(far) > _NAMED else "")
    detail = f"segment {number}: {len(far)} of {len(ranks)} ranks, by NUMA node: {named}"
    return [flag("gpu_remote", None, detail)]
