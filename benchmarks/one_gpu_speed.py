"""Speed and energy of our trainings on one GPU beside others' code, in one run, taking turns.

    python benchmarks/one_gpu_speed.py [--rehearse] [--out FOLDER]

- ResNet50's loop (the trainer's own: phases timed, hits counted, stops asked for) and a plain loop of
  PyTorch that does none of this, on random images that stay on the GPU;
- an epoch of protocol `corrected` and one of `paper`, which passes through the training images again;
- FourCastNet: the literal layers of the original code in fp16, and ours in fp16, bf16, compiled, and with
  transforms as matrix products, with how far outputs and gradients are from the literal ones in fp32;
- a profile of each network: where the time of an update goes.

Warm-up, the choice of kernels and compiling are apart. Energies are differences of NVML's counter, of the
GPU alone; null where there is none. Writes speed.json, speed.md and profiles to a new folder. Where there
is no GPU it ends with one sentence and exit code 1; --rehearse tries all of it on the CPU at tiny sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from afno_candidates import literal, with_products
from torch import nn
from torch.autograd import DeviceType
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torchvision.models import resnet50

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.files import write_json, write_text
from scalewatt.common.termination import StopRequest
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.provenance.versions import gpu_identity
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import Job
from scalewatt.training.process_group import start_process_group
from scalewatt.training.trainer import Trainer
from scalewatt.workloads.afno import FourCastNet

CAMPAIGN = Path(__file__).parents[1] / "config.yaml"
PUBLISHED = {
    "resnet50": "373 to 459 images/s",
    "fourcastnet": "1.16 to 2.15 samples/s",
}
"""Of one A100-40GB in the paper's trainings (arXiv:2508.07706), data loading included: another device."""
LAST_START_S = 420.0
"""No part begins later: the longest takes two minutes."""
KINDS = {
    "normalisation": ("norm", "bn_fw", "bn_bw"),
    "optimiser": ("adam", "sgd", "multi_tensor", "foreach"),
    "Fourier transforms": ("fft",),
    "convolutions": ("conv", "implicit", "fprop", "wgrad", "dgrad", "winograd"),
    "products": ("gemm", "cutlass", "matmul", "bmm", "linear", "addmm", "cublas", "nvjet"),
}
"""Kernels by words in their names; what has none is elementwise work and copies."""


@dataclass(frozen=True)
class Size:
    """What is measured: real sizes on a GPU, tiny ones in a rehearsal."""

    image: int
    image_batch: int
    updates: int
    """Of a block of a loop."""
    images: int
    """Of an epoch of the two protocols."""
    grid: tuple[int, int]
    width: int
    depth: int
    field_batch: int
    seconds: float
    """Of a turn."""
    rounds: int


REAL = Size(224, 256, 8, 5120, (720, 1440), 768, 12, 4, 4.0, 3)
TINY = Size(32, 2, 2, 8, (32, 64), 32, 1, 1, 0.2, 2)


@dataclass(frozen=True)
class Contender:
    """What takes turns: a block of work, and the samples in it."""

    name: str
    block: Callable[[], None]
    samples: int


@dataclass(frozen=True)
class Turn:
    """One turn of a contender."""

    name: str
    samples: int
    seconds: float
    joules: float | None


