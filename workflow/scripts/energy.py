"""Account for a run: its traces, and its energy by node, device kind and stage."""

from pathlib import Path

from scalewatt.energies.account import write_energy
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    write_energy(
        Path(snakemake.input.spec).parent,
        Path(snakemake.input.spec),
        snakemake.params.powers,
        Path(snakemake.output.traces),
        Path(snakemake.output.energy),
    )
