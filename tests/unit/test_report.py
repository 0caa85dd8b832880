"""The report, checked on made tables of the demo's and of the paper's size."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_results import (
    claims_table,
    demo,
    made_runs,
    paper,
    write_claims,
    write_provenance,
    write_results,
)
from run_files import make_spec

from scalewatt.campaign.cluster import load_cluster
from scalewatt.claims.evidence.claim_types import (
    INCONSISTENCY,
    inconsistencies,
    unlisted_inconsistencies,
)
from scalewatt.claims.load_evidence import campaign_evidence
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.report import provenance_section as departures
from scalewatt.report.build_report import write_report
from scalewatt.report.claims_section import claims_of
from scalewatt.report.data_quality_section import quality
from scalewatt.report.html_tables import Cell, Column, grid, texts
from scalewatt.report.report_inputs import MOST_SVG_BYTES, Results
from scalewatt.report.report_request import Definition, parse_definition, report_definition
from scalewatt.report.summary_section import (
    comparison_sentences,
    facts,
    missing_runs,
    scaling_sentences,
)
from scalewatt.results.figures.figure_schema import BREAKDOWN
from scalewatt.results.tables.frames import to_frame
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.text.flag_labels import FLAG_WORDS, NULL_ENERGY
from scalewatt.results.text.number_format import number, unit_for, with_interval, with_unit

ROOT = Path(__file__).resolve().parents[2]
DEMO = demo()
LOCAL = load_cluster(ROOT / "profiles/local/cluster.yaml")
LOST = "resnet50-local-n004-lbs0016-full"
"""A configuration of the demo whose energy is not known."""
OUT = "fourcastnet.pretrain-local-n002-lbs0006-full"
"""One of which a repeat is excluded."""


class Page(HTMLParser):
    """Links, images, ids, tags and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.downloads: dict[str, str] = {}
        self._visible: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self._visible).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given_ = dict(attrs)
        self.urls += [v for n, v in attrs if n in ("src", "href") and v is not None]
        if given_.get("id"):
            self.ids.append(str(given_["id"]))
        if tag == "img":
            self.images.append(given_)
        if given_.get("download"):
            self.downloads[str(given_["download"])] = str(given_["href"])

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["style"], ["script"]):
            self._visible.append(data)

    def rows(self, name: str) -> list[dict[str, str]]:
        """What the download of that name holds."""
        text = base64.b64decode(self.downloads[name].partition("base64,")[2]).decode()
        return list(csv.DictReader(io.StringIO(text)))


def definition(**changes: Any) -> Definition:
    return parse_definition(report_definition(DEMO, LOCAL, ["Carbon 363 g/kWh."], False) | changes)


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
    return write_results(tmp_path_factory.mktemp("faultless") / "own", DEMO, made_runs(DEMO))


@pytest.fixture()
def own(faultless: Path, tmp_path: Path) -> Path:
    """Results of the demo without a fault, to be changed."""
    return Path(shutil.copytree(faultless, tmp_path / "own"))


def report(results: Path, out: Path, **changes: Any) -> Page:
    write_report(results, out, definition(**changes))
    return Page(out.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report(results, tmp_path_factory.mktemp("page") / "report.html")


# --- one page, and nothing but itself -------------------------------------------------------------


def test_the_page_refers_to_nothing_outside_itself(results: Path, tmp_path: Path) -> None:
    page = report(results, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert page.urls
    # But for the pages of runs, which lie beside it.
    assert all(url.startswith(("data:", "#", "figures/runs/")) for url in page.urls)
    # Vega names its home and XML's namespaces; the policy lets it ask for nothing.
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


def test_the_same_results_give_the_same_page(results: Path, tmp_path: Path) -> None:
    report(results, tmp_path / "a.html")
    report(results, tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_command_writes_the_page(results: Path, tmp_path: Path) -> None:
    given_ = json.dumps(report_definition(DEMO, LOCAL, [], False))
    out = tmp_path / "report.html"
    assert (
        main(["report", "--definition", given_, "--results", str(results), "--out", str(out)]) == 0
    )
    assert "<h1>demo</h1>" in out.read_text()


def test_a_definition_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(InputError, match="--definition: unknown key 'colour'"):
        parse_definition({"campaign": "demo", "colour": "red"})
    with pytest.raises(InputError, match=r"--definition: \[\] should be of type object"):
        parse_definition([])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("planned", value) for value in (3, ["a"], {"a": "3"}, {"a": -1}, {"a": True})),
        *(("figures", value) for value in ("figure2", [2], None)),
        ("basis", "text"),
        *((key, 3) for key in ("campaign", "profile", "campaign_file", "currency", "results_only")),
    ],
)
def test_a_definition_with_a_value_of_another_type_is_refused(key: str, value: Any) -> None:
    with pytest.raises(
        InputError, match=rf"--definition: {key}\b.* (should be of type|is too small; allowed:) "
    ):
        parse_definition({"campaign": "demo", key: value})


# --- summary --------------------------------------------------------------------------------------


def test_the_summary_says_what_ran_on_what_energy(page: Page) -> None:
    assert "Energy estimated from CPU utilisation and rated powers; scope: cpu." in page.text
    assert "The energy of 1 run of 17 is not known." in page.text
    assert "n counts processes." in page.text and "process hours" in page.text
    assert "on local (made local): 18 runs, on up to 4 processes and 1 node." in page.text
    assert "Carbon 363 g/kWh." in page.text


def test_runs_are_counted_as_done_missing_and_excluded(page: Page) -> None:
    assert "runs done 18 of 19 1 missing" in page.text
    assert re.search(r"runs excluded 1 [\d.]+ Wh, not in the sums", page.text)


