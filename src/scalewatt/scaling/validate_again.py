"""Cross-validate a scaling model's file anew on its own points; its costs, and so predictions, stay.

Run it by `python -m scalewatt.scaling.validate_again FILE`. It is for the file that ships: chains on
another machine differ by a few per cent, and plans should not change with the way errors are stated.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scalewatt.scaling.commands import sampler_provenance
from scalewatt.scaling.model.cross_validate import scores, validate
from scalewatt.scaling.model.model_file import read_model, replace_scores


def validate_again(path: Path) -> None:
    """Replace the scores of a model's file; InputError if it is none."""
    kinds = read_model(path).kinds
    found = {one.kind: scores(validate(one.points)) for one in kinds}
    replace_scores(path, found, sampler_provenance())


if __name__ == "__main__":
    validate_again(Path(sys.argv[1]))
