"""Optima in the measurements that Zeus publishes: by energy, the power limit and the batch size.

    python examples/zeus/power_limits.py FOLDER

prints the tables of docs/zeus-power-limits.md, from the folder with `summary_power_<gpu>.csv` and
`summary_train.csv`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from convert import TRAININGS, read_epochs

DEFAULT_BATCH = {training.label: training.default_batch for training in TRAININGS.values()}
"""By the paper's experiments; at most what a GPU holds."""
GPUS = {"v100": "V100", "a40": "A40", "p100": "P100", "rtx6000": "RTX 6000"}
OTHER_OPTIMIZER = "adam"
"""Of a training that the V100's table has with two optimisers: the paper's is Adadelta."""
OF_RUN = ["dataset", "network", "batch_size", "optimizer"]
OF_POINT = ["training", "device", "local_batch_size", "gpu_power_limit_w"]
J_PER_KWH = 3.6e6


def measured(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs of an epoch, and those to the target, in a folder with Zeus's tables.

    A run to the target is one measured epoch, times the epochs that another execution of the training
    needed. Executions that never reached the target are none.
    """
    epochs = pd.concat(_epochs(folder / f"summary_power_{gpu}.csv", gpu) for gpu in GPUS)
    train = pd.read_csv(folder / "summary_train.csv").drop_duplicates()
    targets = {key: training.target for key, training in TRAININGS.items()}
    at_target = [
        targets.get((row.dataset, row.network)) == row.target_metric for row in train.itertuples()
    ]
    reached = train[at_target].dropna(subset="target_epoch")[[*OF_RUN, "target_epoch"]]
    to_target = epochs.merge(reached, on=OF_RUN)
    for column in ("runtime_s", "energy_kwh"):
        to_target[column] *= to_target["target_epoch"]
    return epochs, to_target


def _epochs(path: Path, gpu: str) -> pd.DataFrame:
    """Return the epochs of a GPU with the paper's optimiser: times in s, energies in kWh."""
    rows = read_epochs(path)
    trainings = rows.groupby(["dataset", "network"])
    other = rows["optimizer"] == OTHER_OPTIMIZER
    kept = rows[~(other & (trainings["optimizer"].transform("nunique") > 1))]
    return kept.assign(
        training=[TRAININGS[row.dataset, row.network].label for row in kept.itertuples()],
        device=gpu,
        local_batch_size=kept["batch_size"],
        gpu_power_limit_w=kept["power_limit"],
        runtime_s=kept["time_per_epoch"],
        energy_kwh=kept["time_per_epoch"] * kept["average_power"] / J_PER_KWH,
    )


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


def main(folder: Path) -> None:
    """Print both tables in Markdown."""
    epochs, to_target = measured(folder)
    for rows in (limits_rows(best_limits(epochs)), batches_rows(best_batches(to_target))):
        print("\n".join(f"| {' | '.join(row)} |" for row in rows), end="\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
