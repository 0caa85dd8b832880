"""FourCastNet on ERA5: pre-training of one 6 h step, fine-tuning of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import Dataset

from scalewatt.campaign.campaign_file import LEAD_STEPS, part_years
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.data.era5 import CHANNELS, Z500, Era5Dataset, load_climatology, load_statistics
from scalewatt.models.afno import FourCastNet, Rollout
from scalewatt.models.interface import Batch, Evaluation, Schedule, SyntheticSamples, Workload

VALIDATION_BATCHES = 20
"""Batches of a rank that the original code validates on."""
SIZES = ("patch_size", "embed_dim", "depth", "num_blocks", "mlp_ratio", "sparsity_threshold")
"""Settings of the network."""


class FourCastNetWorkload(Workload):
    """The paper's second workload.

    Sums are (samples, loss) in training and validation; in the forecasts of the test year
    (forecasts, RMSE, RMSE of persistence, RMSE of climatology), RMSE of Z500 in m²/s² after 6 h
    (pretrain) or 12 h (finetune).

    With the setting `loader: synthetic` nothing is read: the same random sample, normalised, is
    every sample of every batch and stays on the device. The computing is that of a real run, the
    losses and errors mean nothing and are None in `results`.
    """

    metric_name = "z500_rmse_m2_s2"

    def __init__(self, spec: RunSpec, data_folder: str, device: torch.device) -> None:
        super().__init__(spec, data_folder, device)
        self.lead_steps = LEAD_STEPS[spec.phase]
        rows, columns = spec.dataset["grid"]
        if self.synthetic:
            mean, sd = np.zeros(len(CHANNELS), np.float32), np.ones(len(CHANNELS), np.float32)
            latitudes = np.linspace(90, -90, rows + 1)[:-1]
            climatology = np.full((rows + 1, columns), np.nan)
            random = torch.Generator(device).manual_seed(self.seed)
            shape = (1 + self.lead_steps, len(CHANNELS), rows, columns)
            self._sample = torch.randn(shape, generator=random, device=device)
        else:
            mean, sd = load_statistics(data_folder)
            latitudes = Era5Dataset(data_folder, spec.dataset, "train", self.lead_steps).latitude
            climatology = load_climatology(data_folder)
        self._scale = torch.as_tensor(mean)[:, None, None], torch.as_tensor(sd)[:, None, None]
        self.mean, self.sd = (part.to(device) for part in self._scale)
        cosines = np.cos(np.deg2rad(latitudes.astype(np.float64)))
        weights = len(cosines) * cosines / cosines.sum()
        self.weights = torch.as_tensor(weights, dtype=torch.float32, device=device)
        """Of the latitudes used in means over the globe, (H,)."""
        normal = (climatology[:-1] - mean[Z500]) / sd[Z500]
        self.climatology = torch.as_tensor(normal, dtype=torch.float32, device=device)

    def model(self) -> nn.Module:
        """Make the network inside its rollout."""
        sizes = {name: self.settings[name] for name in SIZES}
        grid = tuple(self.spec.dataset["grid"])
        return Rollout(FourCastNet(grid, **sizes, fast=not self.paper), self.lead_steps)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make Adam, on a GPU fused as in the original code: it does not wait for the scaler's check.

        For protocol corrected it is fused on a CPU, too.
        """
        return torch.optim.Adam(
            model.parameters(),
            lr=self.settings["learning_rate"],
            weight_decay=self.settings["weight_decay"],
            fused=self.device.type == "cuda" or not self.paper,
        )

    def schedule(self, optimizer: torch.optim.Optimizer) -> CosinePerEpoch:
        """Make a cosine to 0 over the epochs, stepped once per epoch."""
        return CosinePerEpoch(CosineAnnealingLR(optimizer, T_max=self.spec.epochs))

    def _dataset(self, part: str) -> Any:
        """Samples of a part of the years: train, validation or test; for protocol paper normalised."""
        if self.synthetic:
            spec, years = self.spec, len(part_years(self.spec.dataset, part))
            counts = {"train": spec.dataset_samples, "validation": spec.validation_samples}
            return SyntheticSamples(counts.get(part) or years * spec.dataset["samples_per_year"])
        scale = self._scale if self.paper else None
        return Era5Dataset(self.folder, self.spec.dataset, part, self.lead_steps, scale)

    def training_data(self) -> Dataset[Any]:
        """Training years."""
        return self._dataset("train")

    def evaluations(self) -> dict[str, Evaluation]:
        """Loss of the validation years, and forecasts of the test year.

        The original code, and so the paper's protocol, validates on the first 20 batches of a rank alone.
        """
        validation, test = self._dataset("validation"), self._dataset("test")
        s, samples = self.settings, len(validation)
        if self.paper:
            samples = min(samples, VALIDATION_BATCHES * self.spec.global_batch_size)
        starts = range(0, len(test), s["initial_condition_spacing"])[: s["initial_conditions"]]
        return {
            "validation": Evaluation(validation, range(samples)),
            "forecasts": Evaluation(test, starts),
        }

    def _normalised(self, batch: Batch) -> Batch:
        """Normalise state (n, channels, H, W) and targets (n, lead_steps, channels, H, W)."""
        if self.synthetic:
            samples = self._sample.expand(len(batch[0]), *self._sample.shape)
            batch = samples[:, 0], samples[:, 1:]
        if self.paper:  # by the loader's workers
            return batch
        return tuple((part - self.mean) / self.sd for part in batch)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Error's L2 norm over that of the target, in float32, summed over steps; its mean and sums."""
        x, target = self._normalised(batch)
        loss = _relative_l2(model(x).float(), target)
        count = torch.full_like(loss, len(x), dtype=torch.float64)
        return loss, torch.stack([count, loss.detach().double() * len(x)])

    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Sums of the validation loss, or of the errors of forecasts."""
        if name == "validation":
            return self.loss(model, batch)[1]
        x, target = self._normalised(batch)
        truth = target[:, -1, Z500]
        guesses = model(x).float()[:, -1, Z500], x[:, Z500], self.climatology
        errors = [self._rmse(guess, truth).double().sum() for guess in guesses]
        count = torch.tensor(len(x), dtype=torch.float64, device=self.device)
        return torch.stack([count, *errors])

    def _rmse(self, forecast: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Latitude-weighted RMSE of each sample, (B, H, W) to (B,), in m²/s²."""
        squares = self.weights[:, None] * (forecast - truth) ** 2
        return squares.mean(dim=(-2, -1)).sqrt() * self.sd[Z500, 0, 0]

    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """RMSE in m²/s²; also that of two forecasts without training: the last state kept
        (persistence), and the training years' mean (climatology)."""
        totals = {name: rows.sum(axis=0) for name, rows in sums.items()}
        _, error, persistence, climatology = totals["forecasts"] / totals["forecasts"][0]
        results = {
            "train_loss": totals["train"][1] / totals["train"][0],
            "validation_loss": totals["validation"][1] / totals["validation"][0],
            "metric": error,
            "metric_persistence": persistence,
            "metric_climatology": climatology,
        }
        values = {name: None if self.synthetic else float(v) for name, v in results.items()}
        return {**values, "train_metric": None}


def _relative_l2(forecast: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Norm of the error over norm of the target, (B, steps, C, H, W), summed over steps; mean over B."""
    error = (forecast - target).flatten(2).norm(dim=2)
    return (error / target.flatten(2).norm(dim=2)).sum(dim=1).mean()


class CosinePerEpoch(Schedule):
    """Cosine annealing to 0 over the epochs."""


WORKLOAD = FourCastNetWorkload
