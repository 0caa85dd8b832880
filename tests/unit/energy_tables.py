"""A run's energy tables, as the workflow's step `energy` writes them, and what they say of the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow.parquet as pq

from scalewatt.energies.account import write_energy
from scalewatt.energies.tables import EnergyTotals


class EnergyTables(EnergyTotals):
    """Totals of one run; nothing of what an unknown part belongs to is known."""

    flags: list[dict[str, Any]]
    """Code, sensor and detail of each flag of the run, but for those of stages."""

    @classmethod
    def of(cls, folder: Path, powers: dict[str, Any]) -> Self:
        """Account for a run folder."""
        out = folder / "accounted" / "energy.parquet"
        write_energy(folder, folder / "spec.json", powers, out.with_name("traces.parquet"), out)
        made = cls(pq.read_table(out).to_pandas(), with_staging=False)
        flags = pq.read_table(out.with_suffix(".flags.parquet")).to_pandas()
        rows = flags[flags["stage"].isna()][["code", "sensor", "detail"]].drop_duplicates()
        made.flags = rows.to_dict("records")
        return made

    @property
    def total_j(self) -> float | None:
        return self.joules()

    def bounds_j(self, kind: str) -> tuple[float | None, float | None]:
        """The interval of the energy of a device kind."""
        return self.joules(kind, "energy_low_j"), self.joules(kind, "energy_high_j")

    def discarded_j(self, kind: str) -> float | None:
        return self.joules(kind, "discarded_j")

    def recorded_j(self, kind: str) -> float:
        return self.joules(kind, "recorded_j") or 0.0

    def coverage_of(self, kind: str) -> float:
        return float(self.kinds["coverage"][kind])

    def devices(self, kind: str) -> int:
        """The most devices that a segment had."""
        return int(self.kinds["devices"][kind])

    def device_seconds(self, kind: str) -> float:
        return float(self.kinds["device_s"][kind])

    @property
    def codes(self) -> set[str]:
        return {each["code"] for each in self.flags}

    def of_kind(self, kind: str) -> pd.DataFrame:
        return self.rows[self.rows["device_kind"] == kind]

    def stages_j(self, kind: str) -> dict[str, float]:
        """Energies by stage, also of those that are too short."""
        return dict(self.of_kind(kind).groupby("stage")["energy_j"].sum())

    def short(self, kind: str) -> set[str]:
        """The stages whose energies are not stated."""
        rows = self.of_kind(kind)
        return set(rows[rows["short"]]["stage"])
