"""The figure `variants`: trainings that depart from a baseline, and in what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Configuration, Series
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of

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
_FIELDS = ("protocol", "epochs", "device", "gpus", "local_batch_size", "dataset_fraction", "seed")
_FOLLOWS = {"dataset_samples": {"dataset", "dataset_fraction"}, "nodes": {"device", "gpus"}}
"""Said only where nothing that they follow from differs."""
_FLAGS = {
    ("channels_last", True): "channels last",
    ("channels_last", False): "channels first",
    ("compile", True): "compiled",
    ("compile", False): "not compiled",
}


def check_variants(content: Mapping[str, Any], series: Mapping[str, Series], where: str) -> None:
    """InputError where a series has no baseline of its model and phase, or two."""
    shown, found = content["series"], dict[tuple[str, str], str]()
    for name in content["baselines"]:
        if name not in shown:
            raise InputError(
                f"{where}: figures.variants.baselines: '{name}' is not among its series; "
                f"{one_of(name, shown)}"
            )
        other = found.setdefault(_kind(series[name]), name)
        if other != name:
            raise InputError(
                f"{where}: figures.variants.baselines: '{other}' and '{name}' are both of "
                f"{' '.join(_kind(series[name]))}; allowed: one for each model and phase"
            )
    for name in shown:
        if _kind(series[name]) not in found:
            same = [other for other in shown if _kind(series[other]) == _kind(series[name])]
            raise InputError(
                f"{where}: figures.variants.baselines: none for {name}, which is of "
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
        said = [
            in_words(k, v) for k, v in shown if v not in (None, False) and k != "loader_workers"
        ]
        return BASELINE, ", ".join(said)
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
