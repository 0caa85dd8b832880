"""The checks on how trainings are set up and what runs record, and the paper's slips."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from campaign_files import DEMO, PAPER, ROOT
from claims_made import row, runs_of
from claims_study import Case, Cases, ids, judged, study, trace

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.claims.evidence.campaign_lines import lines_of
from scalewatt.claims.evidence.claim_types import (
    SPECIFIED_KINDS,
    inconsistencies,
    unlisted_inconsistencies,
)
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.load_evidence import published_evidence, specs_of


@cache
def paper() -> Evidence:
    """The paper's campaign, of which everything has finished without results of its own."""
    return finished(load_campaign(PAPER))


def finished(campaign: Campaign, series: tuple[str, ...] | None = None) -> Evidence:
    """A campaign whose runs have finished: of all series, or of these."""
    ids = {
        id_
        for name, one in campaign.series.items()
        if series is None or name in series
        for id_ in one.points.values()
    }
    lines = lines_of(campaign, [row(configuration=id_) for id_ in sorted(ids)])
    return Evidence(campaign.name, lines=lines, specs=specs_of(campaign), campaign=campaign)


def specified(where: Callable[[RunSpec], bool], edit: Callable[[RunSpec], RunSpec]) -> Case:
    """The paper's campaign with some specs edited."""

    def build() -> Evidence:
        specs = paper().specs
        chosen = {id_: edit(spec) for id_, spec in specs.items() if where(spec)}
        assert chosen
        return replace(paper(), specs={**specs, **chosen})

    return build


def setting(model: str, **values: Any) -> Case:
    """Other settings in one of the model's specs."""
    return specified(_one(model), lambda spec: replace(spec, settings=spec.settings | values))


def said(model: str, **values: Any) -> Case:
    """Another value at the top of one of the model's specs."""
    return specified(_one(model), lambda spec: replace(spec, **values))


def data(model: str, **values: Any) -> Case:
    """Another dataset in one of the model's specs."""
    return specified(_one(model), lambda spec: replace(spec, dataset=spec.dataset | values))


def _one(model: str) -> Callable[[RunSpec], bool]:
    first = next(s for s in paper().specs.values() if model in (s.model, s.configuration))
    return lambda spec: bool(spec.configuration == first.configuration)


def dropped(series: str, gpus: int) -> Case:
    """The paper's campaign whose specs lack one point of a series."""

    def build() -> Evidence:
        assert paper().campaign is not None
        id_ = paper().campaign.series[series].points[gpus]
        return replace(paper(), specs={k: v for k, v in paper().specs.items() if k != id_})

    return build


def repeated(n: int, model: str) -> Case:
    """One configuration of a model with another number of repeats."""

    def build() -> Evidence:
        campaign = paper().campaign
        assert campaign is not None
        id_ = next(i for i, c in campaign.configurations.items() if c.model == model)
        return replace(paper(), campaign=replace(campaign, repeats={**campaign.repeats, id_: n}))

    return build


def another_gbs(device: str) -> Case:
    """One more series of pre-training at constant GBS."""
    more = Line(
        "more", "", "fourcastnet", "pretrain", device, "fd_gbs_l", 128, (Point({}),), (32, 64)
    )
    return lambda: replace(paper(), lines=(*paper().lines, more))


def run(**changes: Any) -> dict[str, Any]:
    """A run of ResNet50 on one A100 of a node, as the table has it."""
    own = {"configuration": "one", "repeat": 1, "model": "resnet50", "device": "a100"}
    own |= {"gpus": 1, "nodes": 1, "local_batch_size": 256, "global_batch_size": 256}
    own |= {"dataset_samples": 1281167, "epochs": 100, "updates": 100 * 5005}
    own |= {"energy_kwh": 38.6, "gpu_energy_kwh": 17.6, "cpu_energy_kwh": 18.9}
    own |= {"ram_energy_kwh": 2.1, "energy_scope": "gpu+cpu+ram", "runtime_h": 90.0}
    own |= {"mean_cpu_socket_power_w": 105.0, "p_gpuh_kw": 0.43, "energy_origin": "measured"}
    return own | changes


