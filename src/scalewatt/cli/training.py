"""Commands that make data and runs."""

from __future__ import annotations

import json
from pathlib import Path

from scalewatt.cli.shared_arguments import Commands, add_cluster, command


def add(commands: Commands) -> None:
    """Add them."""
    _prepare(commands)
    _train(commands)
    _simulate(commands)
    _probe(commands)
    _register(commands)


def _prepare(commands: Commands) -> None:
    prepare = command(
        commands,
        "prepare",
        "prepare a dataset and describe it",
        [
            "scalewatt prepare --folder data/imagenet --source /data/imagenet-tars \\\n"
            '    --definition \'{"name": "imagenet", "format": "imagenet"}\'',
            "scalewatt prepare --folder data/imagenet --pack",
        ],
    )
    prepare.add_argument(
        "--definition", type=json.loads, help="JSON; default: what the folder was prepared for"
    )
    prepare.add_argument(
        "--folder", type=Path, required=True, help="where the dataset lies or goes"
    )
    prepare.add_argument(
        "--source", help="what it is prepared from: a path, a URL, or an object as JSON"
    )
    prepare.add_argument("--year", type=int, help="only this year, of a dataset in ERA5's format")
    prepare.add_argument("--out", type=Path, help="JSON file that describes it")
    prepare.add_argument(
        "--pack", action="store_true", help="also put all images into one file, for staging"
    )


def _train(commands: Commands) -> None:
    train = command(
        commands,
        "train",
        "train (the next segment of) a run under perun",
        [
            "scalewatt train results/demo/runs/resnet50-local-n002-lbs0032-full/1/spec.json \\\n"
            "    --cluster profiles/local/cluster.yaml --out again"
        ],
    )
    train.add_argument("spec", type=Path)
    train.add_argument("--out", type=Path, required=True, help="run folder for the results")
    add_cluster(train)
    train.add_argument(
        "--work", type=Path, help="root of working directories; default: the cluster's"
    )
    train.add_argument("--initial-weights", type=Path)
    train.add_argument("--max-updates", type=int, help="stop at a checkpoint after so many updates")
    train.add_argument(
        "--budget-of",
        type=Path,
        metavar="CAMPAIGN",
        help="refuse if its energy budget is spent; --out lies in its results",
    )


def _simulate(commands: Commands) -> None:
    simulate = command(
        commands,
        "simulate",
        "write a run's folder from the scaling model, without training",
        [
            "scalewatt simulate results/paper-simulated/runs/resnet50-a100-n004-lbs0256-full/1/spec.json \\\n"
            "    --cluster profiles/simulate/cluster.yaml --model reference/scaling_model.json"
        ],
    )
    simulate.add_argument("specs", type=Path, nargs="+", metavar="SPEC")
    simulate.add_argument(
        "--out", type=Path, help="run folder for the results; default: the one of SPEC"
    )
    add_cluster(simulate)
    simulate.add_argument("--model", type=Path, required=True, help="file of the scaling model")


def _probe(commands: Commands) -> None:
    probe = command(
        commands,
        "probe",
        "measure a device's idle power on one node",
        [
            "scalewatt probe local --cluster profiles/local/cluster.yaml --seconds 60 --out idle-probe"
        ],
    )
    probe.add_argument("device", help="a device of the cluster")
    add_cluster(probe)
    probe.add_argument("--seconds", type=float, default=300.0, help="how long to measure")
    probe.add_argument("--sampling-period", type=float, default=1.0, help="in seconds")
    probe.add_argument("--repeat", type=int, default=1, help="which of several probes this is")
    probe.add_argument("--out", type=Path, required=True, help="folder for the recording")


def _register(commands: Commands) -> None:
    register = command(
        commands,
        "register",
        "make runs of recordings from elsewhere",
        [
            "scalewatt register elsewhere recordings/*.hdf5",
            "scalewatt register elsewhere --table runs.csv",
        ],
    )
    register.add_argument("name", help="the campaign's name")
    register.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    register.add_argument("--table", type=Path, help="CSV, YAML or Parquet, one row per run")
    register.add_argument("--results", type=Path, default=Path("results"))
    register.add_argument("--campaigns", type=Path, default=Path("campaigns"))
