"""What Huber et al. (2025) published: rows of `configurations`, and how much single runs scatter.

Source: reference/published_results.csv. Each number is the paper's or its authors', or follows from them;
what they do not say, and what does not follow, is null. Repeats are published of FourCastNet's pre-training
on 64 A100 (three, section 3.3.1) and of each training of ResNet50 (five, its authors' figure 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import epoch_work
from scalewatt.campaign.expansion import configuration_id
from scalewatt.campaign.model_registry import defaults_of, model_key
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.derived_quantities import Facility, energy_columns
from scalewatt.results.tables.frames import (
    PUBLISHED,
    column_of,
    records,
    to_frame,
    to_table,
    values,
)
from scalewatt.results.tables.repeat_statistics import half_width, inverse
from scalewatt.results.tables.scaling import TRAINING
from scalewatt.results.tables.table_schema import CONFIGURATIONS, ESTIMATE_BOUNDS

Row = dict[str, Any]

REFERENCE = PROJECT_ROOT / "reference" / "published_results.csv"
FULL_SAMPLES = {"resnet50": 1281167, "fourcastnet": 54020}
"""Training samples of an epoch of the paper's whole datasets."""
GPUS_PER_NODE, SOCKETS_PER_NODE = 4, 2
SCOPES = {"a100": "gpu+cpu+ram", "h100": "gpu+cpu"}
WIDEST = "fourcastnet"
"""The model whose spread is taken for models of which none is published."""
DEVICE_NAMES = {"a100": "A100-40GB", "h100": "H100-94GB"}


def published_lines(points: pd.DataFrame) -> pd.DataFrame:
    """Published configurations of the same trainings as `points`, in their order.

    The same model, phase, device, n, batch sizes, samples and epochs (TRAINING), which `points` has as
    columns. Its columns `place`, `series` and `label` stay; a training is in them once for each place.
    """
    known = points.drop(columns="configuration").drop_duplicates(["place", *TRAINING])
    return known.merge(published_configurations(), on=list(TRAINING))


def is_overlaid(definition: Mapping[str, Any]) -> bool:
    """True if a table's definition asks for the published points."""
    return definition.get("options", {}).get("overlay") == PUBLISHED


# --- rows -----------------------------------------------------------------------------------------


def _merged() -> pd.DataFrame:
    """One row per configuration: its time and its energy's parts may stand in two rows of the reference."""
    rows = pd.read_csv(REFERENCE, dtype_backend="pyarrow")
    ids = column_of(map(_id, records(rows)), pa.string())
    return rows.assign(configuration=ids).groupby("configuration", sort=False).first().reset_index()


def _id(row: Row) -> str:
    """Id of a row's configuration, as a campaign of the paper's names it."""
    key = model_key(row["model"], row["phase"])
    samples, epochs = row["dataset_samples"], row["epochs"]
    samples = None if samples == FULL_SAMPLES[row["model"]] else samples
    changed = {} if epochs == defaults_of(key)["epochs"] else {"epochs": epochs}
    size = row["gpus"], row["local_batch_size"], samples
    return configuration_id(key, row["device"], *size, changed)


