"""The report, checked on synthetic tables."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from figure_tables import any_table, configuration_rows, run_rows, table1_rows

from scalewatt.errors import InputError
from scalewatt.figures import figure2, style
from scalewatt.report.captions import caption
from scalewatt.report.numbers import flags, number, with_interval
from scalewatt.report.report import write_report


class Page(HTMLParser):
    """Links, images, ids and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and value is not None:
                self.urls.append(value)
            if name == "id" and value is not None:
                self.ids.add(value)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with all tables and, of the figures, only figure 2."""
    root = tmp_path_factory.mktemp("results")
    tables = root / "tables"
    tables.mkdir()
    for name, rows in (
        ("runs", run_rows()),
        ("configurations", configuration_rows()),
        ("table1", table1_rows()),
    ):
        table = pa.Table.from_pylist(rows)
        counted = {b"scalewatt": b'{"gpu_word": "processes"}'}
        pq.write_table(table.replace_schema_metadata(counted), tables / f"{name}.parquet")
    for figure in range(1, 8):
        pq.write_table(any_table(figure, small=True), tables / f"figure{figure}.parquet")
    style.save(figure2.draw(any_table(2, small=True)), root / "figures" / "figure2")
    return tables


def report(tables: Path, out: Path, name: str = "demo", **more: Path) -> str:
    write_report(tables, tables.parent / "figures", out, name, **more)
    return out.read_text(encoding="utf-8")


def test_the_page_refers_to_nothing_outside_itself(tables: Path, tmp_path: Path) -> None:
    text = report(tables, tmp_path / "report.html")
    page = Page(text)
    assert page.urls
    assert all(u.startswith(("data:", "#")) for u in page.urls)
    assert not re.search(r"https?:|@import|url\(", text)
    assert "script" not in page.tags
    assert {u[1:] for u in page.urls if u.startswith("#")} <= page.ids


def test_names_are_escaped(tables: Path, tmp_path: Path) -> None:
    text = report(tables, tmp_path / "report.html", "<script>alert('x')</script> & more")
    assert "script" not in Page(text).tags
    assert "&lt;script&gt;" in text


def test_the_summary_says_what_energy_is_estimated_from(tables: Path, tmp_path: Path) -> None:
    text = " ".join(Page(report(tables, tmp_path / "report.html")).text.split())
    assert "Energy estimated from CPU utilisation and rated powers; scope: cpu." in text
    assert "n counts processes." in text
    assert "AMD EPYC 9B45" in text


def test_sums_say_which_runs_they_lack_and_absent_ones_are_left_out(
    tables: Path, tmp_path: Path
) -> None:
    text = Page(report(tables, tmp_path / "report.html")).text
    assert "0.028 kWh (7 of 8 runs)" in text
    assert "process hours" in text
    assert "CO₂" in text
    assert "currency of cluster.yaml" not in text


def test_figures_that_exist_are_shown_and_others_are_named_as_missing(
    tables: Path, tmp_path: Path
) -> None:
    text = report(tables, tmp_path / "report.html")
    assert text.count("data:image/svg+xml;base64,") == 1
    assert "Figure 3 has not been drawn." in text
    assert "Figure 2 has not been drawn." not in text


def test_an_empty_results_folder_gives_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    text = Page(report(tmp_path / "tables", tmp_path / "report.html")).text
    assert "The table of runs (tables/runs.parquet) has not been made" in text
    assert "Table 1 has not been made." in text
    assert "This figure's table has not been made." in text


def test_flags_persistence_and_commands_are_on_the_page(tables: Path, tmp_path: Path) -> None:
    text = Page(report(tables, tmp_path / "report.html")).text
    assert "gap (CPU 31 s)" in text
    assert "better (33 % of persistence)" in text
    assert "not better (133 % of persistence)" in text
    assert "snakemake --profile profiles/local figure2" in text
    assert run_rows()[0]["spec_sha256"] in text


def test_the_commands_name_the_campaign(tables: Path, tmp_path: Path) -> None:
    text = Page(report(tables, tmp_path / "a.html", campaign_file=Path("campaigns/mine.yaml"))).text
    assert "snakemake --profile profiles/local table1 --config campaign=campaigns/mine.yaml" in text


def test_packages_come_from_a_runs_provenance(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(json.dumps({"packages": {"torch": "2.7.0"}}))
    provenance = tmp_path / "provenance.json"
    text = report(tables, tmp_path / "report.html", provenance_path=provenance)
    assert "torch 2.7.0" in text and "Packages of a run (1)" in text


def test_packages_of_the_recorder_are_not_taken_for_the_commands(
    tables: Path, tmp_path: Path
) -> None:
    provenance = tmp_path / "provenance.json"
    said = {"packages": {"torch": "2.7.0"}, "packages_of": "the recorder"}
    provenance.write_text(json.dumps(said))
    text = report(tables, tmp_path / "report.html", provenance_path=provenance)
    assert "Packages of the recorder of a run (1)" in text


def test_the_same_results_give_the_same_page(tables: Path, tmp_path: Path) -> None:
    assert report(tables, tmp_path / "a.html") == report(tables, tmp_path / "b.html")


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "runs.parquet").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"runs\.parquet is not a readable"):
        report(tmp_path / "tables", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_captions_are_computed_from_the_tables() -> None:
    words = caption(2, any_table(2))
    assert "3 series (LBS 256; GBS 256; GBS 8192)" in words
    assert "1 GPU to 256 GPUs" in words
    assert "Highest speed-up: 183.5 at 256 GPUs (LBS 256), 72 % of the ideal." in words
    assert "Panel B: No GPU power was measured" in caption(6, any_table(6, small=True))
    assert caption(2, any_table(2).slice(0, 0)) == "No run of this figure has finished."
    for figure in range(1, 8):
        assert caption(figure, any_table(figure))


def test_missing_numbers_are_dashes_and_never_zero() -> None:
    assert number(None) == "–" and number(float("nan")) == "–"
    assert number(0.0) == "0"
    assert number(0.00012345) == "0.0001234"
    assert number(1281167) == "1\u202f281\u202f167"
    assert with_interval({"e_mean": 2.0, "e_low": None, "e_high": None}, "e") == "2"
    assert with_interval({"e_mean": 2.0, "e_low": 1.5, "e_high": 2.5}, "e") == "2 ± 0.5"
    assert flags(None) == flags("[]") == "–"
