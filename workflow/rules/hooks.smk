# What happens before the first job, and after a failure.
import atexit

from scalewatt.common.files import write_json
from scalewatt.common.errors import nearest
from scalewatt.scheduling.preflight import check_before_submission
from scalewatt.targets.step import failure_lines
from scalewatt.tracking.remeasure import (
    CampaignFolders,
    ToTrain,
    set_probes_aside,
    set_replaced_aside,
)

# What writes much. All else needs nothing but the results, wherever they were copied to.
DEMANDING = {"dataset", "era5_year", "probe", "simulate", *RULES}
FOLDERS = CampaignFolders(CAMPAIGN, CLUSTER, Path(RESULTS), Path(WORK))


# Snakemake looks at the targets when all rules are read, and ends if there is no rule for one.
@atexit.register
def suggest_targets():
    """Suggest the nearest name for each target that is no rule and no file."""
    names = [rule.name for rule in workflow.rules]
    for target in workflow.dag_settings.targets if workflow.dag_settings else ():
        if "/" not in target and target not in names and not Path(target).exists():
            say(f"unknown target '{target}'{nearest(target, names)} (docs/figures.md)")


def trainings():
    """Return the runs that this call trains."""
    jobs = list(workflow.dag.needrun_jobs(exclude_finished=False))
    prepared = {
        job.wildcards.dataset
        for job in jobs
        if job.rule.name == "dataset" and job.wildcards.folder == RESULTS
    }
    settings = workflow.dag_settings
    targets = settings.targets if settings.forcetargets else ()
    forced = {os.path.normpath(target) for target in (*settings.forcerun, *targets)}
    return [
        ToTrain(
            run_of(job.wildcards),
            job.rule in workflow.dag.forcerules or not forced.isdisjoint(job.output),
            spec_of(job.wildcards).dataset["name"] in prepared,
        )
        for job in jobs
        if job.rule.name in RULES and job.wildcards.folder == RESULTS
    ]


def check_before_jobs():
    """Refuse what could not be submitted, written or measured, before the first job starts.

    Then write the cluster's settings for the jobs, and set aside what finished runs have measured that are
    measured again: Snakemake would delete it.
    """
    jobs = list(workflow.dag.needrun_jobs())
    demanding = any(job.rule.name in DEMANDING for job in jobs)
    if RESULTS_ONLY and not demanding:
        return
    scheduled = [
        (job.message or job.rule.name, job.resources)
        for job in jobs
        if not (workflow.local_exec or job.is_local)
    ]
    folders = [WORK, RESULTS, ".snakemake"] if demanding else [RESULTS]
    room_gib = CLUSTER.min_free_gib if demanding else 0
    runs = [run_of(job.wildcards) for job in jobs if job.rule.name in RULES]
    where = CLUSTER, CLUSTER_FILE, folders, room_gib
    checked(check_before_submission, scheduled, *where, runs, CAMPAIGN.name)
    write_json(Path(CLUSTER_JSON), dict(config))
    if workflow.touch:
        return
    probes = [
        (job.wildcards.device, int(job.wildcards.repeat))
        for job in jobs
        if job.rule.name == "probe"
    ]
    for kept in checked(set_probes_aside, Path(RESULTS), probes):
        say(f"idle probe that is made again; the earlier one is in {kept}")
    trained = trainings()
    if replaced := checked(set_replaced_aside, FOLDERS, trained):
        say(
            f"trainings that replace finished runs: {len(replaced)} of {len(trained)}"
            f" ({', '.join(sorted(set(replaced)))}); what these have measured is kept"
            f" in {RESULTS}/superseded"
        )


def say_failures():
    """Say last what failed: each failed job with the end of its log."""
    for job in sorted(workflow.scheduler.failed, key=str):
        for line in failure_lines(job.message or job.rule.name, [*job.log]):
            print(line, file=sys.stderr, flush=True)
