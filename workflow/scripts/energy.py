"""Account for a run: its traces, its energy by node, device kind and stage, and its row."""

from pathlib import Path

from scalewatt.energies.account import write_energy
from scalewatt.results.tables.run_row import RunFiles, write_row
from scalewatt.targets.step import logged

with logged(snakemake):
    spec, powers, output = Path(snakemake.input.spec), snakemake.params.powers, snakemake.output
    write_energy(spec.parent, spec, powers, Path(output.traces), Path(output.energy))
    wildcards = snakemake.wildcards
    write_row(RunFiles(Path(wildcards.folder), wildcards.configuration, int(wildcards.repeat)))