def test_sums_say_which_runs_they_lack_and_leave_excluded_ones_out(
    results: Path, page: Page
) -> None:
    rows = [row for row in pq.read_table(results / "tables/runs.parquet").to_pylist()]
    total = sum(row["energy_kwh"] or 0 for row in rows if row["excluded"] is None)
    assert f"energy, estimated (cpu) {with_unit(total, 'kWh')} 1 run without" in page.text
    assert re.search(r"CO₂e [\d.]+ k?g 16 of 17 runs", page.text)
    assert re.search(r"CO₂e by the intensity at the time [\d.]+ k?g 16 of 17 runs", page.text)


def test_energies_of_unequal_scope_are_never_added_up(tmp_path: Path) -> None:
    runs = made_runs(
        DEMO, lambda run: run | {"energy_scope": "cpu+ram"} if run["gpus"] == 4 else run
    )
    page = report(write_results(tmp_path / "r", DEMO, runs), tmp_path / "report.html")
    for scope in ("cpu", "cpu+ram"):
        total = sum(run["energy_kwh"] for run in runs if run["energy_scope"] == scope)
        assert f"energy, estimated ({scope}) {with_unit(total, 'kWh')}" in page.text
    assert with_unit(sum(run["energy_kwh"] for run in runs), "kWh") not in page.text
    assert "Totals of unequal scope are not comparable." in page.text
    assert "over unequal scopes or origins" in page.text


def test_the_page_names_what_sums_leave_out_and_what_estimates_include(
    own: Path, tmp_path: Path
) -> None:
    page = report(own, tmp_path / "report.html")
    assert "No cost is stated: the cluster file has no price of energy for these runs." in page.text
    assert "scalewatt status adds the other energy used: unfinished and excluded runs" in page.text
    assert "An estimate is made from the load of whole devices" in page.text
    measured = made_runs(DEMO, lambda run: run | {"energy_origin": "measured", "cost": 0.1})
    priced = report(write_results(own, DEMO, measured), tmp_path / "priced.html")
    assert "No cost is stated" not in priced.text and "An estimate is made" not in priced.text


def test_a_cost_has_its_currency(own: Path, tmp_path: Path) -> None:
    costs = made_runs(DEMO, lambda run: run | {"cost": 1.0})
    page = report(write_results(own, DEMO, costs), tmp_path / "a.html", currency="EUR")
    assert "cost 19 EUR" in page.text


def scaling_of(rows: list[dict[str, Any]], word: str) -> list[str]:
    return scaling_sentences(pd.DataFrame(rows), word)


def comparisons_of(rows: list[dict[str, Any]]) -> list[str]:
    return comparison_sentences(pd.DataFrame(rows))


def scaled(**changes: Any) -> dict[str, Any]:
    row = {"series": "s", "gpus": 8, "smallest_gpus": 1, "dataset_samples": 100}
    for name, value in (("speedup", 6.0), ("efficiency", 0.75), ("energy_ratio", 1.5)):
        row |= {name: value, f"{name}_low": None, f"{name}_high": None}
    row |= {"energy_origin": "measured"}
    return row | changes


def test_estimated_energies_show_their_interval_in_the_summary_and_the_tables(
    own: Path, tmp_path: Path
) -> None:
    def estimated(run: dict[str, Any]) -> dict[str, Any]:
        ends = {
            f"energy_{end}_kwh": run["energy_kwh"] * f for end, f in (("low", 0.2), ("high", 5))
        }
        return run | {"energy_origin": "estimated"} | ends

    page = report(write_results(own, DEMO, made_runs(DEMO, estimated)), tmp_path / "a.html")
    assert "the true value lies between" in page.text and "what the estimate" not in page.text
    assert "estimated: at most" in page.text and "estimated: at least" in page.text
    measured = made_runs(DEMO, lambda run: run | {"energy_origin": "measured"})
    page = report(write_results(own, DEMO, measured), tmp_path / "b.html")
    assert "the true value lies" not in page.text and "estimated: at" not in page.text


def test_table_1_shows_the_interval_of_estimated_energies_where_it_has_one(
    own: Path, tmp_path: Path
) -> None:
    def estimated(run: dict[str, Any]) -> dict[str, Any]:
        ends = {
            f"energy_{end}_kwh": run["energy_kwh"] * f for end, f in (("low", 0.2), ("high", 5))
        }
        return run | {"energy_origin": "estimated"} | ends

    def heads(page: Path) -> str:
        part = page.read_text(encoding="utf-8").partition('id="table1"')[2]
        return part[: part.index("</thead>")]

    write_results(own, DEMO, made_runs(DEMO, estimated))
    report(own, tmp_path / "a.html")
    assert "estimated: at least" in heads(tmp_path / "a.html")


def test_ratios_of_estimates_show_their_interval_in_the_tables(own: Path, tmp_path: Path) -> None:
    def heads(page: Path, name: str) -> str:
        part = page.read_text(encoding="utf-8").partition(f'id="{name}"')[2]
        return part[: part.index("</thead>")]

    ends = {f"{kind}energy_{end}_kwh": None for kind in ("", "cpu_") for end in ("low", "high")}

    def estimated(run: dict[str, Any]) -> dict[str, Any]:
        factors = [(name, 0.2 if "low" in name else 5.0) for name in ends]
        return run | {name: run["energy_kwh"] * factor for name, factor in factors}

    write_results(own, DEMO, made_runs(DEMO, estimated))
    page = report(own, tmp_path / "a.html")
    assert "what is above idle is more so" in page.text
    measured = made_runs(DEMO, lambda run: run | {"energy_origin": "measured"})
    page = report(write_results(own, DEMO, measured), tmp_path / "b.html")
    assert "estimated ratio" not in page.text and "what is above idle" not in page.text


