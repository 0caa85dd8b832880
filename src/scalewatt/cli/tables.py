"""Commands from recordings to tables, figures and the report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.cli.command import (
    CLUSTER,
    DEFINITION,
    OWN_RESULTS,
    argument,
    as_json,
    command,
    count,
    json_of,
    output,
    print_error,
    profile,
)
from scalewatt.common.errors import InputError
from scalewatt.figures.draw_figure import FIGURES, NAMED

if TYPE_CHECKING:
    from scalewatt.energies.read import Reading

ONE_EACH: dict[str, Any] = {
    "type": Path,
    "nargs": "+",
    "required": True,
    "metavar": "FILE",
    "help": "one for each folder",
}


@command(
    argument("paths", nargs="+", type=Path, metavar="PATH", help="recordings and run folders"),
    as_json("one JSON object a line for each path"),
    argument(
        "--stages", type=Path, metavar="EVENTS", help="stage events (Parquet, CSV, JSON lines)"
    ),
    argument(
        "--gpus-per-node",
        type=count,
        metavar="N",
        help="how many GPUs each node must have recorded",
    ),
    argument("--run", metavar="RUN", help="which run of a file; default: the last"),
    argument("--round", metavar="ROUND", help="which round of a run; default: the last"),
    argument(
        "--cluster",
        type=Path,
        help="cluster file with rated powers, to estimate from; default: those a run was made with",
    ),
    profile("the same by its profile", default=None),
    argument(
        "--node",
        action="append",
        default=[],
        metavar="[FILE=]NAME",
        help="node of a file that names none, or of FILE of a folder; may be given several times",
    ),
    argument(
        "--time-zone",
        metavar="ZONE",
        help="zone of local times that name none, such as Europe/Berlin; default: this machine's",
    ),
    argument(
        "--columns",
        type=Path,
        metavar="YAML",
        help="what the columns of a CSV are (docs/recordings.md)",
    ),
    examples=(
        "scalewatt energy results/demo/runs/resnet50-local-n002-lbs0032-full/1",
        "scalewatt energy --json recording.hdf5",
    ),
)
def energy(arguments: argparse.Namespace) -> int:
    """Print the energy of any recording: a perun file, a journal, a run folder, or another tool's file."""
    from scalewatt.energies.account_text import account_text
    from scalewatt.energies.read import read_account

    reading = _reading(arguments)
    failed = 0
    for number, path in enumerate(arguments.paths):
        try:
            account = read_account(path, reading)
        except InputError as error:
            print_error(error)
            failed += 1
            continue
        if arguments.json:
            print(json.dumps(account.to_dict(), allow_nan=False))
        else:
            print(("\n" if number > failed else "") + account_text(account))
    return 1 if failed else 0


def _reading(arguments: argparse.Namespace) -> Reading:
    from scalewatt.campaign.cluster import powers_by_device
    from scalewatt.energies.read import Reading

    if arguments.profile and arguments.cluster:
        raise InputError("energy: --profile and --cluster; allowed: one of them")
    cluster = arguments.profile / "cluster.yaml" if arguments.profile else arguments.cluster
    nodes = {file: name for file, _, name in (text.rpartition("=") for text in arguments.node)}
    same = ("run", "round", "stages", "gpus_per_node", "time_zone", "columns")
    return Reading(
        **{name: getattr(arguments, name) for name in same},
        powers=powers_by_device(str(cluster)) if cluster else None,
        node=nodes if any(nodes) else nodes.get(""),
    )


