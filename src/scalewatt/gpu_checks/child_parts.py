"""What checks do in processes of their own: `python -m scalewatt.gpu_checks.child_parts PART ORDER RESULT`.

Each part gets the order's facts by name and returns what it found, as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalewatt.common.files import read_json, write_json
from scalewatt.gpu_checks.check_types import CheckSkipped


def _parts() -> dict[str, Callable[..., dict[str, Any]]]:
    from scalewatt.gpu_checks import network_parts, power_parts

    return {
        "power_and_counter": power_parts.power_and_counter,
        "sampler_cost": power_parts.sampler_cost,
        "one_rank_group": network_parts.one_rank_group,
        "phases_and_stages": network_parts.phases_and_stages,
        "layouts": network_parts.layouts,
        "compiling": network_parts.compiling,
        "decoding": network_parts.decoding,
    }


def main(part: str, order: str, result: str) -> None:
    """Run a part with the facts of the file `order`; write what it finds to the file `result`."""
    facts = read_json(Path(order))
    try:
        found = _parts()[part](**{**facts, "folder": Path(facts["folder"])})
    except CheckSkipped as skipped:
        found = {"skipped": str(skipped)}
    write_json(Path(result), found)


if __name__ == "__main__":
    main(*sys.argv[1:])
