"""What was made with care is taken: checks refuse what is wrong, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_files import DELETE, LOCAL, Edits, demo, edited

from scalewatt.archive.archive_layout import belongs
from scalewatt.archive.import_archive import _check_room
from scalewatt.campaign.cluster import load_cluster, parse_cluster
from scalewatt.campaign.imported_campaign import parse_imported
from scalewatt.campaign.load import check_devices
from scalewatt.common.errors import InputError
from scalewatt.common.rated_powers import check_rated_powers
from scalewatt.common.tabular_files import csv_rows
from scalewatt.reproduction.manifests import ArchiveManifest, Entry


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


def test_parts_without_rated_powers_may_be_null_or_empty() -> None:
    for nothing in (None, {}):
        check_rated_powers(dict.fromkeys(("cpu", "gpu", "ram"), nothing), "--powers")


def test_an_import_needs_room_for_the_campaigns_file_only_where_campaigns_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}
    monkeypatch.setattr(
        "scalewatt.archive.import_archive.require_space",
        lambda folder, needed, where, what: asked.update({where: needed}),
    )
    files = {
        "campaigns/a.yaml": 3000,
        "campaigns/a.imported.json": 500,
        "results/a/report.html": 10**9,
    }
    manifest = ArchiveManifest(
        "a", "campaign", {name: Entry("0" * 64, size) for name, size in files.items()}
    )
    _check_room(tmp_path / "a.zip", manifest, tmp_path / "results", tmp_path / "campaigns")
    total = sum(files.values())
    assert asked == {str(tmp_path / "results"): total, str(tmp_path / "campaigns"): 3500}


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
    assert belongs(f"datasets/{name}.json") and belongs(f"datasets/{name}/1979.json")


@pytest.mark.parametrize("name", ["..", ".a", "a/b/c", "a\\b", "a\nb", "a\0", "{a}", "x" * 201, ""])
def test_archives_bring_no_dataset_of_a_dangerous_name(name: str) -> None:
    assert not belongs(f"datasets/{name}.json") and not belongs(f"datasets/{name}/../1979.json")
    with pytest.raises(InputError):
        demo({("datasets", name): edited({})["datasets"]["scans"]})


def test_years_that_overlap_are_refused_only_where_something_is_to_be_trained() -> None:
    campaign = demo({("datasets", "waves", "test_years"): [1979, 1979]})
    with pytest.raises(InputError, match=r"datasets\.waves: test_years.*results_only=true"):
        check_devices(campaign, load_cluster(LOCAL))


def test_rated_powers_of_the_cpu_are_needed_only_where_something_is_to_be_trained() -> None:
    cluster = parse_cluster(edited({("devices", "local", "cpu"): DELETE}, LOCAL), "cluster.yaml")
    with pytest.raises(InputError, match=r"series\..*\.device: 'local' .* has no key 'cpu'"):
        check_devices(demo({}), cluster)


def test_an_imported_pue_below_1_stays_as_it_was_recorded() -> None:
    pue = {"value": 0.9, "source": "a meter"}
    assert parse_imported({"name": "a", "devices": {}, "pue": pue}, "a").pue == pue
