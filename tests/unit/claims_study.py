"""A study in the paper's series that tests make up, in which most claims of sections G to L hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from claims_made import changed, evidence, line

from scalewatt.claims.evidence import Evidence, Line, Point, Trace
from scalewatt.claims.load_evidence import with_points
from scalewatt.claims.reference_tables import CONTRADICTED, SUPPORTED, UNDECIDED, read_claims
from scalewatt.claims.verdicts import Verdict, verdict_of

Case = Callable[[], Evidence]

Numbers = Mapping[int, tuple[float, float, float, float | None]]
"""By n: GPU hours, energy in kWh, mean GPU power in W, error."""
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


def _values(numbers: Numbers, device: str) -> dict[int, dict[str, float | None]]:
    by_n: dict[int, dict[str, float | None]] = {}
    for n, (hours, energy, watts, error) in numbers.items():
        gpu = hours * watts / 1000
        by_n[n] = {
            "gpu_hours": hours,
            "runtime_h": hours / n,
            "energy_kwh": energy,
            "gpu_energy_kwh": gpu,
            "mean_gpu_power_w": watts,
            "mean_cpu_socket_power_w": SOCKET_W + 0.01 * watts,
            "metric_last": error,
        }
        if device == "a100":
            by_n[n]["ram_energy_kwh"] = 0.03 * energy
    return by_n


def fourcastnet(
    mode: str, constant: int, numbers: Numbers, device: str = "a100", phase: str = "pretrain"
) -> Line:
    """A line of FourCastNet, its configurations named as campaigns name them."""
    values = _values(numbers, device)
    columns = {"protocol": "paper", "precision": "fp16", "loader": "hdf5"}
    series = line("fourcastnet", phase, device, mode, constant, values, **columns)
    return replace(series, points=tuple(map(_named, series.points)))


def _named(point: Point) -> Point:
    id_ = f"fourcastnet.{point.phase}-{point.device}-n{point.gpus:03d}-lbs{point.lbs:04d}-full"
    return replace(point, row={**point.row, "configuration": id_})


def resnet50(mode: str, constant: int, numbers: Numbers) -> Line:
    """A line of ResNet50 on A100."""
    columns = {"protocol": "paper", "precision": "torch_default", "loader": "pil"}
    columns |= {"metric_name": "top1_error_percent"}
    values = _values(numbers, "a100")
    return line("resnet50", "train", "a100", mode, constant, values, **columns)


def probe() -> Line:
    """The probe of 20 epochs."""
    series = fourcastnet("probe", 1, {64: (280.5, 52, 145, None)})
    points = tuple(
        replace(p, row={**p.row, "epochs": 20, "configuration": f"{p.id}-epochs20"})
        for p in series.points
    )
    return replace(series, points=points)


@cache
def study() -> Evidence:
    """All series of the paper's campaign."""
    return evidence(
        [
            resnet50("fd_lbs", 256, FULL_LBS),
            resnet50("fd_gbs_s", 256, FULL_SMALL),
            resnet50("fd_gbs_l", 8192, FULL_LARGE),
            resnet50("sd_lbs", 256, SCALED_LBS),
            resnet50("sd_gbs_s", 256, SCALED_SMALL),
            resnet50("sd_gbs_l", 8192, SCALED_LARGE),
            fourcastnet("fd_lbs", 1, LBS1),
            fourcastnet("fd_lbs", 1, FINE, phase="finetune"),
            fourcastnet("fd_gbs_l", 64, GBS64),
            fourcastnet("fd_gbs_s", 16, {4: (559.7, 120.7, 172, 712)}),
            fourcastnet("fd_gbs_s", 16, GBS16_H100, "h100"),
            fourcastnet("fd_gbs_l", 32, GBS32_H100, "h100"),
            probe(),
        ]
    )


def trace(
    configuration: str, device: str, lbs: int, powers: list[float | None], **more: Any
) -> Trace:
    """A panel of figure 5: a sample each second, of 16 samples a GBS."""
    row = {
        "configuration": configuration,
        "device": device,
        "gpus": 16 // lbs,
        "local_batch_size": lbs,
        "global_batch_size": 16,
        "device_kind": "gpu",
        "energy_origin": "measured",
        "mean_power_all_w": sum(p for p in powers if p is not None) / max(len(powers), 1),
        **more,
    }
    return Trace(row, tuple(float(second) for second in range(len(powers))), tuple(powers))


def select(**wanted: Any) -> Callable[[Point], bool]:
    """Points with these attributes; `mode` by its beginning, `at_most` GPUs."""
    at_most, mode = wanted.pop("at_most", None), wanted.pop("mode", "")

    def fits(point: Point) -> bool:
        return (
            all(getattr(point, name) == value for name, value in wanted.items())
            and any(name.startswith(mode) for name in point.modes)
            and (at_most is None or point.gpus <= at_most)
        )

    return fits


def edited(
    where: Callable[[Point], bool],
    single: bool = False,
    **quantities: Callable[[Point], float | None],
) -> Case:
    """A case: the study with other values at some points, which may be of single runs."""
    runs = 1 if single else None
    return lambda: changed(study(), where, n_repeats=runs, **quantities)


def times(name: str, factor: float) -> Callable[[Point], float | None]:
    """A quantity times a factor."""
    return lambda point: (point.mean(name) or 0.0) * factor


def short(where: Callable[[Point], bool], points: int = 2) -> Case:
    """A case: every line of these points with its first points alone."""

    def build() -> Evidence:
        lines = (
            replace(ln, points=ln.points[:points]) if ln.points and where(ln.points[0]) else ln
            for ln in study().lines
        )
        return with_points(replace(study(), lines=tuple(lines)))

    return build


def judged(id_: str, given: Evidence) -> Verdict:
    """The verdict on a claim."""
    return verdict_of(next(claim for claim in read_claims() if claim.id == id_), given)


def ids(sections: str, kinds: Sequence[str]) -> set[str]:
    """Ids of the claims of these sections and kinds."""
    return {claim.id for claim in read_claims() if claim.id[0] in sections and claim.kind in kinds}


@dataclass(frozen=True)
class Cases:
    """What a check is tested on."""

    satisfied: Case
    violated: Case
    unresolved: Case | None = None

    def all(self) -> Iterator[tuple[str, Case]]:
        """Expected verdict and case."""
        yield SUPPORTED, self.satisfied
        yield CONTRADICTED, self.violated
        if self.unresolved is not None:
            yield UNDECIDED, self.unresolved
