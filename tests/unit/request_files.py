"""Runs, devices and clusters for tests of what a job asks for."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from campaign_files import PAPER, ROOT
from run_files import make_spec

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device, load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError

HOREKA = ROOT / "config" / "horeka.yaml"
UNLIMITED_MIN = 10**6


@cache
def horeka() -> Cluster:
    return load_cluster(HOREKA)


@cache
def paper() -> Campaign:
    return load_campaign(PAPER, horeka())


def device(**values: Any) -> Device:
    """A device of a Slurm cluster whose limit is a day."""
    given = {
        "name": "a100",
        "gpus_per_node": 4,
        "cpus_per_rank": 8,
        "cpu": {"sockets": 2, "idle_w": 80, "rated_w": 270},
        "partition": "gpu",
        "gres": "gpu",
        "time_limit_min": 1440,
    }
    return Device(**{**given, **values})


def cluster(one: Device | None = None, **values: Any) -> Cluster:
    chosen = one or device()
    return Cluster(
        name="mini", launcher="srun --ntasks={gpus}", devices={chosen.name: chosen}, **values
    )


def spec(**values: Any) -> RunSpec:
    """A run of 100 epochs of 50 updates on two nodes."""
    given = {
        "configuration": "resnet50-a100-n008-lbs0032-full",
        "device": "a100",
        "gpus": 8,
        "nodes": 2,
        "ranks_per_node": 4,
        "local_batch_size": 32,
        "dataset_samples": 8 * 32 * 50,
        "epochs": 100,
    }
    return make_spec(**{**given, **values})


def refusal(function: Any, *arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message
