"""Checkpoints with everything needed to resume bit for bit, read without running code."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from scalewatt.common.errors import InputError
from scalewatt.common.files import Check, atomic_path


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """State of torch's random number generators on the CPU and, if it is a GPU, on `device`."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_state(states: dict[str, torch.Tensor], device: torch.device) -> None:
    """Restore the random number generators to what `random_state` gave."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def save(path: Path, state: dict[str, Any], check: Check | None = None) -> None:
    """Write `state` as torch does; the file before it stays until the new one is complete.

    `check` is called right before that is replaced, and raises if it must not be. UnpicklingError for a part
    of the state that could not be read back: neither tensors, numbers, text, nor lists and dictionaries of
    these. OSError if the file system is full.
    """
    with atomic_path(path, check) as temporary:
        with open(temporary, "wb") as file:  # which reports a full file system, unlike torch
            torch.save(state, file)
        torch.load(temporary, mmap=True, map_location="cpu", weights_only=True)


def load_checkpoint(path: Path, spec_sha256: str) -> dict[str, Any] | None:
    """Map the checkpoint at `path` into memory; None if there is none.

    InputError if it is damaged, or of another spec.
    """
    if not path.exists():
        return None
    restart = f"restore it, or delete the folder {path.parent} to train from the beginning"
    try:
        with zipfile.ZipFile(path) as file:  # torch reads no checksums
            if damaged := file.testzip():
                raise ValueError(f"{damaged} has a wrong checksum")
        state = torch.load(path, mmap=True, map_location="cpu", weights_only=True)
        spec = state["spec_sha256"]
    except Exception as error:  # whatever reading what is damaged may raise
        first_line, *_ = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path}: is damaged ({first_line}); {restart}") from error
    if spec != spec_sha256:
        raise InputError(f"{path}: is the checkpoint of another spec ({spec[:12]}…); {restart}")
    return state
