"""A campaign without its larger points, or of chosen runs alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_files import DEMO, LOCAL, PAPER, ROOT, replaced

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.targets.obstacles import obstacle
from scalewatt.targets.result_set import ResultSet

HOREKA = ROOT / "config" / "horeka.yaml"
STUDY = ROOT / "campaigns" / "batch-study.yaml"
ONE, OTHER = "resnet50-a100-n004-lbs0256-full", "resnet50-a100-n008-lbs0256-full"
FINETUNE = "fourcastnet.finetune-a100-n016-lbs0001-full"
PRETRAIN = FINETUNE.replace("finetune", "pretrain")


def paper(**limits: object) -> Campaign:
    """The paper's campaign on HoreKa with some keys of the cluster file."""
    return load_campaign(PAPER, replaced(load_cluster(HOREKA), **limits))  # type: ignore[arg-type]


def runs_of(campaign: Campaign) -> list[tuple[str, int]]:
    """Its runs, as configuration and repeat."""
    return list(campaign.runs())


# --- up to a number of GPUs -----------------------------------------------------------------------


def test_larger_points_are_out_of_runs_series_and_figures() -> None:
    whole, part = paper(), paper(max_gpus=16)
    assert runs_of(part) == [
        run for run in runs_of(whole) if whole.configurations[run[0]].gpus <= 16
    ]
    assert sum(part.repeats.values()) == len(runs_of(part)) == 102
    for name, series in part.series.items():
        assert list(series.points) == [n for n in whole.series[name].points if n <= 16]
    assert "resnet50-full-gbs8192" not in part.series
    assert part.figures["figure2"] == {
        "overlay": "published",
        "series": ["resnet50-full-lbs256", "resnet50-full-gbs256"],
    }
    assert [point["gpus"] for point in part.figures["table1"]["points"]] == [4, 4, 16, 16]
    assert part.whole == whole
    assert part.left_out == ("max_gpus 16: 102 of 175 runs",)


def test_the_smallest_points_must_be_left() -> None:
    with pytest.raises(InputError, match=r"max_gpus: 2: .*batch-study.* allowed: 4 or more"):
        load_campaign(STUDY, load_cluster(HOREKA), 2)


def smaller(cluster: Cluster, most: int) -> Cluster:
    """A cluster whose jobs have at most so many GPUs, in nodes of eight."""
    devices = {
        name: replaced(known, max_gpus=most, gpus_per_node=8)
        for name, known in cluster.devices.items()
    }
    return replaced(cluster, devices=devices)


def test_a_refusal_on_a_smaller_cluster_names_what_leaves_larger_points_out() -> None:
    cluster = smaller(load_cluster(HOREKA), 8)
    with pytest.raises(InputError, match="16 is more than a100 has for one job") as caught:
        load_campaign(PAPER, cluster)
    assert "--config max_gpus=8 for snakemake, --max-gpus 8 for scalewatt" in str(caught.value)
    part = load_campaign(PAPER, cluster, 8)
    assert max(configuration.gpus for configuration in part.configurations.values()) == 8


# --- chosen runs ----------------------------------------------------------------------------------


def test_one_run_is_all_there_is() -> None:
    part = paper(only=f"{ONE}/3")
    assert runs_of(part) == [(ONE, 3)]
    assert part.has_run(ONE, 3) and not part.has_run(ONE, 1) and not part.has_run(OTHER, 3)
    assert list(part.series) == ["resnet50-full-lbs256"]
    assert part.figures["figure2"]["series"] == ["resnet50-full-lbs256"]
    assert "figure4" not in part.figures
    assert part.left_out[0] == "only: 1 of 175 runs"


def test_a_configuration_alone_is_all_its_repeats() -> None:
    expected = [(ONE, repeat) for repeat in range(1, 6)] + [(OTHER, 2)]
    for separated in (f"{ONE},{OTHER}/2", f"{ONE} {OTHER}/2", f" {OTHER}/2, {ONE}/1,{ONE}"):
        assert runs_of(paper(only=separated)) == expected


def test_a_run_comes_with_the_one_whose_weights_it_starts_from() -> None:
    part = paper(only=f"{FINETUNE}/1")
    assert runs_of(part) == [(FINETUNE, 1), (PRETRAIN, 1)]
    assert part.left_out[0] == "only: 2 of 175 runs"


@pytest.mark.parametrize(
    ("only", "words"),
    [
        (ONE.replace("n004", "n04"), ("no configuration", "did you mean", "lists all")),
        (f"{ONE}/6", ("has no repeat 6", "allowed: 1, 2, 3, 4, 5")),
        (f"{ONE}/1/2", ("has no repeat 1/2",)),
        (",", ("no configuration ''", "lists all")),
    ],
)
def test_an_unknown_run_is_refused_with_near_ones(only: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        paper(only=only)
    assert all(word in str(caught.value) for word in ("only: ", *words))


def test_a_comparison_without_its_baseline_is_left_out() -> None:
    cluster = load_cluster(HOREKA)
    with_baseline = "resnet50-a100-n004-lbs0256-s0256233,resnet50-a100-n004-lbs0032-s0256233"
    part = load_campaign(STUDY, replaced(cluster, only=with_baseline))
    assert part.figures["variants"] == {"baselines": ["lbs256"], "series": ["lbs256", "lbs32"]}
    part = load_campaign(STUDY, replaced(cluster, only="resnet50-a100-n004-lbs0032-s0256233"))
    assert "variants" not in part.figures and part.figures["breakdown"] == {"series": ["lbs32"]}


def results(only: str) -> ResultSet:
    """The demo's results, of chosen runs alone."""
    cluster = replaced(load_cluster(LOCAL), only=only)
    return ResultSet(load_campaign(DEMO, cluster), cluster, False, [], {})


def test_results_are_of_these_runs_and_no_probe_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = results("resnet50-local-n001-lbs0016-full/1")
    monkeypatch.chdir(tmp_path)  # where no probe has been made
    assert part.runs() == [["resnet50-local-n001-lbs0016-full", 1]]
    assert part.pages == {"resnet50-local-n001-lbs0016-full": [1]}
    assert part.probes == {} and "only" in str(obstacle(part, "idle", "cluster.yaml"))
    assert part.definition("runs")["missing"] == []
