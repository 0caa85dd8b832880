"""Checkpoints with everything needed to resume bit for bit."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalewatt.common.errors import InputError
from scalewatt.common.files import Check, atomic_path
from scalewatt.provenance.rank_placement import Ranks

_PROBE_BYTES = 1 << 22


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of this rank's random number generators."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the random number generators to what `random_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def save_checkpoint(
    path: Path,
    state: dict[str, Any],
    ranks: Ranks,
    device: torch.device,
    check: Check | None = None,
) -> None:
    """Write `state` and every rank's random state on rank 0; all ranks must call this.

    `check` is called right before the old checkpoint is replaced, and raises if it must not be.
    OSError if the file system is full. The old checkpoint stays until the new one is complete.
    """
    random_states = ranks.comm.gather(random_state(device), root=0)
    if ranks.rank == 0:
        with atomic_path(path, check) as temporary:
            save_to(temporary, {**state, "random_states": random_states})


def save_to(path: Path, state: dict[str, Any]) -> None:
    """Write `state` as torch does; OSError if the file system is full, which torch does not report."""
    try:
        torch.save(state, path)
    except RuntimeError:
        with open(path, "ab") as file:
            file.write(bytes(_PROBE_BYTES))
        raise


def load_checkpoint(path: Path, spec_sha256: str) -> dict[str, Any] | None:
    """Load the checkpoint at `path`, None if there is none; InputError if damaged or of another spec."""
    if not path.exists():
        return None
    try:
        _check_sums(path)
        # It was written by this program into its own working directory.
        state = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # whatever unpickling what is damaged may raise
        raise InputError(
            f"{path}: is damaged ({error}); restore it from a copy, or delete the folder "
            f"{path.parent} to train from the beginning"
        ) from error
    if state["spec_sha256"] != spec_sha256:
        raise InputError(
            f"{path}: is the checkpoint of another spec ({state['spec_sha256'][:12]}…)"
        )
    return state


def _check_sums(path: Path) -> None:
    """Raise ValueError if a part of the file has a wrong checksum, which torch does not verify."""
    with zipfile.ZipFile(path) as file:
        if damaged := file.testzip():
            raise ValueError(f"{damaged} has a wrong checksum")
