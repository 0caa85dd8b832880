"""What cannot be simulated is refused before anything is written, with what would make it possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_files import DEMO, replaced
from simulated_runs import MODEL, campaign, cluster, simulate, spec_of, with_device

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.load import check_devices, is_results_only, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.scaling.model.model_file import ScalingModel, read_model
from scalewatt.scaling.simulation.simulated_run import check_simulations

ON_TWO_NODES = "resnet50-a100-n008-lbs0256-s0040036"


def paper_with(**changes: Any) -> Campaign:
    content = read_yaml(PROJECT_ROOT / "campaigns/paper.yaml") | changes
    return expand(content, Path("campaigns/paper.yaml"), known_devices(cluster()))


def test_every_kind_that_the_model_does_not_know_is_named_in_one_message() -> None:
    with pytest.raises(InputError) as refused:
        check_simulations(paper_with(protocol="corrected"), cluster(), read_model(MODEL))
    said = str(refused.value)
    assert said.startswith(
        "campaigns/paper.yaml: 53 of 53 configurations cannot be simulated, first "
    )
    for kind in ("resnet50", "fourcastnet.pretrain", "fourcastnet.finetune"):
        assert f"{kind} on a100, corrected" in said
    assert "fourcastnet.pretrain on h100, corrected" in said
    assert said.count("scalewatt pilot") == 1
    assert "\n" not in said


def test_a_campaign_of_which_a_part_can_be_simulated_is_refused_as_well() -> None:
    model = read_model(MODEL)
    known = tuple(one for one in model.kinds if one.kind.key == "resnet50")
    with pytest.raises(
        InputError, match=r"23 of 53 configurations .* fourcastnet.pretrain on a100"
    ):
        check_simulations(campaign(), cluster(), ScalingModel(known, (), "model.json"))


def test_a_kind_without_energy_and_a_wall_limit_that_is_too_short_are_refused() -> None:
    model = read_model(MODEL)
    dumb = replace(model, kinds=tuple(replace(one, energy={}) for one in model.kinds))
    with pytest.raises(InputError, match="has no energy; expected one calibrated on runs"):
        check_simulations(campaign(), cluster(), dumb)
    with pytest.raises(InputError, match="cannot make progress in segments of 300 s"):
        check_simulations(campaign(), with_device("a100", time_limit_min=15), model)


@pytest.mark.parametrize(("width", "name"), [(2, ON_TWO_NODES), (8, ON_TWO_NODES)])
def test_a_spec_of_nodes_of_another_width_is_refused(width: int, name: str, tmp_path: Path) -> None:
    other = with_device("a100", gpus_per_node=width)
    with pytest.raises(InputError) as refused:
        simulate(tmp_path, spec_of(name), other)
    said = str(refused.value)
    assert f"{name}: has 4 ranks on each of 2 nodes" in said
    assert f"nodes of a100 have {width} GPUs; make the spec with this cluster" in said
    assert not list(tmp_path.rglob("perun"))


def test_a_campaign_on_devices_that_the_simulating_cluster_lacks_is_refused() -> None:
    demo = load_campaign(DEMO, cluster())
    assert demo.devices() == {"local"}
    assert not is_results_only(demo, cluster())
    with pytest.raises(InputError, match="'local' is not on the cluster 'simulate'"):
        check_devices(demo, cluster())
    assert is_results_only(demo, replaced(cluster(), mode="train"))
    assert is_results_only(demo, replaced(cluster(), results_only=True))