def test_scaling_is_said_of_the_widest_span_with_its_interval() -> None:
    first = scaled(gpus=1, speedup=1.0, energy_ratio=1.0)
    ends = {"speedup_low": 5.5, "speedup_high": 6.5, "energy_ratio_low": 1, "energy_ratio_high": 2}
    assert scaling_of([first, scaled(**ends)], "GPUs") == [
        "The widest span of a series, 1 to 8 GPUs: speed-up 6 [95 % interval 5.5 to 6.5] (s), 75 % "
        "of the ideal.",
        "From the smallest to the largest n of a series with a fixed dataset, energy changed by a "
        "factor of 1.5 [95 % interval 1 to 2] (s).",
    ]
    single = scaling_of([first, scaled()], "GPUs")
    assert single[-1] == "A ratio without a 95 % interval rests on a single run."


def test_all_series_of_the_widest_span_stand_in_the_summary_and_not_the_best_alone() -> None:
    ends = {"speedup_low": 5.5, "speedup_high": 6.5, "energy_ratio_low": 1, "energy_ratio_high": 2}
    rows = [
        scaled(series=series, **ends) | {"speedup": speedup, "efficiency": speedup / gpus}
        | {"gpus": gpus, "energy_ratio": ratio}
        for series, gpus, speedup, ratio in
        (("good", 8, 6.0, 1.2), ("bad", 8, 4.0, 1.5), ("short", 4, 3.9, 1.1))
    ]  # fmt: skip
    speedups, energies = scaling_of(rows, "GPUs")
    assert "speed-up 4 [95 % interval 5.5 to 6.5] (bad) to 6 [" in speedups
    assert "(good), 50 to 75 % of the ideal, over 2 series." in speedups
    assert "by a factor of 1.1 [95 % interval 1 to 2] (short) to 1.5 [95 % interval" in energies
    assert energies.endswith("(bad), over 3 series.")


def test_series_whose_dataset_grows_have_no_speed_up_in_the_summary() -> None:
    assert scaling_of([scaled(gpus=1), scaled(dataset_samples=800)], "GPUs") == []


def compared(**changes: Any) -> dict[str, Any]:
    row = {"device": "h100", "baseline_device": "a100", "quantity": "energy_kwh", "ratio": 0.5}
    row |= {"energy_scope": "gpu+cpu", "margin": 0.05, "verdict": "unresolved", "n_repeats": 1}
    row |= {"energy_origin": "measured", "spread": 0.04}
    return row | {"baseline_n_repeats": 1, "repeats_needed": 6} | changes


def test_devices_that_cannot_be_told_apart_are_not_called_equal() -> None:
    rows = [compared(), compared(ratio=0.6, verdict="different")]
    assert comparisons_of(rows) == [
        "The same training on h100 and on a100 (2 pairs): energy (measured, gpu+cpu) on h100 0.5 to "
        "0.6 times that on a100; different: 1, unresolved: 1 (from 1 run of each; were these "
        "ratios the true ones, 6 would suffice)."
    ]
    (same,) = comparisons_of([compared(verdict="equivalent", repeats_needed=None)])
    assert "equivalent within 5 %: 1." in same


def test_repeats_that_would_do_are_promised_of_no_pair_that_needs_too_many() -> None:
    rows = [compared(), compared(repeats_needed=None, n_repeats=3, baseline_n_repeats=2)]
    (said,) = comparisons_of(rows)
    assert "unresolved: 2 (from 1 to 2 runs of each;" in said
    assert "over 1000 would suffice)" in said and "6 would suffice" not in said
    (said,) = comparisons_of([compared(), compared(spread=None, repeats_needed=None)])
    assert "6 for 1 of them would suffice)" in said
    (said,) = comparisons_of([compared(spread=None, repeats_needed=None)])
    assert "without a spread the repeats needed are unknown" in said


def test_ratios_of_energies_of_unequal_scope_or_origin_stand_in_sentences_of_their_own() -> None:
    rows = [
        compared(),
        compared(energy_scope="gpu", ratio=0.7),
        compared(energy_origin="estimated"),
    ]
    said = comparisons_of(rows)
    assert ["(1 pair): energy (measured, gpu+cpu) on h100 0.5 times" in one for one in said] == [
        True, False, False,
    ]  # fmt: skip
    assert "energy (measured, gpu) on h100 0.7 times" in said[1]
    assert "energy (estimated, gpu+cpu) on h100 0.5 times" in said[2]


def test_hours_of_different_devices_are_never_added_up() -> None:
    runs = [run | {"device": "other"} if run["gpus"] == 4 else run for run in made_runs(DEMO)]
    found = {
        words: value
        for words, value, _ in facts(Definition("demo"), pd.DataFrame(runs), "GPU hours")
    }
    assert not {"GPU hours", "GPU time"} & set(found)
    for device in ("local", "other"):
        total = sum(run["gpu_hours"] for run in runs if run["device"] == device)
        words = "GPU hours" if total >= 1 else "GPU time"
        assert found[f"{words}, {device}"] == with_unit(total, "h")


def test_a_campaign_whose_runs_are_all_excluded_says_so(own: Path, tmp_path: Path) -> None:
    runs = made_runs(DEMO, lambda run: run | {"excluded": "a test"})
    page = report(write_results(own, DEMO, runs), tmp_path / "report.html")
    assert "No run counts, as all are excluded." in page.text


# --- figures and tables ---------------------------------------------------------------------------


def test_figures_of_the_campaign_are_shown_with_captions_as_their_alternative_text(
    page: Page,
) -> None:
    assert [str(image["alt"]).partition(":")[0] for image in page.images] == [
        f"Figure {n}" for n in (1, 2, 3, 4, 6, 7)
    ]
    assert all(str(image["src"]).startswith("data:image/svg+xml;base64,") for image in page.images)
    assert "Figure 2: ResNet50, full dataset. The notes of figure2 * 2." in str(
        page.images[1]["alt"]
    )
    assert "Figure 5 has not been drawn." in page.text


