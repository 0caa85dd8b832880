"""The planner page in a real browser: its numbers are those of the plan, and it works by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from accessibility import serious_findings
from browser import Browser, chromium, headless
from campaign_files import replaced
from workspace import PROJECT

from scalewatt.campaign.cluster import Cluster, load_cluster
from scalewatt.cli import main
from scalewatt.report.planner.plan_page import trainings
from scalewatt.results.tables.frames import records
from scalewatt.scaling.commands import load_plan, plan_campaign
from scalewatt.scaling.planning.plan import of_level

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
HOREKA, PAPER = PROJECT / "config/horeka.yaml", PROJECT / "campaigns/paper.yaml"
MODEL = PROJECT / "reference/scaling_model.json"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page of the paper's campaign, opened."""
    out = tmp_path_factory.mktemp("planner") / "plan.html"
    command = ["plan", "--site", str(HOREKA), "--campaign", str(PAPER), "--html", str(out)]
    assert main(command) == 0
    with headless(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.open(out.as_uri())


def put(page: Browser, name: str, value: Any) -> None:
    """Fill a field as a person does."""
    event = "change" if name in ("training", "lbs") else "input"
    field = f"document.getElementById({name!r})"
    page.evaluate(
        f"{field}.value = {json.dumps(str(value))};"
        f"{field}.dispatchEvent(new Event({event!r}, {{bubbles: true}}))"
    )


def cells(page: Browser) -> dict[str, list[str]]:
    """The table's rows by n."""
    rows = page.evaluate(
        "Array.from(document.querySelectorAll('#runs tbody tr'), "
        "(row) => Array.from(row.cells, (cell) => cell.textContent))"
    )
    return {row[0]: row for row in rows}


def test_its_numbers_are_those_of_the_plan(page: Browser) -> None:
    plan = plan_campaign(load_cluster(HOREKA), PAPER)
    known = page.evaluate("DATA.trainings")
    rows = {
        (training["name"], row["gpus"], row["lbs"]): row
        for training in known
        for row in training["rows"]
    }
    compared = 0
    for point in records(of_level(plan, "point")):
        key = point["model"] if point["phase"] == "train" else f"{point['model']}.{point['phase']}"
        name = (
            f"{key} on {point['device']}: {point['epochs']} epochs of {point['dataset_samples']} "
            "samples"
        )
        row = rows.get((name, point["gpus"], point["local_batch_size"]))
        if row is not None:
            assert row["hours"] == [point[f"runtime_h{end}"] for end in ("", "_low", "_high")]
            assert row["kwh"] == pytest.approx(
                [point[f"energy_kwh{end}"] for end in ("", "_low", "_high")]
            )
            compared += 1
    assert compared == 45


def test_what_is_typed_is_answered_at_once(page: Browser) -> None:
    put(page, "training", 0)
    put(page, "lbs", 256)
    assert cells(page)["16"][2] == "5.12 (4.92–5.32)"
    assert cells(page)["16"][5:8] == ["–", "–", "–"]
    put(page, "pue", 1.5)
    put(page, "price", 0.2)
    put(page, "carbon", 400)
    energy, facility, cost, carbon = (cells(page)["16"][4 + n].split()[0] for n in range(4))
    assert [energy, facility, cost, carbon] == ["26.4", "39.6", "7.92", "15.8"]
    put(page, "pue", 0.5)
    assert cells(page)["16"][5] == "–", "below 1 is no PUE"
    assert cells(page)["4"][-1] == "cheapest"
    put(page, "deadline", 10)
    assert [n for n, row in cells(page).items() if row[-1]] == ["16"]
    put(page, "deadline", "")


def test_the_page_asks_nobody_and_complains_of_nothing(page: Browser) -> None:
    assert page.complaints() == []
    assert page.requests() == []


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_axe_finds_nothing_serious(page: Browser, scheme: str) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=media)
    assert serious_findings(page) == []


def cluster_without_nodes_limit() -> Cluster:
    return replaced(load_cluster(HOREKA), max_gpus=64)


def test_other_n_fit_nodes_and_limits_and_what_is_not_calibrated_has_the_reason() -> None:
    cluster = cluster_without_nodes_limit()
    campaign, forecaster = load_plan(cluster, PAPER, MODEL)
    first, *_ = trainings(campaign, cluster, forecaster)
    assert {row["gpus"] for row in first["rows"]} == {1, 2, 4, 8, 16, 32, 64}
    local = load_cluster(PROJECT / "config.yaml")
    demo, forecaster = load_plan(local, PROJECT / "campaigns/demo.yaml", MODEL)
    for training in trainings(demo, local, forecaster):
        assert training["rows"] == [] and "is not calibrated for" in training["reason"]
