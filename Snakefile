# scalewatt: the energy that data-parallel training costs, from campaign to figures.
#   snakemake --profile profiles/local all       the demo, on this machine
#   snakemake --profile profiles/horeka all      the paper's campaign, on HoreKa
#   snakemake --profile profiles/simulate all    the paper's campaign, simulated, on any machine
#   snakemake --profile profiles/local figure2   one figure, from what it needs
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"
include: "workflow/rules/slurm.smk"
include: "workflow/rules/specs.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/energy.smk"
include: "workflow/rules/probe.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/claims.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/figures.smk"


def check_before_jobs():
    """Check nothing, where there is nothing but results to make."""


if not RESULTS_ONLY or workflow.remote_exec:
    if CLUSTER.simulates:

        include: "workflow/rules/simulate.smk"

    else:

        include: "workflow/rules/train.smk"


include: "workflow/rules/reproduce.smk"


# Snakemake has one of these only, and none in a job and with -n.
onstart:
    # Its limit of 100 starts a second is never met, but has Snakemake look again at all that waits once a
    # second for each job that it ever started: after 300 jobs that takes a quarter of a core, or more.
    workflow.scheduler.job_rate_limiter = None
    check_before_jobs()


# What takes seconds runs where Snakemake runs, and not as a job of its own.
localrules:
    spec,
    request,
    report_request,
    energy,
    runs_table,
    figure_table,
    variants_table,
    table1_files,
    draw_figure,
    pages_of_runs,
    claims_table,
    report,
    spec_again,
    energy_again,
    reproduce,


rule all:
    default_target: True
    input:
        rules.figures.input,
        TABLE1,
        rules.tables.input,
        RESULT_SET.claims_files,
        PLANNED,
        PREDICTED,
        rules.run_pages.input,
        IDLE_TABLE,
        required(partial(all_obstacle, RESULT_SET, CLUSTER_FILE), rules.report.output),
        MANIFEST,
    message:
        "all results"
