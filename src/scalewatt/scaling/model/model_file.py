"""Read and write the scaling model as one file: first what people read, last the draws."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.common.schema_validation import project_path
from scalewatt.common.untrusted_text import parse_json, plain_text
from scalewatt.recordings.series import DEVICE_KINDS
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
from scalewatt.scaling.model.predict import INTERVAL, TOTAL, estimate
from scalewatt.scaling.model.scores import Score
from scalewatt.scaling.model.training_kind import Kind, kind_from_json

VERSION = 2
_DIGITS = 5
_LARGEST = 1e18
"""Of a time in s, an energy in J, or a count: beyond anything that was ever calibrated."""


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
    try:
        content = parse_json(plain_text(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no scaling model ({error})") from error
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
    return {
        "left_out": score.scheme,
        "quantity": score.quantity,
        "points": score.points,
        "mean_error": _short(score.mean_error),
        "largest_error": _short(score.largest_error),
        "covered": _short(score.covered),
        "half_width": _short(score.half_width),
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "source": point.source,
        "campaign": point.campaign,
        "configuration": point.configuration,
        **asdict(point.load),
        "runtime_s": point.runtime_s,
        "energy_j": point.energy_j,
        "joules": dict(point.joules),
        "origin": point.origin,
        "scope": point.scope,
        "n_repeats": point.n_repeats,
        "spec_sha256": point.spec_sha256,
        "assumed_settings": point.assumed_settings,
    }


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
    for name in ("model", "device", "protocol"):
        _expect(_is_text(content[name]), f"{name}: expected a text")
    kind = kind_from_json(content)
    points = tuple(_read_point(kind, one) for one in content["points"])
    time, energy = content["time"], content["energy"]
    time_names = _read_names(time["terms"], TIME_UNITS)
    energy_names = {_read_names(one["terms"], ENERGY_UNITS) for one in energy.values()}
    _expect(points != (), "points: expected some")
    _expect(len(energy_names) <= 1, "energy: expected the same terms of each device kind")
    _expect(
        set(energy) <= set(DEVICE_KINDS) or set(energy) == {TOTAL}, "energy: of unknown devices"
    )
    _expect(
        not energy or _is_text(content["energy_scope"]), "energy_scope: expected what was measured"
    )
    (terms,) = energy_names or {EnergyTerms().names}
    found = KindModel(
        kind=kind,
        points=points,
        time_terms=TimeTerms(time_names, _read_knee(time["knee_local_batch_size"], time_names)),
        time=_read_draws(draws["time"], len(time_names)),
        energy_terms=EnergyTerms(terms),
        energy={name: _read_draws(draws["energy"][name], len(terms)) for name in energy},
        origin=content["energy_origin"],
        scope=content["energy_scope"],
        assumed=assumed_of(points),
        no_energy=content["no_energy"],
    )
    counts = {len(one.spread) for one in (found.time, *found.energy.values())}
    _expect(len(counts) == 1, "draws: expected as many of each energy as of the time")
    return found


def _expect(right: bool, message: str) -> None:
    """Raise ValueError with what was expected, unless `right`."""
    if not right:
        raise ValueError(message)


def _read_names(terms: Mapping[str, Any], units: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(terms)
    _expect(len(names) > 0 and set(names) <= set(units), f"terms: expected some of {list(units)}")
    return names


def _read_knee(knee: Any, names: Sequence[str]) -> float | None:
    needed = "input_excess" in names
    _expect(_is_number(knee) if needed else knee is None, "knee_local_batch_size: unlike the terms")
    return float(knee) if needed else None


def _read_draws(rows: Sequence[Sequence[float]], terms: int) -> Draws:
    table = np.array(rows, dtype=float)
    if table.ndim != 2 or table.shape[1] != terms + 1 or not np.isfinite(table).all():
        raise ValueError(f"draws: expected rows of {terms + 1} numbers")
    if table.size == 0 or (table < 0).any() or (table > _LARGEST).any():
        raise ValueError(f"draws: expected numbers of 0 to {_LARGEST:g}")
    return Draws(table[:, :-1], table[:, -1])


def _read_score(content: Mapping[str, Any]) -> Score:
    numbers = {
        name: content[name] for name in ("mean_error", "largest_error", "covered", "half_width")
    }
    _expect(
        all(one == 0 or _is_number(one) for one in numbers.values()),
        f"validation: expected errors of 0 to {_LARGEST:g}",
    )
    for name in ("left_out", "quantity"):
        _expect(_is_text(content[name]), f"validation: {name}: expected a text")
    return Score(
        scheme=content["left_out"],
        quantity=content["quantity"],
        points=int(content["points"]),
        **numbers,
    )


def _read_point(kind: Kind, content: Mapping[str, Any]) -> Point:
    # A file from before models were split over GPUs has one GPU a replica.
    names = [one.name for one in fields(Load) if one.default is MISSING or one.name in content]
    for name in (*names, "runtime_s"):
        _expect(
            _is_number(content[name]), f"points: {name}: expected a number above 0, to {_LARGEST:g}"
        )
    energies = [content["energy_j"], *dict(content["joules"]).values()]
    _expect(
        all(one is None or one == 0 or _is_number(one) for one in energies),
        f"points: expected energies of 0 to {_LARGEST:g} J",
    )
    own = (
        *("source", "campaign", "configuration", "runtime_s", "energy_j", "joules", "origin"),
        *("scope", "n_repeats", "spec_sha256", "assumed_settings"),
    )
    return Point(
        kind=kind,
        load=Load(**{name: content[name] for name in names}),
        **{name: content[name] for name in own},
    )


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value <= _LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
