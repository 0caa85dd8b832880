"""What estimates leave open: the intervals of energies, and of what follows from them.

The error of an estimate belongs to the machine: repeats share it, and it averages out over nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from scalewatt.recordings.series import DEVICE_KINDS, J_PER_KWH
from scalewatt.results.tables.derived_quantities import total_in_scope


def estimate_bounds(
    runs: pd.DataFrame, in_scope: Mapping[str, pd.Series], total_j: pd.Series, of_nodes: pd.Series
) -> dict[str, pd.Series]:
    """Return ESTIMATE_BOUNDS of runs, from the columns `<kind>_low_j` and `<kind>_high_j`.

    Of the whole energy as if the errors of all device kinds had the same sign; where it is that of whole
    nodes (`of_nodes`), which is measured, the energy itself.
    """
    found: dict[str, pd.Series] = {}
    for end in ("low", "high"):
        parts = {kind: runs[f"{kind}_{end}_j"] for kind in DEVICE_KINDS}
        total = total_in_scope(parts, in_scope).where(~of_nodes, total_j).where(total_j.notna())
        found |= {f"energy_{end}_kwh": total / J_PER_KWH}
        found |= {f"{kind}_energy_{end}_kwh": parts[kind] / J_PER_KWH for kind in DEVICE_KINDS}
    return found
