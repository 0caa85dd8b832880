"""What a table shows, as JSON-ready values: the part of a campaign that it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Configuration, Series
from scalewatt.common.errors import InputError, one_of

_CONTENT = ("series", "points", "baselines")
"""Keys of a figure's entry that say what it shows; the others say how."""
_OF_POINT = (
    *("gpus", "local_batch_size", "global_batch_size", "dataset_samples", "epochs"),
    *("samples_per_gpu", "updates_per_epoch", "updates"),
)
_BATCH_RULES = {
    "local_batch_size": "constant LBS",
    "global_batch_size": "constant GBS",
    "neither": "neither constant",
}


def runs_definition(
    campaign: Campaign, runs: list[list[Any]], excluded: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Definition of the tables of all runs, excluded ones too; see `table_definition`."""
    content = _content(campaign, list(campaign.configurations), runs, excluded)
    return {**content, "series": [_series(campaign, name) for name in campaign.series]}


def table_definition(
    campaign: Campaign, figure: str, runs: list[list[Any]], excluded: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Definition of a figure's table (or table1's).

    `runs` lists [configuration, repeat] of the runs to take; configurations without any are named
    as missing in the table. `excluded`: those of the campaign that are left out (configuration, repeat,
    reason), named in the table where they are the figure's.
    """
    content, shown = campaign.figures[figure], campaign.figure_configurations(figure)
    if figure == "figure1":  # of the campaign, not of its results
        shown, runs = [], []
    definition: dict[str, Any] = {
        "figure": figure,
        **_content(campaign, shown, runs, excluded),
        "options": {k: v for k, v in content.items() if k not in _CONTENT},
    }
    if figure == "figure1":  # drawn before any run can tell what n counts
        devices = {str(campaign.series[name].torch_device) for name in content["series"]}
        definition["torch_devices"] = sorted(devices)
    if figure == "variants":
        definition["variants"] = variants_definition(campaign)
    elif "series" in content:
        definition["series"] = [_series(campaign, name) for name in content["series"]]
    else:
        definition["points"] = [_labelled_point(campaign, **p) for p in content["points"]]
    return definition


def _content(
    campaign: Campaign,
    configurations: list[str],
    runs: list[list[Any]],
    excluded: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    left_out = [run for run in excluded if run["configuration"] in configurations]
    finished = {id_ for id_, _ in runs} | {run["configuration"] for run in left_out}
    return {
        "campaign": campaign.name,
        "runs": runs,
        "missing": [id_ for id_ in configurations if id_ not in finished],
        "excluded": left_out,
    }


def _labelled_point(campaign: Campaign, series: str, gpus: int) -> dict[str, Any]:
    line = campaign.series[series]
    kind = {name: getattr(line, name) for name in ("label", "model", "phase", "device")}
    return {**kind, **_point(campaign.configurations[line.points[gpus]])}


def _series(campaign: Campaign, name: str) -> dict[str, Any]:
    line = campaign.series[name]
    return {
        "place": list(campaign.series).index(name),
        **{name: getattr(line, name) for name in ("name", "label", "model", "phase", "device")},
        "dataset_rule": "scaled" if line.is_scaled else "fixed",
        "batch_rule": _BATCH_RULES[line.constant],
        "points": [_point(campaign.configurations[id_]) for id_ in line.points.values()],
    }


def _point(configuration: Configuration) -> dict[str, Any]:
    numbers = {name: getattr(configuration, name) for name in _OF_POINT}
    return {"configuration": configuration.id, **numbers}


# --- the figure `variants`: trainings that depart from a baseline -----------------------------------


def check_variants(content: Mapping[str, Any], series: Mapping[str, Series], where: str) -> None:
    """Raise InputError unless each model and phase of the figure has one baseline."""
    where = f"{where}: figures.variants.baselines"
    shown, baselines = content["series"], content["baselines"]
    for name in baselines:
        if name not in shown:
            raise InputError(f"{where}: '{name}' is not among its series; {one_of(name, shown)}")
    for kind in dict.fromkeys(series[name].kind for name in shown):
        given = [name for name in baselines if series[name].kind == kind]
        if len(given) != 1:
            allowed = ", ".join(name for name in shown if series[name].kind == kind)
            raise InputError(
                f"{where}: {' and '.join(given) or 'none'} of {kind}; allowed: one of {allowed}"
            )


def variants_definition(campaign: Campaign) -> list[dict[str, Any]]:
    """Entries of the figure's configurations, each once, in its series' order.

    Keys: series, label, configuration, baseline (the configuration it is compared with).
    """
    content = campaign.figures["variants"]
    baselines = {campaign.series[n].kind: campaign.series[n].points for n in content["baselines"]}
    entries: dict[str, dict[str, Any]] = {}
    for name in content["series"]:
        series = campaign.series[name]
        points = baselines[series.kind]
        for gpus, id_ in series.points.items():
            label = series.label if len(series.points) == 1 else f"{series.label}, n = {gpus}"
            baseline = points.get(gpus, next(iter(points.values())))
            entry = {"series": name, "label": label, "configuration": id_, "baseline": baseline}
            entries.setdefault(id_, entry)
    return list(entries.values())
