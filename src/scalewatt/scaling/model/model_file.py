"""Read and write the scaling model as one file: first what people read, last the draws."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_text
from scalewatt.common.project_files import project_path
from scalewatt.scaling.model.cost_terms import (
    ENERGY_UNITS,
    TIME_UNITS,
    EnergyTerms,
    Load,
    TimeTerms,
)
from scalewatt.scaling.model.kind_model import (
    KindModel,
    Point,
    assumed_finetuning,
    assumed_of,
    pretraining_of,
)
from scalewatt.scaling.model.posterior import Draws
from scalewatt.scaling.model.predict import INTERVAL, estimate
from scalewatt.scaling.model.scores import Score
from scalewatt.scaling.model.training_kind import Kind, kind_from_json

VERSION = 2
_DIGITS = 5


@dataclass(frozen=True)
class ScalingModel:
    """All kinds of training that were calibrated together."""

    kinds: tuple[KindModel, ...]
    sources: tuple[str, ...]
    path: str | None = None
    """Where it was read from."""
    left_out: tuple[str, ...] = ()
    """Kinds of which the sources had too few points, each with what is missing."""
    scores: Mapping[Kind, tuple[Score, ...]] = field(default_factory=dict)
    """Of its cross-validation, where it had enough points."""

    @property
    def name(self) -> str:
        """Return what results and messages call it: its path, of a shipped one within the project."""
        return "scaling model" if self.path is None else str(project_path(Path(self.path)))

    def scores_of(self, kind: Kind) -> tuple[Kind | None, tuple[Score, ...]]:
        """Return the calibrated kind that a kind is predicted by, and its scores; None, of none."""
        for one in (kind, pretraining_of(kind)):
            if one is not None and one in self.scores:
                return one, self.scores[one]
        return None, ()

    def of(self, kind: Kind) -> KindModel:
        """Return the model of a kind; InputError, with what would make it possible, where it has none.

        A fine-tuning that was not calibrated is assumed to be like its pre-training.
        """
        calibrated = {one.kind: one for one in self.kinds}
        if kind in calibrated:
            return calibrated[kind]
        before = pretraining_of(kind)
        if before in calibrated:
            return assumed_finetuning(kind, calibrated[before])
        has = "; ".join(one.kind.name for one in self.kinds)
        lacks = "".join(f"; {one}" for one in self.left_out if one.startswith(f"{kind.name}: "))
        raise InputError(
            f"{self.name}: is not calibrated for {kind.name}{lacks} (it has: {has}); to make it possible "
            "run what `scalewatt pilot CAMPAIGN` writes, then `scalewatt calibrate` on the results"
        )


def write_model(
    path: Path, model: ScalingModel, provenance: Mapping[str, Any] | None = None
) -> None:
    """Write a model, with the scores of its validation, and its provenance."""
    content = {
        "version": VERSION,
        "what": "scalewatt's scaling model of time and energy; docs/scaling.md explains it",
        "scalewatt": __version__,
        "sources": list(model.sources),
        "provenance": dict(provenance or {}),
        "left_out": list(model.left_out),
        "interval": list(INTERVAL),
        "kinds": [_described(one, model.scores.get(one.kind, ())) for one in model.kinds],
    }
    draws = {str(n): _draws(one) for n, one in enumerate(model.kinds)}
    text = json.dumps(content, indent=1, allow_nan=False)
    lines = ",\n".join(f'  "{n}": {json.dumps(own, allow_nan=False)}' for n, own in draws.items())
    write_text(path, f'{text[:-2]},\n "draws": {{\n{lines}\n }}\n}}\n')


def read_model(path: Path) -> ScalingModel:
    """Read a model; InputError if the file is not one."""
    content = read_json(path)
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise InputError(f"{path}: version is {version!r}; this scalewatt reads {VERSION}")
    try:
        kinds = [
            _kind_model(one, content["draws"][str(n)]) for n, one in enumerate(content["kinds"])
        ]
        sources, left_out = (tuple(map(str, content[name])) for name in ("sources", "left_out"))
        scores = {
            model.kind: tuple(map(_read_score, one.get("validation", ())))
            for model, one in zip(kinds, content["kinds"], strict=True)
        }
        return ScalingModel(tuple(kinds), sources, str(path), left_out, scores)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: is no scaling model ({type(error).__name__}: {error}); expected what "
            "scalewatt calibrate writes"
        ) from error


# --- writing --------------------------------------------------------------------------------------


def _described(model: KindModel, scores: Iterable[Score]) -> dict[str, Any]:
    return {
        "name": model.kind.name,
        **model.kind.as_json(),
        "energy_origin": model.origin,
        "energy_scope": model.scope,
        "no_energy": model.no_energy,
        "assumed": model.assumed,
        "largest_gpus": model.largest_gpus,
        "time": {
            "spread": _numbers(model.time.spread),
            "knee_local_batch_size": model.time_terms.knee,
            "terms": _terms(model.time_terms.names, model.time, TIME_UNITS),
        },
        "energy": {
            name: {
                "spread": _numbers(draws.spread),
                "terms": _terms(model.energy_terms.names, draws, ENERGY_UNITS),
            }
            for name, draws in model.energy.items()
        },
        "validation": [_score(score) for score in scores],
        "points": [_point(point) for point in model.points],
    }


def _terms(names: Sequence[str], draws: Draws, units: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {**_numbers(draws.terms[:, number]), "unit": units[name]}
        for number, name in enumerate(names)
    }


def _numbers(values: np.ndarray[Any, Any]) -> dict[str, float]:
    found = estimate(values)
    return {name: _short(getattr(found, name)) for name in ("median", "low", "high")}


def _score(score: Score) -> dict[str, Any]:
    numbers = {n: _short(v) if isinstance(v, float) else v for n, v in asdict(score).items()}
    return {"left_out": numbers.pop("scheme"), **numbers}


def _point(point: Point) -> dict[str, Any]:
    own = {name: value for name, value in vars(point).items() if name not in ("kind", "load")}
    return {**own, "joules": dict(point.joules), **asdict(point.load)}


def _draws(model: KindModel) -> dict[str, Any]:
    return {
        "time": _matrix(model.time),
        "energy": {name: _matrix(draws) for name, draws in model.energy.items()},
    }


def _matrix(draws: Draws) -> list[list[float]]:
    """Return one row per draw: its costs, then its spread."""
    table = np.column_stack([draws.terms, draws.spread])
    return [[_short(value) for value in row] for row in table]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


# --- reading --------------------------------------------------------------------------------------


def _kind_model(content: Mapping[str, Any], draws: Mapping[str, Any]) -> KindModel:
    kind = kind_from_json(content)
    points = tuple(_read_point(kind, one) for one in content["points"])
    time, energy = content["time"], content["energy"]
    terms = next((tuple(one["terms"]) for one in energy.values()), EnergyTerms().names)
    return KindModel(
        kind=kind,
        points=points,
        time_terms=TimeTerms(tuple(time["terms"]), time["knee_local_batch_size"]),
        time=_read_draws(draws["time"]),
        energy_terms=EnergyTerms(terms),
        energy={name: _read_draws(draws["energy"][name]) for name in energy},
        origin=content["energy_origin"],
        scope=content["energy_scope"],
        assumed=assumed_of(points),
        no_energy=content["no_energy"],
    )


def _read_draws(rows: Sequence[Sequence[float]]) -> Draws:
    table = np.array(rows, dtype=float)
    return Draws(table[:, :-1], table[:, -1])


def _read_score(content: Mapping[str, Any]) -> Score:
    return Score(
        scheme=content["left_out"], **{n: v for n, v in content.items() if n != "left_out"}
    )


def _read_point(kind: Kind, content: Mapping[str, Any]) -> Point:
    of_load = {field.name for field in fields(Load)}
    load = Load(**{name: value for name, value in content.items() if name in of_load})
    own = {name: value for name, value in content.items() if name not in of_load}
    return Point(kind=kind, load=load, **own)