def wait(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def energy_counter(device: torch.device) -> Callable[[], float] | None:
    """Return what reads NVML's energy counter of a GPU in J; None where there is none."""
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        index = gpu_identity(device).index  # which need not be torch's
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # no library, no driver, no such GPU, no counter
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


def take_turns(contenders: Sequence[Contender], size: Size, device: torch.device) -> list[Turn]:
    """Let each work for `seconds`, in every round in turn, every second round backwards."""
    for one in contenders:
        one.block()  # compiles, chooses kernels
        one.block()
    turns, counter = [], energy_counter(device)
    for number in range(size.rounds):
        for one in contenders if number % 2 == 0 else reversed(contenders):
            wait(device)
            before = counter() if counter else None
            began, samples = time.perf_counter(), 0
            while time.perf_counter() - began < size.seconds or not samples:
                one.block()
                wait(device)
                samples += one.samples
            seconds = time.perf_counter() - began
            joules = None if counter is None or before is None else counter() - before
            turns.append(Turn(one.name, samples, seconds, joules))
    return turns


def summary(turns: Sequence[Turn]) -> dict[str, dict[str, Any]]:
    """Return samples/s and J per sample of each contender, medians of its turns with their range."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(turn.name for turn in turns):
        own = [turn for turn in turns if turn.name == name]
        rates = [turn.samples / turn.seconds for turn in own]
        joules = [t.joules / t.samples for t in own if t.joules is not None]
        found[name] = {
            "samples_per_s": statistics.median(rates),
            "samples_per_s_range": [min(rates), max(rates)],
            "joules_per_sample": statistics.median(joules) if len(joules) == len(own) else None,
        }
    return found


def ratios(turns: Sequence[Turn], top: str, bottom: str) -> dict[str, Any]:
    """Return `top` over `bottom` in speed and in energy, median and range of the rounds' ratios."""

    def of(name: str) -> list[Turn]:
        return [turn for turn in turns if turn.name == name]

    pairs = list(zip(of(top), of(bottom), strict=True))
    speeds = [(a.samples / a.seconds) / (b.samples / b.seconds) for a, b in pairs]
    energies = [
        (a.joules / a.samples) / (b.joules / b.samples)
        for a, b in pairs
        if a.joules is not None and b.joules
    ]
    return {
        "of": top,
        "over": bottom,
        "speed": statistics.median(speeds),
        "speed_range": [min(speeds), max(speeds)],
        "energy": statistics.median(energies) if len(energies) == len(pairs) else None,
    }


# --- ResNet50 -------------------------------------------------------------------------------------


class Alone:
    """MPI's communicator of a world of one."""

    def allgather(self, value: Any) -> list[Any]:
        """Return what all have."""
        return [value]

    def bcast(self, value: Any, root: int) -> Any:
        """Return what the root has."""
        return value


RANKS = Ranks(Alone(), 0, 1, 0, "here", 1)  # type: ignore[arg-type]


def images_spec(protocol: str, size: Size, samples: int, **settings: Any) -> RunSpec:
    """Return the paper's spec of one GPU, on so many random images."""
    campaign = load_campaign(CAMPAIGN)
    one = next(c for c in campaign.configurations.values() if c.model == "resnet50")
    spec = run_spec(campaign, one.id, 1)
    own = {"image_size": size.image, "loader": "synthetic", **settings}
    return replace(
        spec,
        protocol=protocol,
        gpus=1,
        nodes=1,
        ranks_per_node=1,
        local_batch_size=size.image_batch,
        global_batch_size=size.image_batch,
        dataset_fraction="1",
        dataset_samples=samples,
        validation_samples=max(1, samples // 25),
        settings=spec.settings | own,
    )


def trainer_of(spec: RunSpec, device: torch.device, folder: Path) -> Trainer:
    """Return the loop of a spec, warmed up."""
    trainer = Trainer(
        Job(spec, "", str(folder), folder, 0), RANKS, device, StopRequest(), EventLog(None, 0)
    )
    trainer.warm_up()
    return trainer


def our_loop(name: str, spec: RunSpec, device: torch.device, folder: Path) -> Contender:
    """Return the trainer's updates over one epoch of its spec."""
    trainer = trainer_of(spec, device, folder)

    def block() -> None:
        trainer._train_epoch()
        trainer.step, trainer.sums = 0, None

    return Contender(name, block, spec.dataset_samples or 0)


def plain_loop(name: str, spec: RunSpec, device: torch.device) -> Contender:
    """Return the same number of updates, written plainly."""
    fast = spec.settings["precision"] == "bf16"
    layout = torch.channels_last if spec.settings["channels_last"] else torch.contiguous_format
    network = resnet50(num_classes=spec.dataset["classes"]).to(device, memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    batch = spec.local_batch_size
    shape = (batch, 3, spec.settings["image_size"], spec.settings["image_size"])
    images = torch.randn(shape, device=device).contiguous(memory_format=layout)
    labels = torch.arange(batch, device=device) % spec.dataset["classes"]
    updates = (spec.dataset_samples or 0) // batch

    def block() -> None:
        network.train()
        for _ in range(updates):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=fast):
                loss = functional.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()

    return Contender(name, block, updates * batch)


def epoch_of(protocol: str, size: Size, device: torch.device, folder: Path) -> Contender:
    """Return one epoch of a protocol with its evaluations, in the paper's precision."""
    spec = images_spec(protocol, size, size.images)
    trainer, paper = trainer_of(spec, device, folder), protocol == "paper"

    def block() -> None:
        # Both protocols set these for the process.
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = paper, not paper
        began = time.monotonic()
        trainer._train_epoch()
        trainer.train_s = time.monotonic() - began
        with contextlib.redirect_stdout(io.StringIO()):
            trainer._end_epoch()

    return Contender(protocol, block, size.images)


def of_images(size: Size, device: torch.device, folder: Path) -> dict[str, Any]:
    """Compare the loops, and the protocols."""
    found: dict[str, Any] = {}
    samples = size.image_batch * size.updates
    for name, settings in (
        ("bf16, channels last", {"precision": "bf16", "channels_last": True}),
        ("as the paper computes", {}),
    ):
        spec = images_spec("corrected", size, samples, **settings)
        contenders = [our_loop("ours", spec, device, folder), plain_loop("plain", spec, device)]
        turns = take_turns(contenders, size, device)
        found[f"resnet50, {name}"] = {
            **{"batch": size.image_batch, "turns": [asdict(turn) for turn in turns]},
            "contenders": summary(turns),
            "ratios": [ratios(turns, "ours", "plain")],
        }
    turns = take_turns(
        [epoch_of(p, size, device, folder) for p in ("corrected", "paper")], size, device
    )
    found["resnet50, epochs by protocol"] = {
        **{"batch": size.image_batch, "turns": [asdict(turn) for turn in turns]},
        "contenders": summary(turns),
        "ratios": [ratios(turns, "corrected", "paper")],
    }
    return found


# --- FourCastNet ----------------------------------------------------------------------------------


def update_of(
    network: nn.Module, precision: str, size: Size, device: torch.device, compiled: bool
) -> Callable[[], None]:
    """Return an update by autocast and Adam as the trainer does it, on one random sample in every place."""
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    network = network.to(device)
    fused = True if device.type == "cuda" else None
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-4, fused=fused)
    scaler = torch.amp.GradScaler(
        device.type, enabled=precision == "fp16" and device.type == "cuda"
    )
    run: Any = torch.compile(network, dynamic=False) if compiled else network
    x = torch.randn((size.field_batch, 20, *size.grid), device=device)
    use = kind if device.type == "cuda" or precision == "bf16" else None

    def block() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, use, enabled=use is not None):
            forecast = run(x)
        error = (forecast.float() - x).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1)
        scaler.scale(error.mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return block


def networks(size: Size) -> Iterator[tuple[str, nn.Module, str, bool]]:
    """Yield names, networks of the same weights, precisions, and whether they are compiled."""
    torch.manual_seed(0)
    ours = FourCastNet(
        grid=size.grid,
        embed_dim=size.width,
        depth=size.depth,
        num_blocks=8 if size.width > 64 else 4,
    )
    patches = size.grid[0] // 8, size.grid[1] // 8
    products = with_products(ours, *patches)
    yield "literal, fp16", literal(ours), "fp16", False
    for precision in ("fp16", "bf16"):
        for compiled in (False, True):
            end = ", compiled" if compiled else ""
            yield f"ours, {precision}{end}", ours, precision, compiled
    for compiled in (False, True):
        end = ", compiled" if compiled else ""
        yield f"products, bf16{end}", products, "bf16", compiled


def differences(size: Size, device: torch.device) -> dict[str, float]:
    """Return how far the output of each is from the literal network in fp32, over its largest value."""
    found: dict[str, float] = {}
    x = torch.randn((1, 20, *size.grid), generator=torch.Generator().manual_seed(1)).to(device)
    reference: torch.Tensor | None = None
    for name, network, precision, compiled in networks(size):
        if compiled:
            continue  # the same arithmetic, fused
        network = network.to(device).eval()
        kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
        with torch.no_grad():
            if reference is None:
                with torch.backends.cudnn.flags(
                    enabled=True, benchmark=True, deterministic=False, allow_tf32=False
                ):
                    reference = network(x)
            use = device.type == "cuda" or precision == "bf16"
            with torch.autocast(device.type, kind, enabled=use):
                output = network(x).float()
        found[name] = float((output - reference).abs().max() / reference.abs().max())
    return found


def of_fields(size: Size, device: torch.device, compiles: bool) -> dict[str, Any]:
    """Compare the networks of FourCastNet."""
    import copy

    # The last protocol of ResNet50 left the paper's.
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True

    contenders = [
        Contender(
            name,
            update_of(copy.deepcopy(network), precision, size, device, compiled),
            size.field_batch,
        )
        for name, network, precision, compiled in networks(size)
        if compiled == compiles or precision == "fp16" and not compiled
    ]
    turns = take_turns(contenders, size, device)
    others = [one.name for one in contenders[1:]]
    return {
        "fourcastnet, compiled" if compiles else "fourcastnet": {
            **{"batch": size.field_batch, "turns": [asdict(turn) for turn in turns]},
            "contenders": summary(turns),
            "ratios": [ratios(turns, name, contenders[0].name) for name in others],
            "output_differences": {} if compiles else differences(size, device),
        }
    }


# --- profiles -------------------------------------------------------------------------------------


def kind_of(kernel: str) -> str:
    """Return what a kernel does, by its name."""
    lower = kernel.lower()
    return next(
        (kind for kind, words in KINDS.items() if any(word in lower for word in words)),
        "elementwise and copies",
    )


def profiled(
    name: str, block: Callable[[], None], device: torch.device, out: Path
) -> dict[str, float]:
    """Profile a block; write its kernels as text and a trace, and return the share of each kind."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    block()
    wait(device)
    with profile(activities=activities) as found:
        block()
        wait(device)
    on_gpu = device.type == "cuda"
    sorting = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    averages = found.key_averages()
    stem = "".join(c if c.isalnum() else "-" for c in name)
    write_text(out / f"{stem}.txt", averages.table(sort_by=sorting, row_limit=40) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        found.export_chrome_trace(str(path))
        with open(path, "rb") as plain, gzip.open(out / f"{stem}.trace.json.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
    times: dict[str, float] = {}
    for event in averages:
        if on_gpu and (event.device_type != DeviceType.CUDA or event.is_user_annotation):
            continue  # an operator or a range, whose kernels are rows of their own
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        times[kind_of(event.key)] = times.get(kind_of(event.key), 0.0) + spent
    whole = sum(times.values()) or 1.0
    return {kind: spent / whole for kind, spent in sorted(times.items(), key=lambda one: -one[1])}


def profiles(size: Size, device: torch.device, folder: Path, out: Path) -> dict[str, Any]:
    """Profile an update of each network that is compared, without compiling."""
    import copy

    spec = images_spec(
        "corrected", size, size.image_batch * 2, precision="bf16", channels_last=True
    )
    blocks = {"resnet50, ours": our_loop("ours", spec, device, folder).block}
    for name, network, precision, compiled in networks(size):
        if not compiled:
            blocks[f"fourcastnet, {name}"] = update_of(
                copy.deepcopy(network), precision, size, device, False
            )
    return {name: profiled(name, block, device, out) for name, block in blocks.items()}


# --- report ---------------------------------------------------------------------------------------


def text_of(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [f"# Speed and energy on {found['device']}", "", f"torch {found['torch']}.", ""]
    for name, part in found["comparisons"].items():
        lines += [f"## {name}, batch {part['batch']}", ""]
        lines += ["| | samples/s | range | J per sample |", "| --- | --: | --: | --: |"]
        for contender, one in part["contenders"].items():
            low, high = one["samples_per_s_range"]
            lines.append(
                f"| {contender} | {one['samples_per_s']:.4g} | {low:.4g} to {high:.4g}"
                f" | {_number(one['joules_per_sample'])} |"
            )
        lines += ["", "| ratio | speed | range | energy per sample |", "| --- | --: | --: | --: |"]
        for one in part["ratios"]:
            low, high = one["speed_range"]
            lines.append(
                f"| {one['of']} / {one['over']} | {one['speed']:.3f} | {low:.3f} to {high:.3f}"
                f" | {_number(one['energy'])} |"
            )
        for contender, value in part.get("output_differences", {}).items():
            lines.append(
                f"\n{contender}: outputs differ from the literal ones in fp32 by {value:.1e}."
            )
        lines.append("")
    lines += [f"Failed: {part}: {why}" for part, why in found["failed"].items()]
    lines += ["## Published, of another device (one A100-40GB)", ""]
    lines += [f"- {model}: {rate}" for model, rate in PUBLISHED.items()]
    lines += ["", "## Where the time of an update goes", ""]
    for name, shares in found["profiles"].items():
        parts = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in shares.items())
        lines.append(f"- {name}: {parts}")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def new_folder(out: Path) -> Path:
    """Return `out`, or where that has results already the first free name after it."""
    number, folder = 1, out
    while (folder / "speed.json").exists():
        number += 1
        folder = out.with_name(f"{out.name}-{number}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    """Parse the command line, measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=Path("results/gpu-speed"))
    arguments = parser.parse_args()
    if not arguments.rehearse and not torch.cuda.is_available():
        print(
            "one_gpu_speed: torch finds no GPU here; allowed: --rehearse, on the CPU",
            file=sys.stderr,
        )
        return 1
    if arguments.rehearse:
        torch.set_num_threads(1)  # several wait for each other where there is other work
    size, name = (TINY, "cpu") if arguments.rehearse else (REAL, "cuda:0")
    out, device = new_folder(arguments.out), torch.device(name)
    start_process_group(RANKS, device)
    try:
        found = measured(size, device, out)
    finally:
        dist.destroy_process_group()
    print(text_of(found))
    print(f"{out}: speed.json, speed.md and profiles")
    return int(bool(found["failed"]))