@command(
    argument("folders", type=Path, nargs="+", metavar="FOLDER", help="run folders"),
    argument("--powers", required=True, metavar="JSON", help="rated powers: a file, or the JSON"),
    argument("--traces", **ONE_EACH),
    argument("--energy", **ONE_EACH),
    examples=(
        "scalewatt account results/demo/runs/resnet50-local-n002-lbs0032-full/1 \\\n"
        "    --powers '{}' --traces traces.parquet --energy energy.parquet",
    ),
)
def account(arguments: argparse.Namespace) -> None:
    """Turn the recordings of runs into traces and energy tables."""
    from scalewatt.common.rated_powers import check_rated_powers
    from scalewatt.energies.account import write_energy

    counts = {name: len(getattr(arguments, name)) for name in ("folders", "traces", "energy")}
    if len(set(counts.values())) > 1:
        summary = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise InputError(f"account: {summary}; expected as many of each, in the same order")
    powers = json_of("--powers", arguments.powers)
    check_rated_powers(powers, "--powers")
    _check_outputs(arguments.folders, [*arguments.traces, *arguments.energy])
    for folder, traces, energy in zip(
        arguments.folders, arguments.traces, arguments.energy, strict=True
    ):
        write_energy(folder, folder / "spec.json", powers, traces, energy)


@command(
    argument("folder", type=Path, metavar="FOLDER", help="run folder"),
    argument("--traces", type=Path, required=True, metavar="FILE", help="its power traces"),
    argument("--energy", type=Path, required=True, metavar="FILE", help="its energy table"),
    argument(
        "--file",
        type=Path,
        required=True,
        metavar="CSV",
        help="g CO2e per kWh over time: a CSV file with the columns time and g_per_kwh",
    ),
    argument("--source", default="", metavar="TEXT", help="where that file comes from"),
    output("the table"),
    examples=(
        "scalewatt carbon results/demo/runs/resnet50-local-n002-lbs0032-full/1 --file grid.csv \\\n"
        "    --traces traces.parquet --energy energy.parquet --out carbon.parquet",
    ),
)
def carbon(arguments: argparse.Namespace) -> None:
    """Find the carbon intensity that a run met."""
    from scalewatt.results.carbon.run_carbon import write_carbon

    tables = arguments.traces, arguments.energy
    write_carbon(arguments.folder, *tables, arguments.file, arguments.source.strip(), arguments.out)


_OF_RUN = {
    *("spec.json", "provenance.json", "history.parquet", "events.parquet", "weights.pt"),
    *("train.log", "subsets.parquet", "perun"),
}
"""What a finished run's folder holds."""


def _check_outputs(folders: list[Path], outputs: list[Path]) -> None:
    """Refuse two tables in one file, and tables in place of a run's own files."""
    found = [path.resolve() for path in outputs]
    for number, path in enumerate(found):
        if path in found[:number]:
            raise InputError(f"account: {outputs[number]} is named twice; expected a file each")
        for folder in folders:
            if any(path.is_relative_to(folder.resolve() / name) for name in _OF_RUN):
                raise InputError(
                    f"account: {outputs[number]} is a file of the run {folder}; expected another name"
                )


@command(
    DEFINITION,
    OWN_RESULTS,
    output("the table"),
    examples=(
        "scalewatt idle --definition results/demo/requests/idle.json --results results/demo \\\n"
        "    --out results/demo/tables/idle.parquet",
    ),
)
def idle(arguments: argparse.Namespace) -> None:
    """Build the table of idle powers from finished probes."""
    from scalewatt.results.tables.idle import write_idle

    write_idle(_definition(arguments), arguments.results, arguments.out)


@command(
    DEFINITION,
    OWN_RESULTS,
    output("a figure's table, or the folder of tables"),
    examples=(
        "scalewatt table --definition results/demo/requests/figure2.json --results results/demo \\\n"
        "    --out results/demo/tables/figure2.parquet",
    ),
)
def table(arguments: argparse.Namespace) -> None:
    """Build a figure's table, or all runs' tables."""
    from scalewatt.results.build import write_tables

    write_tables(_definition(arguments), arguments.results, arguments.out)


