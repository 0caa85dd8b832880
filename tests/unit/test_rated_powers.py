"""Rated powers that no device can have are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.errors import InputError

LOCAL = Path(__file__).parents[2] / "config" / "horeka.yaml"


def test_a_cluster_whose_gpus_draw_more_when_idle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    text = LOCAL.read_text()
    assert "rated_w: 400" in text
    path.write_text(text.replace("rated_w: 400", "rated_w: 40"))
    with pytest.raises(
        InputError, match=r"cluster\.yaml: devices\.a100\.gpu\.rated_w: 40 is below"
    ):
        load_cluster(path)
