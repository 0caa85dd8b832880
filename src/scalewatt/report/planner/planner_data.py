"""What the planner page computes from, as JSON: kinds of training with their samples, trainings, the site."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from scalewatt.campaign.campaign_types import PASS_KEYS, Campaign, Configuration
from scalewatt.campaign.cluster import Cluster, Device, basis
from scalewatt.campaign.expansion import configuration_id
from scalewatt.campaign.model_registry import model_key
from scalewatt.campaign.operating_points import id_suffix
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.estimate import FACTOR
from scalewatt.results.tables.derived_quantities import facility_of
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.scaling.model.cost_terms import load_of_spec
from scalewatt.scaling.model.kind_model import DEVIATIONS, KindModel
from scalewatt.scaling.model.posterior import LEAST_FACTOR, Draws
from scalewatt.scaling.model.predict import FAR, INTERVAL, NEAR, TOTAL, UNSEEN
from scalewatt.scaling.model.scores import stated_error
from scalewatt.scaling.model.training_kind import Kind, kind_of_spec
from scalewatt.scaling.planning.forecast import SEED, Forecaster
from scalewatt.scaling.planning.recommend import SURE

_EPOCHS = re.compile(r"-epochs\d+")


@dataclass(frozen=True)
class Training:
    """A training that can be chosen on the page: all but n, batch, samples and epochs is settled."""

    model: str
    """With its phase: fourcastnet.pretrain."""
    device: str
    settings: str
    """Protocol and settings in words."""
    in_campaign: bool
    kind: int | None
    """The place of its kind in the page's list; None if it cannot be predicted."""
    reason: str | None
    """Why it cannot be predicted."""
    gpus: int
    """With the next three: what the page begins with."""
    local_batch_size: int
    samples: int
    epochs: int
    gpus_per_node: int
    max_gpus: int | None
    max_local_batch_size: int | None
    full_samples: int | None = None
    """Of the whole dataset, by which ids of configurations say `full`; None where all have parts of it."""
    usual_epochs: int | None = None
    """With which ids say nothing of epochs; None: they always do."""
    tail: tuple[str, str] = ("", "")
    """The end of a configuration's id, before and after what it says of epochs."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Of configurations that are called otherwise, by n, batch size, samples and epochs."""
    gpus_per_replica: int = 1
    gradient_accumulation_steps: int = 1


def planner_data(
    forecaster: Forecaster,
    campaign: Campaign | None,
    cluster: Cluster | None,
    devices: Mapping[str, Device],
    max_gpus: int | None = None,
) -> dict[str, Any]:
    """Return what the page computes from, as JSON.

    `campaign` None: only what the model was calibrated on. `devices`: known ones by name. `max_gpus`: no
    training takes more.
    """
    kinds: dict[Kind, KindModel] = {}
    trainings = [] if campaign is None else list(_of_campaign(campaign, forecaster, devices, kinds))
    for model in forecaster.model.kinds:
        if model.kind not in kinds:
            kinds[model.kind] = model
            trainings.append(_of_kind(model, len(kinds) - 1, devices.get(model.kind.device)))
    described = [_kind(one, forecaster) for one in kinds.values()]
    if max_gpus is not None:
        trainings = [_up_to(one, max_gpus) for one in trainings]
    # The page begins with the first: with one that was calibrated.
    trainings.sort(key=lambda one: (one.kind is None, bool(described[one.kind or 0]["assumed"])))
    return {
        "campaign": None if campaign is None else campaign.name,
        "cluster": None if cluster is None else cluster.name,
        "rules": {
            "deviations": DEVIATIONS,
            "seed": SEED,
            "unseen": UNSEEN,
            "near": NEAR,
            "least_factor": LEAST_FACTOR,
            "far": FAR,
            "interval": INTERVAL,
            "sure": SURE,
            "total": TOTAL,
        },
        "kinds": described,
        "trainings": [asdict(one) for one in trainings],
        **_site(cluster),
    }


