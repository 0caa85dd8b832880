"""The report, checked on made tables of the demo's and of the paper's size."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_results import demo, made_runs, paper, write_claims, write_provenance, write_results
from syrupy.assertion import SnapshotAssertion

from scalewatt.campaign.cluster import load_cluster
from scalewatt.claims.reference_tables import SET_UP
from scalewatt.report.build_report import write_report
from scalewatt.report.definition import report_definition
from scalewatt.report.html_tables import grid
from scalewatt.results.figures.figure_schema import PANEL_FIGURES
from scalewatt.results.tables.frames import with_metadata
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.text.number_format import number, unit_for, with_interval, with_unit

ROOT = Path(__file__).resolve().parents[2]
DEMO = demo()
LOCAL = load_cluster(ROOT / "config.yaml")
LOST = "resnet50-local-n004-lbs0016-full"
"""A configuration of the demo whose energy is not known."""
OUT = "fourcastnet.pretrain-local-n002-lbs0006-full"
"""One of which a repeat is excluded."""


class Page(HTMLParser):
    """Links, ids, tags, tables and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        """Rows of cells, the heads first, by the last id before the table."""
        self._visible: list[str] = []
        self.feed(text)
        visible = " ".join(self._visible)
        self.text = " ".join(visible.replace("\0", " ").split())
        lines = (" ".join(line.split()) for line in visible.split("\0"))
        self.lines = "\n".join(filter(None, lines))
        """The same text, a line for each row, paragraph and heading."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.urls += [v for n, v in attrs if n in ("src", "href") and v is not None]
        self.ids += [str(v) for n, v in attrs if n == "id"]
        if tag == "table":
            self.tables[self.ids[-1]] = []
        elif tag == "tr":
            [*self.tables.values()][-1].append([])
        elif tag in ("td", "th"):
            [*self.tables.values()][-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("tr", "p", "li", "div", "h1", "h2", "h3", "summary", "figcaption"):
            self._visible.append("\0")
        if tag in ("td", "th"):
            self.tags.append("/cell")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["style"], ["script"]):
            self._visible.append(data)
        if self.tags[-1:] and self.tags[-1] in ("td", "th", "div", "a", "span") and self.tables:
            rows = [*self.tables.values()][-1]
            if rows and rows[-1] and data.strip():
                rows[-1][-1] += data

    def rows(self, name: str) -> list[dict[str, str]]:
        """Rows of the table of this id, by their heads."""
        heads, *rows = self.tables[name]
        return [dict(zip(heads, row, strict=True)) for row in rows]


DEFINITION = report_definition(DEMO, LOCAL, ["Carbon 363 g/kWh."])


def change(run: dict[str, Any]) -> dict[str, Any]:
    """One run lost its energy, one is excluded, one was not made."""
    if run["configuration"] == LOST:
        shared = {"code": "node_shared", "device": None, "detail": "vm: other/1 for 20 s"}
        unknown = dict.fromkeys(n for n in run if n.endswith(("_kwh", "energy_origin", "_kg")))
        return run | unknown | {"coverage": 0.4, "flags": json.dumps([shared])}
    if (run["configuration"], run["repeat"]) == (OUT, 2):
        return run | {"excluded": "the fan of the node failed"}
    return {} if (run["configuration"], run["repeat"]) == (OUT, 3) else run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's results, with all that may be wrong with runs."""
    return write_results(tmp_path_factory.mktemp("demo"), DEMO, made_runs(DEMO, change))


@pytest.fixture(scope="module")
def faultless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's results without a fault; tests get copies."""
    return write_results(tmp_path_factory.mktemp("faultless") / "results", DEMO, made_runs(DEMO))


@pytest.fixture()
def sound(faultless: Path, tmp_path: Path) -> Path:
    """Results of the demo without a fault, to be changed."""
    return Path(shutil.copytree(faultless, tmp_path / "results"))


