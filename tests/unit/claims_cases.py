"""What each claim on results is tested on: studies that satisfy it, violate it, or leave it open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from claims_made import changed, evidence, row, runs_of, stat, without, without_spreads
from claims_resnet_made import (
    DOUBLING,
    Change,
    at,
    becoming,
    both,
    dropping,
    noisy,
    resnet_world,
)
from claims_resnet_made import times as scaled
from claims_study import Case, Cases, edited, select, short, study, times, trace

from scalewatt.claims.evidence import Evidence, Line, Point, Trace
from scalewatt.claims.load_evidence import with_points

# --- ResNet50: sections A to F --------------------------------------------------------------------

NON_LINEAR = {4: 10.0, 8: 40.0, 16: 12.0, 32: 60.0, 64: 14.0, 128: 50.0, 256: 20.0}
OTHER_UPDATES = [
    {"configuration": "resnet50-train-a100-sd_lbs-256-n256", "updates": 1900, "epochs": 100}
]


def _same_factor(world: Evidence) -> Evidence:
    return changed(world, lambda p: True, p_gpuh_kw=lambda p: 0.25)


def _bent_factor(world: Evidence) -> Evidence:
    """P by the square of one rate alone."""
    largest = max(p.mean("passes_per_gpuh") or 0.0 for p in world.points)

    def factor(point: Point) -> float:
        return 0.2 + 0.1 * ((point.mean("passes_per_gpuh") or 0.0) / largest) ** 2

    return changed(world, lambda p: True, p_gpuh_kw=factor)


def _power_law(exponent: float) -> Change:
    """Energies on growing datasets by a power of n, as which samples and GPU hours go."""
    return lambda world: changed(
        world, at("sd_lbs"), spread=0.003, energy_kwh=lambda p: 0.12 * p.gpus**exponent
    )


def _few_points(world: Evidence) -> Evidence:
    return without(world, lambda p: p.gpus in (8, 16, 32, 64, 128))


VIOLATED: dict[str, Change] = {
    "A01": becoming("fd_lbs", "energy_kwh", NON_LINEAR),
    "A02": _same_factor,
    "A03": _bent_factor,
    "B03": becoming("fd_lbs", "ram_energy_share", {16: 0.08}),
    "D03": scaled("fd_lbs", 32, gpu_hours=1.1),
    "D04": scaled("fd_lbs", 256, gpu_hours=0.5),
    "D05": scaled("fd_lbs", 128, 256, energy_kwh=0.8),
    "D06": becoming("fd_lbs", "energy_kwh", {64: 25.9, 128: 26.0, 256: 26.1}),
    "D07": scaled("fd_lbs", 8, energy_kwh=0.9),
    "D08": scaled("fd_lbs", 1, cpu_energy_kwh=1.1),
    "D09": scaled("fd_lbs", 4, cpu_energy_kwh=0.9),
    "D10": scaled("fd_lbs", 4, cpu_energy_kwh=2.0),
    "D11": scaled("fd_lbs", 1, gpu_energy_kwh=1.1),
    "D12": scaled("fd_lbs", 256, gpu_energy_kwh=1.1),
    "D13": scaled("fd_lbs", 1, cpu_energy_share=1.2),
    "D14": scaled("fd_lbs", 4, cpu_energy_share=0.7),
    "D15": scaled("fd_lbs", 64, cpu_energy_share=1.3),
    "D16": becoming("fd_lbs", "energy_kwh", NON_LINEAR),
    "D17": becoming("fd_lbs", "metric_last", {32: 31}),
    "D18": becoming("fd_lbs", "metric_last", {256: 35}),
    "D19": becoming("fd_lbs", "metric_last", {16: 33, 32: 34}),
    "E03": becoming("fd_gbs_l", "metric_last", {256: 33}),
    "E04": becoming("fd_gbs_l", "metric_last", {32: 26, 64: 26, 128: 26, 256: 26}),
    "E05": scaled("fd_gbs_s", 16, gpu_hours=1.3),
    "E06": scaled("fd_gbs_l", runtime_h=10),
    "E07": scaled("fd_gbs_s", 8, energy_kwh=0.8),
    "E08": becoming("fd_gbs_l", "energy_kwh", NON_LINEAR),
    "E09": scaled("fd_gbs_l", 256, energy_kwh=0.5),
    "F02": lambda world: replace(world, runs=runs_of(OTHER_UPDATES)),
    "F03": scaled("sd_lbs", 256, runtime_h=1.3),
    "F04": becoming("sd_lbs", "metric_last", {64: 30, 128: 18, 256: 6}),
    "F05": _power_law(0.7),
    "F06": scaled("sd_lbs", energy_kwh=1.1),
    "F07": _power_law(0.7),
    "F10": becoming("sd_gbs_s", "metric_last", {8: 50}),
    "F11": becoming("sd_gbs_s", "metric_last", {2: 70}),
    "F12": scaled("sd_gbs_s", 16, runtime_h=0.75),
    "F13": scaled("sd_gbs_l", 128, runtime_h=1.2),
    "F14": scaled("sd_gbs_s", 4, energy_kwh=1.2),
    "F15": scaled("sd_gbs_s", 16, energy_kwh=1.2),
    "F16": scaled("sd_gbs_l", 32, energy_kwh=0.9),
    "F17": scaled("sd_gbs_l", 256, energy_kwh=0.9),
    "F18": scaled("sd_gbs_l", 256, energy_kwh=0.9),
    "F19": becoming("sd_gbs_l", "energy_kwh", NON_LINEAR),
    "F20": scaled("sd_gbs_s", 16, energy_kwh=1.3),
}

UNDECIDED: dict[str, Change] = {
    "A01": _few_points,
    "A02": both(
        lambda world: changed(
            world, lambda p: True, p_gpuh_kw=lambda p: 0.25 if p.model == "resnet50" else 0.215
        ),
        lambda world: changed(
            world,
            lambda p: True,
            spread=0.5,
            n_repeats=2,
            p_gpuh_kw=lambda p: p.mean("p_gpuh_kw"),
        ),
    ),
    "A03": lambda world: dropping("fd_gbs")(dropping("sd")(_few_points(world))),
    "B03": becoming("fd_lbs", "ram_energy_share", {16: 0.08}, spread=0.3),
    "D03": scaled("fd_lbs", 32, gpu_hours=1.1, spread=0.2),
    "D04": dropping("fd_lbs", 1, 2, 4, 8, 16, 32, 64),
    "D05": both(scaled("fd_lbs", 128, 256, energy_kwh=0.8), noisy("fd_lbs", "energy_kwh")),
    "D06": dropping("fd_lbs", 64, 128, 256),
    "D07": scaled("fd_lbs", 8, energy_kwh=0.97, spread=0.1),
    "D08": scaled("fd_lbs", 1, cpu_energy_kwh=1.1, spread=0.2),
    "D09": scaled("fd_lbs", 4, cpu_energy_kwh=0.9, spread=0.2),
    "D10": scaled("fd_lbs", 4, cpu_energy_kwh=1.3, spread=0.3),
    "D11": scaled("fd_lbs", 1, gpu_energy_kwh=1.1, spread=0.2),
    "D12": scaled("fd_lbs", 256, gpu_energy_kwh=1.1, spread=0.2),
    "D13": scaled("fd_lbs", 1, cpu_energy_share=1.1, spread=0.2),
    "D14": scaled("fd_lbs", 4, cpu_energy_share=0.85, spread=0.2),
    "D15": scaled("fd_lbs", 64, cpu_energy_share=1.3, spread=0.3),
    "D16": _few_points,
    "D17": dropping("fd_lbs", 32),
    "D18": becoming("fd_lbs", "metric_last", {256: 46}, spread=0.1),
    "D19": dropping("fd_lbs", 64, 128),
    "E03": dropping("fd_gbs_l", 64, 128),
    "E04": becoming("fd_gbs_l", "metric_last", {n: 27.6 for n in DOUBLING}, spread=0.05),
    "E05": scaled("fd_gbs_s", 16, gpu_hours=1.1, spread=0.2),
    "E06": scaled("fd_gbs_l", runtime_h=2, spread=0.3),
    "E07": scaled("fd_gbs_s", 8, energy_kwh=0.9, spread=0.1),
    "E08": _few_points,
    "E09": dropping("fd_gbs_l", 64, 128),
    "F03": scaled("sd_lbs", 256, runtime_h=1.2, spread=0.2),
    "F04": dropping("sd_lbs", 4, 8, 16, 32),
    "F05": both(_power_law(0.87), noisy("sd_lbs", "energy_kwh")),
    "F06": both(scaled("sd_lbs", energy_kwh=1.06), noisy("sd_lbs", "energy_kwh")),
    "F07": dropping("sd_lbs", 8, 16, 32, 64, 128),
    "F10": dropping("sd_gbs_s", 2, 4, 8),
    "F11": dropping("sd_gbs_l", 64, 128, 256),
    "F12": scaled("sd_gbs_s", 16, runtime_h=0.85, spread=0.3),
    "F13": scaled("sd_gbs_l", 128, runtime_h=1.12, spread=0.2),
    "F14": scaled("sd_gbs_s", 4, energy_kwh=1.1, spread=0.2),
    "F15": scaled("sd_gbs_s", 16, energy_kwh=1.1, spread=0.2),
    "F16": scaled("sd_gbs_l", 32, energy_kwh=0.94, spread=0.2),
    "F17": scaled("sd_gbs_l", 256, energy_kwh=0.94, spread=0.2),
    "F18": scaled("sd_gbs_l", 256, energy_kwh=0.95, spread=0.2),
    "F19": _few_points,
    "F20": scaled("sd_gbs_s", 16, energy_kwh=1.1, spread=0.3),
}


# --- FourCastNet: sections G, H and T -------------------------------------------------------------

NET = select(model="fourcastnet")
PRE = select(model="fourcastnet", phase="pretrain", mode="fd_lbs")
FINE = select(model="fourcastnet", phase="finetune")
GBS = select(model="fourcastnet", mode="fd_gbs")
H100 = select(device="h100")
PROBE = select(mode="probe")
FIRST = select(model="fourcastnet", phase="pretrain", mode="fd", gpus=4)


def _row(device: str, gpus: int, lbs: int, gbs: int) -> Cases:
    """A row of Table 1, or of the text, by its energy."""
    here = select(model="fourcastnet", device=device, gpus=gpus, lbs=lbs, gbs=gbs)
    return _number(here, "energy_kwh", 1.15)


def _number(here: Any, name: str, near: float) -> Cases:
    """A published number: violated by half as much again, in doubt for a single run not far off."""
    return Cases(
        study,
        edited(here, **{name: times(name, 2.5)}),
        edited(here, single=True, **{name: times(name, near)}),
    )


def like_a100(factor: float, single: bool = False) -> Case:
    """Energies on H100 as on A100 with the same GPUs and batches, times a factor."""
    a100 = {
        sizes_of(p): p.mean("energy_kwh")
        for p in study().points
        if p.device == "a100" and p.phase == "pretrain"
    }

    def energy(point: Point) -> float:
        base = point.mean("energy_kwh") if sizes_of(point) not in a100 else a100[sizes_of(point)]
        return factor * (base or 0.0)

    return edited(H100, single=single, energy_kwh=energy)


def with_columns(world: Evidence, of_point: Callable[[Point], Mapping[str, Any]]) -> Evidence:
    """The study with other columns at its points."""

    def one(point: Point) -> Point:
        return replace(point, row={**point.row, **of_point(point)})

    lines = (replace(ln, points=tuple(map(one, ln.points))) for ln in world.lines)
    return with_points(replace(world, lines=tuple(lines)))


def in_parts(case: Case, memory: float = 0.0) -> Case:
    """A case with energy by device kind, of memory (the A100's alone) a share."""

    def parts(point: Point) -> dict[str, Any]:
        total = point.mean("energy_kwh") or 0.0
        ram = memory * total if point.device == "a100" else None
        others, runs = total - (ram or 0.0), point.row["n_repeats"]
        kinds = {
            **stat("gpu_energy_kwh", 0.7 * others, runs),
            **stat("cpu_energy_kwh", 0.3 * others, runs),
        }
        none = {"ram_energy_kwh_mean": None}
        return kinds | (none if ram is None else stat("ram_energy_kwh", ram, runs))

    return lambda: with_columns(case(), parts)


def sizes_of(point: Point) -> tuple[int, ...]:
    return point.gpus, point.lbs, point.gbs


def _pretraining(name: str, factor: float, single: bool = False) -> Case:
    """Fine-tuning with pre-training's value at the same n, times a factor."""
    line = study().line("fourcastnet", "pretrain", "a100", "fd_lbs")
    before = {p.gpus: p.mean(name) or 0.0 for p in line.points}
    return edited(FINE, single=single, **{name: lambda p: factor * before[p.gpus]})


OF_FOURCASTNET: dict[str, Cases] = {
    "G08": _number(PROBE, "runtime_h", 1.13),
    "G09": _number(PROBE, "gpu_hours", 1.13),
    "G10": _number(PROBE, "energy_kwh", 1.13),
    "H03": Cases(
        study,
        edited(PRE, gpu_hours=lambda p: 500.0),
        edited(PRE, single=True, gpu_hours=lambda p: 480.0 if p.gpus == 4 else 505.0),
    ),
    "H04": Cases(
        study,
        edited(PRE, metric_last=lambda p: 700.0 + 40 * min(p.gbs, 32) ** 0.5),
        short(PRE, 4),
    ),
    "H05": Cases(
        study, edited(PRE, metric_last=lambda p: 700.0 if p.gbs < 8 else 900.0), short(PRE, 2)
    ),
    "H06": Cases(
        study, edited(FINE, metric_last=lambda p: 900.0 if p.gbs < 32 else 1200.0), short(FINE, 2)
    ),
    "H07": Cases(study, edited(PRE, energy_kwh=lambda p: 10.0 * p.gpus), short(PRE)),
    "H08": Cases(study, edited(FINE, energy_kwh=lambda p: 500 - 4000 / p.gpus), short(FINE)),
    "H09": Cases(
        study, edited(FINE, energy_kwh=lambda p: 50.0), _pretraining("energy_kwh", 1.02, True)
    ),
    "H10": Cases(
        study,
        edited(FINE, runtime_h=times("runtime_h", 0.1)),
        _pretraining("runtime_h", 1.02 * 50 / 80, True),
    ),
    "H11": Cases(study, edited(FINE, energy_kwh=times("energy_kwh", 2)), short(FINE)),
    "H14": Cases(
        study,
        edited(GBS, gpu_hours=lambda p: 500.0 - p.gpus),
        edited(GBS, single=True, gpu_hours=lambda p: 500.0 + p.gpus / 4),
    ),
    "H15": Cases(
        study, edited(GBS, metric_last=lambda p: 700.0 * (1 + p.gpus / 64)), short(GBS, 2)
    ),
    "H16": Cases(
        in_parts(study),
        in_parts(edited(H100, energy_kwh=times("gpu_hours", 0.1))),
        in_parts(short(H100, 1)),
    ),
    "H17": _row("a100", 16, 4, 64),
    "H18": _row("a100", 64, 1, 64),
    "H19": Cases(
        study,
        edited(FIRST, energy_kwh=times("energy_kwh", 3)),
        edited(NET, single=True, energy_kwh=lambda p: 100.0 - p.gpus / 100),
    ),
    "T1": _row("h100", 4, 4, 16),
    "T2": _row("a100", 4, 4, 16),
    "T3": _row("h100", 16, 1, 16),
    "T4": _row("a100", 16, 1, 16),
    "T5": _row("h100", 32, 1, 32),
    "T6": _row("a100", 32, 1, 32),
    "T7": Cases(
        edited(H100, gpu_hours=times("gpu_hours", 0.98)),
        edited(H100, gpu_hours=times("gpu_hours", 0.5)),
        edited(H100, single=True, gpu_hours=times("gpu_hours", 0.88)),
    ),
    "T8": Cases(
        in_parts(like_a100(1.01)),
        in_parts(like_a100(1.4)),
        lambda: without_spreads(in_parts(like_a100(1.0, single=True))()),
    ),
    "T9": Cases(
        in_parts(study),
        in_parts(edited(H100, p_gpuh_kw=times("p_gpuh_kw", 0.7))),
        in_parts(edited(H100, single=True, p_gpuh_kw=times("p_gpuh_kw", 0.78))),
    ),
}


# --- power and rates: sections J, K and L ----------------------------------------------------------

NET_A100 = select(model="fourcastnet", device="a100")
NET_H100 = select(model="fourcastnet", device="h100")
RESNET = select(model="resnet50")
FULL = select(model="resnet50", mode="fd_lbs")
FULL_GBS = select(model="resnet50", mode="fd_gbs")
LBS = select(mode="fd_lbs")
GBS = select(mode="fd_gbs")
SCALED = select(mode="sd_lbs")
SMALL, LARGE = select(mode="sd_gbs_s"), select(mode="sd_gbs_l")
GBS64, GBS32, GBS16 = (
    select(model="fourcastnet", device=device, mode=f"fd_gbs_{size}")
    for device, size in (("a100", "l"), ("h100", "l"), ("h100", "s"))
)
HIGH: Callable[[Point], float | None] = lambda point: 100.0 + point.gpus  # noqa: E731


def _interval(where: Callable[[Point], bool], near: float) -> Cases:
    """An interval of P: violated by twice as much, in doubt for single runs just outside."""
    return Cases(
        study,
        edited(where, p_gpuh_kw=times("p_gpuh_kw", 2)),
        edited(where, single=True, p_gpuh_kw=lambda p: near),
    )


def _alternating(size: float, base: float = 180.0) -> Callable[[Point], float | None]:
    """Up and down with each doubling, by a part of the base."""
    return lambda p: base * (1 + (size if math.log2(p.gpus) % 2 else -size))


def _power(where: Callable[[Point], bool], wrong: Callable[[Point], float | None]) -> Cases:
    same: Callable[[Point], float | None] = lambda point: 200.0  # noqa: E731
    return Cases(
        study,
        edited(where, mean_gpu_power_w=wrong),
        edited(where, single=True, mean_gpu_power_w=same),
    )


def _times(at_four: float, at_sixteen: float, single: bool = False) -> Case:
    """The small regime's run times with scaled data."""
    hours = {1: 5.14, 2: 5.13, 4: at_four, 8: 5.9, 16: at_sixteen}
    return edited(SMALL, single=single, runtime_h=lambda p: hours[p.gpus])


WIDE = [60.0 if second % 10 < 1 or second % 50 < 10 else 250.0 for second in range(300)]
NARROW = [480.0 + second % 7 for second in range(300)]
SLIGHT = [240.0 + 10 * ((second // 10) % 3) for second in range(300)]
IDS = {
    ("fourcastnet", device): next(
        p.id for p in study().points if (p.model, p.device) == ("fourcastnet", device)
    )
    for device in ("a100", "h100")
}
RESNET_ID = next(p.id for p in study().points if p.model == "resnet50")


def traced(*traces: Trace, **more: Any) -> Case:
    return lambda: replace(study(), traces=traces, **more)


def on_a100(powers: list[float | None], lbs: int = 4, **more: Any) -> Trace:
    return trace(IDS["fourcastnet", "a100"], "a100", lbs, powers, **more)


def on_h100(powers: list[float | None], lbs: int = 4, **more: Any) -> Trace:
    return trace(IDS["fourcastnet", "h100"], "h100", lbs, powers, **more)


def on_resnet50(powers: list[float | None]) -> Trace:
    return trace(RESNET_ID, "a100", 4, powers)


def twins(power: float, energy: float, n_repeats: int = 5) -> Case:
    """A training with loading, and its twin without: power in W and energy in kWh of the latter."""

    def point(loader: str, watts: float, kwh: float) -> Point:
        extra = "-loadersynthetic" if loader == "synthetic" else ""
        columns = {"configuration": f"twins-a100-n004-lbs0004-full{extra}", "loader": loader}
        columns |= {"model": "fourcastnet"}
        columns |= {"phase": "pretrain", "device": "a100", "gpus": 4, "step_data_share": 0.4}
        quantities = {"mean_gpu_power_w": watts, "energy_kwh": kwh}
        return Point(row(n_repeats, **columns, **quantities), ("fd_lbs",), 54020)

    points = (point("hdf5", 200.0, 100.0), point("synthetic", power, energy))
    line = Line("twins", "", "fourcastnet", "pretrain", "a100", "fd_lbs", 4, points, (4,))
    return lambda: evidence([line])


def _rates(power: Callable[[float], float], single: bool = False) -> Case:
    """GPU power from samples per GPU hour."""
    return edited(
        lambda point: True,
        single=single,
        mean_gpu_power_w=lambda p: power(p.mean("samples_per_gpuh") or 0.0),
    )


OF_POWER: dict[str, Cases] = {
    "J02": Cases(traced(on_a100(WIDE)), traced(on_a100(NARROW)), traced(on_a100(WIDE[:60]))),
    "J03": Cases(
        traced(on_a100(WIDE), on_h100(NARROW)),
        traced(on_a100(NARROW), on_h100(WIDE)),
        traced(on_a100(WIDE[:60]), on_h100(NARROW[:60])),
    ),
    "J04": Cases(
        traced(on_a100(WIDE, 4), on_a100(SLIGHT, 1)),
        traced(on_a100(SLIGHT, 4), on_a100(WIDE, 1)),
        traced(on_a100(WIDE, 4), on_a100(WIDE, 1)),
    ),
    "J05": Cases(traced(on_resnet50(WIDE)), traced(on_resnet50(NARROW)), traced(on_resnet50(WIDE[:60]))),
    "J06": Cases(twins(260.0, 70.0), twins(150.0, 70.0), twins(205.0, 98.0, 1)),
    "K01": _interval(NET_A100, 0.27),
    "K02": _interval(NET_H100, 0.31),
    "K03": _interval(RESNET, 0.338),
    "K05": Cases(
        study,
        edited(lambda p: True, mean_cpu_socket_power_w=lambda p: 100.0 + 2 * p.gpus),
        edited(lambda p: True, single=True, mean_gpu_power_w=lambda p: 150.0),
    ),
    "K06": Cases(
        study,
        edited(lambda p: p.gpus == 32, ram_energy_share=lambda p: 0.08),
        edited(lambda p: p.gpus == 32, single=True, ram_energy_share=lambda p: 0.0452),
    ),
    "K07": Cases(study, edited(LBS, mean_gpu_power_w=HIGH), short(LBS)),
    "K08": Cases(study, edited(GBS, samples_per_gpuh=lambda p: 1e4 * p.gpus), short(GBS)),
    "K09": Cases(
        study,
        edited(FULL_GBS, mean_gpu_power_w=HIGH),
        edited(FULL_GBS, single=True, mean_gpu_power_w=_alternating(0.01)),
    ),
    "K10": _power(GBS64, HIGH),
    "K11": _power(GBS32, HIGH),
    "K12": _power(GBS16, lambda p: 400.0 - 5 * p.gpus),
    "K13": Cases(
        study,
        edited(SCALED, mean_gpu_power_w=HIGH),
        edited(SCALED, single=True, mean_gpu_power_w=_alternating(0.052)),
    ),
    "K14": Cases(study, edited(SMALL, samples_per_gpuh=lambda p: 1e6 / p.gpus), short(SMALL)),
    "K15": Cases(study, edited(LARGE, mean_gpu_power_w=lambda p: 400.0 - p.gpus), short(LARGE)),
    "K16": Cases(
        _rates(lambda rate: rate / 1e4),
        _rates(lambda rate: 1e8 / rate),
        _rates(lambda rate: 180.0 - rate / 1e9, single=True),
    ),
    "L01": _interval(RESNET, 0.3257),
    "L02": _interval(NET_A100, 0.245),
    "L03": _interval(NET_H100, 0.298),
    "L04": Cases(
        study, edited(FULL, gpu_hours=lambda p: 90.0 * p.gpus**0.2), short(FULL, 1)
    ),
    "L05": Cases(_times(5.48, 7.10), _times(5.48, 3.0), _times(5.48, 6.0, single=True)),
    "L06": Cases(
        traced(on_a100(WIDE), on_h100(NARROW)),
        traced(on_a100(NARROW), on_h100(WIDE)),
        traced(on_a100(WIDE[:60]), on_h100(NARROW[:60])),
    ),
}  # fmt: skip


def _of_resnet(id_: str) -> Cases:
    def case(change: Change) -> Case:
        return lambda: change(resnet_world())

    unresolved = case(UNDECIDED[id_]) if id_ in UNDECIDED else None
    return Cases(resnet_world, case(VIOLATED[id_]), unresolved)


CASES: Mapping[str, Cases] = {
    **{id_: _of_resnet(id_) for id_ in VIOLATED},
    **OF_FOURCASTNET,
    **OF_POWER,
}
"""Of every claim that results decide."""
