"""Write the planner page: what each training of a campaign takes, by n and batch size, as one HTML file.

All forecasts are computed here, as `scalewatt plan` computes them; the page's script chooses among them,
and multiplies them by a PUE, a price and a carbon intensity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.campaign.campaign_types import PASS_KEYS, Campaign, Configuration
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.model_registry import model_key
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.report.html_tables import render
from scalewatt.results.tables.derived_quantities import facility_of
from scalewatt.scaling.model.predict import FAR, estimate
from scalewatt.scaling.model.terms import Array, kind_of_spec
from scalewatt.scaling.planning.forecast import Forecaster
from scalewatt.scaling.planning.plan import notes_of

Row = dict[str, Any]
_FOLDER = Path(__file__).parent


def write_plan_page(
    out: Path,
    campaign: Campaign,
    cluster: Cluster,
    forecaster: Forecaster,
    deadline_h: float | None = None,
) -> None:
    """Write the page to `out`; `deadline_h`: the deadline that it begins with."""
    pue, carbon, price = astuple(facility_of(cluster))
    data = {
        "trainings": list(trainings(campaign, cluster, forecaster)),
        "begin": {"pue": pue, "carbon": carbon, "price": price, "deadline": deadline_h},
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    content = render(
        _FOLDER,
        "page.html.j2",
        "planner.js",
        campaign=campaign.name,
        cluster=cluster,
        # No text in it ends the element, whatever the names of models hold.
        embedded=text.replace("<", "\\u003c"),
        notes=notes_of(campaign, cluster, forecaster.model),
        version=__version__,
        more_style=(_FOLDER / "planner.css").read_text(encoding="utf-8"),
    )
    write_text(out, content)


def trainings(campaign: Campaign, cluster: Cluster, forecaster: Forecaster) -> Iterator[Row]:
    """Each training of a campaign on its whole dataset, with forecasts of one run by n and batch size.

    One that cannot be predicted has the reason in their place.
    """
    groups: dict[Any, list[Configuration]] = {}
    largest_first = sorted(
        campaign.configurations.values(), key=lambda each: -(each.dataset_samples or 0)
    )
    for configuration in largest_first:
        kind = kind_of_spec(run_spec(campaign, configuration.id, 1))
        passes = [getattr(configuration, name) for name in PASS_KEYS]
        groups.setdefault((kind, configuration.epochs, *passes), []).append(configuration)
    for (kind, epochs, *passes), members in groups.items():
        samples = members[0].dataset_samples
        members = [each for each in members if each.dataset_samples == samples]
        more = "".join(
            f", {name.replace('_', ' ')} {value}"
            for name, value in zip(PASS_KEYS, passes, strict=True)
            if value not in (None, 1)
        )
        row = {"name": f"{kind.name}{more}: {epochs} epochs of {samples} samples", "reason": None}
        specs = [run_spec(campaign, each.id, 1) for each in members]
        try:
            rows = list(_rows(specs, cluster, forecaster))
        except InputError as error:
            row["reason"], rows = str(error), []
        yield {**row, "rows": rows}


def _rows(specs: Sequence[RunSpec], cluster: Cluster, forecaster: Forecaster) -> Iterator[Row]:
    """Forecasts of a training at the campaign's points, and at other n and batch sizes."""
    first = specs[0]
    device = cluster.devices[first.device]
    points = forecaster.of_kind(first).points
    of_campaign = {(spec.gpus, spec.local_batch_size): spec for spec in specs}
    largest = device.max_local_batch_size.get(model_key(first.model, first.phase), math.inf)
    steps = first.gradient_accumulation_steps
    sizes = {size for _, size in of_campaign} | {round(p.load.pass_size * steps) for p in points}
    limits = [FAR * max(p.load.gpus for p in points), device.max_gpus, cluster.max_gpus]
    most = min(limit for limit in limits if limit is not None)
    counts = {gpus for gpus, _ in of_campaign} | _counts(first.gpus_per_replica, device, most)
    for size in sorted(size for size in sizes if size <= largest):
        for gpus in sorted(counts):
            other = replace(
                first,
                configuration=f"{first.configuration} n={gpus} lbs={size}",
                gpus=gpus,
                nodes=-(-gpus // device.gpus_per_node),
                local_batch_size=size,
            )
            yield _row(of_campaign.get((gpus, size), other), forecaster)


def _counts(smallest: int, device: Device, most: int) -> set[int]:
    """Doublings of the GPUs of one copy of the model that fit nodes."""
    doubled = [smallest * 2**power for power in range(most.bit_length())]
    width = device.gpus_per_node
    return {n for n in doubled if n <= most and (n <= width or n % width == 0)}


def _row(spec: RunSpec, forecaster: Forecaster) -> Row:
    predicted = forecaster.runs(spec)
    joules = predicted.energy_j
    return {
        **{"gpus": spec.gpus, "nodes": spec.nodes, "lbs": spec.local_batch_size},
        "hours": _ends(predicted.runtime_s / 3600),
        "kwh": None if joules is None else _ends(joules / J_PER_KWH),
        "warnings": forecaster.warnings(spec),
    }


def _ends(draws: Array) -> tuple[float, ...]:
    """Median and ends of the interval of one run."""
    return astuple(estimate(draws[:, 0]))
