"""The energies of a small training, by this project's own accounting."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.files import read_json, write_json
from scalewatt.energies.accounting.account import write_energy
from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.gpu_checks.check_types import CheckFailed
from scalewatt.gpu_checks.small_trainings import POWERS, SmallTraining


@dataclass(frozen=True)
class RunEnergies:
    """The accounts of one run."""

    totals: EnergyTotals
    devices: pa.Table
    flags: pa.Table

    def codes(self) -> set[str]:
        """Return the codes of its quality flags."""
        return set(self.flags["code"].to_pylist())

    def recorded_j(self, kind: str, index: int) -> float:
        """Return what was recorded of one device in J, also where its energy is not stated."""
        return float(sum(row["recorded_j"] or 0.0 for row in self._of_device(kind, index)))

    def indices(self, kind: str) -> set[int]:
        """Return the indices of the devices of a kind that were recorded."""
        rows = self.devices.to_pylist()
        return {row["device_index"] for row in rows if row["device_kind"] == kind}

    def _of_device(self, kind: str, index: int) -> list[dict[str, Any]]:
        rows = self.devices.to_pylist()
        return [r for r in rows if (r["device_kind"], r["device_index"]) == (kind, index)]


def energies_of(training: SmallTraining, run_folder: Path | None = None) -> RunEnergies:
    """Account for a finished training; CheckFailed if it has published nothing."""
    out = run_folder or training.out
    if not (out / "provenance.json").exists():
        raise CheckFailed(f"{training.spec.configuration}: published nothing")
    energy = out.parent / f"{out.name}-energy" / "1.parquet"
    spec = training.folder / "spec.json"
    write_energy(out, spec, POWERS, energy.with_name("traces.parquet"), energy)
    tables = (
        pq.read_table(energy.with_suffix(f".{name}.parquet")) for name in ("devices", "flags")
    )
    return RunEnergies(EnergyTotals(pq.read_table(energy), True), *tables)


def as_if_on_gpu(training: SmallTraining) -> Path:
    """Return a copy of a run on the CPU as it were had all its ranks held GPU 0: for rehearsals only."""
    copy = training.folder / "as-if-on-gpu"
    shutil.copytree(training.out, copy, copy_function=os.link)
    provenance = read_json(copy / "provenance.json")
    (host,) = provenance["hostnames"]
    for segment in provenance["segments"]:
        for rank in segment["ranks"] or []:
            rank["gpu"] = 0
    changed = {"torch_device": "cuda", "gpus": {host: [0]}, "gpu_uuids": {host: None}}
    (copy / "provenance.json").unlink()  # a link to the run's own
    write_json(copy / "provenance.json", provenance | changed)
    return copy
