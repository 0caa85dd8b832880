# Results: runs' energy and histories to tables. What a table shows (which runs, in which series,
# under which label) is a request, a file of JSON: only a change of it, or of its runs, builds the
# table again.
#   in   spec, history, provenance and energy of the table's own runs
#   out  requests/*.json; tables/*.parquet and .csv, of some also .md and .tex
from scalewatt.targets.obstacles import figure_obstacle
from scalewatt.targets.result_set import ROW_FILES

FIGURES = RESULT_SET.figures


# `report` is in figures.smk.
rule request:
    output:
        f"{RESULTS}/requests/{{request}}.json",
    wildcard_constraints:
        request=r"(?!report)\w+",
    priority: 100
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        text=lambda wildcards: canonical(RESULT_SET.request(wildcards.request)),
    message:
        "request of {wildcards.request}"
    shell:
        "printf '%s\\n' {params.text:q} > {output:q}"


TABLES = ("runs", "configurations", "scaling", "comparisons", "cross_checks")


rule tables:
    input:
        [f"{RESULTS}/tables/{name}.parquet" for name in TABLES],


rule runs_table:
    input:
        request=f"{RESULTS}/requests/runs.json",
        runs=RESULT_SET.files(ALL_RUNS, *ROW_FILES),
        carbon=RESULT_SET.carbon_tables,
        idle=RESULT_SET.idle_table[:1],
        code=code_of("results.build"),
    output:
        [RESULT_SET.table_files(name) for name in TABLES],
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    message:
        "tables of runs and configurations"
    shell:
        "scalewatt table --definition {input.request:q} --results {RESULTS:q}"
        " --out $(dirname {output[0]:q})"


rule figure_table:
    input:
        request=f"{RESULTS}/requests/{{figure}}.json",
        runs=lambda wildcards: RESULT_SET.table_inputs(wildcards.figure),
        code=code_of("results.build"),
    output:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
        csv=f"{RESULTS}/tables/{{figure}}.csv",
    wildcard_constraints:
        figure="|".join(sorted({*FIGURES} - {"table1", "variants"})) or NONE,
    priority: 60
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    message:
        "table of {wildcards.figure}"
    shell:
        "scalewatt table --definition {input.request:q} --results {RESULTS:q} --out {output.table:q}"


use rule figure_table as variants_table with:
    output:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
        csv=report(
            f"{RESULTS}/tables/{{figure}}.csv",
            caption="../report/figures.rst",
            category="Tables",
        ),
        text=f"{RESULTS}/tables/{{figure}}.md",
    wildcard_constraints:
        figure="variants" if "variants" in FIGURES else NONE,


use rule figure_table as table1_files with:
    output:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
        csv=report(
            f"{RESULTS}/tables/{{figure}}.csv",
            caption="../report/table1.rst",
            category="Tables",
        ),
        text=multiext(f"{RESULTS}/tables/{{figure}}", ".md", ".tex"),
    wildcard_constraints:
        figure="table1" if "table1" in FIGURES else NONE,


TABLE1 = RESULT_SET.table_files("table1") if "table1" in FIGURES else []