@command(
    argument(
        "figure",
        type=lambda name: name.removeprefix("figure"),
        choices=(*map(str, FIGURES), *NAMED),
        help="2 or figure2, for example",
    ),
    argument("--table", type=Path, required=True, metavar="FILE", help="the figure's table"),
    output("path without suffix"),
    examples=("scalewatt figure 2 --table results/demo/tables/figure2.parquet --out figure2",),
)
def figure(arguments: argparse.Namespace) -> None:
    """Draw a figure from its table."""
    from scalewatt.figures.draw_figure import draw_figure

    figure = int(arguments.figure) if arguments.figure.isdigit() else arguments.figure
    draw_figure(figure, arguments.table, arguments.out)


@command(
    argument("configuration", help="the name of its folder"),
    argument("repeats", nargs="+", type=int, metavar="REPEAT", help="which of its runs, from 1"),
    OWN_RESULTS,
    argument(
        "--excluded", default="{}", metavar="JSON", help="repeat to reason: a file, or the JSON"
    ),
    argument(
        "--formats",
        nargs="+",
        default=["svg"],
        choices=("pdf", "svg", "png"),
        metavar="FORMAT",
        help="pdf, svg, png; default: svg",
    ),
    examples=("scalewatt run-pages resnet50-local-n002-lbs0032-full 1 2 --results results/demo",),
)
def run_pages(arguments: argparse.Namespace) -> None:
    """Draw one page for each run of a configuration."""
    from scalewatt.figures.run_page import save_pages
    from scalewatt.results.figures.run_page_table import read_pages

    given = arguments.results, arguments.configuration, arguments.repeats
    pages = read_pages(*given, _reasons(arguments.excluded))
    save_pages(pages, arguments.results, arguments.formats)


def _reasons(text: str) -> dict[str, str]:
    given = json_of("--excluded", text)
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise InputError(
            f"--excluded: {text[:100]!r}; expected an object: repeat to reason, a text"
        )
    return given


@command(
    argument(
        "--results",
        type=Path,
        default=Path("reference"),
        metavar="FOLDER",
        help="results/<campaign>; default: reference, the paper's published numbers",
    ),
    argument(
        "--campaign",
        type=Path,
        metavar="FILE",
        help="default: config.yaml or the one in campaigns/ that has the folder's name",
    ),
    argument(
        "--cluster", help="cluster file, or its content as JSON; default: all profiles' devices"
    ),
    as_json("a list of verdicts"),
    argument("--out", type=Path, metavar="STEM", help="also write .parquet, .csv, .md and .json"),
    examples=("scalewatt claims", "scalewatt claims --results results/paper --json"),
)
def claims(arguments: argparse.Namespace) -> None:
    """Check the paper's claims on results."""
    from scalewatt.claims.check_claims import check_claims

    given = arguments.results, arguments.campaign, arguments.cluster, arguments.out
    text, as_json = check_claims(*given)
    print(as_json if arguments.json else text)


@command(
    OWN_RESULTS,
    argument("--campaign", type=Path, required=True, metavar="FILE", help="campaign file"),
    CLUSTER,
    output("the table"),
    examples=(
        "scalewatt prediction --results results/paper --campaign config.yaml \\\n"
        "    --cluster profiles/horeka/cluster.yaml --out prediction.parquet",
    ),
)
def prediction(arguments: argparse.Namespace) -> None:
    """Build the table that compares predicted with measured runs."""
    from scalewatt.scaling.commands import write_prediction

    write_prediction(arguments.results, arguments.campaign, arguments.cluster, arguments.out)


@command(
    DEFINITION,
    OWN_RESULTS,
    output("the page"),
    examples=(
        "scalewatt report --definition results/demo/requests/report.json --results results/demo \\\n"
        "    --out report.html",
    ),
)
def report(arguments: argparse.Namespace) -> int:
    """Write report.html from tables and figures."""
    from scalewatt.report.build_report import write_report
    from scalewatt.report.report_request import parse_definition

    write_report(arguments.results, arguments.out, parse_definition(_definition(arguments)))
    return 0


def _definition(arguments: argparse.Namespace) -> Any:
    return json_of("--definition", arguments.definition)
