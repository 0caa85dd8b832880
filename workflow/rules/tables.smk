# Results: runs' energy and histories to tables; by the scaling model the plan, before anything is submitted,
# and of finished runs what was predicted next to what was measured. What a table shows (which runs, in which
# series, under which label) is its parameter `definition`: a change of it, or of its runs, makes it again.
from scalewatt.campaign.table_definitions import runs_definition
from scalewatt.provenance.versions import CLAIMS_TABLES
from scalewatt.targets.result_set import CLAIMS_ENDINGS, PROVENANCE, ROW

ALL_RUNS = RESULT_SET.runs()
OF_ALL_RUNS = ("runs", "configurations", "scaling", "comparisons", "cross_checks")
TABLES = expand(f"{RESULTS}/tables/{{name}}.parquet", name=OF_ALL_RUNS)
PLAN = multiext(f"{RESULTS}/tables/plan", ".csv", ".parquet", ".md")
PREDICTION = RESULT_SET.table_files("prediction")
CLAIMS = multiext(f"{RESULTS}/tables/claims", *CLAIMS_ENDINGS)


rule runs_table:
    input:
        runs=RESULT_SET.files(ALL_RUNS, ROW),
        idle=RESULT_SET.idle_table[:1],
        change=lambda wildcards: RESULT_SET.change_of("runs"),
    output:
        [RESULT_SET.table_files(name) for name in OF_ALL_RUNS],
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
        "../scripts/table.py"


rule figure_table:
    input:
        lambda wildcards: RESULT_SET.table_inputs(wildcards.figure),
        change=lambda wildcards: RESULT_SET.change_of(wildcards.figure),
    output:
        multiext(f"{RESULTS}/tables/{{figure}}", ".parquet", ".csv"),
    log:
        f"{LOGS}/figure_table/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(sorted({*FIGURES, "idle"})),
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        definition=lambda wildcards: RESULT_SET.definition(wildcards.figure),
        version=lambda wildcards: getattr(
            versions, wildcards.figure.upper(), versions.TABLES
        ),
    message:
        "table of {wildcards.figure}"
    script:
        "../scripts/table.py"


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


# Without a model of the paper, claims are no part of `all`; the target `claims` checks them all the same.
rule claims_table:
    input:
        TABLES,
        [f"{RESULTS}/tables/figure5.parquet"] if "figure5" in FIGURES else [],
        RESULT_SET.files(ALL_RUNS, PROVENANCE),
        [str(find_file(f"reference/{name}")) for name in CLAIMS_TABLES],
    output:
        CLAIMS,
    log:
        f"{LOGS}/claims_table.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        definition=lambda wildcards: runs_definition(CAMPAIGN.whole, [], []),
        version=versions.CLAIMS,
    message:
        "claims of the paper"
    script:
        "../scripts/claims.py"


rule plan_table:
    input:
        RESULT_SET.model_files,
    output:
        PLAN,
    log:
        f"{LOGS}/plan_table.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        definition=plan_content,
        version=versions.PLAN,
    message:
        "plan"
    script:
        "../scripts/plan.py"


rule prediction_table:
    input:
        configurations=f"{RESULTS}/tables/configurations.parquet",
        model=RESULT_SET.model_files,
    output:
        PREDICTION,
    log:
        f"{LOGS}/prediction_table.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        definition=plan_content,
        version=versions.PREDICTION,
    message:
        "table of predictions"
    script:
        "../scripts/prediction.py"
