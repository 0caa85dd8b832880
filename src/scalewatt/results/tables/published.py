"""What Huber et al. (2025) published, as rows of `configurations`, and beside a campaign's own.

Source: reference/published_results.csv. Each number is the paper's or its authors', or follows from
them: null is what they do not say, and what does not follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.campaign.expansion import configuration_id
from scalewatt.campaign.model_registry import defaults_of, model_key
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.derived_quantities import Facility, Work, energy_columns
from scalewatt.results.tables.frames import (
    column_of,
    read_frame,
    records,
    to_frame,
    to_table,
    values,
)
from scalewatt.results.tables.read_table import PUBLISHED
from scalewatt.results.tables.repeat_statistics import half_width, inverse
from scalewatt.results.tables.scaling import TRAINING
from scalewatt.results.tables.table_schema import CONFIGURATIONS, ESTIMATE_BOUNDS

Row = dict[str, Any]

REFERENCE = PROJECT_ROOT / "reference" / "published_results.csv"
FULL_SAMPLES = {"resnet50": 1281167, "fourcastnet": 54020}
"""Training samples of an epoch of the paper's whole datasets."""
_BOUND = re.compile("_(low|high)(?=_kwh$)")
GPUS_PER_NODE, SOCKETS_PER_NODE = 4, 2
SCOPES = {"a100": "gpu+cpu+ram", "h100": "gpu+cpu"}
DEVICE_NAMES = {"a100": "A100-40GB", "h100": "H100-94GB"}
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


def published_configurations() -> pd.DataFrame:
    """Return one row of CONFIGURATIONS per published training: campaign and origin `published`."""
    return _configurations().copy()


def published_sources() -> dict[str, str]:
    """Return where in the paper, or its authors' code, each published configuration's numbers stand."""
    return dict(
        zip(*(values(_merged()[name]) for name in ("configuration", "source")), strict=True)
    )


def published_lines(points: pd.DataFrame) -> pd.DataFrame:
    """Return the published configurations of the same trainings as `points`, in their order.

    The same model, phase, device, n, batch sizes, samples and epochs (TRAINING), which `points` has as
    columns. Its columns `place`, `series` and `label` stay; a training is there once for each place.
    """
    known = points.drop(columns="configuration").drop_duplicates(["place", *TRAINING])
    return known.merge(_configurations(), on=list(TRAINING))


