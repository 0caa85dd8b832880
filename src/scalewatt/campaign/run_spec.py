"""spec.json: the one file that says what a run is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.common.errors import InputError

SPEC_VERSION = 1


def run_spec(campaign: Campaign, configuration: str, repeat: int) -> dict[str, Any]:
    """The spec of one run, as JSON-ready values."""
    c = campaign.configurations[configuration]
    initial = None
    if c.initial_weights:
        source = spec_text(run_spec(campaign, c.initial_weights, repeat))
        initial = {
            "configuration": c.initial_weights,
            "repeat": repeat,
            "spec_sha256": text_sha256(source),
        }
    return {**_fields(c), "repeat": repeat, "initial_weights": initial}


def _fields(configuration: Configuration) -> dict[str, Any]:
    values = asdict(configuration)
    return {
        "spec_version": SPEC_VERSION,
        "configuration": values.pop("id"),
        **values,
        "samples_per_epoch": configuration.samples_per_epoch,
        "updates_per_epoch": configuration.updates_per_epoch,
        "updates": configuration.updates,
    }


def spec_text(spec: dict[str, Any]) -> str:
    """The canonical text: one for one spec."""
    return json.dumps(spec, indent=1, sort_keys=True, allow_nan=False)


def text_sha256(text: str) -> str:
    """SHA-256 of a text, as a spec's canonical one."""
    return hashlib.sha256(text.encode()).hexdigest()


def spec_sha256(spec: dict[str, Any]) -> str:
    """SHA-256 of a spec."""
    return text_sha256(spec_text(spec))


def read_spec(path: Path | str) -> dict[str, Any]:
    """Read a spec.json; InputError where it is none, or of another version."""
    try:
        spec = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no spec.json ({error})") from error
    version = spec.get("spec_version") if isinstance(spec, dict) else None
    if version != SPEC_VERSION:
        raise InputError(f"{path}: spec_version is {version}; this scalewatt reads {SPEC_VERSION}")
    return spec