def test_what_a_campaign_does_not_have_is_not_offered(results: Path, tmp_path: Path) -> None:
    page = report(results, tmp_path / "report.html", figures=["figure2"])
    assert "Figure 3" not in page.text and "Table 1" not in page.text
    assert "figure2" in page.ids and "Pareto" not in page.text
    page = report(results, tmp_path / "report.html", figures=["figure2", "pareto"])
    assert "Pareto has not been drawn." in page.text


def test_a_large_svg_gives_way_to_a_smaller_png(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "pareto.svg").write_text("<svg/>")
    (tmp_path / "figures" / "pareto.png").write_bytes(b"png")
    assert str(Results(tmp_path).image("pareto")).startswith("data:image/svg+xml")
    (tmp_path / "figures" / "pareto.svg").write_text(" " * (MOST_SVG_BYTES + 1))
    assert str(Results(tmp_path).image("pareto")).startswith("data:image/png")


def test_downloads_hold_whole_tables_in_their_own_units(results: Path, page: Page) -> None:
    written = pq.read_table(results / "tables/runs.parquet")
    rows = page.rows("demo-runs.csv")
    assert list(rows[0]) == written.column_names
    assert [float(row["energy_kwh"] or -1) for row in rows] == [
        value or -1 for value in written["energy_kwh"].to_pylist()
    ]
    tables = {"runs", "configurations", "scaling", "table1", "figure2", "flags", "hardware"}
    assert {f"demo-{name}.csv" for name in tables} <= set(page.downloads)


def test_small_campaigns_read_in_watt_hours_and_minutes(page: Page) -> None:
    assert "energy (Wh)" in page.text and "run time (min)" in page.text
    assert "energy (kWh)" not in page.text


