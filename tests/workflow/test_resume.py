"""A run in segments learns bit for bit what an uninterrupted one does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from training import Training

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

IMAGES = "resnet50-local-n002-lbs0016-full"
WAVES = "fourcastnet.pretrain-local-n002-lbs0002-full"
ALONE = "fourcastnet.pretrain-local-n001-lbs0002-full"
CHANGED = {"protocol": "paper", "settings": {"channels_last": True, "precision": "bf16"}}
COMPILED = {
    "settings": {"compile": True, "precision": "bf16", "depth": 1},
    "local_batch_size": 7,  # few shapes, because compiling is slow
    "epochs": 2,
}


def run_in_segments(training: Training, updates: int) -> int:
    """Segments of so many updates, until the run is finished; how many there were."""
    for segment in range(1, 20):
        code, output = training.run("--max-updates", str(updates))
        if code == 0:
            return segment
        assert code == 75, output
        assert not training.out.exists(), "an unfinished run must publish nothing"
    raise AssertionError("the run does not come to its end")


def assert_same_training(first: Training, other: Training) -> None:
    assert first.history() == other.history()
    weights, others = (torch.load(t.out / "weights.pt", map_location="cpu") for t in (first, other))
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, others[name]), name


# With four ranks DDP's regrouped buckets would show; two hide them.
@pytest.mark.parametrize(
    ("configuration", "changes", "updates"),
    [
        pytest.param(ALONE, COMPILED, 2, id="fourcastnet-compiled", marks=pytest.mark.nightly),
        pytest.param(IMAGES, CHANGED, 2, id="resnet50-changed", marks=pytest.mark.nightly),
        pytest.param(
            WAVES,
            {"gpus": 4, "ranks_per_node": 4, "local_batch_size": 1},
            6,
            id="fourcastnet-four-ranks",
        ),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, data: Path, configuration: str, changes: dict, updates: int
) -> None:
    whole = Training.of(tmp_path / "whole", data, configuration, **changes)
    cut = Training.of(tmp_path / "cut", data, configuration, **changes)
    code, output = whole.run()
    assert code == 0, output
    segments = run_in_segments(cut, updates)
    assert segments >= 3
    assert_same_training(cut, whole)
    files = sorted(path.name for path in (cut.out / "perun").glob("*.hdf5"))
    assert files == [f"segment-{k:03d}.hdf5" for k in range(segments)]
    events = pq.read_table(cut.out / "events.parquet").to_pylist()
    assert [e["segment"] for e in events] == sorted(e["segment"] for e in events)
    for first, following in pairwise(events):
        assert first["end_s"] <= following["start_s"]


def test_passes_that_add_up_their_gradients_learn_what_a_whole_batch_does(
    tmp_path: Path, data: Path
) -> None:
    sizes = {"local_batch_size": 7, "global_batch_size": 14, "epochs": 2}
    settings = {"precision": "fp32", "gradient_accumulation_steps": 7}
    whole = Training.of(tmp_path / "whole", data, WAVES, **sizes, settings={"precision": "fp32"})
    passes = Training.of(tmp_path / "passes", data, WAVES, **sizes, settings=settings)
    for training in (whole, passes):
        code, output = training.run()
        assert code == 0, output
    weights, others = (
        torch.load(t.out / "weights.pt", map_location="cpu") for t in (whole, passes)
    )
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, rtol=1e-4, atol=1e-6)
    assert passes.history() != whole.history()  # summed in another order
