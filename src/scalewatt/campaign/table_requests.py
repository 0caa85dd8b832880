"""What a table shows, as JSON-ready values: the part of a campaign that one table depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.variant_groups import variants_definition

_CONTENT = ("series", "points", "baselines")
"""Keys of a figure's entry that say what it shows; the others say how."""
_BATCH_RULES = {
    "local_batch_size": "constant LBS",
    "global_batch_size": "constant GBS",
    "neither": "neither constant",
}


def runs_definition(
    campaign: Campaign, runs: list[list[Any]], excluded: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the definition of the tables of all runs, excluded ones too; see `table_definition`."""
    return {
        **_content(campaign, list(campaign.configurations), runs, excluded),
        "series": [_series(campaign, name) for name in campaign.series],
    }


def table_definition(
    campaign: Campaign, figure: str, runs: list[list[Any]], excluded: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the definition of a figure's table (or table1's).

    `runs` lists [configuration, repeat] of the runs to take; configurations without any are named
    as missing in the table. `excluded`: those of the campaign that are left out (configuration, repeat,
    reason), named in the table where they are the figure's.
    """
    content = campaign.figures[figure]
    definition: dict[str, Any] = {
        "figure": figure,
        **_content(campaign, campaign.figure_configurations(figure), runs, excluded),
        "options": {k: v for k, v in content.items() if k not in _CONTENT},
    }
    if figure == "figure1":  # drawn before there are runs to tell what n counts
        shown = {str(campaign.series[name].torch_device) for name in content["series"]}
        definition["torch_devices"] = sorted(shown)
    if figure == "variants":
        definition["variants"] = variants_definition(campaign)
    elif "series" in content:
        definition["series"] = [_series(campaign, name) for name in content["series"]]
    else:
        definition["points"] = [
            {"label": campaign.series[p["series"]].label, **_training(campaign, p)}
            for p in content["points"]
        ]
    return definition


def _content(
    campaign: Campaign,
    configurations: list[str],
    runs: list[list[Any]],
    excluded: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    left_out = [one for one in excluded if one["configuration"] in configurations]
    finished = {id_ for id_, _ in runs} | {one["configuration"] for one in left_out}
    return {
        "campaign": campaign.recorded_name,
        "runs": runs,
        "missing": [id_ for id_ in configurations if id_ not in finished],
        "excluded": left_out,
    }


def _training(campaign: Campaign, point: dict[str, Any]) -> dict[str, Any]:
    one = campaign.configurations[campaign.series[point["series"]].points[point["gpus"]]]
    same = {"model": one.model, "phase": one.phase, "device": one.device}
    return {**same, **_point(one)}


def _series(campaign: Campaign, name: str) -> dict[str, Any]:
    series = campaign.series[name]
    return {
        "name": name,
        "label": series.label,
        "model": series.model,
        "phase": series.phase,
        "device": series.device,
        "dataset_rule": "scaled" if series.is_scaled else "fixed",
        "batch_rule": _BATCH_RULES[series.constant],
        "points": [_point(campaign.configurations[id_]) for id_ in series.points.values()],
    }


def _point(configuration: Configuration) -> dict[str, Any]:
    return {
        "configuration": configuration.id,
        "gpus": configuration.gpus,
        "local_batch_size": configuration.local_batch_size,
        "global_batch_size": configuration.global_batch_size,
        "dataset_samples": configuration.dataset_samples,
        "epochs": configuration.epochs,
        "samples_per_gpu": configuration.samples_per_gpu,
        "updates_per_epoch": configuration.updates_per_epoch,
        "updates": configuration.updates,
    }
