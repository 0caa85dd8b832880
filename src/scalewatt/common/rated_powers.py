"""The powers of a device's parts, rated or measured at loads, from which energy is estimated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, schema


def check_rated_powers(powers: Any, where: str) -> None:
    """Raise InputError, which begins with `where`, for anything but {"cpu", "gpu", "ram"} in W.

    Each may be empty or null.
    """
    root = schema("cluster")
    parts = root["$defs"]["device"]["properties"]
    kinds = {kind: parts[kind] for kind in ("cpu", "gpu", "ram")}
    if isinstance(powers, dict):
        powers = {kind: power for kind, power in powers.items() if power}
    check(
        powers, {"type": "object", "additionalProperties": False, "properties": kinds}, where, root
    )
    check_idle_powers(powers, where)


def check_idle_powers(powers: Mapping[str, Any], where: str) -> None:
    """Raise InputError if a part draws more when idle than at full load, or a curve's loads do not rise."""
    for kind in ("cpu", "gpu"):
        part = powers.get(kind)
        if part and part["rated_w"] < part["idle_w"]:
            raise InputError(
                f"{where}: {kind}.rated_w: {part['rated_w']:g} is below its idle_w "
                f"{part['idle_w']:g}; allowed: {part['idle_w']:g} or more"
            )
    loads = [load for load, _ in (powers.get("cpu") or {}).get("load_w", [])]
    if loads != sorted(set(loads)):
        listed = ", ".join(f"{load:g}" for load in loads)
        raise InputError(f"{where}: cpu.load_w: its loads are {listed}; allowed: rising ones")
