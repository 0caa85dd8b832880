"""Commands that others need to trust a result: archives and repetition."""

from __future__ import annotations

import argparse

from scalewatt.cli.command import CAMPAIGN, command, flag, folder, option, site


@command(
    option("campaign", "CAMPAIGN", "campaign file"),
    site("where it ran"),
    folder("results"),
    flag("--traces", "with the power traces, which are large"),
    option("--out", "FILE", "default: <name of the campaign>.crate.zip"),
    option("--license", "NAME", "SPDX name or URL, e.g. CC-BY-4.0", str),
    option("--author", "NAME", "may be given several times", str, action="append", default=[]),
    flag("--allow-private", "even if files reveal paths here; never keys"),
    examples=(
        "scalewatt export campaigns/demo.yaml",
        "scalewatt export campaigns/paper.yaml --site horeka --license CC-BY-4.0",
    ),
)
def export(arguments: argparse.Namespace) -> None:
    """Write a campaign's results as one archive, in RO-Crate form."""
    from scalewatt.archive.export_archive import ExportOptions, export_campaign
    from scalewatt.campaign.cluster import site_file

    options = ExportOptions(
        arguments.traces,
        arguments.license,
        tuple(arguments.author),
        arguments.allow_private,
        arguments.out,
    )
    cluster = site_file(arguments.site)
    print("\n".join(export_campaign(arguments.campaign, cluster, arguments.results, options)))


@command(
    option("archive", "ARCHIVE", "file, or the folder of its content"),
    flag("--check", "only check it: nothing is written"),
    option("--name", "NAME", "what it is called here; default: its own name", str),
    folder("results"),
    folder("campaigns"),
    examples=(
        "scalewatt import demo.crate.zip --name theirs",
        "scalewatt import --check demo.crate.zip",
        "scalewatt import --check reference",
    ),
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
    examples=(
        "scalewatt reproduce",
        "scalewatt reproduce --site horeka --campaign campaigns/paper.yaml",
    ),
)
def reproduce(arguments: argparse.Namespace) -> int:
    """Check whether a campaign's results can be reproduced.

    Exit code 1 if something differs.
    """
    from scalewatt.campaign.cluster import load_site
    from scalewatt.reproduction.reproduce import as_text, reproduce

    done = reproduce(load_site(arguments.site), arguments.campaign, arguments.results)
    print(as_text(done))
    return done.exit_code
