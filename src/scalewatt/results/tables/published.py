"""What Huber et al. (2025) published, as rows of `configurations`, and beside a campaign's own.

Source: reference/published_results.csv. Each number is the paper's or its authors', or follows from
them: null is what they do not say, and what does not follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.campaign.model_registry import PHASES, known_models, model_key
from scalewatt.campaign.series_expansion import configuration_id
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT, one_of
from scalewatt.results.tables.derived_quantities import Facility, Work, energy_columns
from scalewatt.results.tables.read_table import PUBLISHED, read_checked
from scalewatt.results.tables.repeat_statistics import Summary, from_population_sd
from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS, QUANTITIES

Row = dict[str, Any]

REFERENCE = PROJECT_ROOT / "reference" / "published_results.csv"
FULL_SAMPLES = {"resnet50": 1281167, "fourcastnet": 54020}
"""Training samples of an epoch of the paper's whole datasets."""
GPUS_PER_NODE, SOCKETS_PER_NODE = 4, 2
SCOPES = {"a100": "gpu+cpu+ram", "h100": "gpu+cpu"}
DEVICE_NAMES = {"a100": "A100-40GB", "h100": "H100-94GB"}
_TRAINING = (
    *("model", "phase", "device", "gpus", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)
"""What a published row and a campaign's point have in common where they are the same training."""

_COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("source", "model", "phase", "device")),
        *((name, pa.int32()) for name in ("gpus", "local_batch_size", "global_batch_size")),
        ("dataset_samples", pa.int64()),
        *((name, pa.int32()) for name in ("epochs", "repeats")),
        *(
            (name, pa.float64())
            for name in (
                *("runtime_h", "gpu_hours", "gpu_hours_popstd", "energy_kwh"),
                *("energy_popstd_kwh", "gpu_energy_kwh", "cpu_energy_kwh"),
            )
        ),
        ("metric_name", pa.string()),
        ("metric_value", pa.float64()),
    ]
)


def published_configurations() -> list[Row]:
    """One row of CONFIGURATIONS per published training: campaign and origin `published`."""
    return [dict(row) for row in _rows()]


def published_sources() -> dict[str, str]:
    """Where in the paper, or its authors' code, each published configuration's numbers stand."""
    return {
        id_: "; ".join(one["source"] for one in found) for id_, found in _by_configuration().items()
    }


def published_of(points: Iterable[Row]) -> list[Row]:
    """The published rows of the same training as one of `points`, in their order.

    The same model, phase, device, n, batch sizes, samples and epochs, which each point has as keys.
    """
    by_training = {tuple(row[key] for key in _TRAINING): row for row in _rows()}
    keys = dict.fromkeys(tuple(point.get(key) for key in _TRAINING) for point in points)
    return [dict(by_training[key]) for key in keys if key in by_training]


def published_of_series(series: Row) -> list[Row]:
    """The published rows of a series of a table's definition."""
    same = {key: series[key] for key in ("model", "phase", "device")}
    return published_of({**same, **point} for point in series["points"])


def timed_alike(rows: Iterable[Row]) -> list[Row]:
    """Those with a run time and the first one's dataset: what a speed-up can be told of."""
    timed = [row for row in rows if row["runtime_h_mean"] is not None]
    return [row for row in timed if row["dataset_samples"] == timed[0]["dataset_samples"]]


def is_overlaid(definition: Row) -> bool:
    """Whether a table's definition asks for the published points."""
    return definition.get("options", {}).get("overlay") == PUBLISHED


# --- rows -----------------------------------------------------------------------------------------


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(_row(id_, found) for id_, found in _by_configuration().items())


@cache
def _by_configuration() -> dict[str, list[Row]]:
    """The reference's rows by id: a training's time and its energy's parts may stand in two of them."""
    found: dict[str, list[Row]] = {}
    for number, row in enumerate(read_checked(REFERENCE, _COLUMNS).to_pylist(), 1):
        _check_words(row, number)
        found.setdefault(_configuration(row).id, []).append(row)
    return found


def _check_words(row: Row, number: int) -> None:
    for name, allowed in (
        ("model", list(FULL_SAMPLES)),
        ("phase", [phase for m in FULL_SAMPLES if m == row["model"] for phase in PHASES[m]]),
        ("device", list(SCOPES)),
    ):
        if row[name] not in allowed:
            said = f"{name} is '{row[name]}'; {one_of(row[name], allowed)}"
            raise InputError(f"{REFERENCE}: row {number}: {said}")
    for column in _COLUMNS:
        value, least = (
            row[column.name],
            0 if column.name.endswith(("popstd", "popstd_kwh")) else None,
        )
        if pa.types.is_string(column.type) or value is None or value > 0 or value == least:
            continue
        expected = "0 or more" if least == 0 else "more than 0"
        raise InputError(
            f"{REFERENCE}: row {number}: {column.name} is {value}; expected {expected}, or nothing"
        )