@cache
def published_configurations() -> pd.DataFrame:
    """One row of CONFIGURATIONS per published training: campaign and origin `published`."""
    published = _merged()
    kinds = zip(published["model"], published["phase"], strict=True)
    nodes = -(-published["gpus"] // GPUS_PER_NODE)
    identity: dict[str, Any] = {
        "campaign": PUBLISHED,
        "device_name": published["device"].map(DEVICE_NAMES),
        "nodes": nodes,
        "protocol": "paper",
        "precision": [defaults_of(model_key(*kind))["precision"] for kind in kinds],
        "energy_origin": PUBLISHED,
        "energy_scope": published["device"].map(SCOPES),
        "metric_goal": "min",
        "torch_device": "cuda",
        "n_repeats": published["repeats"],
    }
    parts = [
        columns.add_prefix(f"{name}_") for name, columns in _quantities(published, nodes).items()
    ]
    head = published[["configuration", *TRAINING, "metric_name"]].assign(**identity)
    rows = pd.concat([head, *parts], axis=1)
    means = {name: name.replace("_low_", "_").replace("_high_", "_") for name in ESTIMATE_BOUNDS}
    rows = rows.assign(**{name: rows[f"{mean}_mean"] for name, mean in means.items()})
    return to_frame(to_table(rows.reindex(columns=CONFIGURATIONS.names), CONFIGURATIONS))


def _quantities(published: pd.DataFrame, nodes: pd.Series) -> dict[str, pd.DataFrame]:
    """Columns of PARTS: what is published, and what follows from it; spreads where they follow.

    A quotient of energy and time has none: both were of the same runs, and how they vary together
    is not published.
    """
    n, gpus, epochs = published["repeats"], published["gpus"], published["epochs"]
    hours = from_population_sd(n, published["gpu_hours"], published["gpu_hours_popstd"])
    energy = from_population_sd(n, published["energy_kwh"], published["energy_popstd_kwh"])
    # A run time is that of each GPU; one that was printed itself counts, with the same spread.
    runtime = hours.mul(1 / gpus, axis=0)
    printed = published["runtime_h"].fillna(runtime["mean"])
    shift = (printed - runtime["mean"]).fillna(0.0)
    runtime = runtime.assign(mean=printed, low=runtime["low"] + shift, high=runtime["high"] + shift)

    sizes = zip(published["dataset_samples"], gpus, published["local_batch_size"], strict=True)
    per_epoch = zip(*(epoch_work(*size) for size in sizes), strict=True)
    samples, updates = (column_of(counts, pa.int64()) * epochs for counts in per_epoch)
    seconds = 3600 * runtime["mean"].fillna(0.0)
    work = pd.DataFrame(
        {
            **{"gpu_hours": published["gpu_hours"], "samples": samples, "updates": updates},
            **{"nodes": nodes, "gpu_s": seconds * gpus},
            **{"socket_s": seconds * SOCKETS_PER_NODE * nodes, "node_s": seconds * nodes},
        }
    )
    joules = {kind: published[f"{kind}_energy_kwh"] * J_PER_KWH for kind in ("gpu", "cpu")}
    joules["ram"] = column_of([None] * len(published), pa.float64(), published.index)
    derived = energy_columns(joules, published["energy_kwh"] * J_PER_KWH, work, Facility())
    per_unit = ("energy_per_sample_j", "energy_per_update_j", "energy_per_node_kwh")
    quantities = {name: column.to_frame("mean") for name, column in derived.items()} | {
        "runtime_h": runtime,
        "gpu_hours": hours,
        "energy_kwh": energy,
        **{name: energy.mul(derived[name] / energy["mean"], axis=0) for name in per_unit},
        "energy_per_model_kwh": energy.where(published["phase"] != "finetune"),
        "samples_per_gpuh": inverse(hours, samples),
        "passes_per_gpuh": inverse(hours, updates * gpus),
        "metric_last": published[["metric_value"]].set_axis(["mean"], axis=1),
    }
    population = ((n - 1) / n) ** 0.5
    return {
        name: parts.assign(population_sd=parts["sd"] * population) if "sd" in parts else parts
        for name, parts in quantities.items()
    }


def from_population_sd(n: pd.Series, mean: pd.Series, population_sd: pd.Series) -> pd.DataFrame:
    """Columns SUMMARY of n values each, by their standard deviation with n in place of n − 1."""
    several = n.where(n > 1)
    sd = population_sd.where(mean.notna()) * (several / (several - 1)) ** 0.5
    half = column_of((half_width(k or 1) for k in values(several)), pa.float64(), n.index) * sd
    return pd.DataFrame({"mean": mean, "sd": sd, "low": mean - half, "high": mean + half})


# --- the spread of single runs --------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Relative sample standard deviation of one run, and how many degrees of freedom tell it."""

    relative: float
    freedom: int


@cache
def published_spread(model: str, name: str) -> Spread | None:
    """Published spread of a quantity of `configurations`; null of errors, of which none is.

    Times and rates have that of GPU hours, energies that of the energy. Powers and shares have that of a
    quotient of independent ones, wider than for any positive correlation: how energy and time of a run go
    together is not published. (In repeats of trainings in MLPerf v4.0 their logarithms correlate by 0.0
    to 0.9.) Of a model without published repeats it is the WIDEST one's.
    """
    if name.startswith("metric_"):
        return None
    if any(part in name for part in ("power", "p_gpuh", "share")):
        energy, time = _published(model, "energy_kwh"), _published(model, "gpu_hours")
        both = math.hypot(energy.relative, time.relative)
        return Spread(both, min(energy.freedom, time.freedom))
    is_energy = any(part in name for part in ("energy", "carbon", "cost"))
    return _published(model, "energy_kwh" if is_energy else "gpu_hours")


@cache
def _published(model: str, name: str) -> Spread:
    """Spread that the repeats of a model's trainings share; repeats that are all equal tell none."""
    rows = published_configurations()
    rows = rows[(rows["model"] == model) & (rows["n_repeats"] > 1) & rows[f"{name}_sd"].notna()]
    freedom = rows["n_repeats"] - 1
    square = float((freedom * (rows[f"{name}_sd"] / rows[f"{name}_mean"]) ** 2).sum())
    count = int(freedom.sum())
    return Spread(math.sqrt(square / count), count) if square else _published(WIDEST, name)
