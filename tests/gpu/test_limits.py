"""A GPU's limits: several ranks on one, and a batch that does not fit into its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_recordings import of_gpu
from small_trainings import FOURCASTNET, RESNET50, energies_of, prepared, small_spec
from training import Training

from scalewatt.common.files import read_json
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.results.tables.run_row import shared_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

TOO_LARGE = 8192
"""A local batch of ResNet50 at 224 pixels that no GPU's memory holds: about 0.1 GB a sample."""


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_share_a_gpu_count_its_energy_once_and_are_flagged(
    tmp_path: Path, nvml: Any, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    spec = small_spec(FOURCASTNET, ranks)
    training = prepared(tmp_path / "shared", spec, torch_device="auto")
    code, output = training.run()
    assert code == 0, output
    provenance = read_json(training.out / "provenance.json")
    assert [flag_row["code"] for flag_row in shared_gpus(spec, provenance)] == ["gpus_shared"]
    energies = energies_of(training)
    assert energies.devices("gpu") == 1
    (gpu,) = next(iter(provenance["gpus"].values()))
    assert energies.joules("gpu") == pytest.approx(recorded_j(training, gpu), rel=0.01)


def recorded_j(training: Training, gpu: int) -> float:
    """Return the energy of a GPU over its whole recording, from its samples alone, in J."""
    return sum(
        of_gpu(read_journal(journals.values()), gpu).energy_j
        for journals in journal_files(training.out / "perun").values()
    )


def test_a_batch_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    size = {"local_batch_size": TOO_LARGE, "dataset_samples": TOO_LARGE}
    spec = small_spec(RESNET50, settings={"image_size": 224}, **size)
    code, output = prepared(tmp_path / "large", spec).run("--max-updates", "1")
    assert code == 64, output
    assert "OutOfMemoryError: CUDA out of memory" in output
