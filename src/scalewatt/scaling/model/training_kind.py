"""Kinds of training: what trainings must have in common to share one set of costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.campaign_types import PASS_KEYS
from scalewatt.campaign.model_registry import MODELS, defaults_of, model_key
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec

LEARNING = frozenset(
    {
        *("base_learning_rate", "learning_rate", "warmup_epochs", "warmup_start", "momentum"),
        *("weight_decay", "plateau_factor", "plateau_patience", "horizontal_flip", "crop_scale"),
        *("sparsity_threshold", "initial_conditions", "initial_condition_spacing"),
    }
)
"""Settings that change what is learnt, but hardly time and energy."""
_OF_THE_LOAD = frozenset({"epochs", *PASS_KEYS})
"""Settings that are in the load of a training."""
_DATA = ("format", "source", "grid")
"""Relevant properties of a dataset; its size belongs to the training's load."""


@dataclass(frozen=True)
class Kind:
    """One model in one setting on one device."""

    key: str
    """The model, with its phase where it has several: fourcastnet.pretrain."""
    device: str
    protocol: str
    settings: str
    """All other relevant settings, as canonical JSON."""

    @property
    def name(self) -> str:
        """Return a human-readable name, unique among trainings that differ only in what it states."""
        changed = [f"{name}={value}" for name, value in self.changed().items()]
        protocol = [] if self.protocol == "paper" else [self.protocol]
        return ", ".join([f"{self.key} on {self.device}", *protocol, *changed])

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not the model's defaults."""
        usual, own = defaults_of(self.key), json.loads(self.settings)
        usual |= dict.fromkeys(LEVERS)
        return {name: value for name, value in own.items() if usual.get(name, value) != value}

    def as_json(self) -> dict[str, Any]:
        """Return it for the model's file."""
        return {
            "model": self.key,
            "device": self.device,
            "protocol": self.protocol,
            "settings": json.loads(self.settings),
        }


def kind_from_json(content: Mapping[str, Any]) -> Kind:
    """Invert `Kind.as_json`; KeyError or TypeError if `content` is not such."""
    return _kind(content["model"], content["device"], content["protocol"], content["settings"], {})


def kind_of_spec(spec: RunSpec) -> Kind:
    """Return the kind of a run's spec."""
    return _kind(
        model_key(spec.model, spec.phase),
        spec.device,
        spec.protocol,
        {**spec.settings, **(spec.operating_point or {})},
        spec.dataset,
    )


def kind_of_row(row: Mapping[str, Any]) -> Kind:
    """Return the kind of a row of configurations whose spec is missing.

    Settings that the row lacks have the model's defaults, and the data are assumed to be official.
    """
    key = model_key(row["model"], row["phase"])
    usual = defaults_of(key)
    settings = {name: row[name] for name in (*usual, *LEVERS) if row.get(name) is not None}
    dataset: dict[str, Any] = {"source": "data_root"}
    if key in MODELS:
        dataset["format"] = MODELS[key].data_format
    if row["model"] == "fourcastnet":
        dataset["grid"] = [720, 1440]
    return _kind(key, row["device"], row["protocol"], {**usual, **settings}, dataset)


def _kind(
    key: str, device: str, protocol: str, settings: Mapping[str, Any], dataset: Mapping[str, Any]
) -> Kind:
    own = {name: value for name, value in settings.items() if name not in LEARNING | _OF_THE_LOAD}
    data = {f"data_{name}": dataset[name] for name in _DATA if name in dataset}
    # 4 and 4.0 are one value
    text = json.dumps(json.loads(json.dumps({**own, **data}), parse_int=float), sort_keys=True)
    return Kind(key, device, protocol, text)
