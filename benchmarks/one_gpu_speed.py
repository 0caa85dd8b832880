"""Speed and energy of our training beside others' code, on one GPU, in one run.

    PYTHONPATH=src python benchmarks/one_gpu_speed.py [--minutes 9] [--fields 1] [--out FOLDER] [--rehearse]

All trainings of a comparison take turns in one process. Results so far are written after every
comparison, to results/gpu-speed/<device>/ or a folder beside it: docs/one-gpu-speed.md. Ends with 1
without a GPU, or if a comparison ended early; goals that are missed are a result.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_speed import fourcastnet, resnet50
from gpu_speed.measuring import Clock, EnergyMeter
from gpu_speed.results import facts, published_speeds, write_results
from gpu_speed.setting import REAL, TINY, Bench
from gpu_speed.trainings import process_group

from scalewatt.common.errors import InputError
from scalewatt.common.files import numbered_folder
from scalewatt.gpu_study.gpu_here import machine_here

DEFAULT = Path("results/gpu-speed")
SHARES = {"loops": 0.22, "protocols": 0.35, "eager": 0.56, "prepared": 0.82, "compiled": 0.92}
"""Of the minutes, by when each part must be done. The rest is for profiles."""


@dataclass
class Results:
    """What goes into the files: facts, what was found, and what ended early."""

    folder: Path
    clock: Clock
    facts: dict[str, Any]
    found: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)

    def write(self, state: str) -> None:
        """Write all there is; `state` says up to where that is."""
        content = {
            **self.facts,
            "seconds": self.clock.elapsed_s(),
            "state": state,
            "found": self.found,
            "errors": self.errors,
            "published": published_speeds(),
        }
        write_results(self.folder, content)


def compare(bench: Bench, errors: dict[str, str]) -> None:
    """Make all comparisons, writing after each, and note in `errors` what ended one early."""
    parts: dict[str, Callable[[], None]] = {
        "resnet50": partial(resnet50.loops, bench, SHARES["loops"]),
        "protocols": partial(resnet50.protocols, bench, SHARES["protocols"]),
        "fourcastnet": partial(fourcastnet.compare_eager, bench, SHARES["eager"]),
        "fourcastnet_compiled": partial(
            fourcastnet.compare_compiled, bench, SHARES["prepared"], SHARES["compiled"]
        ),
    }
    for number, (name, part) in enumerate(parts.items(), start=1):
        try:
            part()
        except Exception as error:  # the others are still worth their time
            errors[name] = f"{type(error).__name__}: {error}"
            bench.say(f"{name} ended early: {errors[name]}")
        bench.free()
        bench.write("complete" if number == len(parts) else f"up to {name}")


def main() -> int:
    """Compare, and say where the results are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--minutes", type=float, default=9.0, help="about how long (default: 9)")
    parser.add_argument("--fields", type=int, default=1, help="batch of FourCastNet (default: 1)")
    parser.add_argument("--out", type=Path, help="folder of the results; never an earlier one's")
    arguments = parser.parse_args()
    clock = Clock(arguments.minutes)
    try:
        machine = machine_here(arguments.rehearse)
    except InputError as error:
        print(f"one_gpu_speed: {error}", file=sys.stderr)
        return 1
    device = torch.device("cuda", 0) if machine.is_gpu else torch.device("cpu")
    if not machine.is_gpu:
        torch.set_num_threads(1)  # several wait for each other where there is other work
    meter, found, say = EnergyMeter(device), {}, partial(_say, clock)
    folder = numbered_folder(arguments.out or DEFAULT / machine.device)
    results = Results(folder, clock, facts(arguments.rehearse, meter.origin), found)
    sizes = replace(REAL if machine.is_gpu else TINY, field_batch=arguments.fields)
    say(f"{machine.name}; energy: {meter.origin or 'not measured'}")
    with tempfile.TemporaryDirectory() as scratch, process_group(device):
        bench = Bench(device, sizes, clock, meter, folder, Path(scratch), results.write, say, found)
        compare(bench, results.errors)
    print((folder / "speed.md").read_text(encoding="utf-8"))
    print(f"Results: {folder}")
    return 1 if results.errors else 0


def _say(clock: Clock, text: str) -> None:
    print(f"{clock.elapsed_s():6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
