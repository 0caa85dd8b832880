"""Commands about a campaign: before it runs, while it runs, and to share and repeat it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from scalewatt.cli.command import (
    CAMPAIGN,
    FOLDERS,
    MAX_GPUS,
    command,
    flag,
    folder,
    option,
    print_json,
    site,
)
from scalewatt.common.project_files import find_file

if TYPE_CHECKING:
    from scalewatt.tracking.remeasure import CampaignFolders


@command(site("for whose runs"), flag("--json", "one JSON object, with all checks"))
def doctor(args: argparse.Namespace) -> int:
    """Say what this machine can measure, and what is missing for runs.

    With each check that fails or warns is how to fix it. Exit code 1 if no run can be made.
    """
    from scalewatt.doctor.examine import as_text, examine

    report = examine(args.site)
    if args.json:
        print_json(report)
    else:
        print(as_text(report))
    return 0 if report["can_run"] else 1


@command(
    option(
        "file",
        "FILE",
        "campaign file; default: campaigns/paper.yaml",
        find_file,
        nargs="?",
        default="campaigns/paper.yaml",
    ),
    site("on whose machine it must be able to run", default=None),
    MAX_GPUS,
    flag("--json", "one object per run"),
)
def campaign(args: argparse.Namespace) -> None:
    """Check a campaign and print it as a table."""
    from scalewatt.campaign.cluster import load_site
    from scalewatt.campaign.external_command import check_commands
    from scalewatt.campaign.listing import campaign_text, runs_json
    from scalewatt.campaign.load import check_devices, check_targets, load_campaign

    cluster = load_site(args.site) if args.site else None
    campaign = load_campaign(args.file, cluster, args.max_gpus)
    if cluster:
        check_devices(campaign, cluster)
    check_targets(campaign)
    check_commands(campaign)
    if args.json:
        print_json({"runs": runs_json(campaign)})
    else:
        print(campaign_text(campaign))


@command(
    *CAMPAIGN,
    MAX_GPUS,
    option("--model", "FILE", "scaling model; default: the cluster file's scaling_model"),
    option("--deadline-h", "H", "mark the cheapest n of each series that ends in H hours", float),
    flag("--json", "one JSON object"),
    option("--out", "STEM", "also write .parquet, .csv and .md"),
    option("--html", "FILE", "also write a page where PUE, price and carbon are typed"),
)
def plan(args: argparse.Namespace) -> None:
    """Predict time, energy and cost of a campaign before it runs."""
    from scalewatt.campaign.cluster import load_site
    from scalewatt.report.planner.plan_page import write_plan_page
    from scalewatt.scaling.plan import load_plan, make_plan, plan_json, plan_text, write_plan

    cluster = load_site(args.site)
    if args.max_gpus is not None:
        cluster = cluster.model_copy(update={"max_gpus": args.max_gpus})
    campaign, model = load_plan(cluster, args.campaign, args.model)
    plan = make_plan(campaign, cluster, model, args.deadline_h)
    if args.out is not None:
        write_plan(plan, args.out)
    if args.html is not None:
        write_plan_page(args.html, plan, cluster, args.deadline_h)
    if args.json:
        print_json(plan_json(plan))
    else:
        print(plan_text(plan))


@command(
    *FOLDERS,
    option("--slowdown", "PERCENT", "how much more time than the fastest", float),
    option("--deadline-h", "H", "the longest that a run may take", float),
    flag("--json", "one JSON object"),
)
def advise(args: argparse.Namespace) -> int:
    """Name the settings of least energy within a limit of time.


    They are compared by finished runs. Exit code 1 if there is nothing to choose from, or no setting
    keeps the limits.
    """
    from scalewatt.results.tables.frames import records
    from scalewatt.scaling.advise import COLUMNS, advice_text, advise, read_settings

    slowdown = None if args.slowdown is None else args.slowdown / 100
    settings = read_settings(_campaign_folders(args).results)
    kept = advise(settings, slowdown=slowdown, deadline_h=args.deadline_h)
    if unknown := settings.loc[settings["energy_kwh_mean"].isna(), "configuration"].tolist():
        print(f"scalewatt: energy not known, not compared: {', '.join(unknown)}", file=sys.stderr)
    if args.json:
        print_json({"advice": records(kept[list(COLUMNS)])})
    else:
        print("no setting keeps the limits" if kept.empty else advice_text(kept))
    return 0 if len(kept) else 1


def _campaign_folders(args: argparse.Namespace) -> CampaignFolders:
    """The campaign that FOLDERS name, and its folders."""
    from scalewatt.tracking.remeasure import CampaignFolders

    return CampaignFolders.find(args.site, args.campaign, args.results, args.work)


@command(
    option("campaign", "CAMPAIGN", "campaign file"),
    option("--out", "FILE", "default: <campaign>-pilot.yaml beside it"),
)
def pilot(args: argparse.Namespace) -> None:
    """Write the campaign of short runs that calibrates the scaling model."""
    from scalewatt.scaling.pilot import write_pilot

    print(write_pilot(args.campaign, args.out))


@command(
    option(
        *("sources", "SOURCE", "results/<campaign>, or reference (the published rows)", find_file),
        nargs="+",
    ),
    option("--out", "FILE", "the model's file (JSON)", required=True),
)
def calibrate(args: argparse.Namespace) -> None:
    """Calibrate the scaling model of time and energy on results."""
    from scalewatt.scaling.calibrate import calibrate_sources

    print(calibrate_sources(args.sources, args.out))


# --- while it runs --------------------------------------------------------------------------------


@command(
    *FOLDERS,
    MAX_GPUS,
    flag("--all", "one line for each run"),
    flag("--json", "one JSON object, with all runs"),
    option("--watch", "S", "print it again every S seconds", float),
)
def status(args: argparse.Namespace) -> None:
    """Show a campaign at a glance, while it runs or not."""
    from scalewatt.tracking.status import show_status

    folders = args.campaign, args.results, args.work
    show_status(args.site, *folders, args.all, args.json, args.max_gpus, args.watch)


RUN = (
    option("configuration", "CONFIGURATION", "the name of its folder", str),
    option("repeat", "REPEAT", "which of its runs, from 1", int),
    option("--reason", "TEXT", "why, in one line", str, required=True),
    *FOLDERS,
)
"""A finished run, and why it does not count."""


@command(*RUN)
def exclude(args: argparse.Namespace) -> None:
    """Leave a finished run out of tables and figures."""
    from scalewatt.tracking.remeasure import exclude

    run = args.configuration, args.repeat
    print("\n".join(exclude(_campaign_folders(args), run, args.reason)))


@command(*RUN)
def remeasure(args: argparse.Namespace) -> None:
    """Set a finished run's measurement aside, to measure it again."""
    from scalewatt.tracking.remeasure import remeasure

    run = args.configuration, args.repeat
    print("\n".join(remeasure(_campaign_folders(args), run, args.reason)))


