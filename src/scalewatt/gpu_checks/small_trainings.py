"""Small trainings on synthetic data, started as the workflow starts one: `scalewatt train`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Device
from scalewatt.campaign.load import expand
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.exit_codes import ExitCode
from scalewatt.doctor.subprocess_runner import Answer
from scalewatt.gpu_checks.check_types import Bench, CheckFailed, CheckSkipped
from scalewatt.recordings.concurrent_samplers import FOLDER_VARIABLE

RESNET50, FOURCASTNET = "resnet50", "fourcastnet"
POWERS = {"cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}
"""Where the CPUs have no counter they are estimated; GPUs never are."""
_DEVICE = "local"
_MOST_RANKS = 4
_IMAGES = {"format": "imagenet", "source": "none"}
_FIELDS = {
    "format": "era5",
    "source": "none",
    "train_years": [1979, 1979],
    "validation_years": [1980, 1980],
    "test_years": [1981, 1981],
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of trainings: some milliseconds an update on a GPU, and on a CPU in a rehearsal."""

    images: dict[str, Any]
    resnet50: dict[str, Any]
    fields: dict[str, Any]
    fourcastnet: dict[str, Any]
    batch: dict[str, int]


_REAL = Sizes(
    images={"train_samples": 960, "validation_samples": 64, "classes": 100},
    resnet50={"image_size": 128},
    fields={"grid": [176, 352], "samples_per_year": 120},
    fourcastnet={"patch_size": 8, "embed_dim": 256, "depth": 4, "num_blocks": 8},
    batch={RESNET50: 32, FOURCASTNET: 4},
)
_TINY = Sizes(
    images={"train_samples": 24, "validation_samples": 4, "classes": 10},
    resnet50={"image_size": 32},
    fields={"grid": [16, 32], "samples_per_year": 20},
    fourcastnet={"patch_size": 4, "embed_dim": 16, "depth": 2, "num_blocks": 4},
    batch={RESNET50: 4, FOURCASTNET: 2},
)
_TAME = {"base_learning_rate": 1e-5, "warmup_epochs": 1, "warmup_start": 1e-7}
"""At its start ResNet50 has gradients of a norm in the hundreds, and rounding changes them by a hundredth:
with the paper's rates losses of few updates would grow, and any difference with them."""
SETTINGS: dict[str, Any] = {"loader": "synthetic", "loader_workers": 0}


def small_spec(
    rehearse: bool, model: str, gpus: int = 1, protocol: str = "corrected", **changes: Any
) -> RunSpec:
    """Return the spec of a small training on synthetic data; InputError if a change is not allowed.

    `settings` among the changes are settings of the model, all others fields of the spec.
    """
    sizes = _TINY if rehearse else _REAL
    settings = {**SETTINGS, **changes.pop("settings", {})}
    local_batch_size = changes.pop("local_batch_size", sizes.batch[model])
    weather = {"initial_conditions": 2, "initial_condition_spacing": 2, "epochs": 2}
    phase = {"phase": "pretrain"} if model == FOURCASTNET else {}
    content = {
        "name": "gpu-check",
        "protocol": protocol,
        "sampling_period_s": 0.1,
        "datasets": {"images": _IMAGES | sizes.images, "fields": _FIELDS | sizes.fields},
        "models": {
            "resnet50": {"dataset": "images", "epochs": 2, **_TAME, **sizes.resnet50},
            "fourcastnet.pretrain": {"dataset": "fields", **weather, **sizes.fourcastnet},
        },
        "series": {
            "one": {
                **{"model": model, **phase, "device": _DEVICE, "gpus": [gpus]},
                **{"local_batch_size": local_batch_size, "settings": settings},
            }
        },
        "figures": {"breakdown": {"series": ["one"]}},
    }
    device = Device(_DEVICE, _MOST_RANKS, 1, dict(POWERS["cpu"] or {}))
    campaign = expand(content, Path("gpu-check"), {_DEVICE: device})
    (configuration,) = campaign.configurations
    return replace(run_spec(campaign, configuration, 1), **changes)


