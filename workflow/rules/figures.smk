# Figures, each from its own table; a page for each run; and the report.
from dataclasses import asdict

from scalewatt.figures.draw_figure import SUFFIXES
from scalewatt.report.definition import report_definition


rule draw_figure:
    input:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
    output:
        multiext(f"{RESULTS}/figures/{{figure}}", *SUFFIXES),
    log:
        f"{LOGS}/draw_figure/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(sorted({*FIGURES, "prediction"} - {"table1", "variants"})),
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        version=versions.FIGURES,
    message:
        "draw {wildcards.figure}"
    script:
        "../scripts/figure.py"


# One job draws all pages of a configuration: starting it takes longer than a page.
rule pages_of_runs:
    input:
        lambda wildcards: RESULT_SET.page_inputs(wildcards.configuration),
    output:
        directory(f"{RESULTS}/figures/runs/{{configuration}}"),
    log:
        f"{LOGS}/pages_of_runs/{{configuration}}.log",
    # Behind all trainings, which would wait for it; at the end two are drawn at a time.
    priority: -1000000
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        repeats=lambda wildcards: RESULT_SET.pages[wildcards.configuration],
        excluded=lambda wildcards: RESULT_SET.page_exclusions(wildcards.configuration),
        version=versions.PAGES,
    message:
        "pages of the runs of {wildcards.configuration}"
    script:
        "../scripts/run_pages.py"


# What the report shows and the manifest records.
SHOWN = [
    *TARGETS["figures"],
    *RESULT_SET.figure_files("table1") * ("table1" in FIGURES),
    *TABLES,
    *RESULT_SET.claims_files,
    lambda wildcards: [] if obstacle_to("plan") else PLAN,
    lambda wildcards: [] if obstacle_to("prediction") else PREDICTED,
]
FACTS = (CAMPAIGN, CLUSTER, RESULT_SET.facts, RESULT_SET.remeasured)


rule report:
    input:
        RESULT_SET.files(ALL_RUNS, PROVENANCE),
        SHOWN,
    output:
        f"{RESULTS}/report.html",
    log:
        f"{LOGS}/report.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=lambda wildcards: asdict(report_definition(*FACTS)),
        version=versions.REPORT,
    message:
        "report"
    script:
        "../scripts/report.py"
