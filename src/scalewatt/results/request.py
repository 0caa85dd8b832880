"""What `--definition` of `scalewatt table` and `scalewatt idle` may be: what a table depends on.

The workflow makes it; by hand it may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check
from scalewatt.results.figures.figure_schema import OVERVIEW
from scalewatt.results.tables.published import is_overlaid

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
_INT32 = {"type": ["integer", "null"], "maximum": 2**31 - 1}
_INT64 = {"type": ["integer", "null"], "maximum": 2**63 - 1}
_OF_POINT: dict[str, Any] = {
    "configuration": _TEXT,
    "label": _TEXT,
    **dict.fromkeys(("model", "phase", "device"), _TEXT),
    "gpus": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
    **dict.fromkeys(("local_batch_size", "global_batch_size", "epochs"), _INT32),
    **dict.fromkeys(("dataset_samples", "samples_per_gpu", "updates_per_epoch", "updates"), _INT64),
}
_OF_SERIES = ("name", "label", "model", "phase", "device", "dataset_rule", "batch_rule")
_CURVES = ("figure1", "figure2", "figure3", "figure4", "figure6", "figure7")
_MORE = ("breakdown", "learning", "pareto")
_CONTENT = {
    **dict.fromkeys((*_CURVES, *_MORE), "series"),
    **dict.fromkeys(("figure5", "table1"), "points"),
    "variants": "variants",
}
_TRAINING = ("model", "phase", "device")
_NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "figure1": (
        _OF_SERIES,
        tuple(name for name in _OF_POINT if name in OVERVIEW.names and name not in _OF_SERIES),
    ),
    **dict.fromkeys(("figure2", "figure4"), (("model", "phase"), ("gpus", "dataset_samples"))),
    "figure5": ((), ("label",)),
}
"""What a figure's table takes of a series and of a point, beside what every one does."""
_FACILITY = ("pue", "carbon_g_per_kwh", "price_per_kwh")
_OF_VARIANT = ("series", "label", "configuration", "baseline", "group", "differs")


def _objects(properties: dict[str, Any], required: Iterable[str] | None = None) -> dict[str, Any]:
    """The schema of an object; without `required` all its keys are."""
    needed = sorted(properties if required is None else required)
    return {"type": "object", "required": needed, "properties": properties}


_DEFINITION: dict[str, Any] = {
    "type": "object",
    "required": ["campaign", "runs", "missing"],
    "properties": {
        "campaign": _TEXT,
        "figure": {"enum": list(_CONTENT)},
        "runs": {"type": "array", "items": _RUN, "uniqueItems": True},
        "missing": {"type": "array", "items": _TEXT},
        "excluded": {"type": "array", "items": _EXCLUDED},
        "variants": {"type": "array", "items": _objects(dict.fromkeys(_OF_VARIANT, _TEXT))},
        "options": {
            "type": "object",
            "properties": {"power_window_s": {"type": "number", "exclusiveMinimum": 0}},
        },
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
    figure = definition.get("figure", "")
    content = _CONTENT.get(figure, "series")
    overlaid = is_overlaid(definition)
    if overlaid and content == "variants":
        raise InputError(f"{where}: options.overlay: variants have none; leave it out")
    of_series, of_point = _NEEDED.get(figure, ((), ()))
    if overlaid:
        of_series = (*of_series, *_TRAINING)
        of_point = (*of_point, *(("label", "gpus") if content == "points" else ()))
    points = {
        "type": "array",
        "minItems": 1,
        "items": _objects(_OF_POINT, {"configuration", *of_point}),
    }
    words = dict.fromkeys(_OF_SERIES, _TEXT)
    needed = {"name", "label", "points", *of_series}
    series = {"type": "array", "items": _objects({**words, "points": points}, needed)}
    own = {"required": [content], "properties": {"series": series, "points": points}}
    check(definition, own, where, own)
