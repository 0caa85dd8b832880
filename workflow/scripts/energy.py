"""Account for a run: its traces, and its energy by node, device kind and stage."""

from pathlib import Path

from scalewatt.energies.account import write_energy
from scalewatt.targets.step import logged

with logged(snakemake):
    spec, powers, output = Path(snakemake.input.spec), snakemake.params.powers, snakemake.output
    write_energy(spec.parent, spec, powers, Path(output.traces), Path(output.energy))
