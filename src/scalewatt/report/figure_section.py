"""The figures on the page: titles, captions as the figures' own files have them, and the drawings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from scalewatt.report.html_tables import csv_uri
from scalewatt.report.report_inputs import Results

_TITLES = {
    "figure1": "The campaign's scaling procedures",
    "figure2": "ResNet50, full dataset",
    "figure3": "ResNet50, dataset growing with n",
    "figure4": "FourCastNet",
    "figure5": "Power against time",
    "figure6": "ResNet50: power and throughput",
    "figure7": "FourCastNet: power and throughput",
    "breakdown": "Where the energy went",
    "learning": "Learning against energy and time",
    "pareto": "Quality against energy and run time",
    "cost_per_sample": "What a sample costs",
    "operating_points": "What clocks and power limits cost and save",
    "prediction": "Measured and predicted",
}
ORDER = tuple(_TITLES)
"""In which figures stand on the page."""
_PAPERS_MODEL = {
    "figure2": "resnet50",
    "figure3": "resnet50",
    "figure4": "fourcastnet",
    "figure6": "resnet50",
    "figure7": "fourcastnet",
}
_WITHOUT_MODEL = {
    "figure2": "speed-up, metric and energy",
    "figure3": "dataset growing with n",
    "figure4": "speed-up, metric and energy",
    "figure6": "power and throughput",
    "figure7": "power and throughput",
}
_ESCAPE = re.compile(r"\\([!-/:-@[-`{-~])")
"""Of a sign that Markdown would take for its own."""


@dataclass(frozen=True)
class FigureEntry:
    """One figure on the page."""

    name: str
    label: str
    title: str
    caption: str
    image: str | None
    """A data URI, or None if nothing was drawn."""
    points: str | None
    """Its table as a data URI of CSV, or None if there is none."""


def figure_entry(name: str, results: Results) -> FigureEntry:
    """Return a figure of the campaign with its caption."""
    table = results.tables.get(name)
    return FigureEntry(
        name,
        label(name),
        title(name, table),
        caption(results.folder / "figures" / f"{name}.caption.md"),
        results.image(name),
        None if table is None else csv_uri(table),
    )


def label(name: str) -> str:
    """Return the name of a figure: `Figure 2`, `Breakdown`."""
    number = name.removeprefix("figure")
    return f"Figure {number}" if number != name else name.capitalize().replace("_", " ")


def title(name: str, frame: pd.DataFrame | None) -> str:
    """Return the figure's title; a campaign may show other models than the paper."""
    shows_model = name in _PAPERS_MODEL and frame is not None
    models = list(frame["model"].unique()) if shows_model and frame is not None else []
    if not models or models == [_PAPERS_MODEL[name]]:
        return _TITLES[name]
    return f"{', '.join(models)}: {_WITHOUT_MODEL[name]}"


def caption(path: Path) -> str:
    """Return the sentences of a caption file without Markdown's escapes; empty where it is missing."""
    if not path.is_file():
        return ""
    return _ESCAPE.sub(r"\1", " ".join(path.read_text(encoding="utf-8").splitlines()))