def with_runs(*runs: dict[str, Any]) -> Case:
    return lambda: replace(paper(), runs=runs_of(runs))


def repeats_of(values: list[float], population_sd: float) -> Case:
    """Runs with these energies, and their configuration with a spread."""
    runs = tuple(run(repeat=i + 1, energy_kwh=value) for i, value in enumerate(values))
    one = Point(row(configuration="one") | {"energy_kwh_population_sd": population_sd})
    return lambda: Evidence("made", runs=runs_of(runs), points=(one,))


PACKAGES = {"python": "3.11.7", "torch": "2.7.0+cu126", "torchvision": "0.22.0", "mpi4py": "4.0.3"}
MADE = {
    "packages": PACKAGES,
    "mpi": "Open MPI v4.1.6, package: Open MPI",
    "cuda": "12.6",
    "parallelism": "DistributedDataParallel",
    "optimizer": "Adam",
    "schedule": "CosinePerEpoch",
}


def provenance(**changes: Any) -> Case:
    """A finished run of FourCastNet with this provenance."""
    id_ = next(i for i, spec in paper().specs.items() if spec.model == "fourcastnet")
    return lambda: replace(paper(), provenance={(id_, 1): MADE | changes})


def metric(name: str, value: float) -> Case:
    """A point of ResNet50 with a metric."""
    point = Point(row(configuration="one", model="resnet50", metric_name=name, metric_last=value))
    return lambda: Evidence("made", points=(point,))


def profiles(seconds: int, *devices: str) -> Case:
    """Panels of figure 5."""
    traces = tuple(trace(f"{i}", d, 4, [200.0] * seconds) for i, d in enumerate(devices))
    return lambda: replace(paper(), traces=traces)


def on_h100(ram: float | None, scope: str) -> Case:
    """A point on H100 with or without energy of memory."""
    columns = {"configuration": "one", "device": "h100", "energy_scope": scope}
    point = Point(row(**columns, energy_kwh=100.0, ram_energy_kwh=ram))
    return lambda: Evidence("made", points=(point,))


