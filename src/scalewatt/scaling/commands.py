"""`scalewatt calibrate` and `scalewatt plan`: from results to the scaling model, from it to a plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.cluster import load_cluster, parse_cluster
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.results.tables.frames import write_frame
from scalewatt.scaling.model.calibrate import calibratable, calibrate_kind
from scalewatt.scaling.model.calibration_points import points_of
from scalewatt.scaling.model.cross_validate import Score, scores, validate
from scalewatt.scaling.model.kind_model import KindModel, Point
from scalewatt.scaling.model.model_file import ScalingModel, write_model
from scalewatt.scaling.model.model_provenance import provenance_of
from scalewatt.scaling.model.training_kind import Kind
from scalewatt.scaling.planning.finished_runs import used_by
from scalewatt.scaling.planning.forecast import Forecaster, forecaster_of, no_model
from scalewatt.scaling.planning.plan_table import PLAN, Plan, make_plan
from scalewatt.scaling.planning.plan_text import plan_markdown
from scalewatt.scaling.planning.prediction_table import PREDICTION, prediction_table


def calibrate_sources(sources: Sequence[Path], out: Path) -> str:
    """Calibrate on results, validate, write the model to `out`; return what to print."""
    points = [point for source in sources for point in points_of(source)]
    _check_once(points)
    kinds, left_out = calibratable(points)
    models = [calibrate_kind(kind, own) for kind, own in kinds.items()]
    found = {kind: scores(validate(own)) for kind, own in kinds.items()}
    model = ScalingModel(tuple(models), tuple(map(str, sources)), left_out=left_out)
    write_model(out, model, found, provenance_of(sources, points))
    blocks = [_text(one, found[one.kind]) for one in models]
    return "\n\n".join([*blocks, *(f"left out: {one}" for one in left_out), f"{out}: written"])


def _check_once(points: Iterable[Point]) -> None:
    """InputError where a configuration is there twice: it would count twice."""
    seen: dict[tuple[Kind, str], str] = {}
    for point in points:
        if (point.kind, point.configuration) in seen:
            first = seen[point.kind, point.configuration]
            raise InputError(
                f"{point.source}: {point.configuration} is in {first} as well; expected each "
                "configuration once"
            )
        seen[point.kind, point.configuration] = point.source


def plan_campaign(
    given: str,
    campaign: Path | None = None,
    model: Path | None = None,
    results: Path | None = None,
    deadline_h: float | None = None,
    energy_kwh: float | None = None,
    step: tuple[int | None, int | None] = (None, None),
) -> Plan:
    """The plan of a campaign on a cluster; by default the campaign and model that the cluster names.

    `given`: the cluster file, or its content as JSON. `results`: the campaign's folder, in which
    finished runs are looked for; None: all is predicted. `step`: two n to set beside each other.
    InputError where the files or n are wrong, there is no scaling model, or nothing can be predicted.
    """
    smaller, larger = step
    if (smaller is None) != (larger is None):
        raise InputError("--from, --to: expected both, or none")
    cluster, where = _cluster(given)
    found = load_campaign(campaign or Path(cluster.campaign), cluster)
    check_devices(found, cluster)
    forecaster = forecaster_for(found, cluster, model, where)
    used = None if results is None else used_by(found, results)
    both = None if smaller is None or larger is None else (smaller, larger)
    return make_plan(found, cluster, forecaster, used, deadline_h, energy_kwh, both)


def forecaster_for(
    campaign: Campaign, cluster: Cluster, model: Path | None, where: str
) -> Forecaster:
    """The forecaster by a model's file, or by what the cluster file names; InputError without both."""
    forecaster = forecaster_of(model or cluster.scaling_model)
    if forecaster is None:
        raise no_model(where, campaign)
    return forecaster


def write_prediction(results: Path, campaign: Path, given: str, out: Path) -> None:
    """Write the table of what a campaign's results took beside what was predicted, with its CSV.

    `results`: the campaign's folder; `given`: the cluster file, or its content as JSON. InputError
    where the cluster simulates.
    """
    cluster, where = _cluster(given)
    if cluster.simulates:
        raise InputError(
            f"{where}: mode simulate: its runs are made by the scaling model, so they are no test of it;"
            " allowed: a cluster that trains"
        )
    found = load_campaign(campaign, cluster)
    forecaster = forecaster_for(found, cluster, None, where)
    write_frame(prediction_table(results, found, forecaster), out, PREDICTION)


def _cluster(given: str) -> tuple[Cluster, str]:
    """The cluster from its file, or its content as JSON, and what messages call it."""
    if given.lstrip().startswith("{"):
        return parse_cluster(json.loads(given), "cluster file"), "cluster file"
    return load_cluster(given), given


def write_plan(plan: Plan, stem: Path) -> None:
    """Write `stem`.parquet, .csv and .md."""
    write_frame(plan.table, stem.with_name(f"{stem.name}.parquet"), PLAN)
    write_text(stem.with_name(f"{stem.name}.md"), plan_markdown(plan))


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
    table = [head, *rows] if rows else ["too few points to leave any out"]
    said = [f"note: {one}" for one in (model.assumed, model.no_energy, _one_size(model)) if one]
    return "\n".join([title, *table, *said])


def _one_size(model: KindModel) -> str | None:
    sizes = model.local_batch_sizes
    if len(sizes) > 1:
        return None
    return f"all points have local batch size {sizes[0]}: no other one can be predicted"
