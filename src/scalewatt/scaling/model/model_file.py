"""The scaling model as a file: points, terms, scores, and last the draws, so that reading needs no SciPy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_text
from scalewatt.common.project_files import project_path
from scalewatt.scaling.model.fit import (
    KindModel,
    Point,
    Score,
    assumed_finetuning,
    pretraining_of,
)
from scalewatt.scaling.model.posterior import DRAWS, Draws
from scalewatt.scaling.model.predict import predict
from scalewatt.scaling.model.terms import Kind, Load

VERSION = 4


@dataclass(frozen=True)
class ScalingModel:
    """All kinds of training that were calibrated together."""

    kinds: tuple[KindModel, ...]
    sources: tuple[str, ...]
    path: str | None = None
    """Where it was read from."""

    @property
    def name(self) -> str:
        """What results and messages call it: its path, of a shipped one within the project."""
        return "scaling model" if self.path is None else str(project_path(Path(self.path)))

    def of(self, kind: Kind) -> KindModel:
        """Model of a kind; InputError, with what would make it possible, where it has none.

        A fine-tuning that was not calibrated is assumed to be like its pre-training.
        """
        calibrated = {model.kind: model for model in self.kinds}
        if kind in calibrated:
            return calibrated[kind]
        before = pretraining_of(kind)
        if before in calibrated:
            return assumed_finetuning(kind, calibrated[before])
        has = "; ".join(model.kind.name for model in self.kinds)
        raise InputError(
            f"{self.name}: is not calibrated for {kind.name} (it has: {has}); to make it possible "
            "run what `scalewatt pilot CAMPAIGN` writes, then `scalewatt calibrate` on the results"
        )


def write_model(path: Path, model: ScalingModel, provenance: Mapping[str, Any]) -> None:
    """Write a model and its provenance."""
    content = {
        "version": VERSION,
        "what": "scalewatt's scaling model of time and energy; docs/scaling.md explains it",
        "scalewatt": __version__,
        "sources": list(model.sources),
        "provenance": dict(provenance),
        "kinds": [_as_json(kind_model) for kind_model in model.kinds],
    }
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _as_json(model: KindModel) -> dict[str, Any]:
    points = [asdict(point) for point in model.points]
    return {
        "name": model.kind.name,
        "kind": {**asdict(model.kind), "settings": json.loads(model.kind.settings)},
        "time_terms": list(model.time_terms),
        "scores": [asdict(score) for score in model.scores],
        "points": [{k: v for k, v in point.items() if k != "kind"} for point in points],
        "time": _rows(model.time),
        "energy": model.energy and _rows(model.energy),
    }


def _rows(draws: Draws) -> list[str]:
    """A line for each draw: its costs, then its spread. To five digits: processors round otherwise."""
    table = np.column_stack([draws.terms, draws.spread])
    return [" ".join(f"{value:.5g}" for value in row) for row in table]


def read_model(path: Path) -> ScalingModel:
    """Read a model; InputError if the file is not one."""
    content = read_json(path)
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise InputError(
            f"{path}: version is {version!r}; this scalewatt reads {VERSION}; run scalewatt calibrate again"
        )
    try:
        kinds = tuple(_kind_model(model) for model in content["kinds"])
        for model in kinds:  # terms, draws and points fit together
            predict(model, [point.load for point in model.points])
        return ScalingModel(kinds, tuple(map(str, content["sources"])), str(path))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{path}: is no scaling model ({type(error).__name__}: {error}); expected what "
            "scalewatt calibrate writes"
        ) from error


def _kind_model(content: Mapping[str, Any]) -> KindModel:
    settings = json.dumps(content["kind"]["settings"], sort_keys=True)
    kind = Kind(**{**content["kind"], "settings": settings})
    return KindModel(
        kind,
        tuple(Point(**{**p, "kind": kind, "load": Load(**p["load"])}) for p in content["points"]),
        tuple(content["time_terms"]),
        _draws(content["time"]),
        content["energy"] and _draws(content["energy"]),
        tuple(Score(**score) for score in content["scores"]),
    )


def _draws(rows: Sequence[str]) -> Draws:
    table = np.array([row.split() for row in rows], dtype=float)
    if len(table) != DRAWS or not np.isfinite(table).all():
        raise ValueError(f"expected {DRAWS} draws of numbers")
    return Draws(table[:, :-1], table[:, -1])
