"""The powers of a device's parts, as rated, from which energy is estimated."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from scalewatt.common.settings import STRICT, Bounds

Watts = Annotated[float, Bounds(gt=0, le=10_000)]
IdleWatts = Annotated[float, Bounds(ge=0, le=10_000)]
Factor = Annotated[
    float,
    Bounds(ge=1, le=1000),
    Field(
        description="The true power is within × or ÷ this factor of the estimate, as far as you know; "
        "without this key 5.4."
    ),
]


def _idle_below_rated(part: Any) -> Any:
    if part["rated_w"] < part["idle_w"]:
        raise ValueError(
            f"rated_w: {part['rated_w']:g} is below its idle_w {part['idle_w']:g}; allowed: "
            f"{part['idle_w']:g} or more"
        )
    return part


@with_config(STRICT)
class CpuPower(TypedDict):
    """Per socket; used if no sensor can be read. Only a device of registered runs may lack it; their
    energy then covers the recorded parts."""

    sockets: Annotated[int, Field(ge=1, le=1000)]
    """CPU sockets of a node."""
    idle_w: IdleWatts
    """Watts when idle, for simulations; estimates do not use it."""
    rated_w: Watts
    """The manufacturer's rated power (TDP) in watts. Estimates: 0.74 · rated_w · (0.1 + 0.9 · load)."""
    factor: NotRequired[Factor]


@with_config(STRICT)
class GpuPower(TypedDict):
    """Per GPU; used if no sensor can be read."""

    idle_w: IdleWatts
    """Watts when idle."""
    rated_w: Watts
    """Watts at full utilisation."""
    factor: NotRequired[Factor]


@with_config(STRICT)
class RamPower(TypedDict):
    """Per node; used if no sensor can be read."""

    power_w: Annotated[float, Bounds(ge=0, le=100_000)]
    """Watts, whatever the load."""
    factor: NotRequired[Factor]


Cpu = Annotated[CpuPower, AfterValidator(_idle_below_rated)]
Gpu = Annotated[GpuPower, AfterValidator(_idle_below_rated)]
