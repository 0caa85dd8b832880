"""How far the clocks of a training's nodes differ, measured between its ranks.

Rank 0 notes the stages by the clock of its node, and each node's sampler stamps its samples by its own.
NTP keeps clocks within milliseconds; where it has failed they differ by seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

    from scalewatt.provenance.rank_placement import Ranks

PINGS = 50
"""Messages to each node. The one that comes back the fastest tells the most."""
_TAG = 7707


def measured_clock_offsets(ranks: Ranks) -> list[dict[str, Any]]:
    """Return the offsets of the nodes' clocks, on rank 0; nothing on the others. All ranks must call this.

    One entry for each node but rank 0's: `host`; `at_s`, when it was measured (Unix s, rank 0's clock);
    `offset_s`, by how much its clock is ahead; `uncertainty_s`, half the time of the fastest message.
    """
    hosts = ranks.comm.allgather(ranks.host)
    first_ranks = {host: hosts.index(host) for host in hosts if host != hosts[0]}
    if ranks.rank == 0:
        return [_ask(ranks.comm, rank) | {"host": host} for host, rank in first_ranks.items()]
    if first_ranks.get(ranks.host) == ranks.rank:
        for _ in range(PINGS):
            ranks.comm.recv(source=0, tag=_TAG)
            ranks.comm.send(time.time(), dest=0, tag=_TAG)
    return []


def _ask(comm: MPI.Intracomm, rank: int) -> dict[str, float]:
    """Ask another node's rank for its time, and return the best of the answers."""
    answers = []
    for _ in range(PINGS):
        sent_s = time.time()
        comm.send(None, dest=rank, tag=_TAG)
        theirs_s = comm.recv(source=rank, tag=_TAG)
        answers.append((time.time() - sent_s, sent_s, theirs_s))
    taken_s, sent_s, theirs_s = min(answers)
    at_s = sent_s + taken_s / 2
    return {"at_s": at_s, "offset_s": theirs_s - at_s, "uncertainty_s": taken_s / 2}
