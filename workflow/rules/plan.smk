# The plan: time, energy and cost of the whole campaign by the cluster's scaling model, before anything
# is submitted; no data, no account, no run is needed.
#   in   the campaign, the cluster file and its scaling_model
#   out  tables/plan.{parquet,csv,md}
# And, of finished runs that were not simulated, what was predicted beside what was measured.
#   in   tables/configurations.parquet, the cluster's scaling_model
#   out  tables/prediction.{parquet,csv}, figures/prediction.{svg,pdf,png,csv}
PLAN = multiext(f"{RESULTS}/tables/plan", ".csv", ".parquet", ".md")


@cache
def not_planned():
    """Why no run of the campaign can be predicted; None where some can."""
    from scalewatt.scaling.planning.forecast import check_any, no_model

    try:
        if CLUSTER.scaling_model is None:
            raise no_model(CLUSTER_FILE, CAMPAIGN)
        check_devices(CAMPAIGN, CLUSTER)
        check_any(CAMPAIGN, forecaster())
    except InputError as error:
        return str(error)


def plan_params():
    """All that a plan depends on, as one text."""
    from scalewatt.scaling.planning.plan_table import plan_definition  # with pyarrow

    return canonical(plan_definition(CAMPAIGN, CLUSTER))


def planned(files):
    """Files that are made where the scaling model knows runs of the campaign; none elsewhere.

    An imported campaign's plan is what it came with.
    """
    if CAMPAIGN.imported:
        return lambda wildcards: came_with(files)
    return lambda wildcards: [] if not_planned() else files


def not_predicted():
    """Why nothing can be said of the scaling model's predictions; None where something can."""
    if CLUSTER.simulates:
        return (
            f"{CLUSTER_FILE}: mode simulate: the scaling model makes the runs, so they are no test of it;"
            " 'prediction' is for runs that were trained"
        )
    return not_planned()


def predicted(files):
    """Files that set what was predicted beside what was measured; none where that is no test."""
    if CAMPAIGN.imported:
        return lambda wildcards: came_with(files)
    return lambda wildcards: [] if not_predicted() else files


# An imported campaign came with its own, by a model that need not be here.
if not CAMPAIGN.imported:

    rule plan_table:
        input:
            lambda wildcards: scaling_model(),
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
            definition=lambda wildcards: plan_params(),
        message:
            "plan"
        shell:
            "scalewatt plan --campaign {params.campaign:q} --cluster {CLUSTER_JSON:q}"
            " --out {params.stem:q} > /dev/null"


def plan_files(wildcards):
    if CAMPAIGN.imported:
        return came_with(PLAN) or refuse(
            f"{CAMPAIGN.path}: was imported without a plan"
        )
    if not_planned():
        refuse(not_planned())
    return PLAN


rule plan:
    input:
        plan_files,


PREDICTION_TABLE = multiext(f"{RESULTS}/tables/prediction", ".parquet", ".csv")
PREDICTION = multiext(f"{RESULTS}/figures/prediction", ".svg", ".pdf", ".png", ".csv")


if not CAMPAIGN.imported:

    rule prediction_table:
        input:
            configurations=f"{RESULTS}/tables/configurations.parquet",
            model=lambda wildcards: scaling_model(),
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
            definition=lambda wildcards: plan_params(),
        message:
            "table of predictions"
        shell:
            "scalewatt prediction --results {RESULTS:q} --campaign {params.campaign:q}"
            " --cluster {CLUSTER_JSON:q} --out {output[0]:q}"


rule draw_prediction:
    input:
        table=PREDICTION_TABLE[0],
        code=code_of("figures.draw_figure", "figures.prediction"),
    output:
        report(
            PREDICTION[0],
            caption="../report/prediction.rst",
            category="Figures",
            labels={"figure": "Prediction"},
        ),
        PREDICTION[1:],
    priority: 60
    retries: 0
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        stem=f"{RESULTS}/figures/prediction",
    message:
        "draw prediction"
    shell:
        "scalewatt figure prediction --table {input.table:q} --out {params.stem:q}"


def prediction_files(wildcards):
    if CAMPAIGN.imported:
        return came_with([*PREDICTION_TABLE, *PREDICTION]) or refuse(
            f"{CAMPAIGN.path}: was imported without predictions"
        )
    if not_predicted():
        refuse(not_predicted())
    return [*PREDICTION_TABLE, *PREDICTION]


rule prediction:
    input:
        prediction_files,
