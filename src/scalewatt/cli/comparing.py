"""The command that sets two campaigns beside each other."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scalewatt.cli.command import argument, as_json, command, folder


@command(
    argument("a", metavar="A", help="results/<campaign>, its name in results, or an archive"),
    argument("b", metavar="B", help="the other one, likewise"),
    folder("results"),
    as_json("one JSON object, with all of it"),
    argument("--out", type=Path, metavar="STEM", help="also write .parquet and .csv of all ratios"),
    examples=(
        "scalewatt compare results/demo results/demo-simulated",
        "scalewatt compare demo theirs.crate.zip --json",
    ),
)
def compare(arguments: argparse.Namespace) -> int:
    """Compare two campaigns: what differs in settings, time and energy, with intervals and verdicts.

    Return 1 if no configuration is in both.
    """
    from scalewatt.comparison.compare import compare, write_compared
    from scalewatt.comparison.compare_text import comparison_text

    found = compare(arguments.a, arguments.b, arguments.results)
    if arguments.out is not None:
        write_compared(found, arguments.out)
    if arguments.json:
        print(json.dumps(found.as_json(), indent=1, allow_nan=False))
    else:
        print(comparison_text(found))
    return 0 if found.matched.pairs else 1
