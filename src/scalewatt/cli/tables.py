"""Commands from recordings to tables, figures and the report."""

from __future__ import annotations

import json
from pathlib import Path

from scalewatt.cli.shared_arguments import Commands, add_cluster, command
from scalewatt.figures.draw_figure import FIGURES, NAMED


def add(commands: Commands) -> None:
    """Add them."""
    _energy(commands)
    _account(commands)
    _idle(commands)
    _table(commands)
    _figure(commands)
    _pages(commands)
    _claims(commands)
    _prediction(commands)
    _report(commands)


def _energy(commands: Commands) -> None:
    energy = command(
        commands,
        "energy",
        "print the energy of any perun file, journal or run folder",
        [
            "scalewatt energy results/demo/runs/resnet50-local-n002-lbs0032-full/1",
            "scalewatt energy --json recording.hdf5",
        ],
    )
    energy.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    energy.add_argument("--json", action="store_true", help="one JSON object a line for each path")
    energy.add_argument(
        "--stages", type=Path, metavar="EVENTS", help="stage events (Parquet, CSV, JSON lines)"
    )
    energy.add_argument(
        "--gpus-per-node", type=int, metavar="N", help="how many GPUs each node must have recorded"
    )
    energy.add_argument(
        "--run", dest="run_id", metavar="RUN", help="which run of a file; default: the last"
    )
    energy.add_argument(
        "--round", dest="round_id", metavar="ROUND", help="which round of a run; default: the last"
    )
    energy.add_argument(
        "--cluster", type=Path, help="cluster file with rated powers, to estimate of run folders"
    )


def _account(commands: Commands) -> None:
    account = command(
        commands,
        "account",
        "a run's recordings to traces and energy tables",
        [
            "scalewatt account results/demo/runs/resnet50-local-n002-lbs0032-full/1 \\\n  "
            "  --powers '{}' --traces traces.parquet --energy energy.parquet"
        ],
    )
    account.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="run folders")
    account.add_argument("--powers", type=json.loads, required=True, help="rated powers (JSON)")
    for name in ("--traces", "--energy"):
        account.add_argument(
            name, type=Path, nargs="+", required=True, metavar="FILE", help="one for each folder"
        )


def _idle(commands: Commands) -> None:
    idle = command(
        commands,
        "idle",
        "build the table of idle powers from finished probes",
        [
            'scalewatt idle --definition "$(cat idle.json)" --results results/demo \\\n  '
            "  --out results/demo/tables/idle.parquet"
        ],
    )
    idle.add_argument("--definition", type=json.loads, required=True, help="JSON")
    idle.add_argument("--results", type=Path, required=True)
    idle.add_argument("--out", type=Path, required=True, help="the table")


def _table(commands: Commands) -> None:
    table = command(
        commands,
        "table",
        "build a figure's table, or all runs' tables",
        [
            'scalewatt table --definition "$(cat figure2.json)" --results results/demo \\\n  '
            "  --out results/demo/tables/figure2.parquet"
        ],
    )
    table.add_argument("--definition", type=json.loads, required=True, help="JSON")
    table.add_argument("--results", type=Path, required=True)
    table.add_argument(
        "--out", type=Path, required=True, help="a figure's table, or the folder of tables"
    )


def _figure(commands: Commands) -> None:
    figure = command(
        commands,
        "figure",
        "draw a figure from its table",
        ["scalewatt figure 2 --table results/demo/tables/figure2.parquet --out figure2"],
    )
    figure.add_argument("figure", choices=(*map(str, FIGURES), *NAMED))
    figure.add_argument("--table", type=Path, required=True)
    figure.add_argument("--out", type=Path, required=True, help="path without suffix")


def _pages(commands: Commands) -> None:
    pages = command(
        commands,
        "run-pages",
        "draw one page for each run of a configuration",
        ["scalewatt run-pages resnet50-local-n002-lbs0032-full 1 2 --results results/demo"],
    )
    pages.add_argument("configuration", help="the name of its folder")
    pages.add_argument("repeats", nargs="+", type=int, metavar="REPEAT")
    pages.add_argument("--results", type=Path, required=True, help="results of the campaign")
    pages.add_argument("--excluded", type=json.loads, default={}, help="JSON: repeat to reason")


def _claims(commands: Commands) -> None:
    claims = command(
        commands,
        "claims",
        "check the paper's claims on results",
        ["scalewatt claims", "scalewatt claims --results results/paper --json"],
    )
    claims.add_argument(
        "--results",
        type=Path,
        default=Path("reference"),
        metavar="FOLDER",
        help="results/<campaign>; default: reference, the paper's published numbers",
    )
    claims.add_argument(
        "--campaign",
        type=Path,
        metavar="FILE",
        help="default: config.yaml or the one in campaigns/ that has the folder's name",
    )
    claims.add_argument(
        "--cluster", help="cluster file, or its content as JSON; default: all profiles' devices"
    )
    claims.add_argument("--json", action="store_true", help="a list of verdicts")
    claims.add_argument(
        "--out", type=Path, metavar="STEM", help="also write .parquet, .csv, .md and .json"
    )


def _prediction(commands: Commands) -> None:
    prediction = command(
        commands,
        "prediction",
        "build the table of what was predicted and measured",
        [
            "scalewatt prediction --results results/paper --campaign config.yaml \\\n  "
            "  --cluster profiles/horeka/cluster.yaml --out prediction.parquet"
        ],
    )
    prediction.add_argument("--results", type=Path, required=True, help="the campaign's folder")
    prediction.add_argument("--campaign", type=Path, required=True, metavar="FILE")
    add_cluster(prediction)
    prediction.add_argument("--out", type=Path, required=True, help="the table")


def _report(commands: Commands) -> None:
    report = command(
        commands,
        "report",
        "write report.html from tables and figures",
        [
            'scalewatt report --definition "$(cat report.json)" --results results/demo --out report.html'
        ],
    )
    report.add_argument("--definition", type=json.loads, required=True, help="JSON")
    report.add_argument("--results", type=Path, required=True, help="the campaign's folder")
    report.add_argument("--out", type=Path, required=True)
