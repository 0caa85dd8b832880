"""A made-up ResNet50 study in which every claim of sections A to F holds, and ways to break each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from claims_made import changed, evidence, line, without

from scalewatt.claims.evidence import Evidence, Line, Point

Change = Callable[[Evidence], Evidence]
DOUBLING = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def _point(hours: float, energy: float, metric: float, **parts: float) -> dict[str, float]:
    shares = {"gpu": 0.70, "cpu": 0.27, "ram": 0.03}
    energies = {f"{kind}_energy_kwh": share * energy for kind, share in shares.items()}
    return {"gpu_hours": hours, "energy_kwh": energy, "metric_last": metric, **energies, **parts}


def _line(mode: str, constant: int, values: Mapping[int, Mapping[str, float]]) -> Line:
    timed = {
        n: {**quantities, "runtime_h": quantities["gpu_hours"] / n}
        for n, quantities in values.items()
    }
    return line(
        "resnet50", "train", "a100", mode, constant, timed, metric_name="top1_error_percent"
    )


def _fixed() -> list[Line]:
    def affine(energy: float) -> float:
        return 90 + (energy - 24.8) * 23.5 / 5.4

    energies = [24.8, 25.0, 25.3, 25.7, 27.2, 28.6, 30.2]
    errors = [28, 28, 28, 28, 31, 35, 42]
    full = {
        n: _point(affine(energy), energy, error)
        for n, energy, error in zip(DOUBLING[2:], energies, errors, strict=True)
    }
    first = {"gpu_energy_kwh": 17.6, "cpu_energy_kwh": 18.9, "ram_energy_kwh": 2.07}
    full[1] = _point(88, 38.57, 28) | first
    full[2] = _point(89, 30, 28, cpu_energy_kwh=10.8)
    full[256] |= {"gpu_energy_kwh": 20.3}
    small = {
        n: _point(hours, energy, 27.5)
        for n, hours, energy in (
            (1, 104, 38.6),
            (2, 100, 31),
            (4, 95, 27),
            (8, 104, 29.5),
            (16, 113.7, 32.3),
        )
    }
    large = {
        n: _point(94 * energy / 25.7, energy, 28.4)
        for n, energy in ((32, 25.7), (64, 26.5), (128, 27.3), (256, 28.1))
    }
    return [
        _line("fd_lbs", 256, full),
        _line("fd_gbs_s", 256, small),
        _line("fd_gbs_l", 8192, large),
    ]


def _scaled() -> list[Line]:
    errors = [85, 60, 45, 38, 34, 32, 30.5, 29.8, 29.2]
    grown = {
        n: _point(5004 * n * 0.0235e-3 / 0.265, 5004 * n * 0.0235e-3, error)
        for n, error in zip(DOUBLING, errors, strict=True)
    }
    grown[1] |= {"gpu_hours": 0.41, "energy_kwh": 0.182}
    grown[2] |= {"gpu_hours": 0.81, "energy_kwh": 0.267}
    small = {
        n: _point(hours, 80072 * n * per_sample / 1000, error)
        for n, hours, per_sample, error in (
            (1, 5.14, 0.031, 58),
            (2, 10.26, 0.0245, 48),
            (4, 21.9, 0.0226, 41),
            (8, 47.9, 0.0239, 34),
            (16, 113.6, 0.0254, 28),
        )
    }
    large = {
        n: _point(hours, 5004 * n * per_sample / 1000, error)
        for n, hours, per_sample, error in (
            (32, 14.2, 0.0238, 62),
            (64, 28.6, 0.0245, 48),
            (128, 57.6, 0.0252, 37),
            (256, 115.0, 0.0260, 28.5),
        )
    }
    return [
        _line("sd_lbs", 256, grown),
        _line("sd_gbs_s", 256, small),
        _line("sd_gbs_l", 8192, large),
    ]


def _fourcastnet() -> Line:
    """A training with another factor of energy per GPU hour."""
    values = {
        n: {"runtime_h": hours / n, "gpu_hours": hours, "energy_kwh": energy}
        for n, hours, energy in ((4, 560, 115), (16, 690, 140), (32, 900, 182), (64, 1030, 208))
    }
    return line("fourcastnet", "pretrain", "a100", "fd_lbs", 1, values)


@cache
def resnet_world() -> Evidence:
    """Evidence that satisfies all claims of sections A to F.

    Power follows the rates of samples and passes by a plane, for claim A03.
    """
    world = evidence([*_fixed(), *_scaled(), _fourcastnet()])

    def plane(point: Point) -> float:
        samples, passes = (point.mean(f"{name}_per_gpuh") or 0 for name in ("samples", "passes"))
        return 0.10 + 0.14e-6 * samples + 0.6e-6 * passes

    resnet = [p for p in world.points if p.model == "resnet50" and p.modes[0] != "sd_lbs"]
    ids = {point.id for point in resnet}
    return changed(world, lambda p: p.id in ids, p_gpuh_kw=plane)


def at(mode: str, *gpus: int) -> Callable[[Point], bool]:
    """Points of ResNet50 lines whose mode begins so; of these GPU counts, if any are given."""
    return lambda p: (
        p.model == "resnet50" and p.modes[0].startswith(mode) and (not gpus or p.gpus in gpus)
    )


def times(mode: str, *gpus: int, spread: float | None = None, **factors: float) -> Change:
    """Multiply quantities at such points."""

    def scaled(name: str, factor: float) -> Callable[[Point], float | None]:
        return lambda p: None if p.mean(name) is None else factor * (p.mean(name) or 0)

    new = {name: scaled(name, factor) for name, factor in factors.items()}
    return lambda world: changed(world, at(mode, *gpus), spread=spread, **new)


def noisy(mode: str, *names: str, n: int = 3, spread: float = 0.3) -> Change:
    """Let repeats at such points vary so much that little can be said, and few of them be there."""

    def same(name: str) -> Callable[[Point], float | None]:
        return lambda p: p.mean(name)

    new = {name: same(name) for name in names}
    return lambda world: changed(world, at(mode), spread=spread, n_repeats=n, **new)


def becoming(mode: str, name: str, values: Mapping[int, float], spread: float = 0.003) -> Change:
    """Give a quantity other values, by GPU count."""

    def change(world: Evidence) -> Evidence:
        where = at(mode, *values)
        return changed(world, where, spread=spread, **{name: lambda p: values[p.gpus]})

    return change


def dropping(mode: str, *gpus: int) -> Change:
    """Take points away."""
    return lambda world: without(world, at(mode, *gpus))


def both(*changes: Change) -> Change:
    """One change after another."""

    def change(world: Evidence) -> Evidence:
        for change in changes:
            world = change(world)
        return world

    return change
