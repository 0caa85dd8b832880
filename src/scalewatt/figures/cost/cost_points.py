"""What figure `cost_per_sample` shows: points by setting, and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from scalewatt.campaign.operating_points import LEVERS, label_of
from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose
from scalewatt.results.figures.figure_schema import COST_PHASES

ENERGY, RATE, POWER = "energy_per_sample_j", "throughput_samples_per_s", "power_w"
PRECISIONS = {"tf32": "TF32", "tf32_convolutions": "TF32 conv."}
LOADERS = {"pil": "Pillow"}
NO_LOADER = "synthetic"
_BATCH = re.compile(r"-lbs(\d+)")
_OF_POINT = re.compile(r"-(lbs\d+|full|s\d{7,}|epochs\d+)(?=-|$)")
"""In what the ids of one setting may differ: the batch, and how many samples were trained on."""


def worded(points: pd.DataFrame) -> pd.DataFrame:
    """Add `setting`: what a point is but for its batch.

    Trainings that differ in something else, as device, n or optimiser, have the parts of their ids that not
    all of them share.
    """
    words = [setting_words(row) for row in data.each(points)]
    parts = [_OF_POINT.sub("", id_).split("-") for id_ in points["configuration"]]
    alike = list(zip(points["model"], words, strict=True))
    shared = {
        key: set.intersection(
            *(set(part) for other, part in zip(alike, parts, strict=True) if other == key)
        )
        for key in set(alike)
    }
    settings = [
        ", ".join(filter(None, [word, *(name for name in part if name not in shared[model, word])]))
        for (model, word), part in zip(alike, parts, strict=True)
    ]
    worded = points.assign(setting=pd.Series(settings, points.index, dtype=object))
    worded.attrs = points.attrs
    return worded


def setting_words(row: Any) -> str:
    """Return what a point is but for its batch: phase, precision, layout, compiler, loader."""
    precision = row.precision_used or row.precision
    words = [
        layout.PHASE_WORDS.get(row.phase, "") if row.phase == "finetune" else "",
        PRECISIONS.get(precision, precision) or "",
        "NHWC" if row.channels_last else "",
        "compiled" if row.compile else "",
        "" if row.loader in (None, NO_LOADER) else LOADERS.get(row.loader, row.loader),
        label_of(asked_of(row)),
    ]
    return ", ".join(word for word in words if word)


def asked_of(row: Any) -> dict[str, float]:
    """Return the operating point that a row's training asked for."""
    found = {lever: getattr(row, lever) for lever in LEVERS}
    return {lever: value for lever, value in found.items() if value == value and value is not None}


def lines_of(points: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the points of each setting that has several batch sizes, by batch size."""
    found = points.groupby("setting", sort=False)
    return [
        (str(setting), own.sort_values("local_batch_size", kind="stable"))
        for setting, own in found
        if own["local_batch_size"].nunique() > 1
    ]


def batches_between(line: pd.DataFrame, absent: Iterable[str]) -> list[float]:
    """Return the batch sizes of the configurations in `absent` that differ from the line's in it alone."""
    own = {_BATCH.sub("", one) for one in line["configuration"]}
    found = [(_BATCH.sub("", one), _BATCH.search(one)) for one in absent]
    return [float(batch[1]) for rest, batch in found if batch and rest in own]


def ordered_lines(points: pd.DataFrame) -> list[str]:
    """Return the lines over operating points: devices in their order, n and batch size as numbers."""
    devices = {device: place for place, device in enumerate(points["device"].unique())}
    first = points.drop_duplicates("line").assign(place=points["device"].map(devices))
    ordered = first.sort_values(["place", "gpus", "local_batch_size"], kind="stable")
    return [str(line) for line in ordered["line"]]


def usual_batch(points: pd.DataFrame) -> dict[str, int]:
    """Return the most common local batch size of each phase, of equally common ones the larger."""
    return {
        str(phase): int(own["local_batch_size"].mode().max())
        for phase, own in points.groupby("phase", sort=False)
    }


def of_usual_batch(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points whose phases of an update are known, at the batch that most of them have."""
    usual = points["phase"].map(usual_batch(points))
    shown = points["local_batch_size"] == usual
    return points[shown & points[f"{COST_PHASES[0]}_per_sample_j"].notna()]


# --- notes ----------------------------------------------------------------------------------------


def note_sentences(points: pd.DataFrame, known: pd.DataFrame) -> list[str]:
    """Return the notes below the panels; `known` are the points that are drawn."""
    lacking = points.drop(known.index)
    named = prose.named(list(lacking["configuration"]))
    sentences = [
        prose.opening(points),
        "Training alone: start-up, evaluations and checkpoints are apart. Numbers at points are local"
        " batch sizes.",
        prose.bar_sentence("interval", data.is_single(known)),
        prose.estimate_sentence(known, ENERGY),
        "Phases: the time of each on the device, as if the power were the same in all.",
        f"No throughput, or no energy of training: {named}." if len(lacking) else "",
    ]
    return [*(sentences if len(points) else []), *prose.table_notes(points)]
