"""Nodes by the names that several sources have for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import pairwise


def nodes_by_name(*sources: Iterable[str]) -> dict[str, str]:
    """Return the node of each name, given the names that each source has for its nodes.

    A short name stands for its full one, "n1" for "n1.cluster". It stays itself where several fit
    ("n1.rowA", "n1.rowB"), or where a source has both. Two full names are two nodes, and no address is
    a part of a name.
    """
    by_source = [frozenset(source) for source in sources]
    alike: dict[str, list[str]] = {}
    for name in sorted(frozenset().union(*by_source)):
        alike.setdefault(name if _is_address(name) else name.split(".")[0], []).append(name)
    return {name: _full_name(name, names, by_source) for names in alike.values() for name in names}


def same_node(name: str, names: Iterable[str], beside: Iterable[str] = ()) -> str | None:
    """Return which of `names` is of the same node as `name`, None if none is.

    `names` are a source's for its nodes, as are `name` and those `beside` it of another source.
    """
    names = set(names)
    if name in names:
        return name
    nodes = nodes_by_name([name, *beside], names)
    return next((other for other in names if nodes[other] == nodes[name]), None)


def _full_name(name: str, alike: Sequence[str], by_source: Iterable[frozenset[str]]) -> str:
    full = sorted((other for other in alike if other.startswith(f"{name}.")), key=len)
    is_clear = all(longer.startswith(f"{shorter}.") for shorter, longer in pairwise(full))
    if not full or not is_clear or any(name in s and not s.isdisjoint(full) for s in by_source):
        return name
    return full[-1]


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
