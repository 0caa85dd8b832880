"""Format a plan's numbers in few characters."""

from __future__ import annotations

from scalewatt.results.text.number_format import MISSING


def short(value: float | None) -> str:
    """Return a number in at most six characters (seven if negative), to three digits or more."""
    if value is None:
        return MISSING
    for limit, factor, letter in ((99_999.5, 1.0, ""), (999_500, 1e-3, "k"), (999.5e6, 1e-6, "M")):
        if abs(value) < limit:
            scaled = value * factor
            if not letter and (isinstance(value, int) or abs(value) >= 99.95):
                return f"{value:.0f}"
            return f"{scaled:.3g}{letter}" if abs(scaled) >= 0.01 or not scaled else f"{scaled:.1g}"
    return f"{value:.1g}"


def with_interval(
    value: float | None, low: float | None, high: float | None, unit: str = ""
) -> str:
    """Return a number in `unit` with the ends of its interval, if it has one, or with the lower alone."""
    words = f"{short(value)} {unit}".strip() if value is not None else MISSING
    if low is None or low == high:
        return words
    if high is None:
        return f"{words} ({short(low)} or more)"
    between = " to " if low < 0 else "–"
    return f"{words} ({short(low)}{between}{short(high)})"
