"""The planner page in a real browser: its numbers are those of the plan, and it works by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Browser, chromium, headless
from workspace import PROJECT

from scalewatt.campaign.cluster import load_cluster
from scalewatt.cli import main
from scalewatt.results.tables.frames import records
from scalewatt.scaling.plan import load_plan, make_plan, select_levels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
HOREKA, PAPER = PROJECT / "config/horeka.yaml", PROJECT / "campaigns/paper.yaml"


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
    field = f"document.getElementById({name!r})"
    page.evaluate(
        f"{field}.value = {json.dumps(str(value))};"
        f"{field}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    )


def cells(page: Browser) -> dict[str, list[str]]:
    """The table's rows by n."""
    rows = page.evaluate(
        "Array.from(document.querySelectorAll('#runs tbody tr'), "
        "(row) => Array.from(row.cells, (cell) => cell.textContent))"
    )
    return {row[0]: row for row in rows}


def test_its_numbers_are_those_of_the_plan(page: Browser) -> None:
    cluster = load_cluster(HOREKA)
    campaign, model = load_plan(cluster, PAPER, None)
    plan = make_plan(campaign, cluster, model)
    series = page.evaluate("DATA.series")
    rows = [row for points in series for row in points["rows"]]
    points = records(select_levels(plan, "point"))
    assert len(rows) == len(points) == 60
    for row, point in zip(rows, points, strict=True):
        assert [row[key] for key in ("gpus", "nodes")] == [point["gpus"], point["nodes"]]
        for name in ("runtime_h", "gpu_hours", "energy_kwh"):
            assert row[name] == [point[f"{name}{end}"] for end in ("", "_low", "_high")]


def test_what_is_typed_is_answered_at_once(page: Browser) -> None:
    assert cells(page)["16"][3] == "5.12 (4.92–5.32)"
    assert cells(page)["16"][6:9] == ["–", "–", "–"]
    put(page, "pue", 1.5)
    put(page, "price", 0.2)
    put(page, "carbon", 400)
    energy, facility, cost, carbon = (cells(page)["16"][5 + n].split()[0] for n in range(4))
    assert [energy, facility, cost, carbon] == ["26.4", "39.6", "7.92", "15.8"]
    put(page, "pue", 0.5)
    assert cells(page)["16"][6] == "–", "below 1 is no PUE"
    assert cells(page)["4"][-1] == "cheapest"
    put(page, "deadline", 10)
    assert [n for n, row in cells(page).items() if row[-1]] == ["16"]
    put(page, "deadline", "")


def test_the_page_asks_nobody_and_complains_of_nothing(page: Browser) -> None:
    assert page.complaints() == []
    assert page.requests() == []
