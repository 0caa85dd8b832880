"""The command `scalewatt`: thin, every step's code is imported when it is asked for."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from scalewatt import __version__
from scalewatt.errors import InputError


def main(argv: list[str] | None = None) -> int:
    """Run one command; an input error is one line and exit code 1."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except InputError as error:
        print(f"scalewatt: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scalewatt", description="What data-parallel training of neural networks costs in energy."
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    campaign = commands.add_parser("campaign", help="check a campaign and print it as a table")
    campaign.add_argument("files", nargs="*", type=Path, default=[Path("config.yaml")], metavar="FILE")
    campaign.add_argument("--cluster", type=Path, help="cluster file; default: all profiles' devices")
    campaign.add_argument("--json", action="store_true", help="one object per run")
    campaign.set_defaults(run=_campaign)

    prepare = commands.add_parser("prepare", help="prepare a dataset and describe it")
    prepare.add_argument("--definition", type=json.loads, required=True, help="JSON")
    prepare.add_argument("--folder", type=Path, required=True, help="where the dataset lies or goes")
    prepare.add_argument("--source", help="Zarr store that an ERA5 dataset is prepared from")
    prepare.add_argument("--out", type=Path, required=True, help="JSON file that describes it")
    prepare.set_defaults(run=_prepare)

    train = commands.add_parser("train", help="train (the next segment of) a run under perun")
    train.add_argument("spec", type=Path)
    train.add_argument("--out", type=Path, required=True, help="run folder for the results")
    train.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    train.add_argument("--work", type=Path, required=True, help="root of the working directories")
    train.add_argument("--launcher", required=True, help="command that starts the ranks")
    train.add_argument("--torch-device", choices=["auto", "cpu", "cuda"], default="cuda")
    train.add_argument("--cpus-per-rank", type=int, default=1)
    train.add_argument("--initial-weights", type=Path)
    train.add_argument("--max-updates", type=int, help="stop at a checkpoint after so many updates")
    train.set_defaults(run=_train)

    return parser


def _campaign(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import load_cluster
    from scalewatt.campaign.expand import load_campaign
    from scalewatt.campaign.listing import campaign_table, runs_json

    cluster = load_cluster(arguments.cluster) if arguments.cluster else None
    campaigns = [load_campaign(path, cluster) for path in arguments.files]
    if arguments.json:
        runs = [run for campaign in campaigns for run in runs_json(campaign)]
        print(json.dumps({"runs": runs}, indent=1))
    else:
        print("\n\n".join(campaign_table(campaign) for campaign in campaigns))
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from scalewatt.datasets.prepare import prepare_dataset
    from scalewatt.files import write_json

    marker = prepare_dataset(arguments.definition, arguments.folder, arguments.source)
    write_json(arguments.out, marker)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from scalewatt.energy.launch import Place, run_training

    place = Place(
        arguments.data,
        arguments.work,
        arguments.launcher,
        arguments.torch_device,
        arguments.cpus_per_rank,
    )
    return run_training(
        arguments.spec, arguments.out, place, arguments.initial_weights, arguments.max_updates
    )


if __name__ == "__main__":
    sys.exit(main())
