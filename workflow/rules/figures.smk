# Figures, each from its own table; a page for each run; and the report.
#   in   tables/<figure>.parquet; of pages also energy, traces and events of the runs
#   out  figures/<figure>.{pdf,svg,png} and .csv (exactly the plotted points),
#        .caption.{tex,md} (its notes),
#        figures/runs/<configuration>/<repeat>.svg; report.html
from scalewatt.figures.draw_figure import SUFFIXES
from scalewatt.targets.result_set import PAGE_FILES


rule draw_figure:
    input:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
    output:
        multiext(f"{RESULTS}/figures/{{figure}}", *SUFFIXES),
    log:
        f"{LOGS}/draw_figure/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(sorted({*FIGURES, "prediction"} - {"table1", "variants"})),
    priority: 60
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        version=versions.FIGURES,
    message:
        "draw {wildcards.figure}"
    script:
        "../scripts/figure.py"


rule figure1:
    input:
        files_of_figure("figure1"),


rule figure2:
    input:
        files_of_figure("figure2"),


rule figure3:
    input:
        files_of_figure("figure3"),


rule figure4:
    input:
        files_of_figure("figure4"),


rule figure5:
    input:
        files_of_figure("figure5"),


rule figure6:
    input:
        files_of_figure("figure6"),


rule figure7:
    input:
        files_of_figure("figure7"),


rule scaling:
    input:
        files_of_figure("scaling"),


rule power:
    input:
        files_of_figure("power"),


rule table1:
    input:
        files_of_figure("table1"),


rule breakdown:
    input:
        files_of_figure("breakdown"),


rule learning:
    input:
        files_of_figure("learning"),


rule pareto:
    input:
        files_of_figure("pareto"),


rule cost_per_sample:
    input:
        files_of_figure("cost_per_sample"),


rule operating_points:
    input:
        files_of_figure("operating_points"),


rule variants:
    input:
        files_of_figure("variants"),


rule figures:
    input:
        [RESULT_SET.figure_files(name) for name in FIGURES if name != "table1"],


# --- a page for each run --------------------------------------------------------------------------


# One job draws all pages of a configuration: starting it takes longer than a page.
rule pages_of_runs:
    input:
        lambda wildcards: RESULT_SET.files(
            [
                [wildcards.configuration, repeat]
                for repeat in RESULT_SET.pages[wildcards.configuration]
            ],
            *PAGE_FILES,
        ),
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


rule run_pages:
    input:
        expand(
            f"{RESULTS}/figures/runs/{{configuration}}", configuration=RESULT_SET.pages
        ),


# --- the report -----------------------------------------------------------------------------------

SHOWN = [
    *(*rules.figures.input, *TABLE1, *rules.tables.input, *RESULT_SET.claims_files),
    *(PLANNED, PREDICTED),
]


rule report:
    input:
        RESULT_SET.files(ALL_RUNS, "runs/{configuration}/{repeat}/provenance.json"),
        SHOWN,
    output:
        f"{RESULTS}/report.html",
    log:
        f"{LOGS}/report.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=report_content,
        version=versions.REPORT,
    message:
        "report"
    script:
        "../scripts/report.py"
