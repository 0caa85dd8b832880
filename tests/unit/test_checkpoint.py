"""Checkpoints: everything to go on bit for bit, of the right run, all or nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scalewatt.common.errors import InputError
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.training.checkpoint import (
    load_checkpoint,
    random_state,
    restore_random_state,
    save_checkpoint,
)

CPU = torch.device("cpu")
SHA = "a" * 64


class Comm:
    """MPI's gather, with what the other ranks would send."""

    def __init__(self, rank: int, others: list[Any]) -> None:
        self.rank, self.others = rank, others

    def gather(self, value: Any, root: int) -> list[Any] | None:
        return [value, *self.others] if self.rank == root else None


def ranks(rank: int = 0, others: tuple[Any, ...] = ()) -> Ranks:
    comm: Any = Comm(rank, list(others))
    return Ranks(comm, rank, 1 + len(others), rank, "n1", 1)


def draw() -> tuple[Any, ...]:
    return random.random(), np.random.rand(), torch.rand(3).tolist()


def test_random_numbers_go_on_where_they_were() -> None:
    state = random_state(CPU)
    first = draw()
    assert draw() != first
    restore_random_state(state, CPU)
    assert draw() == first


def test_a_checkpoint_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    weights = torch.randn(3, 4)
    state = {
        "spec_sha256": SHA,
        "model": {"w": weights},
        "epoch": 3,
        "sums": [np.arange(6.0), np.ones(6)],
        "history": [{"epoch": 0, "metric": None}],
    }
    torch.manual_seed(5)
    save_checkpoint(path, state, ranks(), CPU)
    following = draw()
    found = load_checkpoint(path, SHA)
    assert found is not None
    assert torch.equal(found["model"]["w"], weights)
    assert found["epoch"] == 3
    assert found["history"] == state["history"]
    np.testing.assert_array_equal(found["sums"][0], np.arange(6.0))
    restore_random_state(found["random_states"][0], CPU)
    assert draw() == following


def test_a_checkpoint_has_the_random_state_of_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.manual_seed(7)
    other = random_state(CPU)
    others_next = torch.rand(2).tolist()
    torch.manual_seed(8)
    save_checkpoint(path, {"spec_sha256": SHA}, ranks(others=(other,)), CPU)
    found = load_checkpoint(path, SHA)
    assert found is not None and len(found["random_states"]) == 2
    restore_random_state(found["random_states"][1], CPU)
    assert torch.rand(2).tolist() == others_next


def test_without_a_checkpoint_training_starts_from_scratch(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "checkpoint.pt", SHA) is None


def test_the_checkpoint_of_another_spec_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"spec_sha256": SHA}, ranks(), CPU)
    with pytest.raises(InputError, match="another spec") as error:
        load_checkpoint(path, "b" * 64)
    assert str(path) in str(error.value)


class RunsCode:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("sha", [SHA, "b" * 64])
def test_a_checkpoint_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, sha: str
) -> None:
    path, ran = tmp_path / "checkpoint.pt", tmp_path / "ran"
    for content in (RunsCode(ran), {"spec_sha256": SHA, "epoch": RunsCode(ran)}):
        torch.save(content, path)
        with pytest.raises(
            InputError, match=r"checkpoint\.pt: has more in it .* run code"
        ) as error:
            load_checkpoint(path, sha)
        assert not ran.exists()
        assert "\n" not in str(error.value) and "weights_only" not in str(error.value)


@pytest.mark.parametrize("kept", [0, 10, 700, -40])
def test_a_damaged_checkpoint_is_named_and_left_as_it_is(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"spec_sha256": SHA, "model": {"w": torch.zeros(99)}}, ranks(), CPU)
    damaged = path.read_bytes()[:kept]
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"checkpoint\.pt: is damaged .* train from the beginning"):
        load_checkpoint(path, SHA)
    assert path.read_bytes() == damaged


def test_a_flipped_bit_anywhere_in_a_tensor_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    weights = torch.arange(5000, dtype=torch.float32)
    save_checkpoint(path, {"spec_sha256": SHA, "model": {"w": weights}}, ranks(), CPU)
    whole = path.read_bytes()
    at = whole.index(weights.numpy().tobytes())
    for place in range(at, at + 4 * len(weights), 997):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match=r"is damaged .*(checksum|CRC)"):
            load_checkpoint(path, SHA)
    path.write_bytes(whole)
    assert torch.equal(load_checkpoint(path, SHA)["model"]["w"], weights)  # type: ignore[index]


def test_a_failed_save_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(state: Any, file: Path) -> None:
        file.write_bytes(b"half of it")
        raise RuntimeError("the disk is full")

    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"spec_sha256": SHA, "epoch": 1}, ranks(), CPU)
    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(RuntimeError, match="disk is full"):
        save_checkpoint(path, {"spec_sha256": SHA, "epoch": 2}, ranks(), CPU)
    found = load_checkpoint(path, SHA)
    assert found is not None and found["epoch"] == 1
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_a_checkpoint_that_may_not_be_replaced_stays(tmp_path: Path) -> None:
    def forbid() -> None:
        raise InputError("held by another")

    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"spec_sha256": SHA, "epoch": 1}, ranks(), CPU)
    with pytest.raises(InputError, match="held by another"):
        save_checkpoint(path, {"spec_sha256": SHA, "epoch": 2}, ranks(), CPU, forbid)
    found = load_checkpoint(path, SHA)
    assert found is not None and found["epoch"] == 1
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_an_optimiser_resumes_bit_for_bit(tmp_path: Path) -> None:
    def build() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(model: torch.nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()

    model, optimizer = build()
    step(model, optimizer)
    state = {
        "spec_sha256": SHA,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    save_checkpoint(tmp_path / "checkpoint.pt", state, ranks(), CPU)
    step(model, optimizer)
    expected = model.weight.detach().clone()

    model, optimizer = build()
    found = load_checkpoint(tmp_path / "checkpoint.pt", SHA)
    assert found is not None
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    restore_random_state(found["random_states"][0], CPU)
    step(model, optimizer)
    assert torch.equal(model.weight, expected)