def report(results: Path, out: Path, **changes: Any) -> Page:
    write_report(results, out, replace(DEFINITION, **changes))
    return Page(out.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report(results, tmp_path_factory.mktemp("page") / "report.html")


# --- one page, and nothing but itself -------------------------------------------------------------


def test_the_page_refers_to_nothing_outside_itself(results: Path, tmp_path: Path) -> None:
    page = report(results, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert page.urls
    # But for pages of runs and CSV files, which lie in its folder.
    assert all(url.startswith(("data:", "#", "figures/", "tables/")) for url in page.urls)
    assert not re.search(r"https?:|@import|url\(", text)
    assert "iframe" not in page.tags
    assert "default-src 'none'" in text


def test_every_link_has_its_place_and_no_id_is_there_twice(page: Page) -> None:
    targets = {url[1:] for url in page.urls if url.startswith("#")}
    assert targets and targets <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_names_are_escaped(results: Path, tmp_path: Path) -> None:
    name = "<script>alert('x')</script> & more"
    plain = report(results, tmp_path / "plain.html")
    page = report(results, tmp_path / "report.html", campaign=name)
    assert page.tags.count("script") == plain.tags.count("script")
    assert "&lt;script&gt;" in (tmp_path / "report.html").read_text()


def test_the_page_of_a_campaign_with_faults_says_this(
    page: Page, snapshot: SnapshotAssertion
) -> None:
    """The same text: figures and their captions, tables, quality, provenance, commands."""
    lines = page.lines.replace(f"{ROOT}/", "")
    assert re.sub(r"made by scalewatt [^;]*", "made by scalewatt", lines) == snapshot


# --- summary --------------------------------------------------------------------------------------


def test_energies_of_unequal_scope_are_never_added_up(tmp_path: Path) -> None:
    runs = made_runs(
        DEMO, lambda run: run | {"energy_scope": "cpu+ram"} if run["gpus"] == 4 else run
    )
    page = report(write_results(tmp_path / "r", DEMO, runs), tmp_path / "report.html")
    for scope in ("cpu", "cpu+ram"):
        total = sum(run["energy_kwh"] for run in runs if run["energy_scope"] == scope)
        assert f"Energy, estimated ({scope}) {with_unit(total, 'kWh')}" in page.text
    assert with_unit(sum(run["energy_kwh"] for run in runs), "kWh") not in page.text
    assert "Totals of unequal scope are not comparable." in page.text
    assert "over unequal scopes or origins" in page.text


def test_a_cost_is_stated_with_its_currency(sound: Path, tmp_path: Path) -> None:
    costs = made_runs(DEMO, lambda run: run | {"cost": 1.0})
    page = report(write_results(sound, DEMO, costs), tmp_path / "report.html", currency="EUR")
    assert "Cost 19 EUR" in page.text


def test_estimated_energies_show_their_interval_in_the_summary_and_the_tables(
    sound: Path, tmp_path: Path
) -> None:
    def estimated(run: dict[str, Any]) -> dict[str, Any]:
        ends = {
            f"energy_{end}_kwh": run["energy_kwh"] * f for end, f in (("low", 0.2), ("high", 5))
        }
        return run | {"energy_origin": "estimated"} | ends

    page = report(write_results(sound, DEMO, made_runs(DEMO, estimated)), tmp_path / "a.html")
    assert "the true value lies between" in page.text
    assert "Estimated: at most" in page.text and "Estimated: at least" in page.text
    measured = made_runs(DEMO, lambda run: run | {"energy_origin": "measured"})
    page = report(write_results(sound, DEMO, measured), tmp_path / "b.html")
    assert "the true value lies" not in page.text and "Estimated: at" not in page.text


def test_hours_of_different_devices_are_never_added_up(tmp_path: Path) -> None:
    runs = [run | {"device": "other"} if run["gpus"] == 4 else run for run in made_runs(DEMO)]
    page = report(write_results(tmp_path / "r", DEMO, runs), tmp_path / "report.html")
    for device in ("local", "other"):
        total = sum(run["gpu_hours"] for run in runs if run["device"] == device)
        assert f"Process hours, {device} {with_unit(total, 'h')}" in page.text


def test_a_campaign_whose_runs_are_all_excluded_says_so(sound: Path, tmp_path: Path) -> None:
    runs = made_runs(DEMO, lambda run: run | {"excluded": "a test"})
    page = report(write_results(sound, DEMO, runs), tmp_path / "report.html")
    assert "No run counts, as all are excluded." in page.text


# --- figures and tables ---------------------------------------------------------------------------


def test_each_point_of_a_drawing_tells_what_it_is_and_leads_to_its_configuration(
    sound: Path, tmp_path: Path
) -> None:
    table = pq.read_table(sound / "tables/figure2.parquet").to_pandas()
    points = table[(table["panel"] == "C") & table["y"].notna()]
    series, origin = points.iloc[0][["series", "energy_origin"]]
    points = points[(points["series"] == series) & (points["energy_origin"] == origin)]
    marks = "".join(f'<use x="{row.x}" y="{-row.y}"/>' for row in points.itertuples())
    group = f'<g id="points-C-{series}-{origin}"><g>{marks}</g></g>'
    other = f'<g id="points-A-{series}-{origin}"><use x="1" y="1"/></g>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg">{group}{other}</svg>'
    (sound / "figures/figure2.svg").write_text(svg)
    report(sound, tmp_path / "report.html")
    drawn = (tmp_path / "report.html").read_text().partition('<g id="figure2-points-C')[2]
    drawn = drawn.partition("</svg>")[0]
    assert len(points) > 1 and drawn.count("<a ") == len(points), "other: not a marker a row"
    for row in points.itertuples():
        assert f'href="#configuration-{row.configuration}"' in drawn
        assert f"n {row.gpus}, LBS {row.local_batch_size}: Energy (kWh) {number(row.y)}" in drawn


def test_what_a_campaign_does_not_have_is_not_offered(results: Path, tmp_path: Path) -> None:
    page = report(results, tmp_path / "report.html", figures=("figure2",))
    assert "Figure 3" not in page.text and "Table 1" not in page.text
    assert "figure2" in page.ids and "Pareto" not in page.text
    page = report(results, tmp_path / "report.html", figures=("figure2", "pareto"))
    assert "Pareto has not been drawn." in page.text


def test_a_figure_of_ones_own_is_shown_by_what_it_says_of_itself(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = PANEL_FIGURES["figure2"]._replace(text="Rates against n. And more.")
    monkeypatch.setitem(PANEL_FIGURES, "rates", own)
    page = report(results, tmp_path / "report.html", figures=("rates",))
    assert "Rates against n" in page.text and "And more" not in page.text


def test_a_series_with_one_n_is_in_no_table_of_scaling(sound: Path, tmp_path: Path) -> None:
    path = sound / "tables" / "scaling.parquet"
    table = pq.read_table(path)
    name = table.column("series")[0].as_py()
    rows = [row for row in table.to_pylist() if row["series"] != name]
    lone = next(row for row in table.to_pylist() if row["series"] == name)
    pq.write_table(pa.Table.from_pylist([*rows, lone], schema=table.schema), path)
    shown = {row["Series"] for row in report(sound, tmp_path / "report.html").rows("scaling")}
    assert name not in shown and rows[0]["series"] in shown
    pq.write_table(pa.Table.from_pylist([lone], schema=table.schema), path)
    assert "No series has a second n" in report(sound, tmp_path / "lone.html").text


# --- claims ---------------------------------------------------------------------------------------


def test_claims_stand_by_verdict_with_their_words(sound: Path, tmp_path: Path) -> None:
    assert "claims" not in report(sound, tmp_path / "a.html").ids
    write_claims(sound, [("A01", "supported"), ("A02", "not_testable"), ("B01", SET_UP)])
    page = report(sound, tmp_path / "b.html")
    assert "Energy is approximately linear in consumed GPU hours within one series" in page.text
    assert "Checked on campaign demo. 3 claims; by results 1; by specs 1." in page.text
    assert len(page.rows("claims-supported")) == len(page.rows("claims-set_up_as_stated")) == 1
    text = (tmp_path / "b.html").read_text(encoding="utf-8")
    for verdict, is_folded in (("supported", False), ("set_up_as_stated", True)):
        part = text.partition(f'<section id="claims-{verdict}">')[2].partition("</section>")[0]
        assert ("<details>" in part) == is_folded
    assert "claims" not in report(sound, tmp_path / "c.html", claims=False).ids


# --- data quality and provenance ------------------------------------------------------------------


def test_flags_are_counted_and_coverage_is_never_rounded_up(sound: Path, tmp_path: Path) -> None:
    gap = json.dumps([{"code": "gap", "device": "CPU", "detail": "31 s"}] * 2)
    odd = {"flags": gap, "coverage": 0.9999999}
    runs = made_runs(DEMO, lambda run: run | odd if run["repeat"] == 2 else run)
    page = report(write_results(sound, DEMO, runs), tmp_path / "report.html")
    (row,) = page.rows("flags")
    assert (row["Flag"], row["Runs"], row["Times"]) == ("gap", "2", "4")
    assert row["Warning"] == "a gap between samples of over three periods"
    assert row["For example"].endswith("CPU 31 s")
    assert {row["Coverage"] for row in page.rows("coverage")} == {"99.999 %"}


def test_measurements_that_were_replaced_are_named_with_their_reasons(
    sound: Path, tmp_path: Path
) -> None:
    folder = write_results(sound, DEMO, made_runs(DEMO))
    plain = report(folder, tmp_path / "plain.html")
    assert "No measurement was replaced." in plain.text
    row = {"configuration": LOST, "repeat": 1, "reason": "sensor broke"}
    row |= {"date": "2026-01-31T09:30:00Z", "measurement": "0123456789ab", "action": "remeasure"}
    page = report(folder, tmp_path / "report.html", remeasured=(row,))
    (again,) = page.rows("runs-measured-again")
    assert (again["Configuration"], again["Why"]) == (LOST, "sensor broke")
    assert "Energy before (kWh)" not in again, "it lies on another machine"
    assert again["Energy now (kWh)"]
    assert "measured again: 1" in page.text


def idle_power(**changes: Any) -> dict[str, Any]:
    return dict.fromkeys(IDLE.names) | {
        "campaign": "demo", "device": "local", "device_kind": "cpu", "devices": 1, "repeats": 2,
        "mean_w": 40.0, "mean_per_device_w": 40.0, "energy_origin": "estimated", "flags": "[]",
    } | changes  # fmt: skip


def test_idle_powers_are_listed_with_their_flags(sound: Path, tmp_path: Path) -> None:
    busy = {"code": "not_idle", "device": "CPU_BUSY", "detail": "repeat 1: n0: cpu 86 % busy"}
    assert "No idle power was measured" in report(sound, tmp_path / "a.html").text
    rows = [idle_power(), idle_power(device_kind="ram", mean_w=None, mean_per_device_w=None)]
    rows[1]["flags"] = json.dumps([busy])
    pq.write_table(pa.Table.from_pylist(rows, schema=IDLE), sound / "tables" / "idle.parquet")
    page = report(sound, tmp_path / "b.html")
    assert "Idle powers: 2." in page.text
    cpu, ram = page.rows("idle-baseline")
    assert (cpu["Power per device (W)"], cpu["Flags"]) == ("40", "–")
    assert ram["Power per device (W)"] == "–" and "cpu 86 % busy" in ram["Flags"]


def test_devices_without_a_baseline_and_runs_below_it_are_named(
    sound: Path, tmp_path: Path
) -> None:
    runs = made_runs(DEMO, lambda run: run | {"net_energy_kwh": 0.1})
    runs[3]["net_energy_kwh"] = -0.1
    folder = write_results(sound, DEMO, runs)
    path = folder / "tables/runs.parquet"
    why = {"no_idle": {"local": "its nodes were not idle: cpu 86 % busy"}}
    pq.write_table(with_metadata(pq.read_table(path), why), path)
    page = report(folder, tmp_path / "report.html")
    (device,) = page.rows("devices-without-a-baseline")
    assert [*device.values()] == ["local", "its nodes were not idle: cpu 86 % busy"]
    (below,) = page.rows("runs-below-the-idle-baseline")
    assert below["Configuration"] == runs[3]["configuration"]


def test_provenance_counts_what_runs_were_made_with(sound: Path, tmp_path: Path) -> None:
    first, second, third, *others = made_runs(DEMO)
    node = {"hosts": ["n0"], "cpu_models": ["Some CPU"], "gpu_models": {"A100": 4}}
    old = node | {"gpu_driver": "535", "kernel": None}
    new = node | {"hosts": ["n1"], "gpu_driver": "550"}
    einops = {"package": "einops", "locked": None, "installed": "0.8"}
    torch = {"package": "torch", "locked": "2.7.0", "installed": "2.7.1"}
    locks = [{"sha256": "ab", "differences": d} for d in ([einops, torch], [torch], [])]
    write_provenance(sound, first, nodes=[old], lock=locks[0])
    write_provenance(sound, second, nodes=[old, new], lock=locks[1])
    recorder = {"packages": {"torch": "2.8.0"}, "packages_of": "the recorder"}
    write_provenance(sound, third, lock=locks[2], **recorder)
    write_provenance(sound, others[0], commit="0123-dirty", commit_clean=False)
    write_provenance(sound, others[1], commit="0123", commit_clean=True, packages={})
    page = report(sound, tmp_path / "report.html")
    software = {tuple(row.values())[:3]: row["Runs"] for row in page.rows("software")}
    assert software["the run", "torch", "2.7.0"] == "17"
    assert software["the recorder", "torch", "2.8.0"] == "1"
    assert software["the run", "cudnn_benchmark", "off"] == "18"
    assert [tuple(row.values()) for row in page.rows("departures")] == [
        ("the run", "einops", "none", "0.8", "1"),
        ("the run", "torch", "2.7.0", "2.7.1", "2"),
    ]
    assert software["its nodes", "GPU driver", "535"] == "2"
    assert software["its nodes", "GPU driver", "550"] == "1"
    (hardware,) = page.rows("hardware")
    assert (hardware["Hardware"], hardware["Nodes"], hardware["Runs"]) == ("made local", "1", "19")
    assert hardware["First start"] == "2023-11-14 22:13 UTC"
    states = {"not recorded": "16", "as locked": "1", "differ": "2"}
    assert {value: software["the run", "packages", value] for value in states} == states
    states = {"not recorded": "17", "clean": "1", "with changed files": "1"}
    assert {
        value: software["the run", "checkout that published it", value] for value in states
    } == states


# --- nothing there, and much there ----------------------------------------------------------------


def test_an_empty_campaign_gives_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    page = report(tmp_path / "nothing", tmp_path / "report.html")
    assert "No run has finished; planned: 19." in page.text
    assert "The table (tables/table1.parquet) has not been made." in page.text
    assert "Planned runs without results are in no table or figure." in page.text
    assert "The energy of every run is known." not in page.text
    page = report(write_results(tmp_path / "r", DEMO, []), tmp_path / "report.html", planned=())
    assert "No run has finished." in page.text and "This table has no rows." in page.text


def test_the_papers_campaign_fits_on_a_page_of_less_than_1_mb(tmp_path: Path) -> None:
    campaign = paper()
    results = write_results(tmp_path / "paper", campaign, made_runs(campaign))
    cluster = load_cluster(ROOT / "config/horeka.yaml")
    out = tmp_path / "report.html"
    write_report(results, out, report_definition(campaign, cluster, []))
    page = Page(out.read_text())
    assert out.stat().st_size < 1_000_000
    assert len(page.rows("runs")) == 175
    assert "Runs done 175 Configurations 53" in page.text
    assert "Energy, measured (gpu+cpu)" in page.text
    assert "Energy, measured (gpu+cpu+ram)" in page.text
    assert "which have neither spread nor interval: 22." in page.text


# --- numbers and units ----------------------------------------------------------------------------


def test_missing_numbers_are_dashes_and_never_zero() -> None:
    assert number(None) == "–" and number(float("nan")) == "–"
    assert number(0.0) == "0"
    assert number(0.00012345) == "0.0001234"
    assert number(1281167) == "1\u202f281\u202f167"
    assert with_interval(2.0, None, None) == "2"
    assert with_interval(2.0, 1.5, 2.5) == "2 ± 0.5"
    assert with_interval(1.0, 0.5, 2.0) == "1 (0.5 to 2)", "± 0.75 would begin at 0.25"
    assert with_interval(0.001, 0.0005, 0.002, 1000) == "1 (0.5 to 2)"
    assert with_interval(None, None, None) == "–"
    assert with_unit(None, "kWh") == "–"


@given(st.lists(st.floats(0, 1e9), max_size=5), st.sampled_from(["kWh", "h", "kW", "kg"]))
def test_a_unit_changes_how_a_number_reads_and_not_what_it_is(
    values: list[float], unit: str
) -> None:
    suited = unit_for(values, unit)
    base = {"MWh": 1e3, "Wh": 1e-3, "mWh": 1e-6, "min": 1 / 60, "s": 1 / 3600, "W": 1e-3}
    base |= {"t": 1e3, "g": 1e-3}
    for value in values:
        assert value * suited.factor * base.get(suited.name, 1.0) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "values", "heads", "shown"),
    [
        ("energy_kwh", [0.0005, 0.05, None], {}, ["Energy (Wh)", "0.5", "50", "–"]),
        ("energy_low_kwh", [0.05], {"energy_low_kwh": "Least"}, ["Least (Wh)", "50"]),
        ("energy_low_kwh", [0.05], {"energy_low_kwh": "Least (kWh)"}, ["Least (kWh)", "0.05"]),
        ("gpu_hours", [2.0], {}, ["GPU hours (h)", "2"]),
        ("gpu_hours", [0.5], {}, ["GPU time (min)", "30"]),
    ],
)
def test_a_column_has_one_unit_which_its_heading_states(
    name: str, values: list[Any], heads: dict[str, str], shown: list[str]
) -> None:
    made = grid(pd.DataFrame({name: values}), [name], heads)
    assert re.findall("<t[hd].*?>(.*?)<", made) == shown


def test_a_column_without_values_is_left_out() -> None:
    frame = pd.DataFrame({"repeat": [1], "coverage": [None]})
    assert "Coverage" not in grid(frame, ["repeat", "coverage"])
    assert "Coverage" in grid(frame.assign(coverage=0.5), ["repeat", "coverage"])
