"""ResNet50: our training loop beside a plain one, and the corrected protocol beside the paper's."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torchvision.models import resnet50

from gpu_speed.measuring import Contestant, compared, measure_in_turn
from gpu_speed.profiles import profiled
from gpu_speed.setting import Bench, section
from gpu_speed.trainings import (
    STEPS_AT_MOST,
    OurEpochs,
    OurSteps,
    PlainSteps,
    resnet50_spec,
    set_cudnn,
    trainer_of,
)
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.training.network import Precision
from scalewatt.training.step_timer import finish

SETTINGS: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16", "channels_last": True},
    "torch_default": {"precision": "torch_default"},
}
NOT_SLOWER, PROTOCOLS = 0.99, 1.3
_VALIDATION_SHARE = 25
"""Training images to one of validation, as ImageNet has them."""


def plain_training(spec: RunSpec, device: torch.device) -> PlainSteps:
    """Return torchvision's network with torch's SGD, on the random images that ours trains on."""
    s, batch = spec.settings, spec.local_batch_size
    layout = torch.channels_last if s["channels_last"] else torch.contiguous_format
    assert spec.seed is not None
    torch.manual_seed(spec.seed)
    network = resnet50(num_classes=spec.dataset["classes"]).to(device, memory_format=layout)
    generator = torch.Generator(device).manual_seed(spec.seed)
    shape = (batch, 3, s["image_size"], s["image_size"])
    images = torch.randn(shape, generator=generator, device=device).contiguous(memory_format=layout)
    labels = torch.arange(batch, device=device) % spec.dataset["classes"]
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=s["warmup_start"],
        momentum=s["momentum"],
        weight_decay=s["weight_decay"],
    )
    precision = Precision.of(s["precision"], device)
    return PlainSteps(
        network, (images, labels), _loss, optimizer, precision, lambda: set_cudnn(spec)
    )


def _loss(network: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    images, labels = batch
    return functional.cross_entropy(network(images), labels)


def loops(bench: Bench, until: float) -> None:
    """Compare both loops in both settings, until so large a share of the time is used."""
    sizes = bench.sizes
    contestants = []
    for name, settings in SETTINGS.items():
        spec = resnet50_spec(
            sizes.image_batch,
            STEPS_AT_MOST * sizes.image_batch,
            "corrected",
            {**settings, "image_size": sizes.image_size},
        )
        began = time.monotonic()
        ours = Contestant(
            f"ours_{name}",
            f"our training loop, {name}, {settings}",
            OurSteps(trainer_of(spec, bench.device, bench.scratch)),
        )
        ours.calibrate(bench.device, sizes.window_s)
        ours.startup_s = time.monotonic() - began
        began = time.monotonic()
        plain = Contestant(
            f"plain_{name}",
            "a plain loop: a batch on the device, autocast, torch's SGD; no loader, metrics, phases or DDP",
            plain_training(spec, bench.device),
        )
        plain.calibrate(bench.device, sizes.window_s)
        plain.startup_s = time.monotonic() - began
        ours.steps = plain.steps = max(ours.steps, plain.steps)
        contestants += [ours, plain]
        bench.say(f"ResNet50 {name}: ready, {ours.steps} steps a window")
    measure_in_turn(
        contestants,
        bench.device,
        bench.meter,
        sizes.rounds,
        lambda needed: bench.clock.left_s(until) > needed,
    )
    comparisons = []
    for ours, plain in zip(contestants[::2], contestants[1::2], strict=True):
        comparisons += compared(ours, plain, NOT_SLOWER)
    bench.found["resnet50"] = section(sizes.image_batch, contestants, comparisons)
    bench.write("resnet50")
    for one in contestants[:2]:
        profiled(bench, f"resnet50-{one.name}", one.training)


def protocols(bench: Bench, until: float) -> None:
    """Compare whole epochs by both protocols, over a fixed number of samples, in torch's precision."""
    sizes = bench.sizes
    batch = sizes.image_batch
    step_s = _step_s(bench)
    samples = batch * max(2, round(sizes.epoch_s / step_s))
    settings = {**SETTINGS["torch_default"], "image_size": sizes.image_size}
    contestants = []
    for protocol in ("corrected", "paper"):
        began = time.monotonic()
        spec = resnet50_spec(
            batch, samples, protocol, settings, max(1, samples // _VALIDATION_SHARE)
        )
        training = OurEpochs(trainer_of(spec, bench.device, bench.scratch))
        training.prepare()
        training.steps(1)
        finish(bench.device)
        one = Contestant(protocol, f"epochs by the protocol {protocol}", training)
        one.startup_s = time.monotonic() - began
        contestants.append(one)
    bench.say(f"protocols: ready, {samples} samples an epoch")
    measure_in_turn(
        contestants,
        bench.device,
        bench.meter,
        max(2, sizes.rounds // 2),
        lambda needed: bench.clock.left_s(until) > needed,
    )
    corrected, paper = contestants
    bench.found["protocols"] = section(
        batch, contestants, compared(corrected, paper, PROTOCOLS), samples_of_an_epoch=samples
    )


def _step_s(bench: Bench) -> float:
    found = bench.found.get("resnet50", {}).get("trainings", {}).get("ours_torch_default")
    if found is None:
        return bench.sizes.epoch_s / 8
    return float(bench.sizes.image_batch / found["samples_per_s_median"])
