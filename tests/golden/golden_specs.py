"""The SHA-256 of every run's spec, of every campaign of this project."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
from golden_project import PROJECT
from golden_tables import Golden

from scalewatt.cli import main

SPECS = Golden("spec_hashes.csv", ("campaign", "configuration", "repeat"))
BESIDE = ("campaign", "series")
"""What the command says of a run that its spec does not hold."""


def made(_: Path | None = None) -> dict[Golden, pd.DataFrame]:
    """The golden of today's code."""
    return {SPECS: pd.DataFrame(_rows())}


def _rows() -> Iterator[dict[str, str]]:
    for file in sorted((PROJECT / "campaigns").glob("*.yaml")):
        with redirect_stdout(io.StringIO()) as listed:
            assert main(["campaign", "--json", str(file)]) == 0
        for known in json.loads(listed.getvalue())["runs"]:
            spec = {name: value for name, value in known.items() if name not in BESIDE}
            text = json.dumps(spec, indent=1, sort_keys=True)  # as spec.json has it
            yield {
                **{name: str(known[name]) for name in SPECS.keys},
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
