"""A run's energy tables, as the workflow's step `energy` writes them: added up as docs/tables says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from scalewatt.energies.account import write_energy

KINDS = ("gpu", "cpu", "ram")


def write_tables(folder: Path, powers: dict[str, Any], traces: Path, energy: Path) -> None:
    """Account for a run folder as the workflow's step does."""
    energy.parent.mkdir(parents=True, exist_ok=True)
    write_energy(folder, folder / "spec.json", powers, traces, energy)


@dataclass(frozen=True)
class EnergyTables:
    """The tables of one run; nothing of what an unknown part belongs to is known."""

    rows: pd.DataFrame
    """The energy table: a row for each segment, node, device kind and stage that counts."""
    flags: list[dict[str, Any]]
    """Code, sensor and detail of each flag of the run, but for those of stages."""

    @classmethod
    def of(cls, folder: Path, powers: dict[str, Any], with_staging: bool = False) -> EnergyTables:
        """Account for a run folder."""
        out = folder / "accounted" / "energy.parquet"
        write_tables(folder, powers, out.with_name("traces.parquet"), out)
        rows = _read(out)
        flags = _read(out.with_suffix(".flags.parquet"))
        flags = flags[flags["stage"].isna()][["code", "sensor", "detail"]].drop_duplicates()
        counted = rows if with_staging else rows[rows["stage"] != "stage_data"]
        return cls(counted, flags.to_dict("records"))

    def of_kind(self, kind: str) -> pd.DataFrame:
        return self.rows[self.rows["device_kind"] == kind]

    def _sum(self, kind: str, column: str) -> float | None:
        values = self.of_kind(kind)[column]
        return None if values.empty or values.isna().any() else float(values.sum())

    def joules(self, kind: str) -> float | None:
        """The energy of a device kind; None if a part of it is not known."""
        return self._sum(kind, "energy_j")

    def bounds_j(self, kind: str) -> tuple[float | None, float | None]:
        """The interval of that energy."""
        return self._sum(kind, "energy_low_j"), self._sum(kind, "energy_high_j")

    def discarded_j(self, kind: str) -> float | None:
        return self._sum(kind, "discarded_j")

    def recorded_j(self, kind: str) -> float:
        return float(self.of_kind(kind)["recorded_j"].sum())

    @cached_property
    def scope(self) -> list[str]:
        """The device kinds that count: of those out of scope `coverage` is null."""
        return [kind for kind in KINDS if self.of_kind(kind)["coverage"].notna().any()]

    @property
    def total_j(self) -> float | None:
        parts = [self.joules(kind) for kind in self.scope]
        return None if None in parts or not parts else sum(part for part in parts if part)

    def coverage_of(self, kind: str) -> float:
        return float(self.of_kind(kind)["coverage"].min())

    @property
    def coverage(self) -> float:
        return min(self.coverage_of(kind) for kind in self.scope)

    def devices(self, kind: str) -> int:
        """The most devices that a segment had."""
        each = self.of_kind(kind).groupby(["segment", "node"])["devices"].max()
        return int(each.groupby("segment").sum().max())

    def device_seconds(self, kind: str) -> float:
        rows = self.of_kind(kind)
        return float((rows["duration_s"] * rows["devices"].fillna(0)).sum())

    @property
    def runtime_s(self) -> float:
        """The sum over segments of the longest node's time."""
        keys = ["segment", "node", "device_kind"]
        each = self.rows.groupby(keys).agg({"duration_s": "sum", "unrecorded_s": "max"})
        return float(each.sum(axis=1).groupby("segment").max().sum())

    @property
    def codes(self) -> set[str]:
        return {each["code"] for each in self.flags}

    def stages_j(self, kind: str) -> dict[str, float]:
        """Energies by stage, also of those that are too short."""
        return dict(self.of_kind(kind).groupby("stage")["energy_j"].sum())

    def short(self, kind: str) -> set[str]:
        """The stages whose energies are not stated."""
        rows = self.of_kind(kind)
        return set(rows[rows["short"]]["stage"])


def _read(path: Path) -> pd.DataFrame:
    """Read a table; its columns are Arrow's, so that null is none of the numbers."""
    return pq.read_table(path).to_pandas(types_mapper=pd.ArrowDtype)
