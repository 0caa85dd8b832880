"""What a user is told who writes clocks and power limits wrong, or where they cannot be set."""

from __future__ import annotations

from typing import Any

import pytest
from campaign_files import LOCAL, Refused, edited
from operating_runs import SERIES, campaign

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.campaign.load import check_devices
from scalewatt.campaign.registered_campaign import registered_schema
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check


@pytest.fixture
def refused(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


def ways(**levers: Any) -> Any:
    """The local cluster, which says how to set some levers."""
    return parse_cluster({**edited({}, LOCAL), "levers": levers}, "cluster.yaml")


# --- values ---------------------------------------------------------------------------------------

GPU_CLOCK = (
    "allowed: clock of the GPUs' multiprocessors, given in MHz: a number from 100 to 10000, or a list of "
    "different ones"
)
GPU_LIMIT = "allowed: power limit of each GPU, given in W: a number from 10 to 10000, or a list of"
CPU_CLOCK = "allowed: clock of the CPUs, given in MHz: a number from 100 to 20000, or a list of"


@pytest.mark.parametrize(
    ("lever", "value", "words"),
    [
        ("gpu_clock_mhz", 1.41, GPU_CLOCK),
        ("gpu_clock_mhz", [705, 1.41], GPU_CLOCK),
        ("gpu_clock_mhz", 1_410_000, GPU_CLOCK),
        ("gpu_clock_mhz", {"a": 1}, GPU_CLOCK),
        ("gpu_clock_mhz", [705, 705], GPU_CLOCK),
        ("gpu_clock_mhz", "1410 MHz", GPU_CLOCK),
        ("gpu_power_limit_w", 0.25, GPU_LIMIT),
        ("gpu_power_limit_w", None, GPU_LIMIT),
        ("cpu_clock_mhz", 2.4, CPU_CLOCK),
        ("cpu_clock_mhz", [], CPU_CLOCK),
    ],
)
def test_a_wrong_value_is_answered_with_unit_and_bounds(
    lever: str, value: Any, words: str, refused: Refused
) -> None:
    message = refused.campaign({("series", SERIES, lever): value})
    assert f"series.{SERIES}.{lever}: " in message and words in message


@pytest.mark.parametrize(
    ("lever", "value"),
    [("gpu_clock_mhz", 1.41), ("gpu_power_limit_w", 0.25), ("cpu_clock_mhz", 2.4)],
)
def test_a_registered_clock_in_ghz_or_limit_in_kw_is_refused(lever: str, value: float) -> None:
    entry = {"model": "resnet50", "device": "a100"}
    point = {"gpus": 1, "local_batch_size": 32, "dataset_samples": 1000, "epochs": 1, lever: value}
    root = registered_schema()
    with pytest.raises(InputError, match=rf"{lever}: {value} does not fit; allowed"):
        check({**entry, "points": [point]}, root["$defs"]["series"], "mine.yaml", root)


# --- clusters that cannot set them ----------------------------------------------------------------


def test_all_levers_that_a_cluster_cannot_set_are_told_at_once() -> None:
    both = campaign((705, 1410), gpu_power_limit_w=[250, 300], cpu_clock_mhz=2000)
    way = {"launcher": "--gpu-freq={value}"}
    with pytest.raises(InputError) as raised:
        check_devices(both, ways(gpu_clock_mhz=way))
    message = str(raised.value)
    assert (
        f"series.{SERIES}.gpu_power_limit_w, series.{SERIES}.cpu_clock_mhz: the cluster" in message
    )
    assert (
        "allowed: with levers.gpu_power_limit_w and levers.cpu_clock_mhz in its cluster" in message
    )
    assert "or without these keys" in message