# --- to share and repeat it -----------------------------------------------------------------------


@command(
    option("campaign", "CAMPAIGN", "campaign file"),
    site("where it ran"),
    folder("results"),
    flag("--traces", "with the power traces, which are large"),
    option("--out", "FILE", "default: <name of the campaign>.crate.zip"),
    option("--license", "NAME", "SPDX name or URL, e.g. CC-BY-4.0", str),
    option("--author", "NAME", "may be given several times", str, action="append", default=[]),
    flag("--allow-private", "even if files reveal paths here; never keys"),
)
def export(args: argparse.Namespace) -> None:
    """Write a campaign's results as one archive (BagIt, RO-Crate)."""
    from scalewatt.archive.export_archive import export_campaign
    from scalewatt.campaign.cluster import site_file

    lines = export_campaign(
        args.campaign,
        site_file(args.site),
        args.results,
        args.out,
        traces=args.traces,
        license_=args.license,
        authors=args.author,
        allow_private=args.allow_private,
    )
    print("\n".join(lines))


@command(
    option("archive", "ARCHIVE", "file that export wrote"),
    flag("--check", "only check it: nothing is written"),
    option("--name", "NAME", "what it is called here; default: its own name", str),
    folder("results"),
    folder("campaigns"),
)
def import_(args: argparse.Namespace) -> None:
    """Check an archive and import its campaign and results."""
    from scalewatt.archive.import_archive import check_archive, import_archive

    if args.check:
        lines = check_archive(args.archive)
    else:
        lines = import_archive(args.archive, args.results, args.campaigns, args.name)
    print("\n".join(lines))


@command(*CAMPAIGN, folder("results"))
def reproduce(args: argparse.Namespace) -> int:
    """Check whether a campaign's results can be reproduced.

    Exit code 1 if something differs.
    """
    from scalewatt.campaign.cluster import site_file
    from scalewatt.common.yaml_files import read_yaml
    from scalewatt.reproduction.reproduce import reproduce

    config = read_yaml(site_file(args.site))
    text, exit_code = reproduce(config, args.campaign, args.results)
    print(text)
    return exit_code
