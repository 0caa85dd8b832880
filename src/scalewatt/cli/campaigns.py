"""Commands about a campaign: before it runs, while it runs, and to share and repeat it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from scalewatt.cli.command import (
    CAMPAIGN,
    MAX_GPUS,
    PLACE,
    command,
    flag,
    folder,
    option,
    site,
)
from scalewatt.common.project_files import given_file

if TYPE_CHECKING:
    from scalewatt.tracking.remeasure import CampaignFolders


@command(
    site("for whose runs"),
    flag("--json", "one JSON object, with all checks"),
)
def doctor(arguments: argparse.Namespace) -> int:
    """Say what this machine can measure, and what is missing for runs.

    With each check that fails or warns is how to fix it. Exit code 1 if no run can be made.
    """
    from scalewatt.doctor.examine import as_text, examine

    report = examine(arguments.site)
    print(json.dumps(report, indent=1, allow_nan=False) if arguments.json else as_text(report))
    return 0 if report["can_run"] else 1


@command(
    option("files", "FILE", "campaign files; default: campaigns/paper.yaml", given_file, nargs="*"),
    site("on whose machine it must be able to run", default=None),
    MAX_GPUS,
    flag("--json", "one object per run"),
)
def campaign(arguments: argparse.Namespace) -> None:
    """Check a campaign and print it as a table."""
    from scalewatt.campaign.cluster import load_site
    from scalewatt.campaign.external_command import check_commands
    from scalewatt.campaign.listing import campaign_text, runs_json
    from scalewatt.campaign.load import check_devices, load_campaign

    cluster = load_site(arguments.site) if arguments.site else None
    files = arguments.files or [given_file("campaigns/paper.yaml")]
    campaigns = [load_campaign(path, cluster, arguments.max_gpus) for path in files]
    for campaign in campaigns:
        if cluster:
            check_devices(campaign, cluster)
        check_commands(campaign)
    if arguments.json:
        runs = [run for campaign in campaigns for run in runs_json(campaign)]
        print(json.dumps({"runs": runs}, indent=1))
    else:
        print("\n\n".join(map(campaign_text, campaigns)))


@command(
    *CAMPAIGN,
    MAX_GPUS,
    option("--model", "FILE", "scaling model; default: the cluster file's scaling_model"),
    option("--deadline-h", "H", "mark the cheapest n of each series that ends in H hours", float),
    flag("--json", "one JSON object"),
    option("--out", "STEM", "also write .parquet, .csv and .md"),
    option("--html", "FILE", "also write a page where PUE, price and carbon are typed"),
)
def plan(arguments: argparse.Namespace) -> None:
    """Predict time, energy and cost of a campaign before it runs."""
    from scalewatt.campaign.cluster import load_site
    from scalewatt.report.planner.plan_page import write_plan_page
    from scalewatt.scaling.plan import load_plan, make_plan, plan_json, plan_text, write_plan

    cluster = load_site(arguments.site)
    if arguments.max_gpus is not None:
        cluster = cluster.model_copy(update={"max_gpus": arguments.max_gpus})
    campaign, model = load_plan(cluster, arguments.campaign, arguments.model)
    plan = make_plan(campaign, cluster, model, arguments.deadline_h)
    if arguments.out is not None:
        write_plan(plan, arguments.out)
    if arguments.html is not None:
        write_plan_page(arguments.html, plan, cluster, arguments.deadline_h)
    as_json = json.dumps(plan_json(plan), indent=1, allow_nan=False)
    print(as_json if arguments.json else plan_text(plan))


@command(
    *PLACE,
    option("--slowdown", "PERCENT", "how much more time than the fastest", float),
    option("--deadline-h", "H", "the longest that a run may take", float),
    flag("--json", "one JSON object"),
)
def advise(arguments: argparse.Namespace) -> int:
    """Name the settings of least energy within a limit of time.

    They are compared by finished runs. Exit code 1 if there is nothing to choose from, or no setting
    keeps the limits.
    """
    from scalewatt.results.tables.frames import records
    from scalewatt.scaling.advise import COLUMNS, advice_text, advise, read_settings
    from scalewatt.tracking.remeasure import CampaignFolders

    slowdown = None if arguments.slowdown is None else arguments.slowdown / 100
    folders = arguments.campaign, arguments.results, arguments.work
    settings = read_settings(CampaignFolders.find(arguments.site, *folders).results)
    kept = advise(settings, slowdown=slowdown, deadline_h=arguments.deadline_h)
    if unknown := settings.loc[settings["energy_kwh_mean"].isna(), "configuration"].tolist():
        print(f"scalewatt: energy not known, not compared: {', '.join(unknown)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"advice": records(kept[list(COLUMNS)])}, indent=1))
    else:
        print("no setting keeps the limits" if kept.empty else advice_text(kept))
    return 0 if len(kept) else 1


@command(
    option("campaign", "CAMPAIGN", "campaign file"),
    option("--out", "FILE", "default: <campaign>-pilot.yaml beside it"),
)
def pilot(arguments: argparse.Namespace) -> None:
    """Write the campaign of short runs that calibrates the scaling model."""
    from scalewatt.scaling.pilot import write_pilot

    print(write_pilot(arguments.campaign, arguments.out))


@command(
    option(
        "sources",
        "SOURCE",
        "results/<campaign>, or reference (the published rows)",
        nargs="+",
    ),
    option("--out", "FILE", "the model's file (JSON)", required=True),
)
def calibrate(arguments: argparse.Namespace) -> None:
    """Calibrate the scaling model of time and energy on results."""
    from scalewatt.scaling.calibrate import calibrate_sources

    print(calibrate_sources(arguments.sources, arguments.out))


# --- while it runs --------------------------------------------------------------------------------


@command(
    *PLACE,
    MAX_GPUS,
    flag("--all", "one line for each run"),
    flag("--json", "one JSON object, with all runs"),
    option("--watch", "S", "print it again every S seconds", float),
)
def status(arguments: argparse.Namespace) -> None:
    """Show a campaign at a glance, while it runs or not."""
    from scalewatt.tracking.status import show_status

    folders = arguments.campaign, arguments.results, arguments.work
    given = arguments.all, arguments.json, arguments.max_gpus, arguments.watch
    show_status(arguments.site, *folders, *given)


RUN = (
    option("configuration", "CONFIGURATION", "the name of its folder", str),
    option("repeat", "REPEAT", "which of its runs, from 1", int),
    option("--reason", "TEXT", "why, in one line", str, required=True),
    *PLACE,
)
"""A finished run, and why it does not count."""


@command(
    *RUN,
)
def exclude(arguments: argparse.Namespace) -> None:
    """Leave a finished run out of tables and figures."""
    from scalewatt.tracking.remeasure import exclude

    print("\n".join(exclude(*_given_run(arguments))))


@command(
    *RUN,
)
def remeasure(arguments: argparse.Namespace) -> None:
    """Set a finished run's measurement aside, to measure it again."""
    from scalewatt.tracking.remeasure import remeasure

    print("\n".join(remeasure(*_given_run(arguments))))


