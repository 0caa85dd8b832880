# The plan: time, energy and cost of the whole campaign by the cluster's scaling model, before anything
# is submitted; no data, no account, no run is needed.
#   in   the campaign, the cluster file and its scaling_model
#   out  tables/plan.{parquet,csv,md}
# And, of finished runs that were not simulated, what was predicted beside what was measured.
#   in   tables/configurations.parquet, the cluster's scaling_model
#   out  tables/prediction.{parquet,csv}, figures/prediction.{svg,pdf,png,csv} (figures.smk)
from scalewatt.targets.obstacles import plan_obstacle, prediction_obstacle

PLAN = multiext(f"{RESULTS}/tables/plan", ".csv", ".parquet", ".md")
PREDICTION_TABLE = RESULT_SET.table_files("prediction")
PREDICTION = PREDICTION_TABLE + RESULT_SET.figure_files("prediction")

KNOWN = (CAMPAIGN, CLUSTER, CLUSTER_FILE, forecaster)
NO_PLAN = cache(partial(plan_obstacle, *KNOWN, PLAN))
NO_PREDICTION = cache(partial(prediction_obstacle, *KNOWN, PREDICTION))
PLANNED = available(NO_PLAN, PLAN)
PREDICTED = available(NO_PREDICTION, PREDICTION)


def plan_params(wildcards):
    """All that a plan depends on, as one text."""
    from scalewatt.scaling.planning.plan import plan_definition  # with pyarrow

    return canonical(plan_definition(CAMPAIGN, CLUSTER))


# An imported campaign came with its own, by a model that need not be here.
if not CAMPAIGN.imported:

    rule plan_table:
        input:
            scaling_model,
            code_of("scaling.commands"),
        output:
            report(PLAN[0], caption="../report/plan.rst", category="Tables"),
            PLAN[1:],
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            campaign=str(CAMPAIGN.path),
            stem=f"{RESULTS}/tables/plan",
            definition=plan_params,
        message:
            "plan"
        shell:
            "scalewatt plan --campaign {params.campaign:q} --cluster {CLUSTER_JSON:q}"
            " --out {params.stem:q} > /dev/null"

    rule prediction_table:
        input:
            configurations=f"{RESULTS}/tables/configurations.parquet",
            model=scaling_model,
            code=code_of("scaling.commands"),
        output:
            PREDICTION_TABLE,
        priority: 60
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            campaign=str(CAMPAIGN.path),
            definition=plan_params,
        message:
            "table of predictions"
        shell:
            "scalewatt prediction --results {RESULTS:q} --campaign {params.campaign:q}"
            " --cluster {CLUSTER_JSON:q} --out {output[0]:q}"


rule plan:
    input:
        required(NO_PLAN, PLAN),


rule prediction:
    input:
        required(NO_PREDICTION, PREDICTION),
