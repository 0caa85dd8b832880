# The plan: time, energy and cost of the whole campaign by the cluster's scaling model, before anything
# is submitted; no data, no account, no run is needed.
#   in   the campaign, the cluster file and its scaling_model
#   out  tables/plan.{parquet,csv,md}
# And, of finished runs that were not simulated, what was predicted next to what was measured.
#   in   tables/configurations.parquet, the cluster's scaling_model
#   out  tables/prediction.{parquet,csv}, figures/prediction.{svg,pdf,png,csv} (figures.smk)
PLAN = multiext(f"{RESULTS}/tables/plan", ".csv", ".parquet", ".md")
PREDICTION_TABLE = RESULT_SET.table_files("prediction")
PREDICTION = PREDICTION_TABLE + RESULT_SET.figure_files("prediction")

KNOWN = (CAMPAIGN, CLUSTER, CLUSTER_FILE, scaling_model)
NO_PLAN = cache(partial(plan_obstacle, *KNOWN))
NO_PREDICTION = cache(partial(prediction_obstacle, *KNOWN))
PLANNED = available(NO_PLAN, PLAN)
PREDICTED = available(NO_PREDICTION, PREDICTION)


rule plan_table:
    input:
        scaling_model_file,
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
        model=scaling_model_file,
    output:
        table=PREDICTION_TABLE[0],
        csv=PREDICTION_TABLE[1],
    log:
        f"{LOGS}/prediction_table.log",
    priority: 60
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


rule plan:
    input:
        required(NO_PLAN, PLAN),


rule prediction:
    input:
        required(NO_PREDICTION, PREDICTION),
