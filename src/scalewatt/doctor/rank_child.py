"""One of the ranks that the doctor has started: rank 0 prints {"size", "hosts", "library"}."""

from __future__ import annotations

import json
import socket


def main() -> None:
    """Meet the other ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    hosts = comm.gather(socket.gethostname(), root=0)
    if hosts is not None:
        library = " ".join(MPI.Get_library_version().splitlines()[0].split())
        said = {"size": comm.Get_size(), "hosts": sorted(set(hosts)), "library": library}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
