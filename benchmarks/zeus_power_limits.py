"""Optima in the measurements that Zeus publishes: by energy, the power limit and the batch size.

    python benchmarks/zeus_power_limits.py FOLDER
    python benchmarks/zeus_power_limits.py RUNS.parquet RUNS_TO_TARGET.parquet

prints the tables of docs/zeus-power-limits.md: from the folder with `summary_power_<gpu>.csv` and
`summary_train.csv` as `scalewatt register` reads them, or from `tables/runs.parquet` of the two kinds of
registered campaigns, which hold the same energies.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from scalewatt.campaign.operating_points import without_point
from scalewatt.recordings.series import J_PER_KWH
from scalewatt.registration.mlperf_lines import FoundRun
from scalewatt.registration.zeus_measurements import find_measurements

DEFAULT_BATCH = {
    "ShuffleNetV2, CIFAR-100": 1024,
    "ResNet-50, ImageNet": 256,
    "DeepSpeech2, LibriSpeech": 256,
    "NCF, MovieLens-1M": 1024,
    "BERT, SQuAD": 32,
    "BERT, Sentiment140": 128,
}
"""By the paper's experiments (run_alibaba.py, github.com/ml-energy/zeus); at most what a GPU holds."""
NAMES = {
    "shufflenetv2": "ShuffleNetV2, CIFAR-100",
    "resnet50": "ResNet-50, ImageNet",
    "deepspeech2": "DeepSpeech2, LibriSpeech",
    "ncf": "NCF, MovieLens-1M",
    "bert_base_uncased.squad": "BERT, SQuAD",
    "bert_base_uncased.sentiment140": "BERT, Sentiment140",
}
GPUS = {"v100": "V100", "a40": "A40", "p100": "P100", "rtx6000": "RTX 6000"}
OTHER_OPTIMISER = "-adam"
"""Of the id of a training that the V100's table has with two optimisers: the paper's is Adadelta."""
OF_POINT = ["training", "device", "local_batch_size", "gpu_power_limit_w"]


