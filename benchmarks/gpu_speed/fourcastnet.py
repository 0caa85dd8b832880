"""FourCastNet: the network as its authors' code computes it, the shipped one, and candidates."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from gpu_speed import candidates
from gpu_speed.literal_network import literal
from gpu_speed.measuring import Contestant, compared, measure_in_turn
from gpu_speed.parity import Parity
from gpu_speed.profiles import profiled
from gpu_speed.setting import Bench, section
from gpu_speed.trainings import OurSteps, PlainSteps, fourcastnet_spec, set_cudnn, trainer_of
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.datasets.era5.channels import CHANNELS
from scalewatt.training.network import Precision
from scalewatt.training.trainer import Trainer
from scalewatt.workloads.afno import FourCastNet, Rollout, SpectralLayer

FASTER, OF_THE_ENERGY = 1.5, 0.6
LITERAL = "literal_fp16"
Change = Callable[[nn.Module], nn.Module]
PROFILED = {LITERAL, "ours_fp16", "products_bf16", "products_bf16_blocks", "ours_bf16_compiled"}
_AUTOTUNED = "max-autotune-no-cudagraphs"


@dataclass(frozen=True)
class Variant:
    """A way to train the network by our loop."""

    name: str
    what: str
    settings: dict[str, Any]
    change: Change | None = None
    shipped: bool = False
    """A campaign can ask for it; else it is a candidate."""
    tf32: bool = False
    """Of matrix products outside of autocast."""


def eager_variants(bench: Bench) -> list[Variant]:
    """Return the ways that need no compiler, the most telling first."""
    rows, columns = _patches(bench)
    products = partial(candidates.with_products, rows=rows, columns=columns)
    exact = partial(products, exact=True)
    fp16, bf16 = {"precision": "fp16"}, {"precision": "bf16"}
    transforms = "Fourier transforms and patches as matrix products"
    embedding = candidates.with_product_embedding
    return [
        Variant("ours_fp16", "shipped, as the paper's campaign trains it", fp16, shipped=True),
        Variant("ours_bf16", "shipped, bf16", bf16, shipped=True),
        Variant("products_bf16", f"{transforms}, all in bf16", bf16, products),
        Variant("products_fp16", f"{transforms}, all in fp16", fp16, products),
        Variant(
            "products_tf32", f"{transforms}, transforms in TF32, else bf16", bf16, exact, tf32=True
        ),
        Variant("embedding_bf16", "shipped, bf16, patches as a matrix product", bf16, embedding),
    ]


def compiled_variants(bench: Bench) -> list[Variant]:
    """Return the ways that are compiled: whole, or by blocks, of which one graph serves all."""
    rows, columns = _patches(bench)

    def products(network: nn.Module, mode: str | None = None) -> nn.Module:
        changed = candidates.with_products(network, rows, columns)
        return candidates.with_compiled_blocks(changed, mode)

    bf16 = {"precision": "bf16"}
    transforms = "Fourier transforms and patches as matrix products, bf16"
    whole = {**bf16, "compile": True}
    tuned = partial(products, mode=_AUTOTUNED)
    by_block = candidates.with_compiled_blocks
    return [
        Variant("products_bf16_blocks", f"{transforms}, each block compiled", bf16, products),
        Variant("ours_bf16_compiled", "shipped, bf16, compiled", whole, shipped=True),
        Variant("blocks_bf16", "shipped layers, bf16, each block compiled", bf16, by_block),
        Variant("products_bf16_tuned", f"{transforms}, blocks by {_AUTOTUNED}", bf16, tuned),
    ]


def _patches(bench: Bench) -> tuple[int, int]:
    patch = bench.sizes.fourcastnet.get("patch_size", 8)
    return bench.sizes.grid[0] // patch, bench.sizes.grid[1] // patch


class VariantSteps(OurSteps):
    """Our loop, with TF32 in matrix products outside of autocast if asked for."""

    def __init__(self, trainer: Trainer, tf32: bool) -> None:
        super().__init__(trainer)
        self._tf32 = tf32

    def prepare(self) -> None:
        """Set the run's flags."""
        super().prepare()
        if self._tf32:
            torch.backends.cuda.matmul.allow_tf32 = True


def _spec(bench: Bench, settings: dict[str, Any]) -> RunSpec:
    sizes = bench.sizes
    return fourcastnet_spec(sizes.field_batch, sizes.grid, {**sizes.fourcastnet, **settings})


def network_of(spec: RunSpec) -> Rollout:
    """Return the network of a spec, whose spectral layers keep what they are given at about its size.

    Fresh weights shrink a spectrum, and what is compared would not show.
    """
    s = spec.settings
    shape = ("patch_size", "embed_dim", "depth", "num_blocks", "mlp_ratio", "sparsity_threshold")
    torch.manual_seed(0)
    net = FourCastNet(grid=tuple(spec.dataset["grid"]), **{key: s[key] for key in shape})
    with torch.no_grad():
        for layer in (part for part in net.modules() if isinstance(part, SpectralLayer)):
            size = layer.w1.shape[-1]
            for weight in (layer.w1, layer.w2):
                weight.normal_(std=1 / math.sqrt(2 * size))
    return Rollout(net, 1)