R, F = "resnet50", "fourcastnet"
FULL_ONE = "resnet50-a100-n001-lbs0256-full"
PAIR = ("a100", "a100", "h100", "h100")
CASES: dict[str, Cases] = {
    "A04": Cases(paper, said(R, gpus=3)),
    "A05": Cases(with_runs(run()), with_runs(run(updates=100 * 5100))),
    "B01": Cases(paper, said(R, sampling_period_s=0.5)),
    "B02": Cases(with_runs(run()), with_runs(run(ram_energy_kwh=3.0))),
    "B04": Cases(with_runs(run()), with_runs(run(cpu_energy_kwh=9.4))),
    "B05": Cases(provenance(), provenance(packages=PACKAGES | {"torch": "2.8.0"})),
    "B06": Cases(provenance(), provenance(parallelism="FullyShardedDataParallel")),
    "C01": Cases(paper, said(FULL_ONE, dataset_samples=1437)),
    "C02": Cases(paper, said(R, validation_samples=49999)),
    "C03": Cases(paper, data(R, classes=10)),
    "C04": Cases(paper, said(R, epochs=90)),
    "C05": Cases(paper, setting(R, warmup_epochs=0)),
    "C06": Cases(paper, setting(R, plateau_patience=10)),
    "C07": Cases(paper, setting(R, momentum=0.8)),
    "C08": Cases(paper, setting(R, loader_workers=0)),
    "C09": Cases(paper, repeated(3, R)),
    "C10": Cases(repeats_of([1.0, 2.0, 3.0], (2 / 3) ** 0.5), repeats_of([1.0, 2.0, 3.0], 1.0)),
    "C11": Cases(metric("top1_error_percent", 24.0), metric("top1_accuracy_percent", 76.0)),
    "C12": Cases(with_runs(run()), with_runs(run(cpu_energy_kwh=9.4))),
    "D01": Cases(paper, said(FULL_ONE, local_batch_size=128)),
    "D02": Cases(paper, dropped("resnet50-full-lbs256", 2)),
    "E01": Cases(paper, dropped("resnet50-full-gbs256", 8)),
    "E02": Cases(paper, dropped("resnet50-full-gbs8192", 64)),
    "F01": Cases(paper, said("resnet50-a100-n001-lbs0256-s0005004", dataset_samples=5010)),
    "F08": Cases(paper, dropped("resnet50-scaled-gbs256", 8)),
    "F09": Cases(paper, dropped("resnet50-scaled-gbs8192", 64)),
    "G01": Cases(paper, data(F, test_years=[2018, 2018])),
    "G02": Cases(paper, data(F, grid=[360, 720])),
    "G03": Cases(paper, specified(lambda s: s.phase == "pretrain", lambda s: replace(s, epochs=10))),
    "G04": Cases(
        paper,
        specified(
            lambda s: s.phase == "finetune",
            lambda s: replace(s, settings=s.settings | {"learning_rate": 1e-3}),
        ),
    ),
    "G05": Cases(provenance(), provenance(optimizer="SGD")),
    "G06": Cases(paper, setting(F, initial_conditions=20)),
    "G07": Cases(paper, specified(lambda s: s.epochs == 20, lambda s: replace(s, gpus=32))),
    "G11": Cases(paper, said("fourcastnet.pretrain-a100-n004-lbs0004-full", local_batch_size=8)),
    "G12": Cases(paper, repeated(2, F)),
    "G13": Cases(on_h100(None, "gpu+cpu"), on_h100(0.0, "gpu+cpu+ram")),
    "H01": Cases(paper, dropped("fourcastnet-pretrain-lbs1", 128)),
    "H02": Cases(
        paper,
        specified(lambda s: s.phase == "finetune", lambda s: replace(s, initial_weights=None)),
    ),
    "H12": Cases(paper, another_gbs("a100")),
    "H13": Cases(paper, another_gbs("h100")),
    "J01": Cases(profiles(300, *PAIR), profiles(302, *PAIR)),
}  # fmt: skip

WITHOUT_RUNS = ("B02", "B04", "B05", "B06", "C10", "C12", "G05", "J01")
"""What the published rows, and the specs of the paper's campaign, leave open."""


def test_every_claim_that_specs_decide_has_its_cases() -> None:
    assert set(CASES) == ids("ABCDEFGHJKL", SPECIFIED_KINDS)


@pytest.mark.parametrize(
    ("id_", "verdict", "case"),
    [(id_, verdict, case) for id_, cases in CASES.items() for verdict, case in cases.all()],
)
def test_a_campaign_gets_the_verdict_it_was_made_for(id_: str, verdict: str, case: Case) -> None:
    found = judged(id_, case())
    assert found.verdict == verdict, found.detail
    assert found.detail.endswith(".")


@pytest.mark.parametrize("id_", CASES)
def test_without_a_campaign_nothing_can_be_tested(id_: str) -> None:
    assert judged(id_, Evidence("nothing")).verdict == "not_testable"


@pytest.fixture(scope="module")
def published() -> Evidence:
    return published_evidence()


@pytest.mark.parametrize("id_", CASES)
def test_the_papers_campaign_is_set_up_as_the_paper_says(id_: str, published: Evidence) -> None:
    found = judged(id_, published)
    expected = "not_testable" if id_ in WITHOUT_RUNS else "reproduced"
    assert found.verdict == expected, found.detail


