"""What `--definition` of `scalewatt table` and `scalewatt idle` may be: what a table depends on.

The workflow makes it; by hand it may be anything.
"""

from __future__ import annotations

from typing import Any

from scalewatt.campaign.validation import check

_TEXT = {"type": "string"}
_REPEAT = {"type": "integer", "minimum": 1}
_RUN = {
    "type": "array",
    "prefixItems": [_TEXT, _REPEAT],
    "minItems": 2,
    "maxItems": 2,
    "description": "[configuration, repeat]",
}
_EXCLUDED = {
    "type": "object",
    "required": ["configuration", "repeat", "reason"],
    "properties": {"configuration": _TEXT, "repeat": _REPEAT, "reason": _TEXT},
}
_POINTS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["configuration"],
        "properties": {"configuration": _TEXT, "label": _TEXT, "gpus": {"type": "integer"}},
    },
}
_SERIES = {
    "type": "object",
    "required": ["name", "label", "points"],
    "properties": {"name": _TEXT, "label": _TEXT, "points": _POINTS},
}
_CURVES = ("figure1", "figure2", "figure3", "figure4", "figure6", "figure7")
_MORE = ("breakdown", "learning", "pareto")
_CONTENT = {
    **dict.fromkeys((*_CURVES, *_MORE), "series"),
    **dict.fromkeys(("figure5", "table1"), "points"),
    "variants": "variants",
}
_FACILITY = ("pue", "carbon_g_per_kwh", "price_per_kwh")
_DEFINITION: dict[str, Any] = {
    "type": "object",
    "required": ["campaign", "runs", "missing"],
    "properties": {
        "campaign": _TEXT,
        "figure": {"enum": list(_CONTENT)},
        "runs": {"type": "array", "items": _RUN},
        "missing": {"type": "array", "items": _TEXT},
        "excluded": {"type": "array", "items": _EXCLUDED},
        "series": {"type": "array", "items": _SERIES},
        "points": _POINTS,
        "variants": {"type": "array", "items": {"type": "object"}},
        "options": {"type": "object"},
        "facility": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {"type": "number"} for name in _FACILITY},
        },
        "idle": {"type": "boolean"},
        "torch_devices": {"type": "array", "items": _TEXT},
    },
}


_IDLE: dict[str, Any] = {
    "type": "object",
    "required": ["campaign", "devices"],
    "properties": {
        "campaign": _TEXT,
        "devices": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["repeats", "powers"],
                "properties": {
                    "repeats": {"type": "array", "items": _REPEAT},
                    "powers": {"type": "object", "required": ["cpu", "gpu", "ram"]},
                },
            },
        },
    },
}


def check_idle_definition(definition: Any) -> None:
    """InputError where it is no definition of the table of idle powers."""
    check(definition, _IDLE, "--definition", _IDLE)


def check_definition(definition: Any) -> None:
    """InputError where it is no definition of a table; it names the key and what is allowed."""
    where = "--definition"
    check(definition, _DEFINITION, where, _DEFINITION)
    content = _CONTENT[definition["figure"]] if "figure" in definition else "series"
    check(definition, {**_DEFINITION, "required": [content]}, where, _DEFINITION)