def measured(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs of an epoch, and those to the target, in a folder with Zeus's tables."""
    epochs, _ = find_measurements([folder])
    to_target, _ = find_measurements([folder, folder / "summary_train.csv"])
    return prepared(_frame(epochs)), prepared(_frame(to_target))


def _frame(runs: Iterable[FoundRun]) -> pd.DataFrame:
    """Return the runs' configurations, times in s and energies in kWh, named as in runs.parquet."""
    rows = []
    for one in runs:
        (cells,) = csv.DictReader(io.StringIO(one.recorded.files[0].kept or ""))
        runtime_s = float(cells["time_per_epoch"]) * float(cells.get("target_epoch") or 1)
        kwh = runtime_s * float(cells["average_power"]) / J_PER_KWH
        entry, point = one.description.entry, one.description.point
        rows.append(
            {
                "configuration": one.id,
                "model": entry["model"],
                "phase": entry.get("phase", "train"),
                "device": entry["device"],
                "local_batch_size": point["local_batch_size"],
                "gpu_power_limit_w": point["gpu_power_limit_w"],
                "runtime_s": runtime_s,
                "energy_kwh": kwh,
            }
        )
    return pd.DataFrame(rows)


def prepared(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the six trainings with the paper's optimiser, each named as in NAMES."""
    phase = runs["phase"].where(runs["phase"] != "train", "")
    keys = runs["model"] + ("." + phase).where(phase != "", "")
    plain = runs["configuration"].map(without_point)
    kept = ~plain.str.endswith(OTHER_OPTIMISER)
    return runs.assign(training=keys.map(NAMES))[kept].reset_index(drop=True)


def means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return each operating point's mean energy (kWh) and time (s), its spread, and its runs."""
    grouped = runs.groupby(OF_POINT)
    return grouped.agg(
        kwh=("energy_kwh", "mean"),
        sd=("energy_kwh", "std"),
        s=("runtime_s", "mean"),
        n=("energy_kwh", "size"),
    ).reset_index()


def default_of(batches: pd.Series, default: int) -> int:
    """Return the largest measured batch size up to the default, or the smallest of all."""
    fitting = batches[batches <= default]
    return int(fitting.max() if len(fitting) else batches.min())


def best_limits(epochs: pd.DataFrame) -> pd.DataFrame:
    """Return the limit of the least energy of each training, GPU and batch size.

    `saving` and `slowdown`: energy saved, and time added, over the highest limit, as shares.
    """
    rows = []
    for (training, device, batch), own in means(epochs).groupby(OF_POINT[:3]):
        best, top = own.loc[own["kwh"].idxmin()], own.loc[own["gpu_power_limit_w"].idxmax()]
        rows.append(
            {
                "training": training,
                "device": device,
                "local_batch_size": batch,
                "limit_w": best["gpu_power_limit_w"],
                "top_w": top["gpu_power_limit_w"],
                "kwh": best["kwh"],
                "top_kwh": top["kwh"],
                "saving": 1 - best["kwh"] / top["kwh"],
                "slowdown": best["s"] / top["s"] - 1,
            }
        )
    return pd.DataFrame(rows)


def best_batches(to_target: pd.DataFrame) -> pd.DataFrame:
    """Return what the batch size, the limit and both save of the energy to the target.

    By training and GPU, over the default batch at the highest limit, as shares of its mean energy.
    """
    rows = []
    for (training, device), own in means(to_target).groupby(OF_POINT[:2]):
        batches = own["local_batch_size"]
        default = default_of(batches, DEFAULT_BATCH[training])
        at_top = own[own["gpu_power_limit_w"] == own["gpu_power_limit_w"].max()]
        base = at_top[at_top["local_batch_size"] == default].iloc[0]
        by_batch = at_top.loc[at_top["kwh"].idxmin()]
        at_default = own[batches == default]
        by_limit, both = at_default.loc[at_default["kwh"].idxmin()], own.loc[own["kwh"].idxmin()]
        rows.append(
            {
                "training": training,
                "device": device,
                "base": base,
                "by_batch": by_batch,
                "by_limit": by_limit,
                "both": both,
            }
        )
    return pd.DataFrame(rows)


# --- as the document shows them -------------------------------------------------------------------


def percent(share: float) -> str:
    """Return a share in whole per cent."""
    return f"{100 * share:.0f} %".replace("-0 ", "0 ").replace("-", "−")


def limits_rows(best: pd.DataFrame) -> list[list[str]]:
    """Return the first table: at the default batch, and the range over all batches."""
    rows = []
    for training, default in DEFAULT_BATCH.items():
        for device, gpu in GPUS.items():
            own = best[(best["training"] == training) & (best["device"] == device)]
            if own.empty:
                continue
            one = own[own["local_batch_size"] == default_of(own["local_batch_size"], default)].iloc[
                0
            ]
            rows.append(
                [
                    training,
                    gpu,
                    f"{one['local_batch_size']}",
                    f"{one['limit_w']:.0f} of {one['top_w']:.0f}",
                    percent(one["saving"]),
                    percent(one["slowdown"]),
                    f"{own['limit_w'].min():.0f} to {own['limit_w'].max():.0f}",
                    f"{100 * own['saving'].min():.0f} to {percent(own['saving'].max())}",
                ]
            )
    return rows


def energy(one: pd.Series) -> str:
    """Return a mean energy in kWh ± its sample standard deviation, and of how many runs."""
    digits = 2 if one["kwh"] >= 1 else 3 if one["kwh"] >= 0.1 else 4
    spread = f" ± {one['sd']:.{digits}f}" if one["n"] > 1 else ""
    return f"{one['kwh']:.{digits}f}{spread} ({one['n']})"


def saved(one: pd.Series, way: str) -> float:
    """Return the share of the default's energy that is saved in one way, of a row of `best_batches`."""
    return float(1 - one[way]["kwh"] / one["base"]["kwh"])


def batches_rows(best: pd.DataFrame) -> list[list[str]]:
    """Return the second table."""
    rows = []
    for training in DEFAULT_BATCH:
        for device, gpu in GPUS.items():
            own = best[(best["training"] == training) & (best["device"] == device)]
            for _, one in own.iterrows():
                base, by_batch, both = one["base"], one["by_batch"], one["both"]
                point = f"{both['local_batch_size']}, {both['gpu_power_limit_w']:.0f} W"
                rows.append(
                    [
                        training,
                        gpu,
                        f"{base['local_batch_size']}: {energy(base)}",
                        f"{by_batch['local_batch_size']}: {energy(by_batch)}",
                        *(percent(saved(one, way)) for way in ("by_batch", "by_limit")),
                        f"{point}: {percent(saved(one, 'both'))}",
                        percent(both["s"] / base["s"] - 1),
                    ]
                )
    return rows


def main(paths: list[Path]) -> None:
    """Print both tables in Markdown."""
    if len(paths) == 1:
        epochs, to_target = measured(paths[0])
    else:
        epochs, to_target = (prepared(pd.read_parquet(path)) for path in paths)
    for rows in (limits_rows(best_limits(epochs)), batches_rows(best_batches(to_target))):
        print("\n".join(f"| {' | '.join(row)} |" for row in rows), end="\n\n")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]])
