"""Verdict, value and p of every claim: on the published rows, on drawn campaigns and on MLPerf's runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
from golden_paper import account
from golden_project import PROJECT, run
from golden_tables import Golden

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.registered_campaign import registered_devices
from scalewatt.campaign.table_definitions import runs_definition
from scalewatt.registration.register import register
from scalewatt.results.build import write_runs

MLPERF = os.environ.get("SCALEWATT_MLPERF")
CAMPAIGNS, SEED = 50, 36
TESTED = ("supported", "contradicted", "undecided")
Row = dict[str, Any]


def golden(name: str) -> Golden:
    """The golden of some campaigns' verdicts; a small p is compared as closely as a large one."""
    return Golden(f"claims_{name}.csv", ("campaign", "id"), abs=1e-300)


def made(folder: Path) -> dict[Golden, pd.DataFrame]:
    """The goldens of today's code, made in a new folder."""
    known = [name for name in VERDICTS if name != "mlperf" or MLPERF]
    return {golden(name): verdicts(name, folder / name) for name in known}


def verdicts(name: str, folder: Path) -> pd.DataFrame:
    """The table of some campaigns' verdicts."""
    return pd.DataFrame(VERDICTS[name](folder))


def published(_: Path) -> list[Row]:
    """The verdicts of `scalewatt claims --results reference`."""
    return _of_command("reference", "reference", PROJECT)


def mlperf(folder: Path) -> list[Row]:
    """The verdicts on MLPerf's runs, converted, registered and accounted for in one process."""
    name, converted = "mlperf-v4", folder / "converted"
    script = str(PROJECT / "examples" / "mlperf" / "convert.py")
    run("python", script, str(Path(str(MLPERF)) / "smc-dc-power"), str(converted))
    register(name, [], converted / "runs.csv", folder / "results", folder / "campaigns")
    results, campaign = folder / "results" / name, load_campaign(folder / f"campaigns/{name}.yaml")
    account(folder / "results", registered_devices(campaign, load_cluster(PROJECT / "config.yaml")))
    runs = [[*each] for each in campaign.runs()]
    write_runs(runs_definition(campaign, runs), results, results / "tables")
    return _of_command(name, f"results/{name}", folder)


def drawn(_: Path, most: int = CAMPAIGNS) -> list[Row]:
    """The tests of claims on the first campaigns of those that are drawn from the paper's numbers."""
    sys.path.append(str(PROJECT / "benchmarks"))
    from claims_worlds import Study, claims_on_results, paper_world

    from scalewatt.claims.verdicts import verdict_of

    rows = []
    worlds = islice(Study().campaigns(paper_world(), CAMPAIGNS, SEED), most)
    for count, evidence in enumerate(worlds):
        decided = (verdict_of(claim, evidence) for claim in claims_on_results().values())
        rows += [_row(f"{count:02}", vars(each)) for each in decided if each.verdict in TESTED]
    return rows


VERDICTS: dict[str, Callable[[Path], list[Row]]] = {
    "published": published,
    "drawn": drawn,
    "mlperf": mlperf,
}


def _of_command(campaign: str, results: str, folder: Path) -> list[Row]:
    printed = run("scalewatt", "claims", "--results", results, "--json", cwd=folder)
    return [_row(campaign, verdict) for verdict in json.loads(printed)]


def _row(campaign: str, verdict: Mapping[str, Any]) -> Row:
    """What is held of a verdict: where nothing was tested, with the reason."""
    words = ": ".join(filter(None, (verdict["verdict"], verdict["reason"])))
    numbers = {name: verdict[name] for name in ("value", "p")}
    return {"campaign": campaign, "id": verdict["id"], "verdict": words, **numbers}
