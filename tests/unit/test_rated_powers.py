"""Rated powers that no device can have are refused, wherever they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.errors import InputError
from scalewatt.common.rated_powers import check_rated_powers

LOCAL = Path(__file__).parents[2] / "config" / "horeka.yaml"
CPU = {"sockets": 1, "idle_w": 90, "rated_w": 270}
IMPOSSIBLE: list[tuple[Any, str]] = [
    (
        {"cpu": CPU | {"idle_w": 271}},
        "--powers: cpu.rated_w: 270 is below its idle_w 271; allowed: 271",
    ),
    ({"gpu": {"idle_w": 60, "rated_w": 4}}, "--powers: gpu.rated_w: 4 is below its idle_w 60"),
    ({"cpu": {"idle_w": 1}}, "sockets"),
    ({"ram": {"power_w": -5}}, "-5"),
    ({"cpu": CPU | {"factor": 0.5}}, "cpu.factor: 0.5 does not fit: input"),
    ({"gpu": 5}, "5"),
    ({"npu": 5}, "npu"),
    ([], "[]"),
]


@pytest.mark.parametrize(("powers", "words"), IMPOSSIBLE, ids=[words for _, words in IMPOSSIBLE])
def test_powers_are_refused_that_no_device_has(powers: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_rated_powers(powers, "--powers")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_cluster_whose_gpus_draw_more_when_idle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    text = LOCAL.read_text()
    assert "rated_w: 400" in text
    path.write_text(text.replace("rated_w: 400", "rated_w: 40"))
    with pytest.raises(
        InputError, match=r"cluster\.yaml: devices\.a100\.gpu\.rated_w: 40 is below"
    ):
        load_cluster(path)
