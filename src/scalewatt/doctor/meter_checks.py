"""The meter of the whole node, by hwmon."""

from __future__ import annotations

from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, Check, Machine
from scalewatt.recordings.telemetry_sources import hwmon_sources

_NONE = "no energy of whole nodes beside that of their parts; nothing else is missing"


def check_meters(machine: Machine) -> list[Check]:
    """Read the meter of this node once."""
    sources = hwmon_sources(machine.root / "sys/class/hwmon")
    if not sources:
        return [Check("node_meters", MISSING, "no hwmon", _NONE, facts={"watts": None})]
    try:
        (watts,) = sources[0].read()
        problem = None if watts else "it states no power"
    except (OSError, ValueError) as error:
        watts, problem = None, getattr(error, "strerror", None) or "it gives no number"
    facts = {"watts": watts}
    if problem is not None:
        return [Check("node_meters", LIMITED, f"hwmon: {problem}", _NONE, facts=facts)]
    return [Check("node_meters", OK, f"hwmon {watts:.0f} W", facts=facts)]
