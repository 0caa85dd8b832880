"""Total, coverage, flags, samples and intervals of sensors that are written to a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import scalewatt
from scalewatt.energies.read import Account
from scalewatt.recordings.block import Block

SPANS = ("startup", "train", "evaluate_train", "validate", "checkpoint", "shutdown")
"""Names that spans of a recording are asked for by; six at most."""
OF_SAMPLES = {"clock", "missing_samples", "over_limit", "counter", "constant", "gap"}
"""The flags of samples (docs/tables/flags.md)."""
Span = tuple[float, float]


@dataclass(frozen=True)
class Judged:
    """What is said of a recording of one or several sensors."""

    account: Account
    """As `scalewatt.energy` gives it."""
    samples: pd.DataFrame
    """As `scalewatt.read_recording` gives them."""

    @property
    def total_j(self) -> float:
        """Energy in J that was recorded, whether or not that is enough to be stated."""
        return float(self.account.devices["recorded_j"].sum())

    @property
    def covered_s(self) -> float:
        return float(self.account.devices["covered_s"].sum())

    @property
    def codes(self) -> set[str]:
        """The flags of samples."""
        return set(self.account.flags["code"]) & OF_SAMPLES

    def span_j(self, place: int) -> float:
        """Energy in J that was recorded in one of the spans that were asked for."""
        return float(self._of_span(place)["recorded_j"].sum())

    def span_covered_s(self, place: int) -> float:
        return float(self._of_span(place)["covered_s"].sum())

    def _of_span(self, place: int) -> pd.DataFrame:
        rows = self.account.devices
        return rows[rows["stage"] == SPANS[place]]

    @property
    def power_w(self) -> np.ndarray:
        """The power of each sample, NaN where it is not known."""
        return self.samples["power_w"].astype(float).fillna(np.nan).to_numpy()

    @property
    def flagged(self) -> np.ndarray:
        """The flag of each sample, or an empty text."""
        return self.samples["flag"].astype(str).to_numpy()


def judged(*blocks: Block, spans: Sequence[Span] = ()) -> Judged:
    """Write blocks of one sensor with a sample each second or so to a table, and read it as any user does."""
    assert len(spans) <= len(SPANS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "columns.yaml").write_text(json.dumps(_columns(blocks)))
        _samples(blocks).to_csv(folder / "samples.csv", index=False)
        stages = folder / "stages.csv" if spans else None
        if stages:
            rows = [
                {"stage": stage, "start_s": start, "end_s": end}
                for stage, (start, end) in zip(SPANS, sorted(spans), strict=False)
            ]
            pd.DataFrame(rows).to_csv(stages, index=False)
        given = {"stages": stages, "columns": folder / "columns.yaml"}
        path = folder / "samples.csv"
        return Judged(scalewatt.energy(path, **given), scalewatt.read_recording(path, **given))


def _samples(blocks: Sequence[Block]) -> pd.DataFrame:
    """A row for each sample; floats are written with all of their digits."""
    parts = [
        pd.DataFrame({"t": b.time_s, "w": b.values[:, 0]}).assign(sensor=f"s{i}", node=b.node)
        for i, b in enumerate(blocks)
    ]
    found = pd.concat(parts)
    return found.assign(t=[repr(float(t)) for t in found["t"]])


def _columns(blocks: Sequence[Block]) -> dict[str, object]:
    rows = [b.sensors.iloc[0] for b in blocks]
    return {
        "time": {"column": "t", "unit": "s"},
        "sensors": [
            {
                **{"column": "w", "kind": s["kind"], "index": int(s["index"])},
                **{"unit": "J" if s["quantity"] == "counter" else "W", "quantity": s["quantity"]},
                **{"where": {"sensor": f"s{i}"}, "name": s["name"], "node_column": "node"},
                **({"valid_max": s["range_j"]} if s["range_j"] > 0 else {}),
                **({"limit_w": s["limit_w"]} if s["limit_w"] > 0 else {}),
            }
            for i, s in enumerate(rows)
        ],
    }