def _given_run(
    arguments: argparse.Namespace,
) -> tuple[CampaignFolders, tuple[str, int], str]:
    """Campaign, run and reason."""
    from scalewatt.tracking.remeasure import CampaignFolders

    given = arguments.campaign, arguments.results, arguments.work
    folders = CampaignFolders.find(arguments.site, *given)
    return folders, (arguments.configuration, arguments.repeat), arguments.reason


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
def export(arguments: argparse.Namespace) -> None:
    """Write a campaign's results as one archive (BagIt, RO-Crate)."""
    from scalewatt.archive.export_archive import export_campaign
    from scalewatt.campaign.cluster import site_file

    lines = export_campaign(
        arguments.campaign,
        site_file(arguments.site),
        arguments.results,
        arguments.out,
        traces=arguments.traces,
        license_=arguments.license,
        authors=arguments.author,
        allow_private=arguments.allow_private,
    )
    print("\n".join(lines))


@command(
    option("archive", "ARCHIVE", "file that export wrote"),
    flag("--check", "only check it: nothing is written"),
    option("--name", "NAME", "what it is called here; default: its own name", str),
    folder("results"),
    folder("campaigns"),
)
def import_(arguments: argparse.Namespace) -> None:
    """Check an archive and import its campaign and results."""
    from scalewatt.archive.import_archive import check_archive, import_archive

    if arguments.check:
        lines = check_archive(arguments.archive)
    else:
        folders = arguments.results, arguments.campaigns
        lines = import_archive(arguments.archive, *folders, arguments.name)
    print("\n".join(lines))


@command(
    *CAMPAIGN,
    folder("results"),
)
def reproduce(arguments: argparse.Namespace) -> int:
    """Check whether a campaign's results can be reproduced.

    Exit code 1 if something differs.
    """
    from scalewatt.campaign.cluster import site_file
    from scalewatt.common.yaml_files import read_yaml
    from scalewatt.reproduction.reproduce import reproduce

    config = read_yaml(site_file(arguments.site))
    text, exit_code = reproduce(config, arguments.campaign, arguments.results)
    print(text)
    return exit_code
