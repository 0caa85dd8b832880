"""Checkpoints: everything to resume bit for bit, of the right run, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import pytest
import torch

from scalewatt.common.errors import InputError
from scalewatt.training.checkpoint import load_checkpoint, random_state, restore_random_state, save

CPU = torch.device("cpu")
SHA = "a" * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.pt"


def loaded(path: Path) -> dict[str, Any]:
    state = load_checkpoint(path, SHA)
    assert state is not None
    return state


def test_a_checkpoint_is_read_back_as_it_was_with_the_random_numbers_that_follow(
    path: Path,
) -> None:
    weights, sums = torch.randn(3, 4), torch.arange(6, dtype=torch.float64)
    state = {
        **{"spec_sha256": SHA, "network": {"w": weights}, "epoch": 3, "seconds": {"train": 1.5}},
        "history": [{"epoch": 0, "metric": None, "train_loss": 0.1}],
        "ranks": [{"sums": sums, "random_states": random_state(CPU)}, {"sums": None}],
    }
    save(path, state)
    following = torch.rand(3)
    assert not torch.equal(torch.rand(3), following)
    read = loaded(path)
    assert torch.equal(read["network"]["w"], weights)
    assert torch.equal(read["ranks"][0]["sums"], sums) and read["ranks"][1] == {"sums": None}
    assert all(read[name] == state[name] for name in ("epoch", "seconds", "history"))
    restore_random_state(read["ranks"][0]["random_states"], CPU)
    assert torch.equal(torch.rand(3), following)


def test_the_checkpoint_of_another_spec_is_refused(path: Path) -> None:
    save(path, {"spec_sha256": SHA})
    with pytest.raises(InputError, match=r"checkpoint\.pt: .* another spec"):
        load_checkpoint(path, "b" * 64)


def test_a_state_that_could_not_be_read_back_is_refused_when_it_is_written(path: Path) -> None:
    save(path, {"spec_sha256": SHA, "epoch": 1})
    with pytest.raises(UnpicklingError, match="Weights only load failed"):
        save(path, {"spec_sha256": SHA, "schedule": np.random.default_rng(0)})
    assert loaded(path)["epoch"] == 1


def test_a_flipped_bit_anywhere_in_a_tensor_is_noticed(path: Path) -> None:
    weights = torch.arange(5000, dtype=torch.float32)
    save(path, {"spec_sha256": SHA, "network": {"w": weights}})
    whole = path.read_bytes()
    first = whole.index(weights.numpy().tobytes())
    for at in range(first, first + 4 * len(weights), 997):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(InputError, match=r"is damaged .*(checksum|CRC)"):
            load_checkpoint(path, SHA)


def test_a_failed_save_keeps_the_checkpoint_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(state: Any, file: Any) -> None:
        file.write(b"half of it")
        raise RuntimeError("the disk is full")

    def forbid() -> None:
        raise InputError("held by another")

    save(path, {"spec_sha256": SHA, "epoch": 1})
    with pytest.raises(InputError, match="held by another"):
        save(path, {"spec_sha256": SHA, "epoch": 2}, forbid)
    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(RuntimeError, match="disk is full"):
        save(path, {"spec_sha256": SHA, "epoch": 2})
    assert loaded(path)["epoch"] == 1
    assert os.listdir(path.parent) == ["checkpoint.pt"]
