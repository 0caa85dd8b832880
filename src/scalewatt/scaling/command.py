"""`scalewatt calibrate`: from results to the scaling model's file and what its validation says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scalewatt.errors import InputError
from scalewatt.scaling.calibrate import KindModel, calibrate
from scalewatt.scaling.kind import Kind
from scalewatt.scaling.model_file import ScalingModel, write_model
from scalewatt.scaling.points import by_kind, points_of
from scalewatt.scaling.validate import Score, scores, validate


def calibrate_sources(sources: Sequence[Path], out: Path) -> str:
    """Calibrate on results, validate, write the model to `out`; return what to print."""
    points = [point for source in sources for point in points_of(source)]
    seen: dict[tuple[Kind, str], str] = {}
    for point in points:
        first = seen.setdefault((point.kind, point.configuration), point.source)
        if first != point.source:
            raise InputError(
                f"{point.source}: {point.configuration} is in {first} as well; expected each "
                "configuration once"
            )
    models = calibrate(points)
    found = {kind: scores(validate(own)) for kind, own in by_kind(points).items()}
    write_model(out, ScalingModel(tuple(models), tuple(map(str, sources))), found)
    blocks = [_text(model, found[model.kind]) for model in models]
    return "\n\n".join([*blocks, f"{out}: written"])


def _text(model: KindModel, found: Sequence[Score]) -> str:
    counts = sorted({point.load.gpus for point in model.points})
    title = (
        f"{model.kind.name}: {len(model.points)} configurations, n = {counts[0]} to {counts[-1]}"
    )
    head = f"{'left out':<16}{'quantity':<24}{'points':>6}{'mean':>8}{'largest':>9}{'in 90 %':>9}"
    rows = [
        f"{one.scheme:<16}{one.quantity:<24}{one.points:>6}{one.mean_error:>8.1%}"
        f"{one.largest_error:>9.1%}{one.covered:>9.0%}"
        + "".join(f"   {name} {error:.1%}" for name, error in one.baseline_errors.items())
        for one in found
    ]
    return "\n".join([title, head, *rows] if rows else [title, "too few points to leave any out"])