def measured(size: Size, device: torch.device, out: Path) -> dict[str, Any]:
    """Return comparisons and profiles of a device; they are written after each, as time may run out."""
    on_gpu, began_s = device.type == "cuda", time.monotonic()
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU (a rehearsal)",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "size": asdict(size),
        "energy_origin": "measured" if energy_counter(device) else None,
        "energy_scope": "gpu",
        "comparisons": {},
        "published": PUBLISHED,
        "profiles": {},
        "failed": {},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: dict[str, Callable[[], None]] = {
            "resnet50": lambda: found["comparisons"].update(of_images(size, device, folder)),
            "fourcastnet": lambda: found["comparisons"].update(of_fields(size, device, False)),
            "profiles": lambda: found["profiles"].update(profiles(size, device, folder, out)),
            "fourcastnet, compiled": lambda: found["comparisons"].update(
                of_fields(size, device, True)
            ),
        }
        for part, make in parts.items():
            if part.endswith("compiled") and not on_gpu:
                continue  # for a CPU that takes minutes
            if time.monotonic() - began_s > LAST_START_S:
                found["failed"][part] = "not begun: no time was left"
                continue
            try:
                make()
            except Exception as error:  # one part that fails must not lose the others
                found["failed"][part] = f"{type(error).__name__}: {error}"
            write_json(out / "speed.json", found)
            write_text(out / "speed.md", text_of(found))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
