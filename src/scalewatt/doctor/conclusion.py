"""The conclusion from all checks: whether runs can be made here, and where their energy comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.campaign_types import Device
from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, UNKNOWN, Check
from scalewatt.recordings.series import DEVICE_KINDS, ESTIMATED, MEASURED

MIXED = "mixed"


@dataclass(frozen=True)
class KindOrigin:
    """Where one device kind's energy comes from here: measured, estimated, or None with the reason."""

    origin: str | None
    why: str
    is_there: bool
    """Whether the device kind is part of what is measured: False where it is out of scope."""


@dataclass(frozen=True)
class Conclusion:
    """What runs on this machine would give."""

    kinds: Mapping[str, KindOrigin]
    can_run: bool | None
    """None where a check that runs need gave no answer."""
    reasons: tuple[str, ...]
    """Names of the checks that decide `can_run`."""
    elsewhere: bool
    """Whether runs go to other nodes than this one."""

    @property
    def origin(self) -> str | None:
        """The origin of a run's total: measured, estimated or mixed; None where it is unknown."""
        there = [kind for kind in self.kinds.values() if kind.is_there]
        origins = {kind.origin for kind in there}
        if not there or None in origins:
            return None
        return MIXED if len(origins) > 1 else str(origins.pop())

    @property
    def scope(self) -> str | None:
        """What a total contains, as in the column `energy_scope`; None where it is unknown."""
        if self.origin is None:
            return None
        return "+".join(kind for kind in DEVICE_KINDS if self.kinds[kind].is_there)

    def as_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            "origin": self.origin,
            "scope": self.scope,
            "kinds": {
                kind: {"origin": one.origin, "in_scope": one.is_there, "why": one.why}
                for kind, one in self.kinds.items()
            },
        }


def conclude(checks: Sequence[Check], device: Device, elsewhere: bool) -> Conclusion:
    """Conclude from all checks; `device` is what this machine is in the cluster file.

    `elsewhere`: runs go to other nodes, so that this node's sensors do not decide whether they can
    be made.
    """
    by_name = {check.name: check for check in checks}
    kinds = {
        "gpu": _gpu(by_name, device, elsewhere),
        "cpu": _cpu(by_name, device),
        "ram": _ram(by_name, device),
    }
    wrong = [check.name for check in checks if check.needed and check.outcome == MISSING]
    silent = [check.name for check in checks if check.needed and check.outcome == UNKNOWN]
    unknown_energy = [k for k, one in kinds.items() if one.is_there and one.origin is None]
    if not elsewhere and "perun" not in wrong:
        names = {"gpu": "gpus", "cpu": "rapl", "ram": "rapl"}
        seen = "perun" not in silent
        wrong += [names[k] for k in unknown_energy if seen and names[k] not in wrong]
    can_run = False if wrong else (None if silent else True)
    return Conclusion(kinds, can_run, tuple(wrong or silent), elsewhere)


def _sampled(by_name: Mapping[str, Check], kind: str) -> Mapping[str, Any] | None:
    """Return what perun's samples give for a device kind; None where it was not sampled."""
    perun = by_name.get("perun")
    return None if perun is None else perun.facts.get("kinds", {}).get(kind)


def _gpu(by_name: Mapping[str, Check], device: Device, elsewhere: bool) -> KindOrigin:
    gpus = by_name.get("gpus")
    seen = list(gpus.facts.get("gpus", [])) if gpus else []
    on_bus = gpus.facts.get("on_bus", 0) if gpus else 0
    if device.torch_device == "cpu":
        return KindOrigin(None, "runs of this device use the CPU", is_there=False)
    sampled = _sampled(by_name, "gpu")
    if sampled and sampled["origin"] == MEASURED:
        why = f"perun reads {_some(sampled['sensors'])}"
        if gpus is not None and gpus.outcome == LIMITED:
            why += f"; {gpus.means}"
        missed = len(seen) - len(sampled["sensors"])
        if missed > 0:
            return KindOrigin(None, f"{why}, and not {missed} others of {len(seen)}", True)
        return KindOrigin(MEASURED, why, is_there=True)
    if not seen and not on_bus:
        if gpus is not None and gpus.outcome == UNKNOWN:
            return KindOrigin(None, gpus.found, is_there=True)
        there = device.torch_device == "cuda" and not elsewhere
        return KindOrigin(None, gpus.found if gpus else "no GPU", is_there=there)
    if sampled is None and gpus is not None and gpus.outcome == OK:
        return KindOrigin(MEASURED, "NVML gives their power; perun was not tested", is_there=True)
    why = gpus.found if gpus and gpus.outcome != OK else "perun reads no power from them"
    return KindOrigin(None, why, is_there=True)


def _cpu(by_name: Mapping[str, Check], device: Device) -> KindOrigin:
    sampled = _sampled(by_name, "cpu")
    estimated = (
        f"busy share × rated powers of the cluster file ({device.cpu['sockets']} × "
        f"{device.cpu['idle_w']:g} to {device.cpu['rated_w']:g} W), as {_no_counter(by_name)}"
    )
    if sampled is None:
        if _counter_works(by_name):
            return KindOrigin(MEASURED, "its counters can be read; perun was not tested", True)
        return KindOrigin(ESTIMATED, f"{estimated}; perun was not tested", is_there=True)
    if sampled["origin"] == MEASURED:
        return KindOrigin(MEASURED, f"perun reads {_some(sampled['sensors'])}", is_there=True)
    if sampled["origin"] == ESTIMATED:
        return KindOrigin(ESTIMATED, estimated, is_there=True)
    return KindOrigin(None, "perun delivers neither power nor busy share", is_there=True)


def _ram(by_name: Mapping[str, Check], device: Device) -> KindOrigin:
    sampled = _sampled(by_name, "ram")
    if sampled and sampled["origin"] == MEASURED:
        return KindOrigin(MEASURED, f"perun reads {_some(sampled['sensors'])}", is_there=True)
    if device.ram:
        why = f"{device.ram['power_w']:g} W, the rated power of the cluster file"
        return KindOrigin(ESTIMATED, why, is_there=True)
    grace = " (a Grace socket's sensor may include it)" if "grace" in by_name else ""
    why = f"no counter of memory, and no rated power in the cluster file{grace}"
    return KindOrigin(None, why, is_there=False)


def _no_counter(by_name: Mapping[str, Check]) -> str:
    rapl = by_name.get("rapl")
    if rapl is not None and rapl.outcome == LIMITED:
        return "RAPL's counters cannot be read by you"
    return "perun reads no counter" if _counter_works(by_name) else "there is no counter"


def _counter_works(by_name: Mapping[str, Check]) -> bool:
    return any(name in by_name and by_name[name].outcome == OK for name in ("rapl", "grace"))


def _some(sensors: Sequence[str]) -> str:
    return ", ".join(sensors[:4]) + (f" and {len(sensors) - 4} more" if len(sensors) > 4 else "")
