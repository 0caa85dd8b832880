"""Commands about recordings and results."""

from __future__ import annotations

import argparse
from pathlib import Path

from scalewatt.cli.command import command, flag, folder, option, print_error, print_json, site
from scalewatt.common.errors import InputError


@command(
    option("paths", "PATH", "recordings and run folders", nargs="+"),
    flag("--json", "one JSON object a line for each path"),
    option("--stages", "EVENTS", "stage events (Parquet, CSV, JSON lines)"),
    option("--run", "RUN", "which run of a file that holds several", str),
    option("--round", "ROUND", "which round of a run that has several", str),
    option(
        "--node",
        "[FILE=]NAME",
        "node of a file that names none, or of FILE of a folder; may be given several times",
        str,
        action="append",
        default=[],
    ),
    option(
        "--time-zone", "ZONE", "of local times, such as Europe/Berlin; default: this machine's", str
    ),
    option("--columns", "YAML", "what the columns of a CSV are (docs/guide/formats.md)"),
)
def energy(args: argparse.Namespace) -> int:
    """Print the energy of recordings of any kind.

    They are a perun file, a journal, a run folder, or another tool's file.
    """
    from scalewatt.energies.read import Reading, account_text, read_account

    nodes = {file: name for file, _, name in (text.rpartition("=") for text in args.node)}
    same = ("run", "round", "stages", "time_zone", "columns")
    reading = Reading(
        **{name: getattr(args, name) for name in same},
        node=nodes if any(nodes) else nodes.get(""),
    )
    failed = 0
    for number, path in enumerate(args.paths):
        try:
            account = read_account(path, reading)
        except InputError as error:
            print_error(error)
            failed += 1
            continue
        if args.json:
            print_json(account.to_dict(), indent=None)
        else:
            print(("\n" if number > failed else "") + account_text(account))
    return 1 if failed else 0


@command(
    option("name", "NAME", "the campaign's name", str),
    option(
        "paths",
        "PATH",
        "recordings, each with a YAML file that describes it (docs/recordings.md); with --table: only "
        "their rows",
        nargs="*",
    ),
    option("--table", "FILE", "CSV, one row per run; default: files beside PATH"),
    folder("results"),
    folder("campaigns"),
)
def register(args: argparse.Namespace) -> None:
    """Make runs of recordings from elsewhere."""
    from scalewatt.registration.register import register

    given = args.name, args.paths, args.table
    print("\n".join(register(*given, args.results, args.campaigns)))


@command(
    option("a", "A", "results/<campaign>, or its name in results", str),
    option("b", "B", "the other one, likewise", str),
    folder("results"),
    flag("--json", "one JSON object, with all of it"),
    option("--out", "STEM", "also write .parquet and .csv of all ratios"),
)
def compare(args: argparse.Namespace) -> int:
    """Compare two campaigns: settings, time and energy.

    Differences have intervals and verdicts. Exit code 1 if no configuration is in both.
    """
    from scalewatt.comparison.compare import compare, comparison_text

    compared = compare(args.a, args.b, args.results)
    if args.out is not None:
        compared.write(args.out)
    if args.json:
        print_json(compared.as_json())
    else:
        print(comparison_text(compared))
    return 0 if len(compared.pairs) else 1


@command(
    option(
        "--results",
        "FOLDER",
        "results/<campaign>; default: reference, the paper's published numbers",
        default=Path("reference"),
    ),
    option("--campaign", "FILE", "default: the one in campaigns/ that has the folder's name"),
    site("whose devices count beside those of all sites", default=None),
    flag("--json", "a list of verdicts"),
    option("--out", "STEM", "also write .parquet, .csv, .md and .json"),
)
def claims(args: argparse.Namespace) -> None:
    """Check the paper's claims on results."""
    from scalewatt.campaign.cluster import load_site
    from scalewatt.claims.check_claims import check_claims

    cluster = load_site(args.site) if args.site else None
    text, as_json = check_claims(args.results, args.campaign, cluster, args.out)
    print(as_json if args.json else text)
