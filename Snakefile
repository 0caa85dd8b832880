# scalewatt: the energy that data-parallel training costs, from campaign to figures.
#   snakemake --profile profiles/local all       the demo, on this machine
#   snakemake --profile profiles/horeka all      the paper's campaign, on HoreKa
#   snakemake --profile profiles/simulate all    the paper's campaign, simulated, on any machine
#   snakemake --profile profiles/local figure2   one figure, from what it needs
include: "workflow/Snakefile"


# An included file cannot set it.
workflow.default_target = "all"
