# Results: runs' energy and histories to tables. What a table shows (which runs, in which series,
# under which label) is its parameter `definition`: a change of it, or of its runs, makes it again.
#   in   spec, history, provenance and energy of the table's own runs
#   out  tables/*.parquet and .csv; of table1 and variants also .md, of table1 .tex
from scalewatt.targets.result_set import ROW_FILES

FIGURES = RESULT_SET.figures
TABLE1 = RESULT_SET.table_files("table1") if "table1" in FIGURES else []
TABLES = ("runs", "configurations", "scaling", "comparisons", "cross_checks")


rule tables:
    input:
        [f"{RESULTS}/tables/{name}.parquet" for name in TABLES],


rule runs_table:
    input:
        runs=RESULT_SET.files(ALL_RUNS, *ROW_FILES),
        idle=RESULT_SET.idle_table[:1],
    output:
        [RESULT_SET.table_files(name) for name in TABLES],
    log:
        f"{LOGS}/runs_table.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=lambda wildcards: RESULT_SET.definition("runs"),
        version=versions.TABLES,
    message:
        "tables of runs and configurations"
    script:
        "../scripts/runs_table.py"


rule figure_table:
    input:
        lambda wildcards: RESULT_SET.table_inputs(wildcards.figure),
    output:
        table=f"{RESULTS}/tables/{{figure}}.parquet",
        csv=f"{RESULTS}/tables/{{figure}}.csv",
    log:
        f"{LOGS}/figure_table/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(sorted(FIGURES)) or "(?!)",
    priority: 60
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=lambda wildcards: RESULT_SET.definition(wildcards.figure),
        version=versions.TABLES,
    message:
        "table of {wildcards.figure}"
    script:
        "../scripts/figure_table.py"


rule table_text:
    input:
        lambda wildcards: f"{RESULTS}/tables/{Path(wildcards.text).stem}.parquet",
    output:
        f"{RESULTS}/tables/{{text}}",
    log:
        f"{LOGS}/table_text/{{text}}.log",
    wildcard_constraints:
        text=r"table1\.md|table1\.tex|variants\.md",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "{wildcards.text}"
    script:
        "../scripts/table_text.py"
