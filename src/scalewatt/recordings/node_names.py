"""Nodes by the names that several sources have for them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise


def nodes_by_name(*sources: Iterable[str]) -> dict[str, str]:
    """Map each name to its node, given the names that each source has for its nodes.

    A short name stands for its full name, "n1" for "n1.cluster". It stays itself where several fit
    ("n1.rowA", "n1.rowB"), or where a source has both. Two full names are two nodes.
    """
    by_source = [frozenset(source) for source in sources]
    names = frozenset().union(*by_source)
    nodes = dict(zip(names, names, strict=True))
    for name in names:
        full = sorted((host for host in names if host.startswith(f"{name}.")), key=len)
        is_clear = all(longer.startswith(f"{shorter}.") for shorter, longer in pairwise(full))
        has_both = any(name in source and not source.isdisjoint(full) for source in by_source)
        if full and is_clear and not has_both:
            nodes[name] = full[-1]
    return nodes


def same_node(name: str, names: Iterable[str], others: Iterable[str] = ()) -> str | None:
    """Find which of a source's `names` is of the same node as `name`, of another source with `others`."""
    names = set(names)
    if name in names:
        return name
    nodes = nodes_by_name([name, *others], names)
    return next((other for other in names if nodes[other] == nodes[name]), None)