def timed_alike(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a run time and the dataset of their line's first one: those with a speed-up."""
    timed = lines[lines["runtime_h_mean"].notna()]
    first = timed.groupby("place")["dataset_samples"].transform("first")
    return timed[timed["dataset_samples"] == first]


def is_overlaid(definition: Row) -> bool:
    """Return True if a table's definition asks for the published points."""
    return definition.get("options", {}).get("overlay") == PUBLISHED


# --- rows -----------------------------------------------------------------------------------------


@cache
def _merged() -> pd.DataFrame:
    """Return one row per configuration: its time and its energy's parts may stand in two of the reference."""
    read = read_frame(REFERENCE, _COLUMNS)
    ids = [_configuration(row).id for row in records(read)]
    by_id = read.assign(configuration=column_of(ids, pa.string())).groupby(
        "configuration", sort=False
    )
    return by_id.first().assign(source=by_id["source"].agg("; ".join)).reset_index()


@cache
def _configurations() -> pd.DataFrame:
    published = _merged()
    configurations = [_configuration(row) for row in records(published)]
    identity: dict[str, Any] = {
        "campaign": PUBLISHED,
        "device_name": published["device"].map(DEVICE_NAMES),
        "nodes": [one.nodes for one in configurations],
        "protocol": [one.protocol for one in configurations],
        "precision": [one.settings["precision"] for one in configurations],
        "energy_origin": PUBLISHED,
        "energy_scope": published["device"].map(SCOPES),
        "metric_goal": "min",
        "torch_device": "cuda",
        "n_repeats": published["repeats"],
    }
    found = pd.concat(
        [
            published[["configuration", *TRAINING, "metric_name"]].assign(**identity),
            *(
                parts.add_prefix(f"{name}_")
                for name, parts in _quantities(published, configurations).items()
            ),
        ],
        axis=1,
    )
    bounds = {n: found[f"{_BOUND.sub('', n)}_mean"] for n in ESTIMATE_BOUNDS}
    empty = found.assign(**bounds).reindex(columns=CONFIGURATIONS.names)
    return to_frame(to_table(empty, CONFIGURATIONS))


def _configuration(row: Row) -> Configuration:
    """Return the paper's configuration of a row, named as a campaign of the paper's names it."""
    model, phase, gpus = row["model"], row["phase"], row["gpus"]
    key = model_key(model, phase)
    whole = row["dataset_samples"] == FULL_SAMPLES[model]
    changed = row["epochs"] != defaults_of(key)["epochs"]
    return Configuration(
        id=configuration_id(
            key,
            row["device"],
            gpus,
            row["local_batch_size"],
            None if whole else row["dataset_samples"],
            {"epochs": row["epochs"]} if changed else {},
        ),
        model=model,
        phase=phase,
        device=row["device"],
        gpus=gpus,
        nodes=-(-gpus // GPUS_PER_NODE),
        ranks_per_node=min(gpus, GPUS_PER_NODE),
        local_batch_size=row["local_batch_size"],
        global_batch_size=row["global_batch_size"],
        dataset={"name": PUBLISHED, "format": PUBLISHED},
        dataset_fraction="1",
        dataset_samples=row["dataset_samples"],
        protocol="paper",
        epochs=row["epochs"],
        settings={"precision": defaults_of(key)["precision"]},
    )


def _quantities(
    published: pd.DataFrame, configurations: Sequence[Configuration]
) -> dict[str, pd.DataFrame]:
    """Return columns of PARTS: what is published, and what follows from it; spreads where they follow.

    A quotient of energy and time has none: both were of the same runs, and how they vary together
    is not published.
    """
    n = published["repeats"]
    hours = from_population_sd(n, published["gpu_hours"], published["gpu_hours_popstd"])
    energy = from_population_sd(n, published["energy_kwh"], published["energy_popstd_kwh"])
    runtime = around(hours.mul(1 / published["gpus"], axis=0), published["runtime_h"])
    samples, updates = (
        column_of(counts, pa.int64()) for counts in zip(*map(_work, configurations), strict=True)
    )
    nodes = column_of((one.nodes for one in configurations), pa.int32())
    seconds = 3600 * runtime["mean"].fillna(0.0)
    joules = {kind: published[f"{kind}_energy_kwh"] * J_PER_KWH for kind in ("gpu", "cpu")}
    work = Work(
        gpu_hours=published["gpu_hours"],
        nodes=nodes,
        samples=samples,
        updates=updates,
        gpu_s=seconds * published["gpus"],
        socket_s=seconds * SOCKETS_PER_NODE * nodes,
        node_s=seconds * nodes,
    )
    joules["ram"] = joules["gpu"][:0].reindex(published.index)
    total_j = published["energy_kwh"] * J_PER_KWH
    derived = energy_columns(joules, total_j, work, Facility())
    per_unit = ("energy_per_sample_j", "energy_per_update_j", "energy_per_node_kwh")
    found = {name: column.to_frame("mean") for name, column in derived.items()} | {
        "runtime_h": runtime,
        "gpu_hours": hours,
        "energy_kwh": energy,
        **{name: energy.mul(derived[name] / energy["mean"], axis=0) for name in per_unit},
        "energy_per_model_kwh": energy.where(published["phase"] != "finetune"),
        "samples_per_gpuh": inverse(hours, samples),
        "passes_per_gpuh": inverse(hours, updates * published["gpus"]),
        "metric_last": published[["metric_value"]].set_axis(["mean"], axis=1),
    }
    population = ((n - 1) / n) ** 0.5
    return {
        name: parts.assign(population_sd=parts["sd"] * population) if "sd" in parts else parts
        for name, parts in found.items()
    }


def from_population_sd(n: pd.Series, mean: pd.Series, population_sd: pd.Series) -> pd.DataFrame:
    """Return the columns SUMMARY of n values each, by their standard deviation with n in place of n − 1."""
    several = n.where(n > 1)
    widths = (half_width(k or 1) for k in values(several))
    sd = population_sd.where(mean.notna()) * (several / (several - 1)) ** 0.5
    half = column_of(widths, pa.float64(), n.index) * sd
    return pd.DataFrame({"mean": mean, "sd": sd, "low": mean - half, "high": mean + half})


def around(found: pd.DataFrame, mean: pd.Series) -> pd.DataFrame:
    """Return the same spreads (columns SUMMARY) around other means where these are known."""
    by = (mean - found["mean"]).fillna(0.0)
    return found.assign(
        mean=mean.fillna(found["mean"]), low=found["low"] + by, high=found["high"] + by
    )


def _work(configuration: Configuration) -> tuple[int, int]:
    """Return the samples and updates of the whole training."""
    each, updates = configuration.samples_per_epoch, configuration.updates
    assert each is not None and updates is not None
    return each * configuration.epochs, updates
