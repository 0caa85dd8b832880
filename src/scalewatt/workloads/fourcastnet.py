"""FourCastNet on ERA5: pre-training of one 6 h step, fine-tuning of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from scalewatt.datasets.era5 import Era5Dataset
from scalewatt.datasets.era5_channels import CHANNELS
from scalewatt.datasets.era5_statistics import load_statistics
from scalewatt.workloads.afno import FourCastNet, Rollout
from scalewatt.workloads.protocol import Batch, Evaluation

__all__ = ["FourCastNet", "FourCastNetWorkload", "Rollout"]

_Z500 = CHANNELS.index("z500")


class FourCastNetWorkload:
    """The paper's second workload.

    Sums are (samples, loss) in training and validation, and (forecasts, RMSE, RMSE of persistence)
    in the forecasts of the test year, RMSE of Z500 in m²/s² after 6 h (pretrain) or 12 h (finetune).
    """

    metric_name = "z500_rmse_m2_s2"
    evaluate_train = False

    def __init__(self, spec: dict[str, Any], data_folder: str, device: torch.device) -> None:
        self.spec, self.folder, self.device = spec, data_folder, device
        self.settings = spec["settings"]
        self.lead_steps = 2 if spec["phase"] == "finetune" else 1
        mean, sd = load_statistics(data_folder)
        self.mean = torch.as_tensor(mean, device=device)[:, None, None]
        self.sd = torch.as_tensor(sd, device=device)[:, None, None]
        self.autocast = self.settings["precision"] == "fp16" and device.type == "cuda"
        self.weights = _latitude_weights(self.training_data().latitude).to(device)

    def model(self) -> nn.Module:
        """The network inside its rollout."""
        s = self.settings
        net = FourCastNet(
            grid=tuple(self.spec["dataset"]["grid"]),
            patch_size=s["patch_size"],
            embed_dim=s["embed_dim"],
            depth=s["depth"],
            num_blocks=s["num_blocks"],
            mlp_ratio=s["mlp_ratio"],
            sparsity_threshold=s["sparsity_threshold"],
        )
        return Rollout(net, self.lead_steps)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam."""
        s = self.settings
        return torch.optim.Adam(
            model.parameters(), lr=s["learning_rate"], weight_decay=s["weight_decay"]
        )

    def schedule(self, optimizer: torch.optim.Optimizer) -> CosinePerEpoch:
        """A cosine to 0 over the epochs, stepped once an epoch."""
        return CosinePerEpoch(optimizer, self.spec["epochs"])

    def provenance(self) -> dict[str, Any]:
        """Nothing beyond the spec."""
        return {}

    def index_lists(self) -> dict[str, np.ndarray]:
        """None: whole years are read."""
        return {}

    def _dataset(self, years: str, require_targets: bool) -> Era5Dataset:
        dataset = self.spec["dataset"]
        first, last = dataset[years]
        return Era5Dataset(
            self.folder,
            range(first, last + 1),
            lead_steps=self.lead_steps,
            samples_per_year=dataset["samples_per_year"],
            require_targets=require_targets,
        )

    def training_data(self) -> Era5Dataset:
        """The training years."""
        return self._dataset("train_years", require_targets=True)

    def evaluations(self) -> dict[str, Evaluation]:
        """The loss of the validation years, and forecasts of the test year."""
        validation = self._dataset("validation_years", require_targets=False)
        test = self._dataset("test_years", require_targets=False)
        s = self.settings
        starts = range(0, len(test), s["initial_condition_spacing"])[: s["initial_conditions"]]
        return {
            "validation": Evaluation(validation, range(len(validation))),
            "forecasts": Evaluation(test, starts),
        }

    def _normalised(self, part: torch.Tensor) -> torch.Tensor:
        return (part - self.mean) / self.sd

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Relative L2 of each step, summed over the steps, mean over the batch."""
        x, target = (self._normalised(part) for part in batch)
        with torch.autocast(self.device.type, torch.float16, enabled=self.autocast):
            forecast = model(x)
        loss = _relative_l2(forecast.float(), target).sum(dim=1).mean()
        return loss, _weighted(loss.detach(), n=len(x))

    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """In float32."""
        x, target = (self._normalised(part) for part in batch)
        forecast = model(x)
        if name == "validation":
            return _weighted(_relative_l2(forecast, target).sum(dim=1).mean(), n=len(x))
        truth = target[:, -1, _Z500]
        errors = self._rmse(forecast[:, -1, _Z500], truth), self._rmse(x[:, _Z500], truth)
        count = torch.tensor(len(x), dtype=torch.float64, device=self.device)
        return torch.stack([count, *(e.double().sum() for e in errors)])

    def _rmse(self, forecast: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Latitude-weighted RMSE of each sample, (B, H, W) to (B,), in m²/s²."""
        squares = self.weights[:, None] * (forecast - truth) ** 2
        return squares.mean(dim=(-2, -1)).sqrt() * self.sd[_Z500, 0, 0]

    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """RMSE in m²/s², also that of persistence (the last state kept)."""

        def mean(name: str, column: int) -> float:
            return float(sums[name][:, column].sum() / sums[name][:, 0].sum())

        return {
            "train_loss": mean("train", 1),
            "train_metric": None,
            "validation_loss": mean("validation", 1),
            "metric": mean("forecasts", 1),
            "metric_persistence": mean("forecasts", 2),
        }


def _relative_l2(forecast: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """(B, steps, C, H, W) to (B, steps): norm of the error over the norm of the target."""
    error = (forecast - target).flatten(2).norm(dim=2)
    return error / target.flatten(2).norm(dim=2)


def _weighted(loss: torch.Tensor, n: int) -> torch.Tensor:
    return torch.stack([torch.full_like(loss, n, dtype=torch.float64), loss.double() * n])


def _latitude_weights(latitudes: np.ndarray) -> torch.Tensor:
    """N·cos(lat)/Σcos(lat) over the latitudes used, shape (H,)."""
    cosines = np.cos(np.deg2rad(latitudes.astype(np.float64)))
    return torch.as_tensor(len(cosines) * cosines / cosines.sum(), dtype=torch.float32)


class CosinePerEpoch:
    """Cosine annealing to 0 over the epochs."""

    def __init__(self, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        self.scheduler = CosineAnnealingLR(optimizer, T_max=epochs)

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        """The rate is constant within an epoch."""

    def end_epoch(self, epoch: int, results: dict[str, float | None]) -> None:
        """One step along the cosine."""
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state."""
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.scheduler.load_state_dict(state)