def literal_training(spec: RunSpec, device: torch.device) -> PlainSteps:
    """Return the literal network in a plain loop: fp16 autocast with a scaler, Adam in one kernel.

    The authors' code has Apex's FusedAdam, which is of that kind. The sample is as ours has it.
    """
    torch.manual_seed(0)
    network = literal(network_of(spec)).to(device)
    s, batch = spec.settings, spec.local_batch_size
    rows, columns = spec.dataset["grid"]
    generator = torch.Generator(device).manual_seed(spec.seed or 0)
    pair = torch.randn((2, len(CHANNELS), rows, columns), generator=generator, device=device)
    x, y = (part.expand(batch, -1, -1, -1).contiguous() for part in pair)
    optimizer = torch.optim.Adam(
        network.parameters(), lr=s["learning_rate"], fused=device.type == "cuda"
    )
    precision = Precision.of("fp16", device)
    return PlainSteps(network, (x, y), loss_of, optimizer, precision, lambda: set_cudnn(spec))


def loss_of(network: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the relative L2 error, mean over the batch, as FourCastNet's training has it."""
    x, y = batch
    error = (network(x)[:, 0].float() - y).flatten(1).norm(dim=1)
    return (error / y.flatten(1).norm(dim=1)).mean()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so many seconds: a compiler takes as long as it takes."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"not ready after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Networks:
    """The literal network and the variants beside it, on one bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        shape = (bench.sizes.field_batch, len(CHANNELS), *bench.sizes.grid)
        self.parity = Parity(bench.device, network_of(_spec(bench, {})), shape, loss_of)
        began = time.monotonic()
        training = literal_training(_spec(bench, {"precision": "fp16"}), bench.device)
        training.prepare()
        self.parity.check(LITERAL, training.network, training.precision)
        self._literal = training
        self._literal_startup_s = time.monotonic() - began

    def compare(
        self, part: str, variants: Sequence[Variant], prepared_until: float, until: float
    ) -> None:
        """Measure the variants that get ready in time and the literal network in turn, note and profile them.

        Both limits are shares of the bench's minutes.
        """
        bench = self.bench
        what = "layer by layer as in the authors' code, fp16, plain loop"
        first = Contestant(LITERAL, what, self._literal, self._literal_startup_s)
        first.calibrate(bench.device, bench.sizes.window_s)
        ready, left_out = [first], {}
        for variant in variants:
            found = self._prepared(variant, bench.clock.left_s(prepared_until))
            if isinstance(found, Contestant):
                ready.append(found)
            else:
                left_out[variant.name] = found
                bench.say(f"FourCastNet {variant.name}: left out, {found}")
            bench.free()
        measure_in_turn(
            ready,
            bench.device,
            bench.meter,
            bench.sizes.rounds,
            lambda needed: bench.clock.left_s(until) > needed,
        )
        comparisons = []
        for one in ready[1:]:
            comparisons += compared(one, first, FASTER, OF_THE_ENERGY)
        names = {one.name for one in ready}
        bench.found[part] = section(
            bench.sizes.field_batch,
            ready,
            comparisons,
            shipped=[one.name for one in variants if one.shipped and one.name in names],
            left_out=left_out,
            parity={name: self.parity.found[name] for name in self.parity.found if name in names},
        )
        bench.write(part)
        done = bench.found.get("profiles", {})
        for one in ready:
            name = f"fourcastnet-{one.name}"
            if one.name in PROFILED and name not in done:
                profiled(bench, name, one.training)

    def _prepared(self, variant: Variant, left_s: float) -> Contestant | str:
        """Return the variant ready to be measured, or why it is not."""
        if left_s <= 0 and not self.bench.rehearses:
            return "no time was left to prepare it"
        bench, began = self.bench, time.monotonic()
        limit_s = left_s if not bench.rehearses else 600.0
        try:
            with time_limit(limit_s):
                spec = _spec(bench, variant.settings)
                trainer = trainer_of(spec, bench.device, bench.scratch, variant.change)
                training = VariantSteps(trainer, variant.tf32)
                training.prepare()
                self.parity.check(variant.name, trainer.network.trained, trainer.precision)
                one = Contestant(variant.name, variant.what, training)
                one.calibrate(bench.device, bench.sizes.window_s)
        except Exception as error:  # a candidate that fails must not hide the others
            lines = str(error).strip().splitlines() or [""]
            return f"{type(error).__name__}: {lines[0][:300]}"
        one.startup_s = time.monotonic() - began
        bench.say(f"FourCastNet {variant.name}: ready after {one.startup_s:.1f} s")
        return one


def compare_eager(bench: Bench, until: float) -> None:
    """Compare what needs no compiler."""
    prepared_until = until - 0.4 * (until - bench.clock.elapsed_s() / bench.clock.total_s)
    Networks(bench).compare("fourcastnet", eager_variants(bench), prepared_until, until)


def compare_compiled(bench: Bench, prepared_until: float, until: float) -> None:
    """Compare what is compiled, each variant as far as there is time to compile it."""
    if bench.rehearses:
        bench.say("compiled variants are not rehearsed: a CPU's compiler takes minutes")
        return
    Networks(bench).compare("fourcastnet_compiled", compiled_variants(bench), prepared_until, until)
