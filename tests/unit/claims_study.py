"""Two made-up studies in the paper's series: claims A to F hold in one, claims G to L in the other.

Their numbers are in claims_worlds.csv.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
from claims_made import changed, evidence, line

from scalewatt.claims.evidence import Evidence

SERIES = ["model", "phase", "device", "mode", "constant"]


@cache
def world(name: str) -> Evidence:
    """All series of a study, whose run times are those of its GPU hours."""
    table = pd.read_csv(Path(__file__).with_name("claims_worlds.csv"))
    made = []
    for names, rows in table[table["world"] == name].groupby(SERIES, sort=False):
        values = rows.set_index("n").drop(columns=["world", *SERIES]).astype(object)
        values = values.where(values.notna(), None).assign(
            runtime_h=lambda v: v["gpu_hours"] / v.index
        )
        made.append(line(*names, values.to_dict("index")))  # type: ignore[arg-type]
    return evidence(made)


def study() -> Evidence:
    """All series of the paper's campaign."""
    return world("study")


@cache
def resnet_world() -> Evidence:
    """Evidence that satisfies all claims of sections A to F.

    Power follows the rates of samples and passes by a plane, for claim A03.
    """
    plane = "p_gpuh_kw = 0.1 + 0.14e-6 * samples_per_gpuh + 0.6e-6 * passes_per_gpuh"
    return changed(world("resnet"), "resnet50 & ~sd_lbs", plane)


WORLDS = {"resnet": resnet_world, "study": study}