def test_heads_have_a_scope_and_tables_a_caption(results: Path, tmp_path: Path) -> None:
    page = report(results, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count("<th ") == text.count('<th scope="col">')
    assert page.tags.count("caption") == page.tags.count("table")


def test_networks_are_compared_with_persistence(page: Page) -> None:
    assert "better (38 % of persistence)" in page.text


def test_classifiers_are_compared_with_guessing_where_their_classes_are_known(
    own: Path, tmp_path: Path
) -> None:
    errors = {"resnet50-local-n001-lbs0016-s0000192": 86.0, LOST: 88.9}
    runs = made_runs(
        DEMO,
        lambda run: run | {"metric_last": errors.get(run["configuration"], run["metric_last"])},
    )
    folder = write_results(own, DEMO, runs)
    for name in errors:
        spec = make_spec(configuration=name, dataset={"classes": 10}, validation_samples=360)
        (folder / "runs" / name / "1" / "spec.json").write_text(spec.text)
    page = report(folder, tmp_path / "report.html")
    rows = {row["configuration"]: row for row in page.rows("demo-metrics.csv")}
    # Guessing among ten classes: 90 % over 360 images, with a standard deviation of 1.6 %.
    assert rows[LOST]["verdict"] == "no better (99 % of guessing)"
    assert rows["resnet50-local-n001-lbs0016-s0000192"]["verdict"] == "better (96 % of guessing)"
    assert rows["resnet50-local-n002-lbs0008-full"]["verdict"] == ""


def test_commands_regenerate_each_part(results: Path, tmp_path: Path) -> None:
    mine = "campaigns/mine.yaml"
    page = report(results, tmp_path / "report.html", campaign_file=mine, profile="profiles/horeka")
    for target in ("figure2", "table1", "tables", "run_pages", "report"):
        command = f"snakemake --profile profiles/horeka {target} --config campaign={mine}"
        assert command in page.text
    assert "all --report snakemake-report.html" in page.text
    assert "figures/runs/<configuration>/<repeat>.svg" in page.text


def test_every_run_says_where_its_page_is(page: Page) -> None:
    assert f"figures/runs/{LOST}/1.svg" in page.text
    assert f"figures/runs/{OUT}/2.svg" in page.text


# --- claims ---------------------------------------------------------------------------------------


def test_claims_stand_by_verdict_with_their_words(own: Path, tmp_path: Path) -> None:
    assert "claims" not in report(own, tmp_path / "a.html").ids
    write_claims(own, [("A01", "supported"), ("A02", "not_testable"), ("A03", "not_testable")])
    page = report(own, tmp_path / "b.html")
    assert "Supported : 1 claim. The whole 95 % interval is within" in page.text
    assert "Not testable : 2 claims. Something is missing" in page.text
    assert "Energy is approximately linear in consumed GPU hours within one series" in page.text
    assert "Claims, not testable as CSV" in page.text
    assert [row["claim"] for row in page.rows("demo-claims-not_testable.csv")] == ["A02", "A03"]


def test_claims_stay_out_of_a_campaign_without_the_papers_models(own: Path, tmp_path: Path) -> None:
    write_claims(own, [("A01", "supported")])
    assert "claims" in report(own, tmp_path / "a.html").ids
    page = report(own, tmp_path / "b.html", claims=False)
    assert "claims" not in page.ids and "#claims" not in page.urls


def test_claims_say_on_what_they_were_checked_and_which_are_tests(
    own: Path, tmp_path: Path
) -> None:
    write_claims(own, [("A01", "supported"), ("B01", "set_up_as_stated"), ("X01", INCONSISTENCY)])
    page = report(own, tmp_path / "report.html")
    assert "Checked on campaign demo. 3 claims; by results 1; by specs 1." in page.text
    (test,) = page.rows("demo-claims-supported.csv")
    (setting,) = page.rows("demo-claims-set_up_as_stated.csv")
    assert "p" in test and "p" not in setting


def test_tests_of_claims_are_open_and_the_rest_is_folded_away(own: Path, tmp_path: Path) -> None:
    write_claims(own, [("A01", "supported"), ("A02", "undecided"), ("B01", "set_up_as_stated")])
    report(own, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for verdict, way in (("supported", " open"), ("undecided", " open"), ("set_up_as_stated", "")):
        assert f'<details id="claims-{verdict}"{way}>' in page


def test_slips_without_a_row_among_the_claims_are_on_the_page(own: Path, tmp_path: Path) -> None:
    write_claims(
        own,
        [
            ("X01", INCONSISTENCY),
            *((id_, INCONSISTENCY) for id_ in sorted(unlisted_inconsistencies())),
        ],
    )
    page = report(own, tmp_path / "report.html")
    assert (
        f"Inconsistencies without a row among the claims : {len(unlisted_inconsistencies())} inconsistencies"
        in page.text
    )
    assert [row["claim"] for row in page.rows(f"demo-claims-{INCONSISTENCY}.csv")] == ["X01"]
    assert [row["in words"] for row in page.rows("demo-claims-further.csv")] == [
        inconsistencies()[id_].statement for id_ in sorted(unlisted_inconsistencies())
    ]


def test_what_was_found_is_sorted_by_its_number() -> None:
    made = claims_of(
        to_frame(claims_table([("A01", "supported", value) for value in ("0.5", "0.45", "a")]))
    )
    assert made[0].grid is not None
    assert [row[2] for row in made[0].grid.rows] == [
        Cell("0.5", 0.5), Cell("0.45", 0.45), Cell("a"),
    ]  # fmt: skip


# --- data quality and provenance ------------------------------------------------------------------


def test_missing_excluded_and_unknown_runs_are_named_with_their_reasons(page: Page) -> None:
    (missing,) = page.rows("demo-missing-runs.csv")
    assert (missing["configuration"], missing["repeats"], missing["missing"]) == (
        OUT,
        "3",
        "1 of 3",
    )
    (excluded,) = page.rows("demo-excluded-runs.csv")
    assert (excluded["configuration"], excluded["why"]) == (OUT, "the fan of the node failed")
    (unknown,) = page.rows("demo-runs-without-energy.csv")
    assert unknown["configuration"] == LOST
    assert (
        "other runs measured on the node at the same time (vm: other/1 for 20 s)" in unknown["why"]
    )


def test_flags_are_counted_and_coverage_is_never_rounded_up(own: Path, tmp_path: Path) -> None:
    gap = json.dumps([{"code": "gap", "device": "CPU", "detail": "31 s"}] * 2)
    odd = {"flags": gap, "coverage": 0.9999999}
    runs = made_runs(DEMO, lambda run: run | odd if run["repeat"] == 2 else run)
    page = report(write_results(own, DEMO, runs), tmp_path / "report.html")
    (row,) = page.rows("demo-flags.csv")
    assert (row["flag"], row["runs"], row["times"]) == ("gap", "2", "4")
    assert row["warning"] == "a gap between samples" and row["for example"].endswith("CPU 31 s")
    assert {row["coverage"] for row in page.rows("demo-coverage.csv")} == {"99.999 %"}
    assert "rest on a single run" in page.text


def test_what_no_node_has_a_sensor_of_is_no_warning(own: Path, tmp_path: Path) -> None:
    absent = json.dumps([{"code": "absent", "device": None, "detail": "gpu"}])
    runs = made_runs(DEMO, lambda run: run | {"flags": absent})
    page = report(write_results(own, DEMO, runs), tmp_path / "report.html")
    assert (
        "No run has a quality flag except those of device kinds without a sensor or an estimate "
        "(absent: gpu, ram; 19 runs)." in page.text
    )


def test_measurements_that_were_replaced_are_named_with_their_reasons(
    own: Path, tmp_path: Path
) -> None:
    folder = write_results(own, DEMO, made_runs(DEMO))
    plain = report(folder, tmp_path / "plain.html")
    assert "No measurement was replaced by another one." in plain.text
    row = {"configuration": LOST, "repeat": 1, "reason": "sensor broke"}
    row |= {"date": "2026-01-31T09:30:00Z", "measurement": "0123456789ab", "action": "remeasure"}
    page = report(folder, tmp_path / "report.html", remeasured=[row])
    (told,) = page.rows("demo-measured-again.csv")
    assert (told["configuration"], told["why"]) == (LOST, "sensor broke")
    assert told["energy before"] == "", "it lies on another machine"
    assert told["energy now"]
    assert "1 measured again" in page.text
    with pytest.raises(InputError, match=r"remeasured\[0\]: missing key 'repeat'"):
        parse_definition({"campaign": "demo", "remeasured": [{"configuration": LOST}]})


def test_runs_without_energy_are_no_kind_of_energy(page: Page) -> None:
    assert "All known energies have one origin and scope: estimated, cpu." in page.text
    assert not any("scopes" in name for name in page.downloads)


def test_texts_with_units_are_sorted_by_what_they_stand_for() -> None:
    runs = [
        run | {"energy_kwh": None, "recorded_energy_kwh": kwh, "coverage": share}
        for run, kwh, share in zip(made_runs(DEMO), (1.2, 0.042), (0.999, 0.9985), strict=False)
    ]
    parts = {part.heading: part.grid for part in quality(definition(), pd.DataFrame(runs))}
    lost, covered = parts["Runs without energy"], parts["Coverage"]
    assert lost and [row[2] for row in lost.rows] == [Cell("1.2 kWh", 1.2), Cell("42 Wh", 0.042)]
    assert covered and [row[2] for row in covered.rows] == [
        Cell("99.85 %", 0.9985), Cell("99.9 %", 0.999),
    ]  # fmt: skip


def idle_power(**changes: Any) -> dict[str, Any]:
    return dict.fromkeys(IDLE.names) | {
        "campaign": "demo", "device": "local", "device_kind": "cpu", "devices": 1, "repeats": 2,
        "mean_w": 40.0, "mean_per_device_w": 40.0, "energy_origin": "estimated", "flags": "[]",
    } | changes  # fmt: skip


def test_idle_powers_are_listed_with_their_flags(own: Path, tmp_path: Path) -> None:
    busy = {"code": "not_idle", "device": "CPU_BUSY", "detail": "repeat 1: n0: cpu 86 % busy"}
    assert "No idle power was measured" in report(own, tmp_path / "a.html").text
    rows = [idle_power(), idle_power(device_kind="ram", mean_w=None, mean_per_device_w=None)]
    rows[1]["flags"] = json.dumps([busy])
    pq.write_table(pa.Table.from_pylist(rows, schema=IDLE), own / "tables" / "idle.parquet")
    page = report(own, tmp_path / "b.html")
    assert "1 of 2 idle powers can serve as a baseline." in page.text
    cpu, ram = page.rows("demo-idle.csv")
    assert (cpu["W per device"], cpu["flags"]) == ("40", "")
    assert ram["W per device"] == "" and "busy during an idle probe" in ram["flags"]
    assert "cpu 86 % busy" in ram["flags"]
    assert "idle_probe" in page.text


def test_a_busy_probe_is_no_baseline_and_its_device_is_named_with_the_reason() -> None:
    flags = json.dumps([{"code": "not_idle", "device": "CPU_BUSY", "detail": "cpu 86 % busy"}])
    why = {"local": "its nodes were not idle: cpu 86 % busy"}
    parts = quality(
        definition(), pd.DataFrame(made_runs(DEMO)), pd.DataFrame([idle_power(flags=flags)]), why
    )
    (part,) = (one for one in parts if one.heading == "Idle baseline")
    assert part.says == (
        "0 of 1 idle power can serve as a baseline. "
        "No baseline of local: its nodes were not idle: cpu 86 % busy."
    )


def test_runs_that_took_less_than_idle_devices_are_named() -> None:
    runs = [run | {"net_energy_kwh": 0.1} for run in made_runs(DEMO)]
    runs[3]["net_energy_kwh"] = -0.1
    says = {
        part.heading: part.says
        for part in quality(definition(), pd.DataFrame(runs), pd.DataFrame([idle_power()]))
    }
    name = f"{runs[3]['configuration']}/{runs[3]['repeat']}"
    assert says["Idle baseline"].endswith(
        f"1 run used less than idle devices would have, so their baseline is too high: {name}."
    )


def test_what_nothing_is_wrong_with_is_said_so(own: Path, tmp_path: Path) -> None:
    page = report(own, tmp_path / "report.html")
    for sentence in (
        "No planned run is missing.",
        "No run is excluded.",
        "The energy of every run is known.",
        "Power is known for all device seconds of 19 of 19 runs.",
        "No run has a quality flag.",
        "All known energies have one origin and scope: estimated, cpu.",
    ):
        assert sentence in page.text


def test_every_flag_has_words() -> None:
    documented = (ROOT / "docs" / "tables" / "flags.md").read_text()
    assert set(FLAG_WORDS) == set(re.findall(r"^\| `(\w+)` \|", documented, re.MULTILINE))
    assert set(NULL_ENERGY) <= set(FLAG_WORDS)


def test_flags_that_are_no_list_of_flags_are_named(own: Path, tmp_path: Path) -> None:
    runs = made_runs(DEMO, lambda run: run | {"flags": '"gap"'})
    with pytest.raises(
        InputError, match=r"runs\.parquet: .*/1: column flags is '\"gap\"'; expected"
    ):
        report(write_results(own, DEMO, runs), tmp_path / "report.html")


def test_provenance_counts_the_versions_of_all_runs(own: Path, tmp_path: Path) -> None:
    first = made_runs(DEMO)[0]
    write_provenance(own, first, packages={"torch": "2.8.0"}, packages_of="the recorder")
    page = report(own, tmp_path / "report.html")
    found = {
        (r["of"], r["what"], r["version or value"]): r["runs"]
        for r in page.rows("demo-software.csv")
    }
    assert found["the run", "torch", "2.7.0"] == "18"
    assert found["the recorder", "torch", "2.8.0"] == "1"
    assert found["the run", "cudnn_benchmark", "off"] == "18"
    assert (
        "19 runs without a record of the commit of the checkout that published them." in page.text
    )
    (hardware,) = page.rows("demo-hardware.csv")
    assert (hardware["hardware"], hardware["nodes"], hardware["runs"]) == ("made local", "1", "19")
    assert hardware["first start"] == "2023-11-14 22:13 UTC"
    assert first["spec_sha256"] in page.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "should be of type object"),
        ('{"mpi": 3}', "mpi: 3 should be of type"),
        ('{"packages": ["torch"]}', "packages"),
        ('{"hostnames": "n1"}', "hostnames"),
        ('{"lock": {"differences": [{}]}}', "lock.differences[0]"),
        ('{"nodes": [{"hosts": ["n1"], "gpu_models": ["A100"]}]}', "nodes[0].gpu_models"),
        ('{"environment_variables": {"OMP_NUM_THREADS": 8}}', "OMP_NUM_THREADS"),
        ('{"segments": [{"segment": 0, "started_s": 1e300}]}', "started_s: 1e+300 is too large"),
    ],
)
def test_a_provenance_that_is_none_is_named(
    content: str, words: str, own: Path, tmp_path: Path
) -> None:
    run = made_runs(DEMO)[0]
    write_provenance(own, run)
    path = own / "runs" / run["configuration"] / str(run["repeat"]) / "provenance.json"
    path.unlink()
    path.write_text(content)
    for read in (
        lambda: report(own, tmp_path / "r.html"),
        lambda: campaign_evidence(DEMO, own / "tables"),
    ):
        with pytest.raises(InputError) as error:
            read()
        assert str(error.value).startswith(f"{path}: ") and words in str(error.value)


