"""spec.json: the one file that says what a run is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, TrainingDefinition
from scalewatt.campaign.operating_points import check_point
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json

SPEC_VERSION = 1
_DERIVED = ("samples_per_epoch", "updates_per_epoch", "updates")
"""Written for readers of the file; computed from the other fields."""
_OPTIONAL = ("operating_point",)
"""Left out where a run has none."""
_EXPECTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "dict[str, Any]": "an object",
    "InitialWeights": "an object with configuration, repeat and spec_sha256",
}
_TYPES: dict[str, Any] = {"str": str, "int": int, "float": (int, float)}
_BOUND = 2**63
"""Numbers of a spec are counted in 64 bits."""
_POSITIVE = frozenset(
    {
        *("repeat", "gpus", "nodes", "ranks_per_node", "epochs"),
        *("local_batch_size", "global_batch_size"),
    }
)


@dataclass(frozen=True)
class InitialWeights:
    """The run whose final weights another one starts from."""

    configuration: str
    repeat: int
    spec_sha256: str


@dataclass(frozen=True, kw_only=True)
class RunSpec(TrainingDefinition):
    """One run, fully determined: a configuration and the number of its repeat, from 1."""

    configuration: str
    """Id of the configuration."""
    repeat: int
    initial_weights: InitialWeights | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the content of spec.json, with the counts that follow from it."""
        weights = self.initial_weights
        definition = {f.name: getattr(self, f.name) for f in fields(TrainingDefinition)}
        for name in _OPTIONAL:
            if definition[name] is None:  # as specs have it that are older than this key
                del definition[name]
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
        """Return the canonical text of spec.json: the same for equal specs."""
        return json.dumps(self.as_json(), indent=1, sort_keys=True, allow_nan=False)

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of the canonical text."""
        return text_sha256(self.text)

    @property
    def name(self) -> str:
        """Return the run as messages name it."""
        return f"{self.configuration} repeat {self.repeat}"

    @property
    def key(self) -> str:
        """Return the run as its working directory and the notes about it are named."""
        return f"{self.configuration}-{self.repeat}-{self.sha256[:12]}"


def run_spec(campaign: Campaign, configuration: str, repeat: int) -> RunSpec:
    """Return the spec of one run of a campaign."""
    own = campaign.configurations[configuration]
    weights = None
    if own.initial_weights:
        source = run_spec(campaign, own.initial_weights, repeat)
        weights = InitialWeights(source.configuration, repeat, source.sha256)
    definition = {f.name: getattr(own, f.name) for f in fields(TrainingDefinition)}
    definition["seed"] = own.seed_of(repeat)
    return RunSpec(configuration=own.id, repeat=repeat, initial_weights=weights, **definition)


def text_sha256(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_spec(path: Path | str) -> RunSpec:
    """Read a spec.json; InputError if it is none, is of another version, or contradicts itself."""
    return parse_spec(read_json(path), str(path))


def parse_spec(content: Any, where: str) -> RunSpec:
    """Return the spec that the content of a spec.json describes; InputError names `where`."""
    version = content.get("spec_version") if isinstance(content, dict) else None
    if version != SPEC_VERSION:
        raise InputError(f"{where}: spec_version is {version}; this scalewatt reads {SPEC_VERSION}")
    given = {**dict.fromkeys(_OPTIONAL), **content}
    del given["spec_version"]
    derived = {key: given.pop(key) for key in _DERIVED if key in given}
    weights = given.get("initial_weights")
    if isinstance(weights, dict):
        path = f"{where}: initial_weights"
        given["initial_weights"] = InitialWeights(**_checked(weights, InitialWeights, path))
    spec = RunSpec(**_checked(given, RunSpec, where))
    check_point(spec.operating_point, f"{where}: operating_point")
    for name in _DERIVED:
        expected = getattr(spec, name)
        if name not in derived or derived[name] != expected:
            found = f"is {json.dumps(derived[name])}" if name in derived else "is missing"
            raise InputError(
                f"{where}: {name} {found}; expected {json.dumps(expected)}, as follows from the "
                "other fields"
            )
    return spec


def _checked(content: dict[str, Any], kind: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass; InputError if one is missing, unknown or does not fit."""
    declared = {one.name: str(one.type) for one in fields(kind)}
    for name in content:
        if name not in declared:
            raise InputError(f"{where}: {name} is unknown; expected {', '.join(sorted(declared))}")
    for name, type_ in declared.items():
        expected, _, rest = type_.partition(" | ")
        wanted = _EXPECTED[expected] + (" above 0" if name in _POSITIVE else "")
        wanted += " or null" if rest else ""
        if name not in content:
            raise InputError(f"{where}: {name} is missing; expected {wanted}")
        if not (content[name] is None and rest) and not _fits(name, content[name], expected):
            shown = json.dumps(content[name], default=str)
            raise InputError(f"{where}: {name} is {shown[:60]}; expected {wanted}")
    return content


def _fits(name: str, value: Any, expected: str) -> bool:
    if expected == "InitialWeights":
        return isinstance(value, InitialWeights)
    if expected == "dict[str, Any]":
        return isinstance(value, dict)
    if isinstance(value, bool) or not isinstance(value, _TYPES[expected]):
        return False
    if isinstance(value, int | float) and abs(value) >= _BOUND:
        return False
    return name not in _POSITIVE or value > 0