def _site(cluster: Cluster | None) -> dict[str, Any]:
    """Return PUE, carbon intensity and price of a cluster, null where it says none, with their sources."""
    if cluster is None:
        return {"site": dict.fromkeys(("pue", "carbon", "price")), "currency": "", "basis": []}
    facility = facility_of(cluster)
    site = {
        "pue": facility.pue,
        "carbon": facility.carbon_g_per_kwh,
        "price": facility.price_per_kwh,
    }
    return {"site": site, "currency": cluster.currency, "basis": basis(cluster, [])}


# --- kinds ----------------------------------------------------------------------------------------


def _kind(model: KindModel, forecaster: Forecaster) -> dict[str, Any]:
    points = sorted({(point.load.gpus, point.load.pass_size) for point in model.points})
    calibrated, scores = forecaster.model.scores_of(model.kind)
    return {
        "name": model.kind.name,
        "scope": model.scope,
        "origin": model.origin,
        "assumed": model.assumed,
        "points": points,
        "calibrated_points": len(model.points),
        "time": {
            "terms": model.time_terms.names,
            "knee": model.time_terms.knee,
            "draws": _rows(model.time),
        },
        "energy_terms": model.energy_terms.names,
        "energy": {name: _rows(draws) for name, draws in model.energy.items()},
        "notes": list(_notes(model)),
        "error": stated_error({calibrated.name: scores} if calibrated else {}),
    }


def _rows(draws: Draws) -> list[list[float]]:
    """Return one row for each sample: the costs of the terms, then the spread; to the last digit."""
    rows: list[list[float]] = np.column_stack([draws.terms, draws.spread]).tolist()
    return rows


def _notes(model: KindModel) -> Iterable[str]:
    if not model.energy:
        yield model.no_energy or "no energy is known"
    if model.origin in ORIGINS:
        yield (
            "its energies rest on estimates, whose error the intervals do not hold: the true ones lie within "
            f"× or ÷ {FACTOR:g} of them, unless the cluster file that they were estimated with gave another "
            "factor (docs/energy.md)"
        )


