# scalewatt: the energy that data-parallel training costs, from campaign to figures.
#   snakemake --profile profiles/local all       the demo, on this machine
#   snakemake --profile profiles/horeka all      the paper's campaign, on HoreKa
#   snakemake --profile profiles/simulate all    the paper's campaign, simulated, on any machine
#   snakemake --profile profiles/local figure2   one figure, from what it needs
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/energy.smk"
include: "workflow/rules/probe.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/variants.smk"
include: "workflow/rules/more_figures.smk"
include: "workflow/rules/checks.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/figures.smk"


if not RESULTS_ONLY or workflow.remote_exec:

    include: "workflow/rules/specs.smk"

    if CLUSTER.simulates:

        include: "workflow/rules/simulate.smk"

    else:

        include: "workflow/rules/train.smk"


include: "workflow/rules/reproduce.smk"


rule all:
    default_target: True
    input:
        rules.figures.input,
        NAMED_TABLE1,
        rules.tables.input,
        rules.claims.input,
        planned(PLAN),
        predicted(PREDICTION),
        VARIANTS,
        RUN_PAGES,
        IDLE_TABLE,
        rules.report.output,
        MANIFEST,
