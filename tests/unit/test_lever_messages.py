"""What a user is told who writes clocks and power limits wrong, or where they cannot be set."""

from __future__ import annotations

from typing import Any

import pytest
from campaign_files import LOCAL, Edits, Refused, demo, edited
from operating_runs import SERIES, campaign

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.campaign.load import check_devices
from scalewatt.campaign.registered_campaign import check_point
from scalewatt.common.errors import InputError

CLOCKS = {("series", SERIES, "gpu_clock_mhz"): [705, 1410]}
LINE = f"{SERIES}-gpuclock705mhz"


@pytest.fixture
def refused(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


def ways(**levers: Any) -> Any:
    """The local cluster, which says how to set some levers."""
    return parse_cluster({**edited({}, LOCAL), "levers": levers}, "cluster.yaml")


# --- names of series ------------------------------------------------------------------------------

WRONG_SERIES: dict[str, Edits] = {
    "a device that no cluster file has": {("series", SERIES, "device"): "locale"},
    "two batch sizes": {("series", SERIES, "global_batch_size"): 64},
    "an unknown setting": {("series", SERIES, "settings"): {"epoch": 3}},
    "too many GPUs": {("series", SERIES, "gpus"): [1, 8]},
}


@pytest.mark.parametrize("edits", WRONG_SERIES.values(), ids=WRONG_SERIES)
def test_an_error_names_the_series_as_it_is_written(edits: Edits, refused: Refused) -> None:
    message = refused.campaign(CLOCKS | dict(edits))
    assert f"series.{SERIES}" in message and LINE not in message


def test_fine_tuning_without_weights_names_its_series_as_it_is_written(refused: Refused) -> None:
    name = "fourcastnet-finetune-lbs4"
    edits = {
        ("series", name, "gpu_clock_mhz"): [1200, 1410],
        ("series", name, "local_batch_size"): 1,
    }
    message = refused.campaign(edits)
    assert f"series.{name}: fine-tuning" in message


def test_two_series_that_disagree_are_named_as_they_are_written(refused: Refused) -> None:
    other = "resnet50-full-gbs16"
    edits = CLOCKS | {
        ("series", other, "gpu_clock_mhz"): [705, 930],
        ("series", other, "repeats"): 2,
    }
    message = refused.campaign(edits)
    assert f"series.{other}.repeats: 2, but series.{SERIES} asks for 1" in message


def test_an_unknown_series_of_a_figure_is_answered_with_those_that_are_written(
    refused: Refused,
) -> None:
    wrong = {("figures", "figure2", "series"): ["resnet50-full-lbs61"]}
    message = refused.campaign(CLOCKS | wrong)
    assert f"allowed: {SERIES}, resnet50-full-gbs16," in message and LINE not in message
    assert message.rstrip().endswith(f"did you mean '{SERIES}'?")
    wrong = {("figures", "figure2", "series"): [f"{SERIES}-gpuclock750mhz"]}
    message = refused.campaign(CLOCKS | wrong)
    assert f"allowed: {SERIES}, " in message
    assert message.rstrip().endswith(f"did you mean '{LINE}'?")


def test_a_point_that_a_series_lacks_is_told_of_the_series_as_it_is_written(
    refused: Refused,
) -> None:
    points = [{"series": SERIES, "gpus": 3}]
    message = refused.campaign(CLOCKS | {("figures", "table1", "points"): points})
    assert f"series.{SERIES} has no point at 3 GPUs; allowed: 1, 2, 4" in message


def test_a_baseline_of_several_lines_is_answered_with_these_lines(refused: Refused) -> None:
    variants = {"series": [SERIES], "baselines": [SERIES]}
    message = refused.campaign(CLOCKS | {("figures",): {"variants": variants}})
    assert f"figures.variants.baselines: '{SERIES}' stands for 2 lines of resnet50 train" in message
    assert f"allowed: one of {LINE}, {SERIES}-gpuclock1410mhz" in message


def test_a_device_of_another_cluster_is_told_of_the_series_as_it_is_written() -> None:
    elsewhere = campaign((705, 1410), device="a100")
    with pytest.raises(InputError, match=rf"series\.{SERIES}\.device: 'a100' is not on"):
        check_devices(elsewhere, ways())


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


def test_a_wrong_value_of_several_kinds_is_answered_with_what_the_key_takes(
    refused: Refused,
) -> None:
    """An object is no reason to speak of one of the alternatives where none of them is an object."""
    message = refused.campaign({("series", SERIES, "dataset_fraction"): {"n": 4}})
    assert 'dataset_fraction: {"n": 4} does not fit; allowed: 1, or n/256' in message


@pytest.mark.parametrize(
    ("lever", "value"),
    [("gpu_clock_mhz", 1.41), ("gpu_power_limit_w", 0.25), ("cpu_clock_mhz", 2.4)],
)
def test_a_registered_clock_in_ghz_or_limit_in_kw_is_refused(lever: str, value: float) -> None:
    entry = {"model": "resnet50", "device": "a100"}
    point = {"gpus": 1, "local_batch_size": 32, "dataset_samples": 1000, "epochs": 1, lever: value}
    with pytest.raises(InputError, match=rf"{lever}: {value} is too small"):
        check_point(entry, point, "runs.csv")


@pytest.mark.parametrize("key", ["gpu_power_limit_w", "gpu_clock_mhz", "repeats"])
def test_a_key_of_the_series_among_its_settings_is_sent_one_level_up(
    key: str, refused: Refused
) -> None:
    message = refused.campaign({("series", SERIES, "settings"): {key: 250}})
    assert f"series.{SERIES}.settings: '{key}' is a key of the series itself" in message
    assert f"allowed: one level up, as series.{SERIES}.{key}" in message


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


def test_levers_of_several_series_that_a_cluster_cannot_set_are_told_at_once() -> None:
    other = "resnet50-scaled-lbs16"
    two = demo(
        CLOCKS | {("series", other, "cpu_clock_mhz"): 2000, ("series", other, "gpu_clock_mhz"): 705}
    )
    with pytest.raises(InputError) as raised:
        check_devices(two, ways())
    assert f"series.{SERIES}.gpu_clock_mhz, series.{other}.cpu_clock_mhz: the" in str(raised.value)


def test_a_single_lever_that_a_cluster_cannot_set_is_told_in_the_singular() -> None:
    with pytest.raises(InputError) as raised:
        check_devices(campaign(), ways())
    assert str(raised.value) == (
        f"levers.yaml: series.{SERIES}.gpu_clock_mhz: the cluster 'local' does not say how to set it; "
        "allowed: with levers.gpu_clock_mhz in its cluster file (docs/levers.md), or without this key"
    )
