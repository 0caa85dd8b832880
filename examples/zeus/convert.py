"""Make of Zeus's published tables what `scalewatt register --table` reads: a run of one epoch a row.

    python examples/zeus/convert.py trace/summary_power_v100.csv converted
    scalewatt register zeus-v100 --table converted/runs.csv

A row of `summary_power_<gpu>.csv` holds seconds of an epoch and the mean power of one GPU in W, by batch
size, optimiser and power limit. It becomes a log of ZeusMonitor with one window, of the epoch.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import pandas as pd


class Training(NamedTuple):
    """What is known of a training of Zeus's paper and not in its tables.

    `samples` of the training set, as its publisher counts them; the metric, in the tables' unit, at which
    the paper ends a training (run_alibaba.py, github.com/ml-energy/zeus); the paper's batch size.
    """

    label: str
    samples: int
    metric_name: str
    metric_goal: str
    target: float
    default_batch: int
    phase: str | None = None


TRAININGS = {
    ("cifar100", "shufflenetv2"): Training(
        "ShuffleNetV2, CIFAR-100", 50_000, "top1_accuracy", "max", 0.6, 1024
    ),
    ("imagenet", "resnet50"): Training(
        "ResNet-50, ImageNet", 1_281_167, "top1_accuracy", "max", 0.65, 256
    ),
    ("librispeech", "deepspeech2"): Training(
        "DeepSpeech2, LibriSpeech", 281_241, "word_error_rate_percent", "min", 40.0, 256
    ),
    ("movielens-1m", "ncf"): Training("NCF, MovieLens-1M", 1_000_209, "ndcg", "max", 0.41, 1024),
    ("squad", "bert_base_uncased"): Training(
        "BERT, SQuAD", 87_599, "f1_percent", "max", 84.0, 32, phase="squad"
    ),
    ("sentiment140", "bert_base_uncased"): Training(
        "BERT, Sentiment140", 1_600_000, "accuracy", "max", 0.84, 128, phase="sentiment140"
    ),
}
"""By dataset and network, as the tables name them."""
GPU_NAMES = {
    "a40": "NVIDIA A40",
    "p100": "NVIDIA P100",
    "rtx6000": "NVIDIA Quadro RTX 6000",
    "v100": "NVIDIA V100",
}
NUMBERS = ["batch_size", "power_limit", "time_per_epoch", "average_power"]


def read_epochs(path: Path) -> pd.DataFrame:
    """Read the measured epochs of a table, each once; say which rows are none."""
    rows = pd.read_csv(path).drop_duplicates()
    numbers = rows[NUMBERS].apply(pd.to_numeric, errors="coerce")
    known = pd.Series(
        [key in TRAININGS for key in zip(rows.dataset, rows.network, strict=True)], rows.index
    )
    good = (numbers > 0).all(axis=1) & known
    for line in rows.index[~good]:
        print(f"left out: {path}: line {line + 2}: another training, or numbers that are none")
    return rows.assign(**numbers)[good].reset_index(drop=True)


def convert(path: Path, out: Path) -> None:
    """Write a log for each row of a table, and the table that describes them."""
    gpu = path.stem.removeprefix("summary_power_")
    rows = read_epochs(path)
    optimizers = rows.groupby(["dataset", "network"]).optimizer.transform("nunique")
    described = []
    for number, row in rows.iterrows():
        training = TRAININGS[row.dataset, row.network]
        name = f"{gpu}-{number:03d}.csv"
        window = f"{row.dataset} {row.network} {row.batch_size} {row.optimizer} {row.power_limit}"
        joules = row.time_per_epoch * row.average_power
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(
            "start_time,window_name,elapsed_time,gpu0_energy\n"
            f"0.0,{window},{row.time_per_epoch},{joules}\n"
        )
        described.append(
            {
                "path": name,
                "model": row.network.lower(),
                "phase": training.phase,
                "device": gpu,
                "device_name": GPU_NAMES.get(gpu),
                "host": gpu,
                "gpus": 1,
                "local_batch_size": int(row.batch_size),
                "gpu_power_limit_w": row.power_limit,
                "variant": row.optimizer if optimizers[number] > 1 else None,
                "dataset_samples": training.samples,
                "epochs": 1,
                "label": f"{training.label}, {gpu}, LBS {row.batch_size}, {row.power_limit} W",
                "metric_name": training.metric_name,
                "metric_goal": training.metric_goal,
            }
        )
    pd.DataFrame(described).to_csv(out / "runs.csv", index=False)
    print(f"runs: {len(described)}; now: scalewatt register NAME --table {out / 'runs.csv'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("table", type=Path, help="summary_power_<gpu>.csv")
    parser.add_argument("out", type=Path, help="new folder for what is written")
    given = parser.parse_args()
    convert(given.table, given.out)