def test_another_campaign_departs_and_says_in_what() -> None:
    demo = finished(load_campaign(DEMO))
    found = judged("C04", demo)
    assert found.verdict == "not_testable" and "Epochs: 5 in resnet50-local" in found.detail
    assert "another value than 100" in found.detail and "none of the paper's" in found.detail
    assert judged("C06", demo).verdict == "reproduced"
    assert judged("D02", demo).verdict == judged("A04", demo).verdict == "not_testable"
    for id_ in ("B04", "G07", "G11", "H12", "H13"):
        assert judged(id_, demo).verdict == "not_testable"


def test_one_model_of_the_paper_makes_no_campaign_of_the_paper_of_the_other() -> None:
    small = specified(
        lambda spec: spec.model == F,
        lambda spec: replace(spec, dataset_samples=480, epochs=6, settings={}),
    )()
    assert judged("G03", small).verdict == "not_testable"
    assert judged("C04", small).verdict == "reproduced"
    assert judged("C04", said(R, epochs=90)()).verdict == "not_reproduced"


@pytest.mark.parametrize("id_", CASES)
def test_a_campaign_without_a_finished_run_shows_nothing(id_: str) -> None:
    found = judged(id_, finished(load_campaign(PAPER), ()))
    assert found.verdict == "not_testable", found.detail


def test_series_without_a_finished_run_do_not_count() -> None:
    some = finished(load_campaign(PAPER), ("resnet50-full-lbs256",))
    assert judged("C04", some).verdict == judged("D02", some).verdict == "reproduced"
    found = judged("F09", some)
    assert found.verdict == "not_testable" and "No finished run of resnet50" in found.detail
    assert judged("G03", some).verdict == judged("H12", some).verdict == "not_testable"


def test_what_a_spec_does_not_say_is_not_testable() -> None:
    unknown = specified(
        lambda spec: spec.model == R, lambda spec: replace(spec, settings={}, seed=None)
    )()
    for id_ in ("C05", "C06", "C07", "C08", "C09"):
        assert judged(id_, unknown).verdict == "not_testable"


def test_what_a_provenance_does_not_say_is_not_testable() -> None:
    old = provenance(cuda=None, mpi=None, parallelism=None, optimizer=None)()
    found = judged("B05", old)
    assert found.verdict == "not_testable" and "Open MPI, CUDA" in found.detail
    assert judged("B05", provenances(MADE, {**MADE, "cuda": None})).verdict == "not_testable"
    assert judged("B06", old).verdict == judged("G05", old).verdict == "not_testable"


def provenances(*given: dict[str, Any]) -> Evidence:
    """Several finished runs of FourCastNet, with these provenances."""
    id_ = next(i for i, spec in paper().specs.items() if spec.model == "fourcastnet")
    made = {(id_, repeat): one for repeat, one in enumerate(given, 1)}
    return replace(paper(), provenance=made)


@pytest.mark.parametrize("first", [True, False])
def test_another_version_in_any_run_is_a_recorded_deviation(first: bool) -> None:
    other = MADE | {"packages": PACKAGES | {"torch": "2.8.0"}}
    found = judged("B05", provenances(*((other, MADE) if first else (MADE, other))))
    assert found.verdict == "not_reproduced" and "torch 2.8.0 in place of 2.7.0" in found.detail


@pytest.mark.parametrize("id_", ["B02", "B04", "C10", "C12"])
def test_checks_of_runs_say_that_their_energy_is_estimated(id_: str) -> None:
    given = CASES[id_].satisfied()
    runs = given.runs.assign(energy_origin="estimated")
    found = judged(id_, replace(given, runs=runs))
    assert found.detail.endswith("Origin of the energy: estimated.")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"packages": PACKAGES | {"python": "3.12.1"}}, "python 3.12.1 in place of 3.11"),
        ({"packages": PACKAGES | {"python": "3.111"}}, "python 3.111 in place of 3.11"),
        ({"mpi": "MPICH Version: 5.0.2"}, "MPICH Version: 5.0.2 in place of Open MPI 4.1"),
        ({"cuda": "12.2"}, "CUDA 12.2 in place of 12.6"),
    ],
)
def test_another_version_is_a_recorded_deviation(changes: dict[str, Any], named: str) -> None:
    found = judged("B05", provenance(**changes)())
    assert found.verdict == "not_reproduced" and named in found.detail


