"""`--definition` of `scalewatt table`: what is none is refused in one line, whatever it is."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from run_files import WHOLE, make_run

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.campaign.table_requests import runs_definition, table_definition
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.results.build import write_tables

FIGURES = (
    *("figure1", "figure2", "figure5", "figure6"),
    *("table1", "breakdown", "learning", "pareto", "cost_per_sample", "variants"),
)
VALUES: tuple[Any, ...] = (KeyError, None, 2**70, "x", [{}])


@pytest.fixture(scope="module")
def campaigns() -> dict[str, Campaign]:
    folder = PROJECT_ROOT / "campaigns"
    return {
        name: load_campaign(folder / f"{name}.yaml") for name in ("demo", "variants", "one-gpu")
    }


@pytest.fixture(scope="module")
def finished(
    campaigns: dict[str, Campaign], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """By figure a definition with one finished run, or of figure 1; `runs`: that of all tables."""
    results = tmp_path_factory.mktemp("results")
    made: dict[str, Any] = {"results": results}
    for figure in [*FIGURES, "runs"]:
        campaign = campaigns[
            {"variants": "variants", "cost_per_sample": "one-gpu"}.get(figure, "demo")
        ]
        own = campaign.figure_configurations("figure2" if figure == "runs" else figure)
        run = [own[0], 1]
        if not (results / "runs" / own[0]).exists():
            make_run(results, WHOLE, spec=run_spec(campaign, own[0], 1))
        if figure == "runs":
            made[figure] = runs_definition(campaign, [run])
        else:
            made[figure] = table_definition(campaign, figure, [run])
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a definition; of lists the first entry."""
    yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(definition: Any, path: tuple[Any, ...], value: Any = KeyError) -> Any:
    """The definition with another value at a place, or (KeyError) without what is there."""
    if not path:
        return None if value is KeyError else value
    found = copy.deepcopy(definition)
    part = found
    for key in path[:-1]:
        part = part[key]
    if value is KeyError:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return found


@pytest.mark.parametrize(
    "every", [7, pytest.param(1, marks=[pytest.mark.long, pytest.mark.nightly])]
)
@pytest.mark.parametrize("overlay", [False, True], ids=["", "overlaid"])
@pytest.mark.parametrize("figure", [*FIGURES, "runs"])
def test_a_definition_with_anything_else_in_it_is_a_table_or_refused(
    figure: str, overlay: bool, every: int, finished: dict[str, Any], tmp_path: Path
) -> None:
    """`every`: one in so many of the possible changes."""
    made = json.loads(json.dumps(finished[figure]))
    if overlay:
        made["options"] = {"overlay": "published"}
    refused = 0
    changes = list(product(places(made), VALUES[:1] if overlay else VALUES))
    for path, value in changes[::every]:
        other = changed(made, path, value)
        out = tmp_path / ("one" if isinstance(other, dict) and "figure" in other else "all")
        try:
            write_tables(other, finished["results"], out)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > (4 if overlay else 50) / every


@pytest.mark.parametrize("given", ["3", "null", '"figure"', '["figure"]'])
def test_what_is_no_object_is_refused(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--results", str(tmp_path), "--out", str(tmp_path / "out"))
    assert main(["table", "--definition", given, *options]) == 1
    said = capsys.readouterr().err
    assert "--definition" in said and "should be of type object" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("figure", "path", "words"),
    [
        ("figure2", ("series", 0, "model"), "series[0]: missing key 'model'"),
        ("figure1", ("series", 0, "points", 0, "updates"), "missing key 'updates'"),
        ("figure5", ("points", 0, "label"), "points[0]: missing key 'label'"),
        ("variants", ("variants", 0, "baseline"), "variants[0]: missing key 'baseline'"),
    ],
)
def test_what_a_figure_needs_is_named(
    figure: str, path: tuple[Any, ...], words: str, finished: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        write_tables(changed(finished[figure], path), tmp_path, tmp_path / "out")
    assert words in str(error.value)