def _of_kind(model: KindModel, number: int, device: Device | None) -> Training:
    """Return the training of a calibrated kind that no campaign has: it begins at a calibrated point."""
    loads = sorted((point.load for point in model.points), key=lambda load: load.gpus)
    middle = loads[len(loads) // 2]
    epochs, _ = Counter(load.epochs for load in loads).most_common(1)[0]
    return Training(
        model=model.kind.key,
        device=model.kind.device,
        settings=_settings(model.kind),
        in_campaign=False,
        kind=number,
        reason=None,
        gpus=middle.gpus,
        local_batch_size=middle.local_batch_size,
        samples=(samples := max(load.samples // load.epochs for load in loads)),
        full_samples=samples,
        epochs=epochs,
        usual_epochs=epochs,
        gpus_per_replica=middle.gpus_per_replica,
        gradient_accumulation_steps=middle.gradient_accumulation_steps,
        **_machine(device, model.kind.key, max(-(-load.gpus // load.nodes) for load in loads)),
    )


def _machine(device: Device | None, key: str, gpus_per_node: int) -> dict[str, Any]:
    if device is None:
        return {
            "gpus_per_node": gpus_per_node,
            "max_gpus": None,
            "max_local_batch_size": None,
        }
    return {
        "gpus_per_node": device.gpus_per_node,
        "max_gpus": device.max_gpus,
        "max_local_batch_size": device.max_local_batch_size.get(key),
    }


def _up_to(training: Training, max_gpus: int) -> Training:
    """Return a training with no larger n: neither to choose nor to begin with."""
    most = min(max_gpus, training.max_gpus or max_gpus)
    first, step = min(training.gpus, most), training.gpus_per_replica
    if first > training.gpus_per_node:
        step = math.lcm(step, training.gpus_per_node)
    return replace(training, max_gpus=most, gpus=max(step, first - first % step))


def _settings(kind: Kind) -> str:
    """Return what the name of a kind says beside model and device."""
    return kind.name.partition(", ")[2] or "as the model's defaults"


# --- a campaign's trainings -----------------------------------------------------------------------


def _of_campaign(
    campaign: Campaign,
    forecaster: Forecaster,
    devices: Mapping[str, Device],
    kinds: dict[Kind, KindModel],
) -> Iterable[Training]:
    """Yield the trainings of a campaign, and add the kinds that they are predicted by to `kinds`."""
    groups: dict[Any, list[Configuration]] = {}
    for one in campaign.configurations.values():
        kind = kind_of_spec(run_spec(campaign, one.id, 1))
        passes = tuple(getattr(one, name) for name in PASS_KEYS)
        groups.setdefault((kind, _tail(one), passes), []).append(one)
    named: Counter[tuple[str, str, str]] = Counter()
    for (kind, tail, _), own in groups.items():
        training = _training(campaign, kind, own, devices)
        training = replace(training, tail=tail or ("", ""))
        name = training.model, training.device, training.settings
        named[name] += 1
        if named[name] > 1:
            other = "".join(tail or ()).strip("-") or f"no. {named[name]}"
            training = replace(training, settings=f"{training.settings} ({other})")
        reason = _why_unknown(campaign, own[0].id, forecaster)
        if reason is None:
            kinds.setdefault(kind, forecaster.model.of(kind))
            yield replace(training, kind=list(kinds).index(kind))
        else:
            yield replace(training, reason=reason)


def _why_unknown(campaign: Campaign, configuration: str, forecaster: Forecaster) -> str | None:
    spec = run_spec(campaign, configuration, 1)
    try:
        load_of_spec(spec)
        forecaster.model.of(kind_of_spec(spec))
    except InputError as error:
        return str(error)
    return None


def _training(
    campaign: Campaign, kind: Kind, own: list[Configuration], devices: Mapping[str, Device]
) -> Training:
    middle = sorted(own, key=lambda one: one.gpus)[len(own) // 2]
    full = [one for one in own if one.dataset_fraction == "1"]
    usual = next((one.epochs for one in own if not _EPOCHS.search(one.id)), None)
    return Training(
        model=kind.key,
        device=kind.device,
        settings=_settings(kind),
        in_campaign=True,
        kind=None,
        reason=None,
        gpus=middle.gpus,
        local_batch_size=middle.local_batch_size,
        samples=max(one.dataset_samples or 1 for one in full or own),
        full_samples=max((one.dataset_samples or 1 for one in full), default=None),
        epochs=usual or middle.epochs,
        usual_epochs=usual,
        ids={
            f"{one.gpus}/{one.local_batch_size}/{one.dataset_samples}/{one.epochs}": one.id
            for one in own
            if _tail(one) is None
        },
        gpus_per_replica=middle.gpus_per_replica,
        gradient_accumulation_steps=middle.gradient_accumulation_steps,
        **_machine(devices.get(kind.device), kind.key, math.ceil(middle.gpus / middle.nodes)),
    )


def _tail(one: Configuration) -> tuple[str, str] | None:
    """Return the end of a configuration's id, without its epochs: before and after their place.

    None if the id is of another form, as a registered one.
    """
    part = None if one.dataset_fraction == "1" else one.dataset_samples
    key, sizes = model_key(one.model, one.phase), (one.gpus, one.local_batch_size)
    start = configuration_id(key, one.device, *sizes, part, {})
    if not one.id.startswith(start):
        return None
    point = id_suffix(one.operating_point)
    tail = _EPOCHS.sub("", one.id.removeprefix(start).removesuffix(point))
    later = [name for name in (*one.settings, "protocol") if name > "epochs"]
    place = min((tail.find(f"-{name}") for name in later if f"-{name}" in tail), default=len(tail))
    return tail[:place], tail[place:] + point
