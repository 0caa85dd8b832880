"""Verdict, value and p of every claim: on the published rows, on drawn campaigns and on MLPerf's runs.

`python tests/golden/test_claims_golden.py` writes the files anew, after a change that is meant to change one.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent
ROOT = GOLDEN.parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests" / "workflow")]

MLPERF = os.environ.get("SCALEWATT_MLPERF")
CAMPAIGNS, SEED = 50, 36
TESTED_CAMPAIGNS = CAMPAIGNS if os.environ.get("SCALEWATT_NIGHTLY") else 10
"""How many of the drawn ones are compared."""
COLUMNS = ("campaign", "id", "verdict", "value", "p")
TESTED = ("supported", "contradicted", "undecided")
Row = dict[str, str]


def row(campaign: str, verdict: Mapping[str, Any]) -> Row:
    """What is held of a verdict, as it is written: of no test with the reason."""
    numbers = {name: number(verdict[name]) for name in ("value", "p")}
    words = ": ".join(filter(None, (verdict["verdict"], verdict["reason"])))
    return {"campaign": campaign, "id": verdict["id"], "verdict": words, **numbers}


def number(value: float | str | None) -> str:
    """A number with 12 significant digits, a text as it is, and nothing where there is none."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{float(value):.12g}"


def published(folder: Path) -> list[Row]:
    """The verdicts of `scalewatt claims --results reference`."""
    return [row("reference", verdict) for verdict in claims("reference", ROOT)]


def mlperf(folder: Path) -> list[Row]:
    """The verdicts on MLPerf's runs, made as docs/paper/real-measurements.md does."""
    from workspace import Workspace

    project = folder / "project"
    Workspace.create(project)
    data = project / "training_results_v4.0" / "smc-dc-power"
    shutil.copytree(Path(str(MLPERF)) / data.name, data)
    script = str(ROOT / "examples" / "mlperf" / "convert.py")
    run("python", script, "training_results_v4.0/smc-dc-power", "converted", cwd=project)
    run("scalewatt", "register", "mlperf-v4", "--table", "converted/runs.csv", cwd=project)
    campaign = "campaign=campaigns/mlperf-v4.yaml"
    run("snakemake", "--profile", "profiles/local", "tables", "--config", campaign, cwd=project)
    return [row("mlperf-v4", verdict) for verdict in claims("results/mlperf-v4", project)]


def drawn(folder: Path, campaigns: int = TESTED_CAMPAIGNS) -> list[Row]:
    """The tests of claims on the first campaigns of those that are drawn from the paper's numbers."""
    from claims_worlds import Study, claims_on_results, paper_world

    from scalewatt.claims.verdicts import verdict_of

    rows = []
    worlds = islice(Study().campaigns(paper_world(), CAMPAIGNS, SEED), campaigns)
    for count, evidence in enumerate(worlds):
        decided = (verdict_of(claim, evidence) for claim in claims_on_results().values())
        rows += [
            row(f"{count:02}", vars(verdict)) for verdict in decided if verdict.verdict in TESTED
        ]
    return rows


def claims(results: str, folder: Path) -> list[dict[str, Any]]:
    done = run("scalewatt", "claims", "--results", results, "--json", cwd=folder)
    return json.loads(done)


def run(*command: str, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


MADE: dict[str, Callable[[Path], list[Row]]] = {
    "published": published,
    "drawn": drawn,
    "mlperf": mlperf,
}


def file_of(name: str) -> Path:
    return GOLDEN / f"claims_{name}.csv"


def write(name: str, rows: Iterable[Row]) -> None:
    with open(file_of(name), "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda line: (line["campaign"], line["id"])))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        "published",
        pytest.param("drawn", marks=[pytest.mark.long, pytest.mark.larger]),
        pytest.param(
            "mlperf",
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(
                    MLPERF is None,
                    reason="SCALEWATT_MLPERF names no folder with MLPerf's power logs",
                ),
            ],
        ),
    ],
)
def test_every_claim_has_the_verdict_that_it_had(name: str, tmp_path: Path) -> None:
    made = {(made_row["campaign"], made_row["id"]): made_row for made_row in MADE[name](tmp_path)}
    with open(file_of(name), newline="", encoding="utf-8") as file:
        held = {
            (held_row["campaign"], held_row["id"]): held_row
            for held_row in csv.DictReader(file)
            if name != "drawn" or int(held_row["campaign"]) < TESTED_CAMPAIGNS
        }
    assert made.keys() == held.keys()
    off = [
        (held[key], made_row)
        for key, made_row in made.items()
        if made_row["verdict"] != held[key]["verdict"]
        or not all(alike(made_row[part], held[key][part]) for part in ("value", "p"))
    ]
    assert off == []


def alike(value: str, other: str) -> bool:
    try:
        return float(value) == pytest.approx(float(other), rel=1e-9, abs=1e-300)
    except ValueError:
        return value == other


if __name__ == "__main__":
    MADE["drawn"] = partial(drawn, campaigns=CAMPAIGNS)
    for wanted in sys.argv[1:] or [name for name in MADE if name != "mlperf" or MLPERF]:
        with tempfile.TemporaryDirectory() as made:
            write(wanted, MADE[wanted](Path(made)))
