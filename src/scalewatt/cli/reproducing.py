"""Commands that others need to trust a result: this machine, archives, repetition."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scalewatt.cli.command import (
    CAMPAIGN,
    OWN_RESULTS,
    argument,
    as_json,
    command,
    folder,
    profile,
)


@command(
    profile("for whose runs"),
    as_json("one JSON object, with all checks"),
    examples=(
        "scalewatt doctor",
        "scalewatt doctor --profile profiles/horeka",
        "scalewatt doctor --json",
    ),
)
def doctor(arguments: argparse.Namespace) -> int:
    """Say what this machine can measure, what is missing for runs, and how to fix it."""
    from scalewatt.doctor.examine import examination_text, examine

    found = examine(arguments.profile)
    if arguments.json:
        print(json.dumps(found.as_json(), indent=1, allow_nan=False))
    else:
        print(examination_text(found))
    return found.exit_code


@command(
    argument("campaign", type=Path, metavar="CAMPAIGN", help="campaign file"),
    profile("where it ran: whose cluster file counts"),
    argument("--cluster", type=Path, metavar="FILE", help="instead: a cluster file"),
    folder("results"),
    argument("--traces", action="store_true", help="with the power traces, which are large"),
    argument("--out", type=Path, metavar="FILE", help="default: <name of the campaign>.crate.zip"),
    argument("--license", metavar="NAME", help="SPDX name or URL, e.g. CC-BY-4.0"),
    argument(
        "--author", action="append", default=[], metavar="NAME", help="may be given several times"
    ),
    argument(
        "--allow-private",
        action="store_true",
        help="even if files reveal paths on this machine, or e-mail addresses; never keys",
    ),
    examples=(
        "scalewatt export campaigns/demo.yaml",
        "scalewatt export config.yaml --profile profiles/horeka --license CC-BY-4.0",
    ),
)
def export(arguments: argparse.Namespace) -> None:
    """Write a campaign's results as one archive, in RO-Crate form."""
    from scalewatt.archive.export_archive import ExportOptions, export_campaign

    options = ExportOptions(
        arguments.traces,
        arguments.license,
        tuple(arguments.author),
        arguments.allow_private,
        arguments.out,
    )
    cluster = arguments.cluster or arguments.profile / "cluster.yaml"
    print("\n".join(export_campaign(arguments.campaign, cluster, arguments.results, options)))


@command(
    argument("archive", type=Path, metavar="ARCHIVE", help="file, or the folder of its content"),
    argument("--check", action="store_true", help="only check it: nothing is written"),
    argument("--name", metavar="NAME", help="what it is called here; default: its own name"),
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


@command(OWN_RESULTS, examples=("scalewatt manifest --results results/demo",))
def manifest(arguments: argparse.Namespace) -> None:
    """Write the SHA-256 of a campaign's tables and figures to its manifest.json."""
    from scalewatt.reproduction.manifests import write_manifest

    print(write_manifest(arguments.results))


@command(
    *CAMPAIGN,
    argument("--cluster", metavar="CLUSTER", help="instead of the profile's: a file, or JSON"),
    folder("results"),
    argument(
        "--run-failed",
        metavar="CONFIGURATION/REPEAT",
        help=argparse.SUPPRESS,  # a run that could not be repeated, as the target `reproduce` says
    ),
    examples=(
        "scalewatt reproduce",
        "scalewatt reproduce --profile profiles/horeka --campaign config.yaml",
    ),
)
def reproduce(arguments: argparse.Namespace) -> int:
    """Check whether a campaign's results can be reproduced; exit with 1 if something differs."""
    from scalewatt.reproduction.reproduce import as_text, reproduce

    cluster = arguments.cluster or str(arguments.profile / "cluster.yaml")
    failed = arguments.run_failed
    done = reproduce(cluster, arguments.campaign, arguments.results, failed)
    print(as_text(done))
    return done.exit_code