def test_runs_are_told_apart_by_the_commit_that_published_them(own: Path, tmp_path: Path) -> None:
    for run, dirty in zip(made_runs(DEMO), ("", "", "-dirty"), strict=False):
        write_provenance(own, run, commit=f"0123456789ab{dirty}")
    page = report(own, tmp_path / "report.html")
    found = {r["version or value"]: r["runs"] for r in page.rows("demo-software.csv")
             if r["what"] == "commit of the checkout that published it"}  # fmt: skip
    assert found == {"0123456789ab": "2", "0123456789ab-dirty": "1"}
    assert (
        "16 runs without a record of the commit of the checkout that published them." in page.text
    )
    assert "This page was made by scalewatt " in page.text


def noted(*found: tuple[str, str | None, str | None]) -> dict[str, Any]:
    names = ("package", "locked", "installed")
    return {"sha256": "ab", "differences": [dict(zip(names, one, strict=True)) for one in found]}


def test_packages_that_are_not_as_locked_are_listed_with_their_runs(
    own: Path, tmp_path: Path
) -> None:
    einops, torch = ("einops", None, "0.8"), ("torch", "2.7.0", "2.7.1")
    locks = [noted(einops, torch), noted(torch), noted()]
    for run, lock in zip(made_runs(DEMO), locks, strict=False):
        write_provenance(own, run, lock=lock)
    page = report(own, tmp_path / "report.html")
    found = [tuple(row.values()) for row in page.rows("demo-departures.csv")]
    assert found == [
        ("the run", "einops", "none", "0.8", "1"),
        ("the run", "torch", "2.7.0", "2.7.1", "2"),
    ]
    assert "2 runs with packages that differ from the lock, listed above." in page.text
    assert "16 runs without a record of the lock." in page.text


