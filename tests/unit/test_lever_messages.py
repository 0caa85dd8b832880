"""What a user is told who writes clocks and power limits wrong, or where they cannot be set."""

from __future__ import annotations

from typing import Any

import pytest
from campaign_files import LOCAL, Edits, Refused, edited
from operating_runs import SERIES, campaign

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.campaign.load import check_devices
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
    other = "resnet50-full-gbs64"
    edits = CLOCKS | {
        ("series", other, "gpu_clock_mhz"): [705, 930],
        ("series", other, "repeats"): 2,
    }
    message = refused.campaign(edits)
    assert f"series.{other}.repeats: 2, but series.{SERIES} asks for 1" in message


def test_an_unknown_series_of_a_figure_is_answered_with_those_that_are_written(
    refused: Refused,
) -> None:
    wrong = {("figures", "figure2", "series"): ["resnet50-full-lbs46"]}
    message = refused.campaign(CLOCKS | wrong)
    assert f"allowed: {SERIES}, resnet50-full-gbs64," in message and LINE not in message
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
