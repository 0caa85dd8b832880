# The plan: time, energy and cost of the whole campaign by the cluster's scaling model, before anything
# is submitted; no data, no account, no run is needed.
#   in   the campaign, the cluster file and its scaling_model
#   out  tables/plan.{parquet,csv,md}
from scalewatt.scaling.forecast import check_any
from scalewatt.scaling.plan_table import plan_definition

PLAN = multiext(f"{RESULTS}/tables/plan", ".csv", ".parquet", ".md")


@cache
def not_planned():
    """Why no run of the campaign can be predicted; None where some can."""
    try:
        if CLUSTER.scaling_model is None:
            raise InputError(
                f"{CLUSTER_FILE}: has no key 'scaling_model', so nothing can be predicted; to make it"
                f" possible run what `scalewatt pilot {CAMPAIGN.path}` writes, then `scalewatt"
                " calibrate results/<its name> --out FILE`, and name FILE there"
            )
        check_devices(CAMPAIGN, CLUSTER)
        check_any(CAMPAIGN, forecaster())
    except InputError as error:
        return str(error)


def planned(files):
    """Files that are made where the scaling model knows runs of the campaign; none elsewhere."""
    return lambda wildcards: [] if not_planned() else files


rule plan_table:
    input:
        CLUSTER.scaling_model or [],
        code_of("scaling"),
    output:
        report(PLAN[0], caption="../report/plan.rst", category="Tables"),
        PLAN[1:],
    retries: 0
    localrule: True
    params:
        campaign=str(CAMPAIGN.path),
        stem=f"{RESULTS}/tables/plan",
        definition=lambda wildcards: canonical(plan_definition(CAMPAIGN, CLUSTER)),
    message:
        "plan"
    shell:
        "scalewatt plan --campaign {params.campaign:q} --cluster {CLUSTER_JSON:q}"
        " --out {params.stem:q} > /dev/null"


def plan_files(wildcards):
    if not_planned():
        refuse(not_planned())
    return PLAN


rule plan:
    input:
        plan_files,
