"""Which samples a rank sees: a function of seed, epoch and rank alone."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.training.batches import Batches, worker_count

SAMPLES = st.integers(1, 200)
RANKS = st.integers(1, 9)
BATCH = st.integers(1, 40)
SEED = st.integers(0, 5)
EPOCH = st.integers(0, 50)


def epoch_of(
    samples: int, ranks: int, batch: int, seed: int, epoch: int, first_step: int = 0
) -> list[list[list[int]]]:
    """Positions by rank and step."""
    result = []
    for rank in range(ranks):
        batches = Batches(range(samples), rank, ranks, batch, seed)
        batches.epoch, batches.first_step = epoch, first_step
        keys = list(batches)
        assert len(keys) == len(batches)
        assert all(key[0] == epoch for step in keys for key in step)
        result.append([[position for _, position in step] for step in keys])
    return result


def flat(batches: list[list[int]]) -> list[int]:
    return [position for batch in batches for position in batch]


@given(SAMPLES, RANKS, BATCH, SEED, EPOCH)
def test_every_sample_is_seen_at_most_once_and_only_what_does_not_divide_is_dropped(
    samples: int, ranks: int, batch: int, seed: int, epoch: int
) -> None:
    by_rank = epoch_of(samples, ranks, batch, seed, epoch)
    seen = [position for steps in by_rank for position in flat(steps)]
    assert len(set(seen)) == len(seen) == samples - samples % ranks
    assert set(seen) <= set(range(samples))
    assert {len(flat(steps)) for steps in by_rank} == {samples // ranks}


@given(SAMPLES, RANKS, BATCH, SEED, EPOCH)
def test_all_ranks_have_the_same_steps_and_only_the_last_batch_is_smaller(
    samples: int, ranks: int, batch: int, seed: int, epoch: int
) -> None:
    by_rank = epoch_of(samples, ranks, batch, seed, epoch)
    sizes = {tuple(map(len, steps)) for steps in by_rank}
    full, rest = divmod(samples // ranks, batch)
    assert sizes == {(batch,) * full + ((rest,) if rest else ())}
    assert Batches(range(samples), 0, ranks, batch, seed).steps == full + bool(rest)


@given(SAMPLES, RANKS, BATCH, SEED, EPOCH, st.data())
def test_a_resumed_epoch_goes_on_with_the_very_next_batch(
    samples: int, ranks: int, batch: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    whole = epoch_of(samples, ranks, batch, seed, epoch)
    step = data.draw(st.integers(0, len(whole[0])))
    assert epoch_of(samples, ranks, batch, seed, epoch, step) == [rank[step:] for rank in whole]


# --- evaluation ---------------------------------------------------------------------------------


def evaluated(positions: list[int], ranks: int, batch: int, whole: bool) -> list[list[int]]:
    result = []
    for rank in range(ranks):
        batches = Batches(positions, rank, ranks, batch, whole=whole)
        batches.epoch = 3
        keys = list(batches)
        assert len(keys) == len(batches)
        assert all(0 < len(step) <= batch for step in keys)
        assert all(len(step) == batch for step in keys[:-1])
        assert all(key[0] == 3 for step in keys for key in step)
        result.append([position for step in keys for _, position in step])
    return result


@pytest.mark.parametrize(
    ("bound_to", "cores", "ranks", "workers"),
    [(38, 152, 4, 12), (19, 76, 4, 9), (64, 64, 4, 8), (2, 2, 2, 0)],
)
def test_auto_takes_half_of_a_ranks_cores_for_loading(
    monkeypatch: pytest.MonkeyPatch, bound_to: int, cores: int, ranks: int, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(bound_to))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert worker_count("auto", ranks) == workers
    assert worker_count(4, ranks) == 4


POSITIONS = st.lists(st.integers(0, 999), unique=True, max_size=80)


@given(POSITIONS, RANKS, BATCH)
def test_an_evaluation_covers_every_position_exactly_once(
    positions: list[int], ranks: int, batch: int
) -> None:
    by_rank = evaluated(positions, ranks, batch, whole=True)
    assert sorted(p for positions in by_rank for p in positions) == sorted(positions)
    sizes = [len(positions) for positions in by_rank]
    assert max(sizes) - min(sizes) <= 1
    assert Batches(positions, 0, ranks, batch, whole=True).steps == -(-max(sizes) // batch)


@given(POSITIONS, RANKS, BATCH)
def test_the_papers_evaluation_drops_what_does_not_divide(
    positions: list[int], ranks: int, batch: int
) -> None:
    by_rank = evaluated(positions, ranks, batch, whole=False)
    kept = len(positions) - len(positions) % ranks
    assert sorted(p for positions in by_rank for p in positions) == sorted(positions[:kept])
    assert {len(positions) for positions in by_rank} == {kept // ranks}


@given(POSITIONS, RANKS, BATCH, SEED)
def test_the_authors_second_pass_is_shuffled_and_sees_each_position_once(
    positions: list[int], ranks: int, batch: int, seed: int
) -> None:
    passes = []
    for epoch in (4, 5):
        by_rank = [Batches(positions, rank, ranks, batch, seed) for rank in range(ranks)]
        for batches in by_rank:
            batches.epoch = epoch
        passes.append([p for batches in by_rank for step in batches for _, p in step])
        assert len(set(passes[-1])) == len(passes[-1]) == len(positions) // ranks * ranks
    assert len(positions) < 30 or passes[0] != passes[1]
