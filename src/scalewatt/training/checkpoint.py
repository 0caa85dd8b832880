"""Checkpoints with everything needed to resume bit for bit, and nothing that can run code.

A file has tensors, numbers, text, lists and dictionaries only. Who may write into a shared work
folder could otherwise run code as whoever resumes the run.
"""

from __future__ import annotations

import io
import pickle
import random
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalewatt.common.errors import InputError
from scalewatt.common.files import Check, atomic_path
from scalewatt.provenance.rank_placement import Ranks

_PROBE_BYTES = 1 << 22


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of this rank's random number generators, in types that a checkpoint may have."""
    return plain(
        {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        },
        "random_states",
    )


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the random number generators to what `random_state` returned."""
    random.setstate(state["python"])
    name, words, *rest = state["numpy"]
    np.random.set_state((name, words.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def plain(value: Any, name: str) -> Any:
    """Return `value`, which a checkpoint holds as `name`, in types that are read without running code.

    Arrays become tensors and numpy's numbers Python's own, of the same value. TypeError, which says
    where it is, for any other object.
    """
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        # As int64, because torch knows unsigned integers of more than a byte in part only.
        wide = value.astype(np.int64) if value.dtype.kind == "u" else value
        return torch.from_numpy(np.array(wide))
    if isinstance(value, np.generic):
        return plain(value.item(), name)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, OrderedDict):  # a network's state, whose modules state their versions
        state = OrderedDict(
            (plain(key, name), plain(part, f"{name}.{key}")) for key, part in value.items()
        )
        vars(state).update(plain(vars(value), name))
        return state
    if isinstance(value, Mapping):
        return {plain(key, name): plain(part, f"{name}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [plain(part, f"{name}[{number}]") for number, part in enumerate(value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    raise TypeError(
        f"checkpoint: {name} is of type {type(value).__name__}; allowed: tensors, arrays, numbers, "
        "text, null, and lists, tuples and dictionaries of these"
    )


def save_checkpoint(
    path: Path,
    state: dict[str, Any],
    ranks: Ranks,
    device: torch.device,
    check: Check | None = None,
) -> None:
    """Write `state` and every rank's random state on rank 0; all ranks must call this.

    `check` is called right before the old checkpoint is replaced, and raises if it must not be.
    TypeError if a part of the state is none of the types of `plain`. OSError if the file system is
    full. The old checkpoint stays until the new one is complete.
    """
    random_states = ranks.comm.gather(random_state(device), root=0)
    if ranks.rank == 0:
        with atomic_path(path, check) as temporary:
            whole = {**state, "random_states": random_states}
            save_to(temporary, {name: plain(part, name) for name, part in whole.items()})


def save_to(path: Path, state: dict[str, Any]) -> None:
    """Write `state` as torch does; OSError if the file system is full, which torch does not report."""
    try:
        torch.save(state, path)
    except RuntimeError:
        with open(path, "ab") as file:
            file.write(bytes(_PROBE_BYTES))
        raise


def load_checkpoint(path: Path, spec_sha256: str) -> dict[str, Any] | None:
    """Load the checkpoint at `path`, None if there is none; nothing in the file is run as code.

    InputError if it is damaged, of another spec, or has more than tensors and plain values.
    """
    if not path.exists():
        return None
    anew = f"delete the folder {path.parent} to train from the beginning"
    try:
        content = io.BytesIO(path.read_bytes())  # once: it may be large, and far away
        _check_sums(content)
        with warnings.catch_warnings():  # of what torch thinks of a file that is refused anyway
            warnings.simplefilter("ignore")
            state = torch.load(content, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: has more in it than tensors and plain values, which could run code; {anew}"
        ) from error
    except Exception as error:  # whatever reading what is damaged may raise
        raise InputError(
            f"{path}: is damaged ({_first_line(error)}); restore it from a copy, or {anew}"
        ) from error
    found = state.get("spec_sha256") if isinstance(state, dict) else None
    if not isinstance(found, str):
        raise InputError(f"{path}: is no checkpoint; restore it from a copy, or {anew}")
    if found != spec_sha256:
        raise InputError(f"{path}: is the checkpoint of another spec ({found[:12]}…)")
    return state


def load_on_all(path: Path, spec_sha256: str, ranks: Ranks) -> dict[str, Any] | None:
    """Load the checkpoint at `path` on rank 0, for all ranks, which must call this."""
    state = load_checkpoint(path, spec_sha256) if ranks.rank == 0 else None
    if ranks.size == 1:
        return state
    from mpi4py.util import pkl5  # of any size: a message of MPI may have 2 GiB

    found: dict[str, Any] | None = pkl5.Intracomm(ranks.comm).bcast(state, root=0)
    return found


def load_weights(path: Path, network: torch.nn.Module) -> None:
    """Load what `save_to` wrote of a network's state; InputError if it is damaged or of another one."""
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: cannot be used as weights (it has more in it than tensors, which could run code)"
        ) from error
    except Exception as error:  # whatever reading what is damaged may raise
        raise InputError(f"{path}: cannot be used as weights ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _check_sums(content: io.BytesIO) -> None:
    """Raise ValueError if a part of a file has a wrong checksum, which torch does not verify."""
    with zipfile.ZipFile(content) as file:
        if damaged := file.testzip():
            raise ValueError(f"{damaged} has a wrong checksum")
    content.seek(0)
