"""What was made with care is taken: checks refuse what is wrong, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_files import DELETE, LOCAL, Edits, demo, edited

from scalewatt.campaign.cluster import load_cluster, parse_cluster
from scalewatt.campaign.load import check_devices
from scalewatt.common.errors import InputError
from scalewatt.common.tabular_files import csv_rows


@pytest.mark.parametrize(
    "text", ["path,model,,\na,b,,\n", "path,model,\na,b,\n", "path,model, ,\na,b\n"]
)
def test_empty_columns_at_the_end_of_a_csv_file_are_no_columns(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert csv_rows(path) == [(f"{path}: line 2", {"path": "a", "model": "b"})]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,model,,\na,b,,c\n", 'column "" stands there twice'),
        ("path,model,\na,b,\nc,d,,e\n", "line 3: expected 3 cells"),
        ("path,model\na\n", "line 2: expected 2 cells"),
        (",,\na,b,c\n", "is empty"),
    ],
)
def test_cells_without_a_column_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        csv_rows(path)


NAMES = ("a b", "größer", "scans.v2", "a+b=c", "x" * 200, "-a", "(new)")


@pytest.mark.parametrize("name", NAMES)
def test_series_and_datasets_are_named_freely(name: str) -> None:
    content = edited({})
    series = content["series"]["resnet50-full-lbs16"]
    edits: Edits = {
        ("series", name): series | {"label": "ResNet50\nscaled"},
        ("datasets", name): content["datasets"]["scans"],
        ("models", "resnet50", "dataset"): name,
    }
    campaign = demo(edits)
    assert name in campaign.datasets() and campaign.series[name].label == "ResNet50\nscaled"


def test_years_that_overlap_are_refused_only_where_something_is_to_be_trained() -> None:
    campaign = demo({("datasets", "waves", "test_years"): [1979, 1979]})
    with pytest.raises(InputError, match=r"datasets\.waves: test_years.*results_only=true"):
        check_devices(campaign, load_cluster(LOCAL))


def test_rated_powers_of_the_cpu_are_needed_only_where_something_is_to_be_trained() -> None:
    cluster = parse_cluster(edited({("devices", "local", "cpu"): DELETE}, LOCAL), "cluster.yaml")
    with pytest.raises(InputError, match=r"series\..*\.device: 'local' .* has no key 'cpu'"):
        check_devices(demo({}), cluster)
