# Figures, each from its own table and its own module; a page for each run; and the report.
#   in   tables/<figure>.parquet, the module of src/scalewatt/figures that draws it;
#        of pages also energy, traces and events of the runs
#   out  figures/<figure>.{pdf,svg,png} and .csv (exactly the plotted points),
#        .caption.{tex,md} (its notes),
#        figures/runs/<configuration>/<repeat>.svg; report.html
from scalewatt.campaign.cluster import basis
from scalewatt.campaign.exclusions import remeasured_runs
from scalewatt.figures.draw_figure import SUFFIXES, module_of
from scalewatt.report.report_request import report_definition
from scalewatt.targets.result_set import PAGE_FILES


rule draw_figure:
    input:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
        code=lambda wildcards: code_of(
            "figures.draw_figure", module_of(wildcards.figure)
        ),
    output:
        report(
            f"{RESULTS}/figures/{{figure}}.svg",
            caption="../report/figures.rst",
            category="Figures",
            labels=lambda wildcards: {
                "figure": wildcards.figure.capitalize().replace("Figure", "Figure ")
            },
        ),
        multiext(
            f"{RESULTS}/figures/{{figure}}",
            *(suffix for suffix in SUFFIXES if suffix != ".svg"),
        ),
    wildcard_constraints:
        figure="|".join(sorted({*FIGURES, "prediction"} - {"table1", "variants"})),
    priority: 60
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        stem=f"{RESULTS}/figures/{{figure}}",
    message:
        "draw {wildcards.figure}"
    shell:
        "scalewatt figure {wildcards.figure} --table {input.table:q} --out {params.stem:q}"


for name in (
    *(f"figure{number}" for number in range(1, 8)),
    *(
        "table1",
        "breakdown",
        "learning",
        "pareto",
        "cost_per_sample",
        "operating_points",
        "variants",
    ),
):

    rule:
        name:
            name
        input:
            required(
                partial(figure_obstacle, RESULT_SET, name),
                RESULT_SET.figure_files(name),
            ),


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
        code=code_of("figures.run_page", "results.figures.run_page_table"),
    output:
        directory(f"{RESULTS}/figures/runs/{{configuration}}"),
    # Behind all trainings, which would wait for it; at the end two are drawn at a time.
    priority: -1000000
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        repeats=lambda wildcards: RESULT_SET.pages[wildcards.configuration],
        excluded=lambda wildcards: canonical(
            RESULT_SET.page_exclusions(wildcards.configuration)
        ),
    message:
        "pages of the runs of {wildcards.configuration}"
    shell:
        "scalewatt run-pages {wildcards.configuration:q} {params.repeats}"
        " --results {RESULTS:q} --excluded {params.excluded:q}"


rule run_pages:
    input:
        expand(
            f"{RESULTS}/figures/runs/{{configuration}}", configuration=RESULT_SET.pages
        ),


# --- the report -----------------------------------------------------------------------------------

REPORT_CODE = code_of(
    "report.build_report",
    beside=[
        path
        for path in (CODE / "report").rglob("*")
        if path.suffix in (".css", ".js", ".j2")
    ],
)


use rule request as report_request with:
    output:
        f"{RESULTS}/requests/{{request}}.json",
    wildcard_constraints:
        request="report",
    params:
        text=lambda wildcards: canonical(
            report_definition(
                CAMPAIGN,
                CLUSTER,
                [
                    *(f"{one}." for one in CAMPAIGN.left_out),
                    *basis(
                        CLUSTER, [DEVICES[name] for name in sorted(CAMPAIGN.devices())]
                    ),
                ],
                RESULTS_ONLY,
                remeasured_runs(EXCLUSIONS),
            )
        ),


rule report:
    input:
        request=f"{RESULTS}/requests/report.json",
        provenance=RESULT_SET.files(
            ALL_RUNS, "runs/{configuration}/{repeat}/provenance.json"
        ),
        tables=rules.tables.input,
        table1=TABLE1,
        figures=rules.figures.input,
        claims=RESULT_SET.claims_files,
        plan=PLANNED,
        prediction=PREDICTED,
        code=REPORT_CODE,
    output:
        f"{RESULTS}/report.html",
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    message:
        "report"
    shell:
        "scalewatt report --definition {input.request:q} --results {RESULTS:q} --out {output:q}"