def _row(id_: str, found: list[Row]) -> Row:
    said = _merged(id_, found)
    configuration = _configuration(said)
    scope = SCOPES[said["device"]]
    row: Row = {
        "campaign": PUBLISHED,
        "configuration": id_,
        **{name: said[name] for name in _TRAINING},
        "device_name": DEVICE_NAMES[said["device"]],
        "nodes": configuration.nodes,
        "protocol": configuration.protocol,
        "precision": configuration.settings["precision"],
        **dict.fromkeys(("precision_used", "loader", "channels_last", "compile")),
        "energy_origin": PUBLISHED,
        "energy_scope": scope,
        "metric_name": said["metric_name"],
        "metric_goal": "min",
        **dict.fromkeys(("metric_persistence", "metric_climatology")),
        "torch_device": "cuda",
        "n_repeats": said["repeats"],
    }
    quantities = _quantities(said, configuration)
    for name in QUANTITIES:
        one = quantities.get(name, Summary(said["repeats"], None))
        row |= {f"{name}_{part}": getattr(one, part) for part in PARTS}
    assert set(row) == set(CONFIGURATIONS.names)
    return row


def _merged(id_: str, found: list[Row]) -> Row:
    merged = dict(found[0])
    for other in found[1:]:
        for name in _COLUMNS.names:
            if name == "source" or other[name] is None:
                continue
            if merged[name] not in (None, other[name]):
                raise InputError(
                    f"{REFERENCE}: {id_}: two rows differ in {name} ({merged[name]}, {other[name]}); "
                    "expected: one value"
                )
            merged[name] = other[name]
    return merged


def _configuration(said: Row) -> Configuration:
    """The paper's configuration of a row, named as a campaign of the paper's names it."""
    model, phase, gpus = said["model"], said["phase"], said["gpus"]
    key = model_key(model, phase)
    defaults = known_models()[model].settings[key]["properties"]
    whole = said["dataset_samples"] == FULL_SAMPLES[model]
    changed = said["epochs"] != defaults["epochs"]["default"]
    return Configuration(
        id=configuration_id(
            key,
            said["device"],
            gpus,
            said["local_batch_size"],
            None if whole else said["dataset_samples"],
            {"epochs": said["epochs"]} if changed else {},
        ),
        model=model,
        phase=phase,
        device=said["device"],
        gpus=gpus,
        nodes=-(-gpus // GPUS_PER_NODE),
        ranks_per_node=min(gpus, GPUS_PER_NODE),
        local_batch_size=said["local_batch_size"],
        global_batch_size=said["global_batch_size"],
        dataset={"name": PUBLISHED, "format": PUBLISHED},
        dataset_fraction="1",
        dataset_samples=said["dataset_samples"],
        validation_samples=None,
        protocol="paper",
        epochs=said["epochs"],
        seed=None,
        sampling_period_s=None,
        settings={"precision": defaults["precision"]["default"]},
        initial_weights=None,
    )


def _quantities(said: Row, configuration: Configuration) -> dict[str, Summary]:
    """What is published, and what follows from it; with a spread where that follows too.

    A quotient of energy and time has none: both were of the same runs, and how they vary together
    is not published.
    """
    n, gpus = said["repeats"], configuration.gpus
    hours = from_population_sd(n, said["gpu_hours"], said["gpu_hours_popstd"])
    energy = from_population_sd(n, said["energy_kwh"], said["energy_popstd_kwh"])
    runtime = hours.times(1 / gpus)
    if said["runtime_h"] is not None:
        runtime = runtime.around(said["runtime_h"])
    samples, passes = _work(configuration)
    joules = {kind: _joules(said.get(f"{kind}_energy_kwh")) for kind in ("gpu", "cpu", "ram")}
    seconds = (runtime.mean or 0.0) * 3600
    work = Work(
        gpu_hours=hours.mean or 0.0,
        nodes=configuration.nodes,
        samples=samples,
        updates=passes // gpus,
        gpu_s=seconds * gpus,
        socket_s=seconds * SOCKETS_PER_NODE * configuration.nodes,
        node_s=seconds * configuration.nodes,
    )
    derived = energy_columns(joules, _joules(energy.mean), work, Facility())
    found = {name: Summary(n, value) for name, value in derived.items()}
    for name in ("energy_per_sample_j", "energy_per_update_j", "energy_per_node_kwh"):
        if energy.mean is not None and (value := derived[name]) is not None:
            found[name] = energy.times(value / energy.mean)
    return found | {
        "runtime_h": runtime,
        "gpu_hours": hours,
        "energy_kwh": energy,
        "samples_per_gpuh": hours.under(samples),
        "passes_per_gpuh": hours.under(passes),
        "metric_last": Summary(n, said["metric_value"]),
        "energy_per_model_kwh": energy if said["phase"] != "finetune" else Summary(n, None),
    }


def _work(configuration: Configuration) -> tuple[int, int]:
    """Samples and passes of the whole training."""
    each, updates = configuration.samples_per_epoch, configuration.updates
    assert each is not None and updates is not None
    return each * configuration.epochs, updates * configuration.gpus


def _joules(kwh: float | None) -> float | None:
    return None if kwh is None or math.isnan(kwh) else kwh * 3.6e6
