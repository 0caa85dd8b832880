"""`benchmarks/one_gpu_speed.py`: what it compares computes the same, and its files say what was measured."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scalewatt.training.network import Precision
from scalewatt.training.samplers import epoch_order
from scalewatt.workloads.afno import SpectralLayer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from gpu_speed import candidates, fourcastnet, measuring, profiles
from gpu_speed import resnet50 as images
from gpu_speed.measuring import COUNTER, Contestant, EnergyMeter, compared
from gpu_speed.parity import Parity
from gpu_speed.setting import TINY
from gpu_speed.trainings import (
    OurSteps,
    fourcastnet_spec,
    process_group,
    resnet50_spec,
    trainer_of,
)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "one_gpu_speed.py"
CPU = torch.device("cpu")


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process alone."""
    with process_group(CPU):
        yield


# --- transforms as matrix products --------------------------------------------------------------

SHAPES = [(6, 12), (5, 9), (8, 8), (7, 16), (12, 6), (1, 4), (4, 1), (90, 180)]


def layer_with_products(rows: int, columns: int, exact: bool) -> tuple[nn.Module, nn.Module]:
    """The shipped layer with weights that fill the spectrum, and one by products with the same weights."""
    torch.manual_seed(0)
    layer = SpectralLayer(12, 3, sparsity_threshold=0.01)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.3)
    whole = nn.ModuleList([copy.deepcopy(layer)])
    candidates.with_products(whole, rows, columns, exact)
    return layer, whole[0]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transforms_by_matrix_products_are_those_of_torch(
    shape: tuple[int, int], exact: bool
) -> None:
    shipped, products = layer_with_products(*shape, exact)
    x = torch.randn(2, *shape, 12, requires_grad=True)
    y = torch.randn(2, *shape, 12)
    expected, found = shipped(x), products(x)
    assert (expected - x).norm() > 0.1 * x.norm(), "the layer must do something here"
    assert relative(found, expected) < 1e-5
    theirs = torch.autograd.grad((expected * y).sum(), [x, *shipped.parameters()])
    ours = torch.autograd.grad((found * y).sum(), [x, *products.parameters()])
    for mine, other in zip(ours, theirs, strict=True):
        assert relative(mine, other) < 1e-4


