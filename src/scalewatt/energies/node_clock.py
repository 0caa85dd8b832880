"""The clock of a node against the one that a run's stages are noted by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewatt.recordings.terms import Flag, Floats, flag

LARGEST_SHARE = 0.5
"""Share of a sampling period from which on an offset is flagged."""


@dataclass(frozen=True)
class NodeClock:
    """By how much a node's clock is ahead of rank 0's (s), at times of rank 0's (Unix s, ascending).

    Between these it is taken to drift steadily, before and after to stay. Unknown offsets count as 0.
    """

    node: str
    at_s: tuple[float, ...] = ()
    ahead_s: tuple[float, ...] = ()
    is_even: bool = True
    """False if a clock of the segment was set meanwhile. Nothing is corrected: when is not known."""

    @classmethod
    def of(
        cls, node: str, offsets: Iterable[Mapping[str, Any]], flags: Iterable[Flag] = ()
    ) -> NodeClock:
        """Take the node's `clock_offsets` in a segment; `flags` are the segment's."""
        pairs = sorted((float(one["at_s"]), float(one["offset_s"])) for one in offsets)
        at_s, ahead_s = tuple(at for at, _ in pairs), tuple(ahead for _, ahead in pairs)
        is_even = not any(one["code"] == "clock" for one in flags)
        return cls(
            node, at_s, ahead_s, is_even and bool(np.all(np.diff(np.add(at_s, ahead_s)) > 0))
        )

    def of_rank_0(self, node_s: Floats) -> Floats:
        """Return times of the node's clock by rank 0's."""
        if not self.at_s or not self.is_even:
            return node_s
        known_at = np.add(self.at_s, self.ahead_s)
        return node_s - np.interp(node_s, known_at, self.ahead_s)

    def of_node(self, rank_0_s: float) -> float:
        """Return a time of rank 0's clock by the node's; infinite ones stay."""
        if not self.at_s or not self.is_even:
            return rank_0_s
        return rank_0_s + float(np.interp(rank_0_s, self.at_s, self.ahead_s))

    def events(self, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return stage events, noted by rank 0's clock, by the node's."""
        if not self.at_s or not self.is_even:
            return list(map(dict, events))
        return [
            {**e, "start_s": self.of_node(e["start_s"]), "end_s": self.of_node(e["end_s"])}
            for e in events
        ]

    def flags(self, period_s: float) -> list[Flag]:
        """Return a flag if its offset is more than half a sampling period."""
        if not self.ahead_s or max(map(abs, self.ahead_s)) <= LARGEST_SHARE * period_s:
            return []
        words = [f"{abs(s):.3f} s {'ahead' if s > 0 else 'behind'}" for s in self.ahead_s]
        how = words[0] if len(words) == 1 else f"{words[0]}, at the end {words[-1]}"
        done = "corrected by that" if self.is_even else "not corrected: a clock was set meanwhile"
        detail = f"{self.node}: its clock was {how}; its stages are {done}"
        return [flag("clock", None, detail)]