def test_a_total_without_memory_is_the_sum_of_what_it_has() -> None:
    one = run(ram_energy_kwh=None, energy_scope="gpu+cpu", energy_kwh=36.5)
    assert judged("B02", with_runs(one)()).verdict == "reproduced"
    alone = run(gpu_energy_kwh=None, ram_energy_kwh=None, energy_scope="cpu", energy_kwh=18.9)
    found = judged("B02", with_runs(alone)())
    assert found.verdict == "not_testable" and "Its scope is cpu" in found.detail
    unknown = run(ram_energy_kwh=None)
    assert judged("B02", with_runs(unknown)()).verdict == "not_testable"


def test_a_part_of_a_node_counts_as_many_sockets_as_the_whole_elsewhere() -> None:
    local = {"device": "local", "runtime_h": 1.0, "mean_cpu_socket_power_w": 100.0}
    whole = run(**local, gpus=4, cpu_energy_kwh=0.2)
    points = tuple(
        Point(row(configuration=f"{n}", device="local", gpus=n, nodes=1)) for n in (1, 4)
    )
    for kwh, expected in ((0.2, "reproduced"), (0.1, "not_reproduced")):
        part = run(**local, gpus=1, cpu_energy_kwh=kwh)
        given = Evidence("made", runs=runs_of((part, whole)), points=points)
        assert judged("C12", given).verdict == expected
    one_socket = run(**local, gpus=4, cpu_energy_kwh=0.1)
    found = judged("C12", Evidence("made", runs=runs_of((part, one_socket)), points=points))
    assert found.verdict == "not_testable" and "one CPU socket" in found.detail


def test_what_is_counted_is_called_what_it_is() -> None:
    assert judged("B06", provenances(MADE, MADE)).detail.endswith("in all 2 runs.")
    assert judged("B06", provenance()()).detail.endswith("in 1 run.")
    assert judged("G07", paper()).detail.endswith("in 1 configuration.")


def test_runs_of_less_than_300_s_do_not_tell_the_length_of_profiles() -> None:
    found = judged("J01", profiles(100, *PAIR)())
    assert found.verdict == "not_testable" and "99 s" in found.detail


def test_the_sampling_of_figure_5_counts_besides_the_specs() -> None:
    slow = trace("one", "a100", 4, [200.0] * 50)
    slow = replace(slow, time_s=tuple(2 * t for t in slow.time_s))
    assert judged("B01", replace(paper(), traces=(slow,))).verdict == "not_reproduced"
    windowed = replace(paper(), traces=(slow,), trace_metadata={"options": {"power_window_s": 2}})
    assert judged("B01", windowed).verdict == "reproduced"


def test_every_contradiction_of_the_claims_is_listed_once_with_a_reading() -> None:
    with open(ROOT / "reference" / "claims.csv", encoding="utf-8", newline="") as handle:
        rows = {one["id"]: one for one in csv.DictReader(handle)}
    listed = [id_ for id_, one in rows.items() if one["kind"] == "inconsistency"]
    assert [*listed, *sorted(unlisted_inconsistencies())] == list(inconsistencies())
    for one in inconsistencies().values():
        assert len(one.reading) > 30 and one.shows_in
        assert set(filter(None, one.claims.split(";"))) <= set(rows)


def test_the_two_inconsistencies_without_a_row_are_listed_as_well() -> None:
    blocks, order = (inconsistencies()[id_] for id_ in ("Y01", "Y02"))
    assert "16 residual blocks" in blocks.reading
    assert "1.8-fold" in order.reading


def test_a_slip_is_told_with_its_reading_on_any_evidence() -> None:
    for given in (Evidence("nothing"), study()):
        found = judged("X14", given)
        assert found.verdict == "slip" and found.value is None
        assert "missing, not 0" in found.detail and "table1" in found.detail