def test_a_report_of_runs_as_locked_and_clean_says_so(own: Path, tmp_path: Path) -> None:
    for run in made_runs(DEMO):
        write_provenance(own, run, lock=noted(), commit="0123", commit_clean=True)
    text = report(own, tmp_path / "report.html").text
    assert "All runs: packages as locked." in text and "differ from the lock" not in text
    assert "19 runs published from a clean checkout." in text
    segments = [{"segment": 0, "commit": "4567"}]
    changed = {"commit": "0123-dirty", "commit_clean": False, "segments": segments}
    write_provenance(own, made_runs(DEMO)[0], **changed)
    text = report(own, tmp_path / "report.html").text
    assert "1 run published from a checkout with changed files." in text
    assert "1 run trained, in part, at another commit than published." in text


def test_nodes_and_variables_that_differ_are_told_with_their_runs(
    own: Path, tmp_path: Path
) -> None:
    node = {"hosts": ["n0"], "cpu_models": ["Some CPU"], "gpu_models": {"A100": 4}}
    first, second, third = made_runs(DEMO)[:3]
    both = {"OMP_NUM_THREADS": "8", "NCCL_ALGO": "Ring"}
    one = node | {"gpu_driver": "535", "kernel": None}
    write_provenance(own, first, nodes=[one], environment_variables=both)
    other = node | {"hosts": ["n1"], "gpu_driver": "550"}
    write_provenance(own, second, nodes=[one, other], environment_variables=both)
    write_provenance(own, third, nodes=None, environment_variables={"OMP_NUM_THREADS": "8"})
    page = report(own, tmp_path / "report.html")
    found = [(r["GPUs"], r["GPU driver"], r["their names"], r["runs"])
             for r in page.rows("demo-machines.csv")]  # fmt: skip
    assert found == [("4 × A100", "535", "n0", "2"), ("4 × A100", "550", "n1", "1")]
    assert [tuple(row.values()) for row in page.rows("demo-variables.csv")] == [
        ("NCCL_ALGO", "Ring", "2"),
        ("NCCL_ALGO", "not set", "1"),
    ]


def test_of_a_variable_that_each_run_has_another_value_of_the_rest_is_counted() -> None:
    runs = {("a", n): {"environment_variables": {"SLURM_CPU_BIND": str(n % 9)}} for n in range(10)}
    shown = departures.variables(runs)
    assert shown is not None
    assert [cell.text for cell in shown.rows[0]][1:] == ["0", "2"]
    assert len(shown.rows) == 6
    assert ["4 other values", "4"] in [[cell.text for cell in row][1:] for row in shown.rows]


def test_runs_that_say_nothing_of_their_packages_are_counted(own: Path, tmp_path: Path) -> None:
    write_provenance(own, made_runs(DEMO)[0], packages={}, segments=[])
    assert "1 run without a record of its packages." in report(own, tmp_path / "a.html").text


# --- nothing there, too much there, and bad tables --------------------------------------------------


def test_an_empty_campaign_gives_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    page = report(tmp_path / "nothing", tmp_path / "report.html")
    assert "No run has finished; 19 are planned." in page.text
    assert "The table (tables/table1.parquet) has not been made." in page.text
    assert "19 planned runs without results" in page.text
    assert "The energy of every run is known." not in page.text
    page = report(write_results(tmp_path / "r", DEMO, []), tmp_path / "report.html", planned={})
    assert "No run has finished." in page.text and "This table has no rows." in page.text


def test_the_papers_campaign_fits_on_a_page_of_less_than_15_mb(tmp_path: Path) -> None:
    campaign = paper()
    runs = made_runs(campaign)
    results = write_results(tmp_path / "paper", campaign, runs)
    cluster = load_cluster(ROOT / "profiles/horeka/cluster.yaml")
    out = tmp_path / "report.html"
    write_report(results, out, parse_definition(report_definition(campaign, cluster, [], True)))
    page = Page(out.read_text())
    assert out.stat().st_size < 15_000_000
    assert len(page.rows("paper-runs.csv")) == 175
    assert "runs done 175 configurations 53" in page.text
    assert "energy, measured (gpu+cpu)" in page.text
    assert "energy, measured (gpu+cpu+ram)" in page.text
    assert "The same training on h100 and on a100" in page.text
    assert "22 of 53 configurations rest on a single run" in page.text