def relative(found: Tensor, expected: Tensor) -> float:
    difference = (found.double() - expected.double()).norm() / expected.double().norm()
    return float(difference.detach())


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_matrices_are_the_transforms(rows: int, columns: int) -> None:
    modes = min(rows, columns) // 2 + 1
    x = torch.randn(rows, columns, dtype=torch.float64)
    zonal = candidates.zonal_matrix(columns, modes).double()
    parts = torch.stack([zonal[:modes] @ x.T, zonal[modes:] @ x.T])  # (part, modes, rows)
    by_rows = parts.permute(2, 0, 1).reshape(2 * rows, modes)
    spectrum = candidates.meridional_matrix(rows, inverse=False).double() @ by_rows
    real, imaginary = spectrum.reshape(rows, 2, modes).unbind(1)
    expected = torch.fft.rfft2(x, norm="ortho")[:, :modes]
    assert (
        relative(torch.view_as_real(torch.complex(real, imaginary)), torch.view_as_real(expected))
        < 1e-6
    )
    back = candidates.meridional_matrix(rows, inverse=True).double() @ spectrum
    kept = back.reshape(rows, 2 * modes) @ candidates.zonal_back_matrix(columns, modes).double().T
    dropped = torch.zeros(rows, columns // 2 + 1, dtype=torch.complex128)
    dropped[:, :modes] = expected
    inverted = torch.fft.irfft2(dropped, s=(rows, columns), norm="ortho")
    assert relative(kept, inverted) < 1e-6


# --- whole networks -------------------------------------------------------------------------------


def tiny_parity() -> tuple[Any, Parity]:
    spec = fourcastnet_spec(1, TINY.grid, {**TINY.fourcastnet, "precision": "fp32"})
    shape = (1, 20, *TINY.grid)
    return spec, Parity(CPU, fourcastnet.network_of(spec), shape, fourcastnet.loss_of)


def small_bench() -> Any:
    return SimpleNamespace(sizes=TINY)


NAMES = [one.name for one in fourcastnet.eager_variants(small_bench())]


@pytest.mark.parametrize("name", NAMES)
def test_each_variant_computes_the_literal_networks_outputs_and_gradients(
    alone: None, tmp_path: Path, name: str
) -> None:
    spec, parity = tiny_parity()
    (variant,) = (v for v in fourcastnet.eager_variants(small_bench()) if v.name == name)
    trainer = trainer_of(spec, CPU, tmp_path, variant.change)
    before = copy.deepcopy(trainer.network.weights.state_dict())
    parity.check(name, trainer.network.trained, Precision.of("fp32", CPU))
    found = parity.found[name]
    assert found["output_relative_l2"] < 1e-5 and found["gradient_relative_l2"] < 1e-5
    assert found["gradient_worst_relative_l2"] < 1e-4
    after = trainer.network.weights.state_dict()
    assert all(torch.equal(before[key], value) for key, value in after.items())


def test_a_network_that_computes_something_else_is_seen(alone: None, tmp_path: Path) -> None:
    spec, parity = tiny_parity()

    def fewer_modes(network: nn.Module) -> nn.Module:
        with_products(network)
        for layer in (part for part in network.modules() if hasattr(part, "zonal")):
            layer.zonal[-1].zero_()
        return network

    trainer = trainer_of(spec, CPU, tmp_path, fewer_modes)
    parity.check("wrong", trainer.network.trained, Precision.of("fp32", CPU))
    assert parity.found["wrong"]["output_relative_l2"] > 1e-3


def test_one_graph_serves_all_blocks_of_a_variant_and_computes_the_same(
    alone: None, tmp_path: Path
) -> None:
    from torch._dynamo.utils import counters

    spec, parity = tiny_parity()
    counters.clear()
    changes = {"shipped": lambda net: net, "products": with_products}
    assert TINY.fourcastnet["depth"] == 2
    for number, (name, change) in enumerate(changes.items(), start=1):

        def compiled(net: nn.Module, change: Any = change) -> nn.Module:
            return candidates.with_compiled_blocks(change(net), backend="aot_eager")

        trainer = trainer_of(spec, CPU, tmp_path, compiled)
        parity.check(name, trainer.network.trained, Precision.of("fp32", CPU))
        assert counters["stats"]["unique_graphs"] == number
        assert parity.found[name]["gradient_relative_l2"] < 1e-5


def with_products(network: nn.Module) -> nn.Module:
    rows, columns = fourcastnet._patches(small_bench())
    return candidates.with_products(network, rows, columns)


@pytest.mark.long
def test_the_plain_loop_has_the_losses_of_ours(alone: None, tmp_path: Path) -> None:
    settings = {"precision": "fp32", "image_size": 32}
    spec = resnet50_spec(4, 64, "corrected", settings)
    trainer = trainer_of(spec, CPU, tmp_path)
    ours, plain = OurSteps(trainer), images.plain_training(spec, CPU)
    for step in range(3):
        trainer.epoch = step
        order = epoch_order(4, trainer.seed, step)
        plain.inputs = (plain.inputs[0], order % spec.dataset["classes"])
        ours.prepare()
        ours.steps(1)
        samples, loss = trainer.sums[:2].tolist()  # type: ignore[index]
        plain.optimizer.param_groups[0]["lr"] = trainer.optimizer.param_groups[0]["lr"]
        plain.steps(1)
        assert loss / samples == pytest.approx(float(plain.last), rel=1e-5)  # type: ignore[arg-type]


# --- measuring ------------------------------------------------------------------------------------


class Counting:
    """A training of which a step takes a while."""

    batch = 2

    def __init__(self, log: list[str], name: str, step_s: float) -> None:
        self.log, self.name, self.step_s = log, name, step_s

    def prepare(self) -> None: ...

    def settle(self) -> None: ...

    def steps(self, count: int) -> int:
        self.log.append(self.name)
        time.sleep(count * self.step_s)
        return count * self.batch

    def facts(self) -> dict[str, Any]:
        return {}


def test_trainings_take_turns_and_ratios_are_those_of_each_round() -> None:
    log: list[str] = []
    slow, fast = (Contestant(n, n, Counting(log, n, s)) for n, s in (("a", 0.04), ("b", 0.02)))
    asked: list[float] = []

    def enough(needed_s: float) -> bool:
        asked.append(needed_s)
        return len(asked) < 3

    measuring.measure_in_turn([slow, fast], CPU, EnergyMeter(CPU), 9, enough)
    assert log == ["a", "b", "b", "a"] * 2
    assert 0.05 < asked[0] < 1
    speed, joules = (one.as_json() for one in compared(fast, slow, 1.5, 0.6))
    assert speed["ratios"] == pytest.approx([2] * 4, rel=0.3) and speed["goal_met"]
    assert joules["ratios"] is joules["goal_met"] is None
    assert fast.as_json()["joules_per_sample"] is None


def test_a_window_without_energy_leaves_all_of_it_unknown() -> None:
    one = Contestant("a", "a", Counting([], "a", 0.0), samples=[2, 2], joules=[1.0, None])
    assert one.joules_per_sample() is None
    one.joules[1] = 3.0
    assert one.joules_per_sample() == [0.5, 1.5]


def test_energy_is_the_counters_and_without_one_that_of_power(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Error(Exception): ...

    readings = iter([1000, 2000, 5000])
    nvml = SimpleNamespace(
        NVMLError=Error,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=lambda _: next(readings),
        nvmlDeviceGetPowerUsage=lambda _: 300_000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(measuring, "gpu_identity", lambda _: SimpleNamespace(index=3))
    gpu: Any = SimpleNamespace(type="cuda")
    meter = EnergyMeter(gpu)
    meter.start()
    assert (meter.origin, meter.stop()) == (COUNTER, 3.0)

    def missing(_: int) -> int:
        raise Error

    nvml.nvmlDeviceGetTotalEnergyConsumption = missing
    meter = EnergyMeter(gpu)
    began = time.perf_counter()
    meter.start()
    time.sleep(0.2)
    joules, seconds = meter.stop(), time.perf_counter() - began
    assert meter.origin == measuring.POWER
    assert joules is not None and 0.2 * 300 * 0.9 < joules <= seconds * 300
    nvml.nvmlDeviceGetPowerUsage = missing
    meter = EnergyMeter(gpu)
    meter.start()
    assert meter.origin is meter.stop() is None


def test_what_is_not_ready_in_time_is_stopped() -> None:
    with pytest.raises(TimeoutError, match="not ready after 0 s"), fourcastnet.time_limit(0.1):
        time.sleep(5)
    with fourcastnet.time_limit(0.1):
        pass
    time.sleep(0.15)  # nothing rings afterwards


# --- profiles -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "matrix products"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "convolution"),
        ("void regular_fft<180u, EPT<5u>, 36u>", "fourier transform"),
        ("void vector_fft<90u, EPT<5u>, 18u>", "fourier transform"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdam>", "optimizer"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>", "normalisation"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "normalisation"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
        ("triton_poi_fused_add_gelu_3", "compiled, fused"),
        ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>", "elementwise"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("aten::addmm", "matrix products"),
        ("aten::mm", "matrix products"),
        ("something", "other"),
    ],
)  # fmt: skip
def test_a_kernels_kind_is_in_its_name(name: str, kind: str) -> None:
    assert profiles.kind_of(name) == kind


def test_shares_are_of_kernels_and_copies_alone() -> None:
    events = [
        {"cat": "kernel", "name": "nvjet_a", "dur": 30.0},
        {"cat": "kernel", "name": "nvjet_a", "dur": 30.0},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoD", "dur": 40.0},
        {"cat": "gpu_user_annotation", "name": "Optimizer.step#Adam.step", "dur": 500.0},
        {"cat": "cpu_op", "name": "aten::mm", "dur": 500.0},
    ]
    found = profiles.shares(profiles.kernel_times({"traceEvents": events}))
    assert found["shares"] == pytest.approx({"matrix products": 0.6, "copies": 0.4})
    assert found["launches"] == {"matrix products": 2, "copies": 1}
    assert found["seconds"] == pytest.approx(1e-4)


# --- the command ----------------------------------------------------------------------------------


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_without_a_gpu_it_ends_with_one_sentence_and_writes_nothing(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run(folder=tmp_path)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.count("\n") == 1
    assert "shows no GPU that torch can use" in done.stderr and "--rehearse" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_rehearsal_writes_all_its_files_and_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "speed").mkdir()
    done = run("--rehearse", "--out", "speed", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((tmp_path / "speed").iterdir())
    made = tmp_path / "speed-2"
    content = json.loads((made / "speed.json").read_text())
    assert content["rehearsal"] and content["state"] == "complete" and not content["errors"]
    assert content["energy_origin"] is None
    found = content["found"]
    for part in ("resnet50", "protocols", "fourcastnet"):
        for one in found[part]["trainings"].values():
            assert one["samples_per_s_median"] > 0 and one["joules_per_sample"] is None
        assert all(len(one["ratios"] or [1, 1]) >= 2 for one in found[part]["comparisons"])
    assert set(found["fourcastnet"]["trainings"]) == {"literal_fp16", *NAMES}
    assert set(found["fourcastnet"]["parity"]) == {"literal_fp16", *NAMES}
    assert found["fourcastnet"]["left_out"] == {}
    for name, one in found["profiles"].items():
        assert sum(one["shares"].values()) == pytest.approx(1), name
        assert (made / one["table"]).stat().st_size > 1000
        assert (made / one["trace"]).stat().st_size < profiles.TRACE_BYTES
    assert "A100 (published)" in (made / "speed.md").read_text()
