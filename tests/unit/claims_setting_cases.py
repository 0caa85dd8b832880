"""What each claim on settings and recordings is tested on: campaigns, runs, provenance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd
from campaign_files import PAPER
from claims_made import frame, row, runs_of, trace

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.claims.evidence import Evidence, points_of, series_of, specs_of

Case = Callable[[], Evidence]
Cases = tuple[Case, Case]
"""A campaign that sets, or recorded, what is claimed; and one that does not."""


@cache
def paper() -> Evidence:
    """The paper's campaign, of which everything has finished without results of its own."""
    return finished(load_campaign(PAPER))


def finished(campaign: Campaign, series: tuple[str, ...] | None = None) -> Evidence:
    """A campaign whose runs have finished: of all series, or of these."""
    defined = series_of(campaign)
    kept = defined if series is None else defined.loc[list(series)]
    names = ("model", "phase", "device", "gpus", "local_batch_size", "global_batch_size")
    rows = [
        row(
            configuration=id_,
            **{name: getattr(campaign.configurations[id_], name) for name in names},
        )
        for id_ in {id_ for ids in kept["ids"] for id_ in ids.values()}
    ]
    points = points_of(campaign, defined, pd.DataFrame(rows, columns=list(row())))
    specs = specs_of(campaign)
    return Evidence(campaign.name, points=points, series=defined, specs=specs, campaign=campaign)


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

    def build() -> Evidence:
        (ids,) = paper().series["ids"][["fourcastnet-pretrain-gbs64"]]
        more = {"model": F, "phase": "pretrain", "device": device, "mode": "fd_gbs_l"}
        more |= {"constant": 128, "ids": ids, "title": "more"}
        series = pd.concat([paper().series, pd.DataFrame([more], ["more"])])
        return replace(paper(), series=series)

    return build


def run(**changes: Any) -> dict[str, Any]:
    """A run of ResNet50 on one A100 of a node, as the table has it."""
    cells = {"configuration": "one", "repeat": 1, "model": "resnet50", "device": "a100"}
    cells |= {"gpus": 1, "nodes": 1, "local_batch_size": 256, "global_batch_size": 256}
    cells |= {"dataset_samples": 1281167, "epochs": 100, "updates": 100 * 5005}
    cells |= {"energy_kwh": 38.6, "gpu_energy_kwh": 17.6, "cpu_energy_kwh": 18.9}
    cells |= {"ram_energy_kwh": 2.1, "energy_scope": "gpu+cpu+ram", "runtime_h": 90.0}
    cells |= {"mean_cpu_socket_power_w": 105.0, "p_gpuh_kw": 0.43, "energy_origin": "measured"}
    return cells | changes


def with_runs(*runs: dict[str, Any]) -> Case:
    return lambda: replace(paper(), runs=runs_of(runs))


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


def point(**columns: Any) -> Evidence:
    """A single point."""
    return Evidence("made", points=frame([row(configuration="one", **columns)]))


def metric(name: str, value: float) -> Case:
    """A point of ResNet50 with a metric."""
    return partial(point, model=R, metric_name=name, metric_last=value)


def profiles(seconds: int, *devices: str) -> Case:
    """Panels of figure 5."""
    traces = tuple(trace(f"{i}", d, 4, [200.0] * seconds) for i, d in enumerate(devices))
    return lambda: replace(paper(), traces=traces)


def on_h100(ram: float | None, scope: str) -> Case:
    """A point on H100 with or without energy of memory."""
    return partial(point, device="h100", energy_scope=scope, energy_kwh=100.0, ram_energy_kwh=ram)


R, F = "resnet50", "fourcastnet"
FULL_ONE = "resnet50-a100-n001-lbs0256-full"
PAIR = ("a100", "a100", "h100", "h100")
SETTING_CASES: dict[str, Cases] = {
    "A04": (paper, said(R, gpus=3)),
    "A05": (with_runs(run()), with_runs(run(updates=100 * 5100))),
    "B01": (paper, said(R, sampling_period_s=0.5)),
    "B04": (with_runs(run()), with_runs(run(cpu_energy_kwh=9.4))),
    "B05": (provenance(), provenance(packages=PACKAGES | {"torch": "2.8.0"})),
    "B06": (provenance(), provenance(parallelism="FullyShardedDataParallel")),
    "C01": (paper, said(FULL_ONE, dataset_samples=1437)),
    "C02": (paper, said(R, validation_samples=49999)),
    "C03": (paper, data(R, classes=10)),
    "C04": (paper, said(R, epochs=90)),
    "C05": (paper, setting(R, warmup_epochs=0)),
    "C06": (paper, setting(R, plateau_patience=10)),
    "C07": (paper, setting(R, momentum=0.8)),
    "C08": (paper, setting(R, loader_workers=0)),
    "C09": (paper, repeated(3, R)),
    "C11": (metric("top1_error_percent", 24.0), metric("top1_accuracy_percent", 76.0)),
    "C12": (with_runs(run()), with_runs(run(cpu_energy_kwh=9.4))),
    "D01": (paper, said(FULL_ONE, local_batch_size=128)),
    "D02": (paper, dropped("resnet50-full-lbs256", 2)),
    "E01": (paper, dropped("resnet50-full-gbs256", 8)),
    "E02": (paper, dropped("resnet50-full-gbs8192", 64)),
    "F01": (paper, said("resnet50-a100-n001-lbs0256-s0005004", dataset_samples=5010)),
    "F08": (paper, dropped("resnet50-scaled-gbs256", 8)),
    "F09": (paper, dropped("resnet50-scaled-gbs8192", 64)),
    "G01": (paper, data(F, test_years=[2018, 2018])),
    "G02": (paper, data(F, grid=[360, 720])),
    "G03": (paper, specified(lambda s: s.phase == "pretrain", lambda s: replace(s, epochs=10))),
    "G04": (
        paper,
        specified(
            lambda s: s.phase == "finetune",
            lambda s: replace(s, settings=s.settings | {"learning_rate": 1e-3}),
        ),
    ),
    "G05": (provenance(), provenance(optimizer="SGD")),
    "G06": (paper, setting(F, initial_conditions=20)),
    "G07": (paper, specified(lambda s: s.epochs == 20, lambda s: replace(s, gpus=32))),
    "G11": (paper, said("fourcastnet.pretrain-a100-n004-lbs0004-full", local_batch_size=8)),
    "G12": (paper, repeated(2, F)),
    "G13": (on_h100(None, "gpu+cpu"), on_h100(0.0, "gpu+cpu+ram")),
    "H01": (paper, dropped("fourcastnet-pretrain-lbs1", 128)),
    "H02": (
        paper,
        specified(lambda s: s.phase == "finetune", lambda s: replace(s, initial_weights=None)),
    ),
    "H12": (paper, another_gbs("a100")),
    "H13": (paper, another_gbs("h100")),
    "J01": (profiles(300, *PAIR), profiles(302, *PAIR)),
}  # fmt: skip
