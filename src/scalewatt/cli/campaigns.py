"""Commands about a campaign before it runs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.cli.command import (
    CAMPAIGN,
    MAX_GPUS,
    PLACE,
    Amount,
    argument,
    as_json,
    command,
    named,
    profile,
)
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shipped

if TYPE_CHECKING:
    from scalewatt.campaign.campaign_types import Campaign

_COLUMNS = {
    "GPUs": "gpus",
    "nodes": "nodes",
    "LBS": "local_batch_size",
    "GBS": "global_batch_size",
    "samples": "dataset_samples",
    "epochs": "epochs",
    "updates": "updates",
}
"""Of the table of a campaign: numbers of a configuration by their heads."""


@command(
    argument(
        "files",
        nargs="*",
        type=named,
        metavar="FILE",
        help="campaign files; default: config.yaml",
    ),
    profile("on whose cluster it must be able to run", default=None),
    argument("--cluster", type=Path, help="the same by its file; default: all profiles' devices"),
    MAX_GPUS,
    as_json("one object per run"),
    examples=(
        "scalewatt campaign config.yaml",
        "scalewatt campaign --max-gpus 16 config.yaml",
        "scalewatt campaign --profile profiles/horeka config.yaml",
    ),
)
def campaign(arguments: argparse.Namespace) -> None:
    """Check a campaign and print it as a table."""
    from scalewatt.campaign.cluster import carbon_file, load_cluster
    from scalewatt.campaign.external_command import (
        check_commands,
        missing_programs,
        told_secrets,
    )
    from scalewatt.campaign.load import check_devices, check_years, load_campaign

    if arguments.profile and arguments.cluster:
        raise InputError("campaign: --profile and --cluster; allowed: one of them")
    file = arguments.profile / "cluster.yaml" if arguments.profile else arguments.cluster
    cluster = load_cluster(file) if file else None
    if cluster and carbon_file(cluster):
        from scalewatt.results.carbon.intensity_files import intensity_of  # with pandas

        intensity_of(cluster)
    files = arguments.files or [named("config.yaml")]
    campaigns = [load_campaign(path, cluster, arguments.max_gpus) for path in files]
    if cluster:
        for campaign in campaigns:
            check_devices(campaign, cluster)
    for campaign in campaigns:
        check_years(campaign)
        check_commands(campaign)
        for where in told_secrets(campaign):
            print(
                f"scalewatt: {where}: may contain a secret, which spec.json would keep; better in a "
                "variable of the environment",
                file=sys.stderr,
            )
        for said in missing_programs(campaign):
            print(f"scalewatt: {said}", file=sys.stderr)
    if arguments.json:
        runs = [run for campaign in campaigns for run in runs_json(campaign)]
        print(json.dumps({"runs": runs}, indent=1))
    else:
        tables = ["\n".join([campaign_table(one), *repeats_notes(one)]) for one in campaigns]
        print("\n\n".join(tables))


def runs_json(campaign: Campaign) -> list[dict[str, Any]]:
    """Return one object per run: its spec, its campaign and the series that share it."""
    from scalewatt.campaign.run_spec import run_spec

    return [
        {
            "campaign": campaign.name,
            **run_spec(campaign, run.configuration.id, run.repeat).as_json(),
            "series": campaign.series_of(run.configuration.id),
        }
        for run in campaign.runs()
    ]


def repeats_notes(campaign: Campaign) -> list[str]:
    """Return what one and two repeats cannot show, where configurations have so few."""
    shown = {
        1: "no error bars, and no difference can be told from chance",
        2: "the 95 % t interval of a mean has 1 degree of freedom and is ± 9 standard deviations; with 3 "
        "repeats ± 2.5",
    }
    counts = {n: list(campaign.repeats.values()).count(n) for n in shown}
    return [
        f"repeats: {n} (configurations: {counts[n]}): {words}"
        for n, words in shown.items()
        if counts[n]
    ]


def campaign_table(campaign: Campaign) -> str:
    """Return one line per configuration, and the sums."""
    import pandas as pd

    from scalewatt.campaign.campaign_types import PASS_KEYS

    configurations = list(campaign.configurations.values())
    split = [name for name in PASS_KEYS if any(getattr(c, name) > 1 for c in configurations)]
    rows = [
        {
            "configuration": c.id,
            "repeats": campaign.repeats[c.id],
            **{head: getattr(c, name) for head, name in _COLUMNS.items()},
            **{n.replace("_", " ").replace("gpus", "GPUs"): getattr(c, n) for n in split},
            "series": ", ".join(campaign.series_of(c.id)),
        }
        for c in configurations
    ]
    frame = pd.DataFrame(rows, dtype=object).fillna("–")
    for name in ("configuration", "series"):  # texts begin at one place, numbers end there
        frame[name] = frame[name].str.ljust(max(frame[name].str.len()))
        frame = frame.rename(columns={name: name.ljust(max(frame[name].str.len()))})
    lines = [line.rstrip() for line in frame.to_string(index=False).splitlines()]
    gpus = [c.gpus for c in configurations]
    lines.append(
        f"\n{campaign.path}: campaign '{campaign.name}', protocol {campaign.protocol}; "
        f"series: {len(campaign.series)}, configurations: {len(configurations)}, "
        f"runs: {sum(campaign.repeats.values())}, GPUs: {min(gpus)} to {max(gpus)}"
    )
    return "\n".join([*lines, *campaign.left_out])


@command(
    *CAMPAIGN,
    argument("--cluster", help="instead: a cluster file, or its content as JSON"),
    MAX_GPUS,
    argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="scaling model; default: the cluster file's scaling_model",
    ),
    argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="results/<campaign>: count finished runs with what they used; default: all is predicted",
    ),
    argument(
        "--from",
        dest="smaller",
        type=int,
        metavar="N",
        help="with --to: what going from N GPUs to more buys and costs, of each series",
    ),
    argument("--to", dest="larger", type=int, metavar="N", help="see --from"),
    argument(
        "--deadline-h",
        type=Amount("hours", "24"),
        metavar="H",
        help="cheapest n of each series for a run in H hours",
    ),
    argument(
        "--energy-kwh",
        type=Amount("kWh", "200"),
        metavar="E",
        help="fastest n of each series for a run of E kWh",
    ),
    as_json("one JSON object, with every run"),
    argument("--out", type=Path, metavar="STEM", help="also write .parquet, .csv and .md"),
    argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write instead a page where n, batch size, deadline and more are chosen",
    ),
    examples=(
        "scalewatt plan --profile profiles/horeka",
        "scalewatt plan --profile profiles/horeka --max-gpus 16",
        "scalewatt plan --profile profiles/horeka --from 16 --to 64",
        "scalewatt plan --profile profiles/horeka --html plan.html",
    ),
)
def plan(arguments: argparse.Namespace) -> int:
    """Predict time, energy and cost of a campaign before it is submitted."""
    if arguments.html is not None:
        _write_planner(arguments)
        return 0
    from scalewatt.scaling.commands import plan_campaign, write_plan
    from scalewatt.scaling.planning.plan_text import plan_text

    cluster = arguments.cluster or str(arguments.profile / "cluster.yaml")
    files = cluster, arguments.campaign, arguments.model, arguments.results
    step = arguments.smaller, arguments.larger
    limits = arguments.deadline_h, arguments.energy_kwh
    plan = plan_campaign(*files, *limits, step, arguments.max_gpus)
    if arguments.out is not None:
        write_plan(plan, arguments.out)
    as_json = arguments.json
    print(json.dumps(plan.as_json(), indent=1, allow_nan=False) if as_json else plan_text(plan))
    return 0


def _write_planner(arguments: argparse.Namespace) -> None:
    """Write the page where a training is chosen; InputError for options that it does not answer."""
    from scalewatt.report.planner.plan_page import Limits, site_of, write_plan_page

    others = {
        "--results": arguments.results,
        "--from": arguments.smaller,
        "--to": arguments.larger,
        "--json": arguments.json,
        "--out": arguments.out,
    }
    given = [option for option, value in others.items() if value not in (None, False)]
    if given:
        raise InputError(
            f"--html: {given[0]} is for a plan as text; allowed: --profile, --cluster, --campaign, --model, "
            "--max-gpus, --deadline-h and --energy-kwh"
        )
    files = arguments.profile, arguments.campaign, arguments.model
    local = "profiles/local"
    nowhere = arguments.profile == shipped(local) and not Path(local, "cluster.yaml").exists()
    site = site_of(arguments.cluster, *files, nowhere, arguments.max_gpus)
    write_plan_page(arguments.html, site, Limits(arguments.deadline_h, arguments.energy_kwh))
    print(f"{arguments.html}: written")


@command(
    *PLACE,
    argument("--slowdown", nargs="+", metavar="%", help="more time than the fastest: 10 %%"),
    argument(
        "--deadline-h",
        type=Amount("hours", "24"),
        metavar="H",
        help="the longest that a run may take",
    ),
    argument(
        "--carbon-kg",
        type=Amount("kg", "50"),
        metavar="KG",
        help="the most that a run may emit, in CO2e",
    ),
    argument("--any", action="store_true", help="compare all devices, n and batch sizes too"),
    as_json("one JSON object"),
    examples=(
        "scalewatt advise --campaign campaigns/demo.yaml --slowdown 10 %",
        "scalewatt advise --profile profiles/horeka --deadline-h 24 --any",
    ),
)
def advise(arguments: argparse.Namespace) -> int:
    """Name the finished settings of least energy within a slowdown, a deadline or a carbon budget.

    Return 1 if there is nothing to choose from, or no setting of a training keeps the limits.
    """
    from scalewatt.scaling.planning.advise import (
        Limits,
        advice_text,
        advise,
        check_limits,
        settings_in,
        share_of,
    )
    from scalewatt.tracking.exclude import find_place

    slowdown = arguments.slowdown and share_of(" ".join(arguments.slowdown), "--slowdown")
    limits = Limits(slowdown, arguments.deadline_h, arguments.carbon_kg)
    check_limits(limits)
    folders = arguments.campaign, arguments.results, arguments.work
    settings = settings_in(find_place(arguments.profile, *folders).results)
    if unknown := settings.loc[settings["energy_kwh_mean"].isna(), "configuration"].tolist():
        print(f"scalewatt: energy not known, not compared: {', '.join(unknown)}", file=sys.stderr)
    found = advise(settings, limits, arguments.any)
    if not found:
        print("scalewatt: no training has several settings to choose from", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"advice": [one.as_json() for one in found]}, indent=1))
    elif found:
        print(advice_text(found))
    return 0 if found and all(len(one.kept) for one in found) else 1


@command(
    argument("campaign", type=Path, metavar="CAMPAIGN", help="campaign file"),
    argument("--out", type=Path, metavar="FILE", help="default: <campaign>-pilot.yaml beside it"),
    examples=("scalewatt pilot campaigns/demo.yaml",),
)
def pilot(arguments: argparse.Namespace) -> None:
    """Write the campaign of short runs that calibrate the scaling model for another."""
    from scalewatt.scaling.planning.pilot import write_pilot

    print(write_pilot(arguments.campaign, arguments.out))


@command(
    argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help="results/<campaign>, a table of configurations, or reference (the published rows)",
    ),
    argument("--out", type=Path, required=True, help="the model's file (JSON)"),
    examples=(
        "scalewatt calibrate reference --out model.json",
        "scalewatt calibrate results/paper reference --out model.json",
    ),
)
def calibrate(arguments: argparse.Namespace) -> None:
    """Calibrate the scaling model of time and energy on results, and validate it."""
    from scalewatt.scaling.commands import calibrate_sources

    print(calibrate_sources(arguments.sources, arguments.out))
