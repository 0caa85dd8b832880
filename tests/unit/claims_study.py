"""Two made-up studies in the paper's series: claims A to F hold in one, claims G to L in the other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from claims_made import Made, changed, evidence, line

from scalewatt.claims.evidence import Evidence

Numbers = Mapping[int, tuple[float, float, float, float | None]]
"""By n: GPU hours, energy in kWh, mean GPU power in W, error."""
DOUBLING = [1, 2, 4, 8, 16, 32, 64, 128, 256]
SOCKET_W = 120.0

LBS1: Numbers = {
    4: (480, 95, 170, 700),
    8: (580, 120, 168, 705),
    16: (692.55, 144.87, 165, 710),
    32: (909.31, 175.72, 150, 715),
    64: (1034, 195, 145, 753),
    128: (1180, 222, 140, 791),
    256: (1340, 248, 138, 829),
}
FINE: Numbers = {
    16: (1250, 250, 166, 900),
    32: (1475, 290, 160, 905),
    64: (1784, 345, 155, 910),
    128: (2205, 420, 150, 970),
    256: (2767, 520, 145, 1040),
}
GBS64: Numbers = {
    16: (651, 136, 168, 740),
    32: (800, 160, 158, 741),
    64: (1034, 195, 145, 742),
}
GBS16_H100: Numbers = {
    4: (421.26, 115.63, 400, 712),
    8: (465, 129, 404, 713),
    16: (516.18, 145.31, 412, 714),
}
GBS32_H100: Numbers = {
    4: (420, 112, 405, 715),
    8: (480, 128.5, 400, 716),
    16: (560, 149, 395, 717),
    32: (663.13, 174.25, 385, 718),
}
FULL_LBS: Numbers = {
    n: (hours, hours * p, watts, error)
    for n, hours, p, watts, error in (
        (1, 90, 0.44, 190, 28.0),
        (2, 91, 0.33, 189, 28.0),
        (4, 92, 0.270, 188, 28.0),
        (8, 93, 0.270, 187, 28.1),
        (16, 94, 0.269, 186, 28.2),
        (32, 96, 0.268, 185, 28.4),
        (64, 100, 0.267, 183, 31.0),
        (128, 106, 0.266, 181, 36.0),
        (256, 113.5, 0.265, 179, 42.0),
    )
}
FULL_SMALL: Numbers = {
    n: (hours, hours * p, watts, 28.0)
    for n, hours, p, watts in (
        (1, 85, 0.48, 192),
        (2, 86, 0.38, 190),
        (4, 88, 0.316, 186),
        (8, 96, 0.313, 178),
        (16, 113.66, 0.293, 165),
    )
}  # fmt: skip
FULL_LARGE: Numbers = {
    n: (hours, hours * p, watts, 28.5)
    for n, hours, p, watts in (
        (32, 97, 0.290, 186),
        (64, 101, 0.288, 184),
        (128, 106, 0.286, 180),
        (256, 114, 0.284, 172),
    )
}
SCALED_LBS: Numbers = {
    n: (hours * n, hours * n * (p if n > 2 else 0.4), 186, 60.0)
    for n, hours, p in (
        *((1, 0.41, 0.4), (2, 0.41, 0.3), (4, 0.42, 0.27), (8, 0.43, 0.27), (16, 0.43, 0.27)),
        *((32, 0.43, 0.266), (64, 0.44, 0.266), (128, 0.44, 0.265), (256, 0.443, 0.266)),
    )
}
SCALED_SMALL: Numbers = {
    n: (hours * n, hours * n * p, watts, 40.0)
    for n, hours, p, watts in (
        (1, 5.14, 0.48, 190),
        (2, 5.13, 0.38, 186),
        (4, 5.2, 0.316, 180),
        (8, 5.3, 0.313, 172),
        (16, 5.4, 0.293, 165),
    )
}
SCALED_LARGE: Numbers = {
    n: (hours * n, hours * n * p, watts, 40.0)
    for n, hours, p, watts in (
        (32, 0.42, 0.266, 176),
        (64, 0.425, 0.277, 178),
        (128, 0.43, 0.286, 181),
        (256, 0.445, 0.292, 184),
    )
}


def of_numbers(
    model: str,
    mode: str,
    constant: int,
    numbers: Numbers,
    device: str = "a100",
    phase: str = "train",
) -> Made:
    """A series with energies by device kind, of which memory, that H100 lacks, has 3 %."""
    by_n: dict[int, dict[str, float | None]] = {}
    for n, (hours, energy, watts, error) in numbers.items():
        ram = 0.03 * energy if device == "a100" else None
        gpu = 0.7 * (energy - (ram or 0.0))
        parts = {"gpu": gpu, "cpu": 0.3 / 0.7 * gpu, "ram": ram}
        by_n[n] = {
            **{"gpu_hours": hours, "runtime_h": hours / n, "energy_kwh": energy},
            **{f"{kind}_energy_kwh": kwh for kind, kwh in parts.items()},
            "mean_gpu_power_w": watts,
            "mean_cpu_socket_power_w": SOCKET_W + 0.01 * watts,
            "metric_last": error,
        }
    loader = "hdf5" if model == "fourcastnet" else "pil"
    return line(model, phase, device, mode, constant, by_n, loader=loader)


@cache
def study() -> Evidence:
    """All series of the paper's campaign."""
    resnet50 = {
        ("fd_lbs", 256): FULL_LBS,
        ("fd_gbs_s", 256): FULL_SMALL,
        ("fd_gbs_l", 8192): FULL_LARGE,
        ("sd_lbs", 256): SCALED_LBS,
        ("sd_gbs_s", 256): SCALED_SMALL,
        ("sd_gbs_l", 8192): SCALED_LARGE,
    }
    fourcastnet = {
        ("fd_lbs", 1, "a100", "pretrain"): LBS1,
        ("fd_lbs", 1, "a100", "finetune"): FINE,
        ("fd_gbs_l", 64, "a100", "pretrain"): GBS64,
        ("fd_gbs_s", 16, "a100", "pretrain"): {4: (559.7, 120.7, 172, 712)},
        ("fd_gbs_s", 16, "h100", "pretrain"): GBS16_H100,
        ("fd_gbs_l", 32, "h100", "pretrain"): GBS32_H100,
        ("probe", 1, "a100", "pretrain"): {64: (280.5, 52, 145, None)},
    }
    return evidence(
        [
            *(of_numbers("resnet50", *named, numbers) for named, numbers in resnet50.items()),
            *(
                of_numbers("fourcastnet", mode, constant, numbers, device, phase)
                for (mode, constant, device, phase), numbers in fourcastnet.items()
            ),
        ]
    )


# --- ResNet50 alone ---------------------------------------------------------------------------------


def _point(hours: float, energy: float, metric: float, **parts: float) -> dict[str, float]:
    shares = {"gpu": 0.70, "cpu": 0.27, "ram": 0.03}
    energies = {f"{kind}_energy_kwh": share * energy for kind, share in shares.items()}
    return {"gpu_hours": hours, "energy_kwh": energy, "metric_last": metric, **energies, **parts}


def _line(mode: str, constant: int, values: Mapping[int, Mapping[str, float]]) -> Made:
    timed = {
        n: {**quantities, "runtime_h": quantities["gpu_hours"] / n}
        for n, quantities in values.items()
    }
    return line("resnet50", "train", "a100", mode, constant, timed)


def _fixed() -> list[Made]:
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


def _scaled() -> list[Made]:
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


def _fourcastnet() -> Made:
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
    plane = "p_gpuh_kw = 0.1 + 0.14e-6 * samples_per_gpuh + 0.6e-6 * passes_per_gpuh"
    return changed(world, "resnet50 & ~sd_lbs", plane)


WORLDS = {"resnet": resnet_world, "study": study}
