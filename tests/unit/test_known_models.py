"""Further models: what their files may say, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaign_files import ROOT

from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.model_registry import known_models
from scalewatt.common.errors import InputError

FILE = '''
"""A model."""
from somewhere import nothing_that_exists

MODEL = {
    "data_format": "imagenet",
    "settings": {"width": {"type": "integer", "default": 16, "description": "Channels."}},
}
WORKLOAD = nothing_that_exists
'''


def models(tmp_path: Path, text: str, name: str = "small.py") -> Any:
    folder = tmp_path / "workloads"
    folder.mkdir()
    (folder / name).write_text(text)
    return known_models(folder)


def test_a_models_file_is_read_and_not_imported(tmp_path: Path) -> None:
    small = models(tmp_path, FILE)["small"]
    assert (small.phases, small.data_format) == (("train",), "imagenet")
    fields = small.settings["small"].model_fields
    common = {"dataset", "epochs", "loader_workers", "precision", "compile"}
    assert set(fields) == {"width", "gradient_accumulation_steps", *common}
    assert [name for name, field in fields.items() if field.is_required()] == ["dataset", "epochs"]


def with_phases(phases: str = '["pretrain", "finetune"]', network: str | None = '["width"]') -> str:
    """The file of a model with these phases and settings of its network."""
    marked = "" if network is None else f'"network": {network},\n    '
    return FILE.replace('"settings"', f'"phases": {phases},\n    {marked}"settings"')


def test_phases_have_entries_of_their_own(tmp_path: Path) -> None:
    small = models(tmp_path, with_phases())["small"]
    assert set(small.settings) == {"small.pretrain", "small.finetune"}
    assert small.network == ("width",)


def test_fine_tuning_another_network_than_the_pre_trained_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = models(tmp_path, with_phases())
    for module in ("model_registry", "expansion"):
        monkeypatch.setattr(f"scalewatt.campaign.{module}.known_models", lambda: small)
    scans = {"format": "imagenet", "source": "embedded", "classes": 10}
    settings = {"dataset": "scans", "epochs": 1}
    point = {"model": "small", "device": "local", "gpus": [1], "local_batch_size": 8}
    content = {
        "name": "own",
        "protocol": "corrected",
        "datasets": {"scans": scans | {"train_samples": 64, "validation_samples": 32}},
        "models": {"small.pretrain": settings, "small.finetune": settings | {"width": 32}},
        "series": {phase: point | {"phase": phase} for phase in ("pretrain", "finetune")},
        "figures": {"figure1": {"series": ["finetune"]}},
    }
    with pytest.raises(
        InputError, match=r"series\.finetune: fine-tuning has width 32, but the wei"
    ):
        expand(content, Path("own.yaml"), known_devices())


WRONG_FILES = {
    "a name in it": (FILE.replace('"default": 16', '"default": WIDTH'), ["MODEL cannot be read"]),
    "no Python": (FILE + "def", ["small.py", "MODEL cannot be read"]),
    "no format": (FILE.replace('"data_format": "imagenet",', ""), ["missing key 'data_format'"]),
    "another format": (FILE.replace('"imagenet"', '"cifar"'), ["allowed: imagenet, era5"]),
    "an unknown key": (FILE.replace('"settings"', '"setting"'), ["unknown key 'setting'"]),
    "no default": (FILE.replace('"default": 16, ', ""), ["settings.width", "'default'"]),
    "a default that does not fit": (FILE.replace("16", '"wide"'), ["width.default", '"wide"']),
    "fine-tuning alone": (with_phases('["finetune"]'), ["MODEL.phases", "weights of pretrain"]),
    "a network not said": (with_phases(network=None), ["MODEL.phases", "'network', a list"]),
}


@pytest.mark.parametrize(("text", "words"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_models_file_is_refused_for(text: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        models(tmp_path, text)
    message = str(refused.value)
    assert "small.py" in message and "\n" not in message
    assert not [word for word in words if word not in message], message


def test_a_model_cannot_take_the_name_of_the_papers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fourcastnet\.py: 'fourcastnet' cannot be the name"):
        models(tmp_path, FILE, "fourcastnet.py")


def test_a_campaign_is_checked_without_torch() -> None:
    code = (
        "import sys\nfrom scalewatt.campaign.load import load_campaign\n"
        "load_campaign('campaigns/paper.yaml')\nprint('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
