"""Histories and final weights of small trainings on 1, 2 and 4 ranks, under both protocols, on the CPU."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from golden_project import link_workflow, snakemake
from golden_tables import FOLDER, Golden

PROTOCOLS = ("paper", "corrected")
RUN = ("protocol", "configuration")
HISTORIES = Golden("trainings/histories.csv", (*RUN, "epoch"), rel=1e-6)
WEIGHTS = Golden("trainings/weights.csv", RUN)
NUMBERS = (
    *("updates", "samples", "learning_rate", "train_loss", "validation_loss"),
    *("metric", "train_metric", "top5_error_percent"),
)
"""Columns of a history that are the same whenever and wherever it is trained."""


def made(folder: Path) -> dict[Golden, pd.DataFrame]:
    """The goldens of today's code, trained in a new folder."""
    runs = list(trained(folder))
    return {
        HISTORIES: pd.concat([_history(*run) for run in runs]),
        WEIGHTS: pd.DataFrame([_weights(*run) for run in runs]),
    }


def trained(folder: Path) -> Iterator[tuple[str, Path]]:
    """Train all; the protocol and folder of each run."""
    link_workflow(folder)
    for protocol in PROTOCOLS:
        shutil.copy(FOLDER / "trainings" / f"{protocol}.yaml", folder / "campaigns")
        campaign = f"campaign=campaigns/{protocol}.yaml"
        snakemake(folder, "--profile", "profiles/local", "--config", campaign, "--", "tables")
        for path in sorted((folder / "results" / f"trained-{protocol}" / "runs").glob("*/1")):
            yield protocol, path


def machine() -> str:
    """What floating-point results depend on: the processor and torch."""
    import torch

    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    machine = f"{platform.machine()} {flags[1] if flags else ''} torch {torch.__version__}"
    return hashlib.sha256(machine.encode()).hexdigest()[:12]


def _history(protocol: str, run: Path) -> pd.DataFrame:
    table = pq.read_table(run / "history.parquet").to_pandas()
    known = [name for name in NUMBERS if name in table]
    history = table[["epoch", *known]]
    return history.assign(protocol=protocol, configuration=run.parent.name)


def _weights(protocol: str, run: Path) -> dict[str, Any]:
    """The SHA-256 over all tensors, by name."""
    import torch

    digest = hashlib.sha256()
    weights = torch.load(run / "weights.pt", map_location="cpu", weights_only=True)
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].contiguous().numpy().tobytes())
    return {
        "protocol": protocol,
        "configuration": run.parent.name,
        "tensors": len(weights),
        "sha256": digest.hexdigest(),
        "machine": machine(),
    }
