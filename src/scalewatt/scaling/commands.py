"""`scalewatt calibrate` and `scalewatt plan`: the scaling model from results, and plans from it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, campaign_path
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_text
from scalewatt.results.figures.figure_schema import PREDICTION
from scalewatt.results.tables.frames import write_frame
from scalewatt.scaling.model.fit import KindModel, by_kind, calibrate, lacking
from scalewatt.scaling.model.model_file import ScalingModel, write_model
from scalewatt.scaling.model.points import points_of, table_of
from scalewatt.scaling.model.posterior import DRAWS, SEED
from scalewatt.scaling.model.validate import scores, validate
from scalewatt.scaling.planning.forecast import Forecaster, forecaster_of, no_model
from scalewatt.scaling.planning.plan import PLAN, make_plan, plan_markdown
from scalewatt.scaling.planning.prediction import prediction_table


def calibrate_sources(sources: Sequence[Path], out: Path) -> str:
    """Calibrate on results, validate, write the model to `out`; the text to print.

    InputError if no kind of training has enough points.
    """
    kinds = by_kind(point for source in sources for point in points_of(source))
    lacks = [f"{kind.name}: {lack}" for kind, points in kinds.items() if (lack := lacking(points))]
    if len(lacks) == len(kinds):
        raise InputError("; ".join(lacks))
    models = tuple(
        replace(calibrate(points), scores=tuple(scores(validate(points))))
        for points in kinds.values()
        if not lacking(points)
    )
    provenance = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy")},
        "seed": SEED,
        "draws": DRAWS,
        "tables_sha256": {str(source): file_sha256(table_of(source)) for source in sources},
    }
    write_model(out, ScalingModel(models, tuple(map(str, sources))), provenance)
    left_out = [f"left out: {lack}" for lack in lacks]
    return "\n\n".join([*map(_text, models), *left_out, f"{out}: written"])


def _text(model: KindModel) -> str:
    counts = [point.load.gpus for point in model.points]
    title = f"{model.kind.name}: {len(counts)} configurations, n = {min(counts)} to {max(counts)}"
    energy = [] if model.energy else ["its energies are too few to predict any"]
    table = pd.DataFrame([asdict(score) for score in model.scores])
    return "\n".join([title, *energy, table.to_string(index=False, float_format="{:.1%}".format)])


def plan_campaign(cluster: Cluster, campaign: Path) -> pd.DataFrame:
    """Plan of a campaign on a cluster by the cluster's scaling model; InputError like `load_plan`."""
    found, forecaster = load_plan(cluster, campaign, None)
    return make_plan(found, cluster, forecaster)


def load_plan(
    cluster: Cluster, campaign: Path | None, model: Path | None
) -> tuple[Campaign, Forecaster]:
    """Campaign and forecaster of a plan; by default those that the cluster names.

    InputError if the files are wrong, or there is no scaling model.
    """
    found = load_campaign(campaign or campaign_path(cluster), cluster)
    check_devices(found, cluster)
    return found, forecaster_for(found, cluster, model)


def forecaster_for(campaign: Campaign, cluster: Cluster, model: Path | None) -> Forecaster:
    """Forecaster of a model's file, or of the cluster file's; InputError without both."""
    forecaster = forecaster_of(model or cluster.scaling_model)
    if forecaster is None:
        raise no_model(f"the cluster '{cluster.name}'", campaign)
    return forecaster


def write_plan(plan: pd.DataFrame, stem: Path) -> None:
    """Write `stem`.parquet, .csv and .md."""
    write_frame(plan, Path(f"{stem}.parquet"), PLAN)
    write_text(Path(f"{stem}.md"), plan_markdown(plan))


def write_prediction(results: Path, campaign: Path, cluster: Cluster, out: Path) -> None:
    """Write the table that compares a campaign's results with their prediction, and its CSV.

    `results`: the campaign's folder. InputError if the cluster simulates.
    """
    if cluster.simulates:
        raise InputError(
            f"the cluster '{cluster.name}': mode simulate: its runs are made by the scaling model, so "
            "they are no test of it; allowed: a cluster that trains"
        )
    found = load_campaign(campaign, cluster)
    forecaster = forecaster_for(found, cluster, None)
    write_frame(prediction_table(results, found, forecaster), out, PREDICTION)
