"""What a table shows, as JSON-ready values: the part of a campaign that one table depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Configuration, Series
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of

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
BASELINE, SEVERAL, OTHER = "Baseline", "Several", "Other"
GROUPS = {
    "protocol": "Protocol",
    "loader": "Loader",
    "loader_workers": "Loader",
    "precision": "Precision",
    "channels_last": "Layout and compilation",
    "compile": "Layout and compilation",
}
"""What a variant is shown under, by the setting it departs in."""
_FIELDS = (
    *("protocol", "epochs", "device", "gpus", "local_batch_size", "dataset_fraction"),
    *("seed", "seeds"),
)
_FOLLOWS = {"dataset_samples": {"dataset", "dataset_fraction"}, "nodes": {"device", "gpus"}}
"""Said only where nothing that they follow from differs."""
_FLAGS = {
    ("channels_last", True): "channels last",
    ("channels_last", False): "channels first",
    ("compile", True): "compiled",
    ("compile", False): "not compiled",
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
        "place": list(campaign.series).index(name),
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
        **{name: getattr(configuration, name) for name in _OF_POINT},
    }


# --- the figure `variants`: trainings that depart from a baseline, and in what --------------------


def check_variants(content: Mapping[str, Any], series: Mapping[str, Series], where: str) -> None:
    """Raise InputError if a series has no baseline of its model and phase, or two."""
    shown, found = content["series"], dict[tuple[str, str], str]()
    for name in content["baselines"]:
        if name not in shown:
            raise InputError(
                f"{where}: figures.variants.baselines: '{name}' is not among its series; "
                f"{one_of(name, shown)}"
            )
        other = found.setdefault(_kind(series[name]), name)
        written = series[name].written
        if other != name and series[other].written == written:
            lines = [one for one in content["baselines"] if series[one].written == written]
            raise InputError(
                f"{where}: figures.variants.baselines: '{written}' stands for {len(lines)} lines of "
                f"{' '.join(_kind(series[name]))}; allowed: one of {', '.join(lines)}"
            )
        if other != name:
            raise InputError(
                f"{where}: figures.variants.baselines: '{other}' and '{name}' are both of "
                f"{' '.join(_kind(series[name]))}; allowed: one for each model and phase"
            )
    for name in shown:
        if _kind(series[name]) not in found:
            same = [other for other in shown if _kind(series[other]) == _kind(series[name])]
            raise InputError(
                f"{where}: figures.variants.baselines: none for {series[name].written}, which is of "
                f"{' '.join(_kind(series[name]))}; allowed: {', '.join(same)}"
            )


def variants_definition(campaign: Campaign) -> list[dict[str, Any]]:
    """Return one entry per configuration of the figure, each once, in its series' order.

    Keys: series, label, configuration, baseline (the configuration it is compared with), group, and
    `differs`: what it departs in, in words; of a baseline, what it is.
    """
    content = campaign.figures["variants"]
    baselines = {_kind(campaign.series[n]): campaign.series[n] for n in content["baselines"]}
    found: dict[str, dict[str, Any]] = {}
    for name in content["series"]:
        one = campaign.series[name]
        for gpus, id_ in one.points.items():
            points = baselines[_kind(one)].points
            baseline = points.get(gpus, next(iter(points.values())))
            group, differs = _departure(
                campaign.configurations[id_], campaign.configurations[baseline]
            )
            entry = {"series": name, "label": one.label, "configuration": id_}
            found.setdefault(
                id_, entry | {"baseline": baseline, "group": group, "differs": differs}
            )
    return list(found.values())


def _kind(series: Series) -> tuple[str, str]:
    return series.model, series.phase


def _departure(own: Configuration, baseline: Configuration) -> tuple[str, str]:
    """Return the group of a configuration, and what it departs in."""
    if own.id == baseline.id:
        shown = [(key, value) for key, value in _facts(own) if key in GROUPS]
        differences = [
            in_words(k, v) for k, v in shown if v not in (None, False) and k != "loader_workers"
        ]
        return BASELINE, ", ".join(differences)
    changed = _changed(own, baseline)
    if not changed:
        return OTHER, own.id
    groups = {GROUPS.get(key, OTHER) for key, _ in changed}
    group = groups.pop() if len(groups) == 1 else SEVERAL
    return group, ", ".join(in_words(key, value) for key, value in changed)


def _changed(own: Configuration, baseline: Configuration) -> list[tuple[str, Any]]:
    """Return what `own` has other than `baseline`, as names and its values."""
    pairs = zip(_facts(own), _facts(baseline), strict=True)
    changed = [(key, value) for (key, value), (_, usual) in pairs if value != usual]
    names = {key for key, _ in changed}
    return [fact for fact in changed if not names & _FOLLOWS.get(fact[0], set())]


def _facts(one: Configuration) -> Iterator[tuple[str, Any]]:
    yield from ((name, getattr(one, name)) for name in (*_FIELDS, *_FOLLOWS))
    yield "dataset", one.dataset.get("name")
    yield from sorted((k, v) for k, v in one.settings.items() if k != "dataset")


def in_words(key: str, value: Any) -> str:
    """Return a setting and its value as a person would say it."""
    if (key, value) in _FLAGS and isinstance(value, bool):
        return _FLAGS[key, value]
    return f"{key.replace('_', ' ')} {'not known' if value is None else value}"
