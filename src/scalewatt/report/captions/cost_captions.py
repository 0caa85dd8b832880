"""Captions of the figures of what a sample, a clock, a power limit and a variant cost."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalewatt.campaign.operating_points import label_of
from scalewatt.figures import figure_data as data
from scalewatt.figures.cost.cost_points import asked_of, whole_sentence
from scalewatt.report.summary_section import model_words
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.number_format import count, with_unit

_MOST_LINES = 8
"""Told in a caption; the table has all of them."""


def cost(rows: pd.DataFrame, _word: str) -> list[str]:
    """Return the least and the most that a sample of each model costs, as far as estimates tell."""
    parts = ["Training alone: start-up, evaluations and checkpoints are apart."]
    for (model, phase, origin), own in rows.groupby(
        ["model", "phase", "energy_origin"], sort=False
    ):
        known = own[own["energy_per_sample_j_mean"].notna()]
        ordered = known.sort_values("energy_per_sample_j_mean", kind="stable")
        if len(ordered) < 2 or origin in ORIGINS:
            continue
        ends = "; ".join(
            f"{with_unit(row.energy_per_sample_j_mean, 'J')} a sample"
            f" ({row.label}, LBS {row.local_batch_size})"
            for row in data.each(ordered.iloc[[0, -1]])
        )
        parts.append(f"{model_words({'model': model, 'phase': phase})}, least and most: {ends}.")
    if rows["energy_origin"].isin(ORIGINS).any():
        parts.append("How estimated energies compare, the estimates do not tell.")
    return parts


def operating_points(rows: pd.DataFrame, _word: str) -> list[str]:
    """Return where each line has its least energy, and what that saves and costs beside its fastest point."""
    parts = [whole_sentence(rows)]
    known = rows[rows["energy_j_mean"].notna()].sort_values("energy_j_mean", kind="stable")
    best = known.drop_duplicates("line").sort_index()
    parts += [_least(row) for row in data.each(best.head(_MOST_LINES))]
    if len(best) > _MOST_LINES:
        parts.append(f"{count(len(best) - _MOST_LINES, 'further line')}: in the table.")
    return parts


def _least(row: Any) -> str:
    words = [model_words({"model": row.model, "phase": row.phase}), row.device]
    words += [f"n = {row.gpus}", f"LBS {row.local_batch_size}"]
    at = label_of(asked_of(row)) or "the node's default"
    if not row.time_ratio > 1:
        return f"{', '.join(words)}: least energy at {at}, its fastest point."
    saved, slower = (
        _percent(row, name, sign) for name, sign in (("energy_ratio", -1), ("time_ratio", 1))
    )
    return f"{', '.join(words)}: least energy at {at}, {saved} less for {slower} more time."


def _percent(row: Any, name: str, sign: int) -> str:
    """Return how far a ratio is from 1, in per cent, with its interval where it is known."""
    ends = [100 * sign * (getattr(row, f"{name}{end}") - 1) for end in ("", "_low", "_high")]
    if ends[1] != ends[1]:
        return f"{ends[0]:.1f} %"
    low, high = sorted(ends[1:])
    return f"{ends[0]:.1f} % ({low:.1f} to {high:.1f})"
