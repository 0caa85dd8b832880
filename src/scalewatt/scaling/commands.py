"""`scalewatt calibrate` and `scalewatt plan`: the scaling model from results, and plans from it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, campaign_path, carbon_file
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.campaign.run_spec import run_spec, text_sha256
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object, write_text
from scalewatt.results.carbon import read_intensity
from scalewatt.results.figures.figure_schema import PREDICTION
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import records, write_frame
from scalewatt.results.tables.run_row import RunFiles, run_record, runs_of
from scalewatt.run_files.inventory import published_runs
from scalewatt.scaling.model.calibrate import calibratable, calibrate_kind
from scalewatt.scaling.model.calibration_points import points_of, table_of
from scalewatt.scaling.model.cross_validate import scores, validate
from scalewatt.scaling.model.kind_model import KindModel, Point
from scalewatt.scaling.model.model_file import ScalingModel, write_model
from scalewatt.scaling.model.posterior import DRAWS, SEED
from scalewatt.scaling.model.scores import Score, score_tables
from scalewatt.scaling.model.training_kind import Kind
from scalewatt.scaling.planning.forecast import Forecaster, forecaster_of, no_model
from scalewatt.scaling.planning.plan_table import PLAN, Plan, make_plan
from scalewatt.scaling.planning.plan_text import plan_markdown
from scalewatt.scaling.planning.prediction_table import prediction_table

_PACKAGES = ("numpy", "scipy")
"""Packages whose versions are in a model's provenance."""


def calibrate_sources(sources: Sequence[Path], out: Path) -> str:
    """Calibrate on results, validate, write the model to `out`; return what to print."""
    points = [point for source in sources for point in points_of(source)]
    _check_once(points)
    kinds, left_out = calibratable(points)
    models = [calibrate_kind(kind, own) for kind, own in kinds.items()]
    found = {kind: tuple(scores(validate(own))) for kind, own in kinds.items()}
    model = ScalingModel(tuple(models), tuple(map(str, sources)), left_out=left_out, scores=found)
    write_model(out, model, provenance_of(sources, points))
    blocks = [_text(one, found[one.kind]) for one in models]
    return "\n\n".join([*blocks, *(f"left out: {one}" for one in left_out), f"{out}: written"])


def _check_once(points: Iterable[Point]) -> None:
    """Raise InputError if a configuration is given twice: it would count twice."""
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
    cluster: Cluster,
    campaign: Path | None = None,
    model: Path | None = None,
    results: Path | None = None,
    deadline_h: float | None = None,
    energy_kwh: float | None = None,
    step: tuple[int | None, int | None] = (None, None),
    max_gpus: int | None = None,
) -> Plan:
    """Plan of a campaign on a cluster; by default the campaign and model that it names.

    `results`: the campaign's folder with finished
    runs; None: all is predicted. `step`: two n to compare; `max_gpus`: points of
    more GPUs are left out, by default the cluster's. InputError if the
    files or n are wrong, there is no scaling model, or nothing can be predicted.
    """
    smaller, larger = step
    if (smaller is None) != (larger is None):
        raise InputError("--from, --to: expected both, or none")
    if file := carbon_file(cluster):
        read_intensity(file)  # a wrong file is named now, not when runs are made
    found = load_campaign(campaign or campaign_path(cluster), cluster, max_gpus)
    check_devices(found, cluster)
    forecaster = forecaster_for(found, cluster, model)
    used = None if results is None else used_by(found, results)
    both = None if smaller is None or larger is None else (smaller, larger)
    return make_plan(found, cluster, forecaster, used, deadline_h, energy_kwh, both)


def forecaster_for(campaign: Campaign, cluster: Cluster, model: Path | None) -> Forecaster:
    """Forecaster of a model's file, or of the cluster file's; InputError without both."""
    forecaster = forecaster_of(model or cluster.scaling_model)
    if forecaster is None:
        raise no_model(f"the cluster '{cluster.name}'", campaign)
    return forecaster


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


def write_plan(plan: Plan, stem: Path) -> None:
    """Write `stem`.parquet, .csv and .md."""
    write_frame(plan.table, Path(f"{stem}.parquet"), PLAN)
    write_text(Path(f"{stem}.md"), plan_markdown(plan))


def _text(model: KindModel, found: Sequence[Score]) -> str:
    counts = sorted({point.load.gpus for point in model.points})
    title = (
        f"{model.kind.name}: {len(model.points)} configurations, n = {counts[0]} to {counts[-1]}"
    )
    notes = [f"note: {one}" for one in (model.assumed, model.no_energy, _one_size(model)) if one]
    return "\n".join([title, *score_tables(found), *notes])


def _one_size(model: KindModel) -> str | None:
    sizes = model.pass_sizes
    if len(sizes) > 1:
        return None
    return f"all points have local batch size {sizes[0]:g}: no other one can be predicted"


def used_by(campaign: Campaign, results: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the rows of RUNS of the finished and accounted runs, by configuration and repeat.

    `results`: the campaign's folder. A run whose spec differs from the campaign's has to be re-run, so
    it does not count; nor does a simulated one, which used nothing. InputError if the folder does
    not exist or is not a campaign's, and where a file of a run is damaged.
    """
    _check_folder(campaign, results)
    files = [RunFiles(results, *run) for run in published_runs(results)]
    rows = [
        run_record(one, campaign.name)
        for one in files
        if one.configuration in campaign.configurations
        and one.energy.is_file()
        and not read_json_object(one.folder / "provenance.json").get("simulated")
    ]
    return {
        (row["configuration"], row["repeat"]): row
        for row in records(runs_of(rows, Facility()))
        if campaign.registered
        or row["spec_sha256"] == run_spec(campaign, row["configuration"], row["repeat"]).sha256
    }


def _check_folder(campaign: Campaign, results: Path) -> None:
    """Raise InputError if `results` is not the folder of a campaign's results."""
    if not results.is_dir():
        raise InputError(
            f"{results}: is no folder; expected the campaign's results, "
            f"e.g. results/{campaign.name}"
        )
    inside = results / campaign.name
    if inside.is_dir() and not (results / "runs").exists():
        raise InputError(
            f"{results}: holds no runs, but {inside} does; expected the campaign's own folder: {inside}"
        )


def provenance_of(sources: Sequence[Path], points: Iterable[Point]) -> dict[str, Any]:
    """Return when, with which versions and sampler settings, and from which tables and specs, as JSON."""
    specs = sorted({one.spec_sha256 for one in points if one.spec_sha256 is not None})
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "seed": SEED,
        "draws": DRAWS,
        "tables_sha256": {
            str(source): hashlib.sha256(table_of(source).read_bytes()).hexdigest()
            for source in sources
        },
        "specs": len(specs),
        "specs_sha256": text_sha256("\n".join(specs)) if specs else None,
    }
