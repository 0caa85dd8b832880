"""What others need to believe a result: the commands of command_line/reproducing.py, thin."""

from __future__ import annotations

import argparse
import json


def keys(arguments: argparse.Namespace) -> int:
    """`scalewatt keys`."""
    from scalewatt.cli.key_reference import keys_text, write_keys

    if arguments.write is not None:
        write_keys(arguments.kind, arguments.write)
    else:
        print(keys_text(arguments.kind), end="")
    return 0


def export(arguments: argparse.Namespace) -> int:
    """`scalewatt export`."""
    from scalewatt.archive.export_archive import Wanted, export_campaign

    wanted = Wanted(
        arguments.traces,
        arguments.license,
        tuple(arguments.author),
        arguments.allow_private,
        arguments.out,
    )
    cluster = arguments.cluster or arguments.profile / "cluster.yaml"
    print("\n".join(export_campaign(arguments.campaign, cluster, arguments.results, wanted)))
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """`scalewatt import`."""
    from scalewatt.archive.import_archive import check_archive, import_archive

    if arguments.check:
        lines = check_archive(arguments.archive)
    else:
        folders = arguments.results, arguments.campaigns
        lines = import_archive(arguments.archive, *folders, arguments.name)
    print("\n".join(lines))
    return 0


def manifest(arguments: argparse.Namespace) -> int:
    """`scalewatt manifest`."""
    from scalewatt.reproduction.results_manifest import write_manifest

    print(write_manifest(arguments.results))
    return 0


def reproduce(arguments: argparse.Namespace) -> int:
    """`scalewatt reproduce`."""
    from scalewatt.reproduction.reproduce import as_text, reproduce

    cluster = arguments.cluster or str(arguments.profile / "cluster.yaml")
    failed = arguments.run_failed
    done = reproduce(cluster, arguments.campaign, arguments.results, failed)
    print(as_text(done))
    return done.exit_code


def doctor(arguments: argparse.Namespace) -> int:
    """`scalewatt doctor`."""
    from scalewatt.doctor.examine import examination_text, examine

    found = examine(arguments.profile)
    if arguments.json:
        print(json.dumps(found.as_json(), indent=1, allow_nan=False))
    else:
        print(examination_text(found))
    return found.exit_code


def completion(arguments: argparse.Namespace) -> int:
    """`scalewatt completion`."""
    from scalewatt.cli.completion import completion_script
    from scalewatt.cli.parser import command_line

    print(completion_script(arguments.shell, command_line()))
    return 0