def spoiled(name: str, spoil: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def apply(results: Path) -> None:
        path = results / "tables" / f"{name}.parquet"
        pq.write_table(spoil(pq.read_table(path)), path)

    return apply


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda r: (r / "tables/runs.parquet").write_bytes(b"no"), r"runs\.parquet: .*Parquet"),
        (spoiled("runs", lambda t: t.drop_columns(["energy_kwh"])), r"runs\.parquet.* energy_kwh"),
        (
            spoiled("runs", lambda t: pa.concat_tables([t, t[:1]])),
            r"runs\.parquet: row 20 .* row 1",
        ),
        (spoiled("figure2", lambda t: t.drop_columns(["x"])), r"figure2\.parquet.* x"),
    ],
)
def test_a_bad_table_is_named_with_the_row(
    own: Path, tmp_path: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(own)
    with pytest.raises(InputError, match=complaint):
        report(own, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


# --- captions, numbers and units --------------------------------------------------------------------


PART = dict.fromkeys(BREAKDOWN.names) | {
    "energy_origin": "measured", "energy_scope": "gpu+cpu", "n_repeats": 1
}  # fmt: skip


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


def test_units_suit_the_number() -> None:
    said = [with_unit(value, "kWh") for value in (0.0, 2e-5, 0.0123, 0.5, 2e5)]
    assert said == ["0 kWh", "20 mWh", "12.3 Wh", "0.5 kWh", "200 MWh"]
    assert [with_unit(value, "h") for value in (0.001, 0.5, 2.0)] == ["3.6 s", "30 min", "2 h"]
    assert with_unit(3.0, "EUR") == "3 EUR"


@given(st.lists(st.floats(0, 1e9), max_size=5), st.sampled_from(["kWh", "h", "kW", "kg"]))
def test_a_unit_changes_how_a_number_reads_and_not_what_it_is(
    values: list[float], unit: str
) -> None:
    suited = unit_for(values, unit)
    base = {"MWh": 1e3, "Wh": 1e-3, "mWh": 1e-6, "min": 1 / 60, "s": 1 / 3600, "W": 1e-3}
    base |= {"t": 1e3, "g": 1e-3}
    for value in values:
        assert value * suited.factor * base.get(suited.name, 1.0) == pytest.approx(value)


def test_a_column_has_one_unit_and_sorts_by_its_numbers() -> None:
    rows = [{"e": 0.0005}, {"e": 0.05}, {"e": None}]
    made = grid("t", "T", pd.DataFrame(rows), [Column("e", "energy", "kWh")])
    assert made.headings == ["energy (Wh)"]
    assert [row[0] for row in made.rows] == [Cell("0.5", 0.0005), Cell("50", 0.05), Cell("–")]


def test_the_csv_of_a_grid_has_an_empty_cell_for_a_dash() -> None:
    for made in (
        texts("t", "T", ["a", "b"], [("x", "–"), ("y", Cell("1 h", 1.0))]),
        grid("t", "T", pd.DataFrame([{"a": "x", "b": "–"}, {"a": "y", "b": "1 h"}]),
             [Column("a", "a"), Column("", "b", text=lambda row: str(row["b"]))]),
    ):  # fmt: skip
        content = base64.b64decode(made.download.partition("base64,")[2]).decode()
        assert list(csv.reader(io.StringIO(content))) == [["a", "b"], ["x", ""], ["y", "1 h"]]
        assert [row[1].text for row in made.rows] == ["–", "1 h"]


def test_an_optional_column_without_values_is_left_out() -> None:
    columns = [Column("a", "a"), Column("b", "b", optional=True)]
    assert grid("t", "T", pd.DataFrame([{"a": 1, "b": None}]), columns).headings == ["a"]
    assert grid("t", "T", pd.DataFrame([{"a": 1, "b": 2}]), columns).headings == ["a", "b"]


def test_hours_that_are_given_in_minutes_are_a_time() -> None:
    column = Column("gpu_hours", "GPU hours", "h")
    headings = [
        grid("a", "A", pd.DataFrame({"gpu_hours": [h]}), [column]).headings for h in (2.0, 0.5)
    ]
    assert headings == [["GPU hours (h)"], ["GPU time (min)"]]


@pytest.mark.parametrize(("pue", "is_there"), [(1.0, False), (1.1, True)])
def test_the_facility_has_a_tile_only_where_its_pue_is_not_1(
    own: Path, pue: float, is_there: bool
) -> None:
    runs = pd.DataFrame(
        made_runs(DEMO, lambda run: run | {"facility_energy_kwh": pue * run["energy_kwh"]})
    )
    told = [label for label, _, _ in facts(Definition("demo"), runs, "process hours")]
    assert ("energy of the facility, with PUE" in told) == is_there
    assert "energy, estimated (cpu)" in told


def test_a_series_with_one_n_is_in_no_table_of_scaling(own: Path, tmp_path: Path) -> None:
    path = own / "tables" / "scaling.parquet"
    table = pq.read_table(path)
    name = table.column("series")[0].as_py()
    rows = [row for row in table.to_pylist() if row["series"] != name]
    lone = next(row for row in table.to_pylist() if row["series"] == name)
    pq.write_table(pa.Table.from_pylist([*rows, lone], schema=table.schema), path)
    report(own, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    section = text.partition('<section id="scaling">')[2].partition("</section>")[0]
    assert f"<td>{name}</td>" not in section and f"<td>{rows[0]['series']}</td>" in section
    pq.write_table(pa.Table.from_pylist([lone], schema=table.schema), path)
    assert "No series has a second n" in report(own, tmp_path / "lone.html").text


def test_planned_runs_without_a_row_are_missing() -> None:
    planned = Definition("demo", planned={"a": 2, "b": 1})
    assert missing_runs(planned, pd.DataFrame([{"configuration": "a", "repeat": 1}])) == [
        ("a", 2),
        ("b", 1),
    ]