@dataclass(frozen=True)
class SmallTraining:
    """One run in a folder of its own."""

    bench: Bench
    folder: Path
    spec: RunSpec
    torch_device: str

    @classmethod
    def of(
        cls, bench: Bench, name: str, spec: RunSpec, torch_device: str | None = None
    ) -> SmallTraining:
        """Prepare a run of `spec` in the folder `name` of the check."""
        from scalewatt.datasets.prepare import prepare_dataset

        folder = bench.folder / name
        folder.mkdir()
        (folder / "spec.json").write_text(spec.text, encoding="utf-8")
        prepare_dataset(dict(spec.dataset), folder / "data", None)
        return cls(bench, folder, spec, torch_device or bench.torch_device)

    def start(
        self, max_updates: int | None = None, environment: Mapping[str, str] | None = None
    ) -> Answer:
        """Run one segment to its end, of `max_updates` updates at most."""
        return self.bench.run(self._command(max_updates), self._environment(environment or {}))

    def stopped(self, max_updates: int, environment: Mapping[str, str] | None = None) -> None:
        """Run a segment that stops at its checkpoint; CheckFailed if it does not."""
        _require(self.start(max_updates, environment), ExitCode.STOPPED)

    def finished(self, environment: Mapping[str, str] | None = None) -> None:
        """Run a segment to the end of the training; CheckFailed if it does not come to it."""
        _require(self.start(None, environment), ExitCode.FINISHED)

    def checkpoint(self) -> dict[str, Any]:
        """Return the checkpoint of the run."""
        from scalewatt.training.checkpoint import load_checkpoint

        found = load_checkpoint(self.work / "checkpoint.pt", self.spec.sha256)
        if found is None:
            raise CheckFailed(f"{self.spec.configuration}: no checkpoint was written")
        return found

    @property
    def out(self) -> Path:
        """Return the run folder."""
        return self.folder / "out"

    @property
    def work(self) -> Path:
        """Return the working directory; CheckFailed if there is none yet."""
        found = [path.parent for path in (self.folder / "work").glob("*/spec.json")]
        if not found:
            raise CheckFailed(f"{self.spec.configuration}: its training did not begin")
        return found[0]

    def _command(self, max_updates: int | None) -> list[str]:
        cluster = {
            "cluster": "gpu-check",
            "launcher": self._launcher(),
            "devices": {
                _DEVICE: {
                    **{"gpus_per_node": _MOST_RANKS, "cpus_per_rank": 1, "cpu": POWERS["cpu"]},
                    "torch_device": self.torch_device,
                }
            },
            "data_roots": {self.spec.dataset["name"]: str(self.folder / "data")},
        }
        limit = [] if max_updates is None else ["--max-updates", str(max_updates)]
        return [
            *(sys.executable, "-m", "scalewatt.cli", "train", str(self.folder / "spec.json")),
            *("--cluster", json.dumps(cluster), "--work", str(self.folder / "work")),
            *("--out", str(self.out), *limit),
        ]

    def _launcher(self) -> str:
        if self.bench.processes.which("mpiexec") is not None:
            return "mpiexec -n {gpus}"
        if self.spec.gpus == 1:
            return "env SCALEWATT_RANK_COUNT={gpus}"
        raise CheckSkipped("mpiexec is not found, which starts several ranks")

    def _environment(self, further: Mapping[str, str]) -> dict[str, str]:
        own = {FOLDER_VARIABLE: str(self.folder / "samplers"), **further}
        if "PYTHONPATH" in further:  # in front of what is there
            there = self.bench.processes.environment.get("PYTHONPATH", "")
            own["PYTHONPATH"] = os.pathsep.join(filter(None, [further["PYTHONPATH"], there]))
        return own


def _require(answer: Answer, code: int) -> None:
    if answer.code != code:
        said = [line for line in (answer.errors + answer.output).splitlines() if "error" in line]
        why = said[-1] if said else answer.problem
        raise CheckFailed(f"a training ended with exit code {answer.code}, not {code}: {why}")


# --- states of trainings --------------------------------------------------------------------------

_CLOCKS = frozenset({"epoch_s", "train_s", "phases", "segment", "peak_memory_bytes"})


def differences(one: Any, other: Any, name: str = "") -> list[str]:
    """Return the names of the parts in which two checkpoints differ, clocks and memory left out.

    So are the random numbers of Python and numpy, which no training draws or seeds.
    Tensors are equal if their type, shape and every bit are; NaN is equal to NaN.
    """
    import torch

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and torch.equal(_bits(one), _bits(other))
        return [] if same else [name]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if set(one) != set(other):
            return [name]
        kept = (key for key in one if key not in _UNSEEDED and not _is_clock(key))
        return [d for key in kept for d in differences(one[key], other[key], f"{name}.{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return [name]
        pairs = enumerate(zip(one, other, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{name}[{i}]")]
    return [] if one == other or (one != one and other != other) else [name]


_UNSEEDED = ("python", "numpy")


def _is_clock(key: Any) -> bool:
    return isinstance(key, str) and (key in _CLOCKS or key.endswith(("_s", "_per_s")))


def _bits(tensor: Any) -> Any:
    import torch

    flat = tensor.detach().cpu().contiguous()
    return flat.reshape(-1).view(torch.uint8) if flat.dim() else flat.reshape(1).view(torch.uint8)


def all_finite(state: Mapping[str, Any]) -> bool:
    """Return True if all numbers of a network's state are: NaN would be equal to NaN."""
    import torch

    return all(bool(torch.isfinite(part).all()) for part in state.values())


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the L2 norm of the difference of two networks' states."""
    import torch

    pairs = [(one[k].double(), other[k].double()) for k in other if other[k].is_floating_point()]
    return sum(float(torch.sum((a - b) ** 2)) for a, b in pairs) ** 0.5
