"""Weights that the original FourCastNet code saved, in our network."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from scalewatt.common.errors import InputError
from scalewatt.workloads.afno import FourCastNet, Rollout

_PREFIX = "module."  # of DataParallel and DistributedDataParallel
_UNUSED = ("norm.weight", "norm.bias")
_SHOWN = 5


def load_original_checkpoint(
    model: FourCastNet | Rollout, path_or_state: str | Path | Mapping[str, Any]
) -> None:
    """Give `model` the weights of a checkpoint of the original code, in place.

    A file or what it holds: `{"model_state": {"module.<name>": tensor}, …}`, where everything but
    `model_state` is ignored, or the state itself, with or without the prefix. The original's
    last `norm`, which its forward pass never uses, has no place here. InputError names parameters
    that are missing, unknown or of another shape; the model is then as before.
    """
    where, state = _state(path_or_state)
    network = model.net if isinstance(model, Rollout) else model
    own = network.state_dict()
    found = {name: value for name, value in state.items() if name not in _UNUSED}
    _refuse(where, "misses", [name for name in own if name not in found])
    _refuse(where, "has unknown", [name for name in found if name not in own])
    bad = [name for name, value in found.items() if not isinstance(value, torch.Tensor)]
    _refuse(where, "has no tensor for", bad)
    other = [
        f"{name} {tuple(value.shape)} (expected {tuple(own[name].shape)})"
        for name, value in found.items()
        if value.shape != own[name].shape
    ]
    _refuse(where, "has other shapes:", other)
    network.load_state_dict(found)


def _state(path_or_state: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the source's name for messages, and its parameters by name without prefix."""
    where, saved = "checkpoint", path_or_state
    if isinstance(saved, str | Path):
        where, saved = str(saved), _read(Path(saved))
    state = saved.get("model_state", saved) if isinstance(saved, Mapping) else saved
    if not isinstance(state, Mapping):
        raise InputError(f"{where}: has no weights by name; expected model_state or a state dict")
    return where, {str(name).removeprefix(_PREFIX): value for name, value in state.items()}


def _read(path: Path) -> Any:
    try:
        # Only data: a file from elsewhere must not run code.
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint") from None
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read as a checkpoint ({reason})") from error


def _refuse(where: str, what: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise InputError(f"{where}: {what} {', '.join(names[:_SHOWN])}{more}")
