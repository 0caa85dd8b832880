"""The clock of a node against the one that a run's stages are noted by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scalewatt.recordings.terms import Flag, Floats, flag

LARGEST_SHARE = 0.5
"""Share of a sampling period from which on an offset is flagged."""


@dataclass(frozen=True)
class NodeClock:
    """By how much a node's clock is ahead of rank 0's (s), at times of rank 0's (Unix s, ascending).

    Between these it is taken to drift steadily, before and after to stay. Unknown offsets count as 0.
    """

    at_s: tuple[float, ...] = (0.0,)
    ahead_s: tuple[float, ...] = (0.0,)
    is_even: bool = True
    """False if a clock of the segment was set meanwhile. Nothing is corrected: when is not known."""

    @classmethod
    def of(cls, offsets: Iterable[Mapping[str, Any]], flags: Iterable[Flag] = ()) -> NodeClock:
        """Take a node's `clock_offsets` in a segment; `flags` are the node's and those of rank 0's."""
        pairs = sorted((float(row["at_s"]), float(row["offset_s"])) for row in offsets)
        at_s, ahead_s = zip(*pairs, strict=True) if pairs else ((0.0,), (0.0,))
        was_set = any(each["code"] == "clock" for each in flags)
        return cls(at_s, ahead_s, not was_set and bool((np.diff(np.add(at_s, ahead_s)) > 0).all()))

    def rank_0_s(self, node_s: Floats) -> Floats:
        """Times of the node's clock by rank 0's."""
        if not (self.is_even and any(self.ahead_s)):
            return node_s
        return node_s - np.interp(node_s, np.add(self.at_s, self.ahead_s), self.ahead_s)

    def node_s(self, rank_0_s: ArrayLike) -> Floats:
        """Times of rank 0's clock by the node's; infinite ones stay."""
        times_s = np.asarray(rank_0_s, np.float64)
        ahead_s = np.interp(times_s, self.at_s, self.ahead_s)
        return times_s + ahead_s if self.is_even else times_s

    def flags(self, node: str, period_s: float) -> list[Flag]:
        """Flag an offset of more than half a sampling period."""
        if max(map(abs, self.ahead_s)) <= LARGEST_SHARE * period_s:
            return []
        words = [f"{abs(s):.3f} s {'ahead' if s > 0 else 'behind'}" for s in self.ahead_s]
        how = words[0] if len(words) == 1 else f"{words[0]}, at the end {words[-1]}"
        done = "corrected by that" if self.is_even else "not corrected: a clock was set meanwhile"
        return [flag("clock", None, f"{node}: its clock was {how}; its stages are {done}")]
