"""Write the planner page: one self-contained HTML file that forecasts a chosen training in the browser."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import (
    Cluster,
    campaign_path,
    known_devices,
)
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.report.html_tables import STYLE, templates
from scalewatt.report.page_scripts import script_of
from scalewatt.report.planner.planner_data import planner_data
from scalewatt.scaling.planning.forecast import Forecaster, forecaster_of
from scalewatt.scaling.planning.plan_table import predicted_by

PUBLISHED_MODEL = "reference/scaling_model.json"
"""The model that ships: it takes over where a cluster file names none."""
_FOLDER = Path(__file__).parent
_SCRIPTS = ("random.js", "forecast.js", "planner.js")


@dataclass(frozen=True)
class Site:
    """What the page is made for: the cluster and the campaign, where there are any, and the model."""

    forecaster: Forecaster
    cluster: Cluster | None = None
    campaign: Campaign | None = None
    published: bool = False
    """True if the model is the one that ships, because nobody named another."""
    max_gpus: int | None = None
    """No larger n can be chosen; None: only the devices' own limits count."""


@dataclass(frozen=True)
class Limits:
    """The limits that the page begins with; None: none."""

    deadline_h: float | None = None
    energy_kwh: float | None = None


def site_of(
    cluster: Cluster | None,
    campaign: Path | None,
    model: Path | None,
    max_gpus: int | None = None,
) -> Site:
    """Site of a page; without a campaign, given or the cluster's, there is the model alone.

    `max_gpus` counts instead of the cluster's. InputError if a file that was named is missing, or wrong.
    """
    if model is None and cluster is not None and cluster.scaling_model:
        model = Path(cluster.scaling_model)
    forecaster = forecaster_of(model or PUBLISHED_MODEL)
    assert forecaster is not None
    if campaign is None and cluster is not None and campaign_path(cluster).exists():
        campaign = campaign_path(cluster)
    loaded = None if campaign is None else load_campaign(campaign, cluster, max_gpus)
    if max_gpus is None and cluster is not None:
        max_gpus = cluster.max_gpus
    return Site(forecaster, cluster, loaded, model is None, max_gpus)


def write_plan_page(out: Path, site: Site, limits: Limits) -> None:
    """Write the page to `out`; InputError if a limit is no number above 0 and below 1e12."""
    for name, value in vars(limits).items():
        if value is not None and not 0 < value < 1e12:
            raise InputError(
                f"--{name.replace('_', '-')}: {value:g}; expected a number above 0 and below 1e12"
            )
    devices = known_devices(site.cluster)
    data = planner_data(site.forecaster, site.campaign, site.cluster, devices, site.max_gpus)
    data["limits"] = vars(limits)
    write_text(out, _page(data, _sources(site)))


def _sources(site: Site) -> list[str]:
    """Return in sentences what the page rests on."""
    found = [predicted_by(site.forecaster.model)]
    if site.published:
        where = (
            f"The cluster file of {site.cluster.name}"
            if site.cluster
            else "There is no cluster file"
        )
        lacks = " names no scaling model, so " if site.cluster else ", so "
        found.append(
            f"{where}{lacks}this is the one that ships with scalewatt: of the machine of its sources, not of "
            "yours. `scalewatt pilot` and `scalewatt calibrate` make one of your own."
        )
    return found


def _page(data: Mapping[str, Any], sources: list[str]) -> str:
    script = script_of(*(_FOLDER / name for name in _SCRIPTS))
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        templates(_FOLDER)
        .get_template("page.html.j2")
        .render(
            data=data,
            # No text in it ends the element, whatever the names of models hold.
            embedded=text.replace("<", "\\u003c"),
            sources=sources,
            version=__version__,
            style=STYLE.read_text(encoding="utf-8")
            + (_FOLDER / "planner.css").read_text(encoding="utf-8"),
            script=script,
            span=_span,
        )
    )


def _span(values: Iterable[float]) -> str:
    """Return the least and the largest of some numbers; one of them where they are the same."""
    ends = sorted(values)
    return "–".join(dict.fromkeys(f"{one:g}" for one in (ends[0], ends[-1])))
