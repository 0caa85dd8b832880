"""What each precision means on each device."""

from __future__ import annotations

import pytest
import torch

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import schema
from scalewatt.training.network import Network, Precision

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SETTINGS = schema("campaign")["$defs"]["resnet50"]["properties"]["precision"]["enum"]


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))


@pytest.fixture(autouse=True)
def _flags_as_before():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def test_torch_default_leaves_torchs_own_flags_as_they_are(ampere: None) -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    Precision.of("torch_default", GPU).set_flags()
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before
    assert before == (True, False)


@pytest.mark.parametrize(
    ("setting", "used", "autocast", "flags"),
    [
        ("torch_default", "tf32_convolutions", None, (True, False)),
        ("fp32", "fp32", None, (False, False)),
        ("tf32", "tf32", None, (True, True)),
        ("fp16", "fp16", torch.float16, (True, False)),
        ("bf16", "bf16", torch.bfloat16, (True, False)),
    ],
)
def test_a_gpu_computes_as_set(
    ampere: None, setting: str, used: str, autocast: torch.dtype | None, flags: tuple
) -> None:
    found = Precision.of(setting, GPU)
    assert (found.used, found.autocast, (found.cudnn_tf32, found.matmul_tf32)) == (
        used,
        autocast,
        flags,
    )
    found.set_flags()
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == flags


def test_a_gpu_before_ampere_reports_fp32(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
    assert Precision.of("torch_default", GPU).used == "fp32"
    assert Precision.of("fp16", GPU).used == "fp16"
    for setting in ("tf32", "bf16"):
        with pytest.raises(InputError, match=rf"precision {setting}: Tesla V100 has none"):
            Precision.of(setting, GPU)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_cpu_computes_in_fp32_but_for_bf16(setting: str) -> None:
    found = Precision.of(setting, CPU)
    assert found.used == ("bf16" if setting == "bf16" else "fp32")
    layer = torch.nn.Linear(3, 3)
    with found.computing(CPU):
        out = layer(torch.zeros(2, 3))
    assert out.dtype == (torch.bfloat16 if setting == "bf16" else torch.float32)
    assert not found.scaler(CPU).is_enabled()


def test_compiling_without_a_compiler_is_refused_by_name(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("scalewatt.training.network.DistributedDataParallel", lambda n, **_: n)
    with pytest.raises(InputError, match=r"compile: needs a C\+\+ compiler; expected in PATH: g\+"):
        Network.of(torch.nn.Linear(1, 1), {"compile": True}, CPU)


def test_channels_last_reaches_weights_and_images(monkeypatch) -> None:
    monkeypatch.setattr("scalewatt.training.network.DistributedDataParallel", lambda n, **_: n)
    settings = {"compile": False, "channels_last": True}
    network = Network.of(torch.nn.Conv2d(3, 4, 3), settings, CPU)
    images, labels = network.inputs([torch.zeros(2, 3, 5, 5), torch.zeros(2, dtype=torch.int64)])
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert network.weights.weight.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (2,)
    assert network.weights(images).is_contiguous(memory_format=torch.channels_last)
