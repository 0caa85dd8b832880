"""FourCastNet on ERA5: pre-training of one 6 h step, fine-tuning of two."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.datasets.era5.channels import CHANNELS, Z500, all_years, part_years
from scalewatt.datasets.era5.era5_dataset import Era5Dataset, SyntheticEra5
from scalewatt.datasets.era5.statistics import load_climatology, load_statistics
from scalewatt.workloads.afno import FourCastNet, Rollout
from scalewatt.workloads.interface import Batch, Evaluation, Schedule, Workload


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
        self.lead_steps = 2 if spec.phase == "finetune" else 1
        self.synthetic = self.settings["loader"] == "synthetic"
        rows, columns = spec.dataset["grid"]
        if self.synthetic:
            mean, sd = np.zeros(len(CHANNELS), np.float32), np.ones(len(CHANNELS), np.float32)
            latitudes = np.linspace(90, -90, rows + 1)[:-1]
            climatology = np.full((rows + 1, columns), np.nan)
            self._sample = self._random_sample(rows, columns)
        else:
            mean, sd = load_statistics(data_folder)
            training = self.training_data()
            assert isinstance(training, Era5Dataset)
            latitudes = training.latitude
            climatology = load_climatology(data_folder)
        self.mean = torch.as_tensor(mean, device=device)[:, None, None]
        self.sd = torch.as_tensor(sd, device=device)[:, None, None]
        self.weights = _latitude_weights(latitudes).to(device)
        normal = (climatology[:-1] - mean[Z500]) / sd[Z500]
        self.climatology = torch.as_tensor(normal, dtype=torch.float32, device=device)

    def _random_sample(self, rows: int, columns: int) -> torch.Tensor:
        """Return state and targets, standard normal, float32 (1 + lead_steps, channels, H, W)."""
        random = torch.Generator(self.device).manual_seed(self.seed)
        shape = (1 + self.lead_steps, len(CHANNELS), rows, columns)
        return torch.randn(shape, generator=random, device=self.device)

    def model(self) -> nn.Module:
        """Return the network inside its rollout."""
        s = self.settings
        net = FourCastNet(
            grid=tuple(self.spec.dataset["grid"]),
            patch_size=s["patch_size"],
            embed_dim=s["embed_dim"],
            depth=s["depth"],
            num_blocks=s["num_blocks"],
            mlp_ratio=s["mlp_ratio"],
            sparsity_threshold=s["sparsity_threshold"],
        )
        return Rollout(net, self.lead_steps)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return Adam, on a GPU fused as the original code's: it does not wait for the scaler's check."""
        s = self.settings
        return torch.optim.Adam(
            model.parameters(),
            lr=s["learning_rate"],
            weight_decay=s["weight_decay"],
            fused=True if self.device.type == "cuda" else None,
        )

    def schedule(self, optimizer: torch.optim.Optimizer) -> CosinePerEpoch:
        """Return a cosine to 0 over the epochs, stepped once per epoch."""
        return CosinePerEpoch(optimizer, self.spec.epochs)

    def _dataset(self, part: str) -> Era5Dataset | SyntheticEra5:
        dataset = self.spec.dataset
        years = part_years(dataset, part)
        if self.synthetic:
            counts = {
                "train": self.spec.dataset_samples,
                "validation": self.spec.validation_samples,
            }
            return SyntheticEra5(counts.get(part) or len(years) * dataset["samples_per_year"])
        return Era5Dataset(
            self.folder,
            years,
            lead_steps=self.lead_steps,
            samples_per_year=dataset["samples_per_year"],
            require_targets=part == "train",
            known_years=all_years(dataset),
        )

    def training_data(self) -> Era5Dataset | SyntheticEra5:
        """Return the training years."""
        return self._dataset("train")

    def evaluations(self) -> dict[str, Evaluation]:
        """Return the loss of the validation years, and forecasts of the test year."""
        validation, test = self._dataset("validation"), self._dataset("test")
        s = self.settings
        starts = range(0, len(test), s["initial_condition_spacing"])[: s["initial_conditions"]]
        return {
            "validation": Evaluation(validation, range(len(validation))),
            "forecasts": Evaluation(test, starts),
        }

    def _normalised(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return state (n, channels, H, W) and targets (n, lead_steps, channels, H, W), normalised."""
        if self.synthetic:
            batch = self._sample[0].expand(len(batch[0]), -1, -1, -1), self._sample[1:].expand(
                len(batch[0]), -1, -1, -1, -1
            )  # fmt: skip
        x, targets = batch
        return (x - self.mean) / self.sd, (targets - self.mean) / self.sd

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the relative L2 error in float32, summed over steps, mean over the batch; and its sums."""
        x, target = self._normalised(batch)
        loss = _relative_l2(model(x).float(), target).sum(dim=1).mean()
        return loss, _weighted(loss.detach(), n=len(x))

    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the sums of the validation loss, or of the forecasts' errors."""
        x, target = self._normalised(batch)
        forecast = model(x).float()
        if name == "validation":
            return _weighted(_relative_l2(forecast, target).sum(dim=1).mean(), n=len(x))
        truth = target[:, -1, Z500]
        guesses = forecast[:, -1, Z500], x[:, Z500], self.climatology
        errors = [self._rmse(guess, truth).double().sum() for guess in guesses]
        count = torch.tensor(len(x), dtype=torch.float64, device=self.device)
        return torch.stack([count, *errors])

    def _rmse(self, forecast: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Return the latitude-weighted RMSE of each sample, (B, H, W) to (B,), in m²/s²."""
        squares = self.weights[:, None] * (forecast - truth) ** 2
        return squares.mean(dim=(-2, -1)).sqrt() * self.sd[Z500, 0, 0]

    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """Return the RMSE in m²/s²; also that of persistence (the last state kept) and of climatology (the
        training years' mean), which need no training."""

        def mean(name: str, column: int) -> float | None:
            found = float(sums[name][:, column].sum() / sums[name][:, 0].sum())
            return None if self.synthetic else found

        return {
            "train_loss": mean("train", 1),
            "train_metric": None,
            "validation_loss": mean("validation", 1),
            "metric": mean("forecasts", 1),
            "metric_persistence": mean("forecasts", 2),
            "metric_climatology": mean("forecasts", 3),
        }


def _relative_l2(forecast: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return norm of the error over norm of the target, (B, steps, C, H, W) to (B, steps)."""
    error = (forecast - target).flatten(2).norm(dim=2)
    return error / target.flatten(2).norm(dim=2)


def _weighted(loss: torch.Tensor, n: int) -> torch.Tensor:
    return torch.stack([torch.full_like(loss, n, dtype=torch.float64), loss.double() * n])


def _latitude_weights(latitudes: np.ndarray) -> torch.Tensor:
    """Return N·cos(lat)/Σcos(lat) over the latitudes used, shape (H,)."""
    cosines = np.cos(np.deg2rad(latitudes.astype(np.float64)))
    return torch.as_tensor(len(cosines) * cosines / cosines.sum(), dtype=torch.float32)


class CosinePerEpoch(Schedule):
    """Cosine annealing to 0 over the epochs."""

    def __init__(self, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        super().__init__(CosineAnnealingLR(optimizer, T_max=epochs))


WORKLOAD = FourCastNetWorkload
