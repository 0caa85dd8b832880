"""spec.json: the file that determines a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, TrainingDefinition
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json

SPEC_VERSION = 1
_DERIVED = ("samples_per_epoch", "updates_per_epoch", "updates")
"""Written for readers of the file; computed from the other fields."""


@dataclass(frozen=True)
class InitialWeights:
    """The run whose final weights another starts from."""

    configuration: str
    repeat: int
    spec_sha256: str


@dataclass(frozen=True, kw_only=True)
class RunSpec(TrainingDefinition):
    """A run, fully determined: a configuration and the number of its repeat, from 1."""

    configuration: str
    """Id of the configuration."""
    repeat: int
    initial_weights: InitialWeights | None = None

    def as_json(self) -> dict[str, Any]:
        """Content of spec.json, with the counts that follow from it."""
        weights = self.initial_weights
        definition = self.definition()
        if definition["operating_point"] is None:  # as in the specs of most runs
            del definition["operating_point"]
        return {
            "spec_version": SPEC_VERSION,
            "configuration": self.configuration,
            **definition,
            "initial_weights": None if weights is None else asdict(weights),
            **{name: getattr(self, name) for name in _DERIVED},
            "repeat": self.repeat,
        }

    @cached_property
    def text(self) -> str:
        """Canonical text of spec.json: the same for equal specs."""
        return json.dumps(self.as_json(), indent=1, sort_keys=True, allow_nan=False)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The run as messages name it."""
        return f"{self.configuration} repeat {self.repeat}"

    @property
    def key(self) -> str:
        """The run as its working directory and the notes about it are named."""
        return f"{self.configuration}-{self.repeat}-{self.sha256[:12]}"


def run_spec(campaign: Campaign, configuration: str, repeat: int) -> RunSpec:
    """Spec of a run of a campaign."""
    point = campaign.configurations[configuration]
    weights = None
    if point.initial_weights:
        source = run_spec(campaign, point.initial_weights, repeat)
        weights = InitialWeights(source.configuration, repeat, source.sha256)
    definition = point.definition() | {"seed": point.seed_of(repeat)}
    return RunSpec(configuration=point.id, repeat=repeat, initial_weights=weights, **definition)


def read_spec(path: Path | str) -> RunSpec:
    """Read a spec.json; InputError if it is damaged, or of another version."""
    content = read_json(path)
    version = content.get("spec_version") if isinstance(content, dict) else None
    if version != SPEC_VERSION:
        raise InputError(f"{path}: spec_version is {version}; this scalewatt reads {SPEC_VERSION}")
    given = {key: content[key] for key in content.keys() - {"spec_version", *_DERIVED}}
    try:
        if given["initial_weights"]:
            given["initial_weights"] = InitialWeights(**given["initial_weights"])
        return RunSpec(**given)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: is damaged ({error}); expected a file of scalewatt's") from error
