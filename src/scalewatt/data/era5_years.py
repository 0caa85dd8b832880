"""The years of a dataset in ERA5's format, without the packages that read them."""

from __future__ import annotations

from typing import Any

PARTS = ("train", "validation", "test")


def part_years(definition: dict[str, Any], part: str) -> range:
    """Years of a part (of PARTS), both ends of its pair included."""
    first, last = definition[f"{part}_years"]
    return range(first, last + 1)


def all_years(definition: dict[str, Any]) -> list[int]:
    """Years of all parts, ascending."""
    return sorted({year for part in PARTS for year in part_years(definition, part)})
