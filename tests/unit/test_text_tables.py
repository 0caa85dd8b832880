"""Table 1 as Markdown and LaTeX, each saying on its face where the energies come from."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_files import NAME, WHOLE, make_run, make_spec

from scalewatt.results.build import write_figure_table
from scalewatt.results.figures.figure_schema import TABLE1, TABLE1_QUANTITIES
from scalewatt.results.tables.frames import to_frame, with_metadata
from scalewatt.results.text.text_tables import format_table, table_text

UNKNOWN = {f"{name}{end}": None for name in TABLE1_QUANTITIES for end in ("_sd", "_low", "_high")}


def row(**changes: Any) -> dict[str, Any]:
    return {
        "device": "a100",
        "gpus": 16,
        "local_batch_size": 1,
        "global_batch_size": 16,
        **UNKNOWN,
        "energy_kwh": 144.87,
        "energy_per_node_kwh": 36.2175,
        "runtime_h": 43.28,
        "gpu_hours": 692.55,
        "metric_last": 91.25,
        "configuration": "fourcastnet.pretrain-a100-n016-lbs0001-full",
        "n_repeats": 1,
        "energy_origin": "measured",
        "energy_scope": "gpu+cpu+ram",
    } | changes


def made(*rows: dict[str, Any], **printed: Any) -> pa.Table:
    return with_metadata(pa.Table.from_pylist(list(rows), schema=TABLE1), printed)


def markdown(table: pa.Table) -> str:
    return format_table(to_frame(table), "table1")


def latex(table: pa.Table) -> str:
    return format_table(to_frame(table), "table1", ".tex")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def typeset(text: str) -> str:
    """LaTeX without its comments."""
    return re.sub(r"(?<!\\)%.*", "", text)


def latex_rows(text: str) -> list[list[str]]:
    result = re.findall(r"^(.*)\\\\$", typeset(text), re.M)
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", line)] for line in result]


BOTH = pytest.mark.parametrize("form", [markdown, latex])


def test_latex_is_one_tabular_whose_lines_have_its_columns() -> None:
    text = latex(made(row(), row(gpus=32, device="a_b & 5 %")))
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None and columns[1] == "lrrrrrrrr"
    rows = latex_rows(text)
    assert [len(cells) for cells in rows] == [9, 9, 9]
    assert rows[1][:5] == ["a100", "16", "1", "16", "144.87"]
    assert rows[2][0] == r"a\_b \& 5 \%" and text.isascii()


@pytest.mark.parametrize(
    ("mean", "high", "shown"),
    [
        (5421.3, 5541.3, "5421 ± 120"),
        (120.7, 126.0, "120.7 ± 5.3"),
        (0.001234, 0.0012352, "0.0012340 ± 0.0000012"),
        (10.0, 10.0, "10 ± 0"),
        (692.55, None, "692.55"),
        (1234567.0, None, "1234567"),
        (0.0, None, "0"),
    ],
)
def test_a_number_has_the_digits_that_mean_something(
    mean: float, high: float | None, shown: str
) -> None:
    line = markdown(made(row(runtime_h=mean, runtime_h_high=high, n_repeats=2))).splitlines()[2]
    assert cells(line)[6] == shown


@BOTH
def test_an_unknown_energy_is_a_dash_and_not_zero(form: Any) -> None:
    text = form(made(row(energy_kwh=None, energy_per_node_kwh=None)))
    line = next(line for line in text.splitlines() if "a100" in line)
    result = [cell.strip() for cell in re.split(r"[|&]", line.strip("| "))]
    assert result[4] == result[5] == {markdown: "–", latex: "--"}[form]


@BOTH
def test_what_is_missing_or_excluded_is_named_with_the_reason(form: Any) -> None:
    out = [{"configuration": "a", "repeat": r, "reason": "the node was shared."} for r in (1, 3)]
    other = {"configuration": "b", "repeat": 2, "reason": "50 % of samples lost"}
    text = form(made(row(), missing=["c-n004-x", "c-n008-x"], excluded=[*out, other]))
    percent = {markdown: "%", latex: r"\%"}[form]
    assert "No finished run: c-n004-x, c-n008-x." in text
    assert f"Excluded: a/1, a/3 (the node was shared); b/2 (50 {percent} of samples lost)." in text


def test_table1_is_written_in_four_forms_with_the_chosen_rows_in_order(tmp_path: Path) -> None:
    for name, gpus in (("b", 8), ("a", 4)):
        make_run(tmp_path, WHOLE, spec=make_spec(configuration=name, gpus=gpus, device="a100"))
    out = tmp_path / "tables" / "table1.parquet"
    definition = {
        "figure": "table1",
        "campaign": "made",
        "runs": [["a", 1], ["b", 1]],
        "missing": [NAME],
        "points": [{"label": n, "configuration": n} for n in ("b", NAME, "a")],
    }
    write_figure_table(definition, tmp_path, out)
    result = pq.read_table(out)
    assert result.schema.equals(TABLE1)
    assert result["configuration"].to_pylist() == ["b", "a"]
    assert result["energy_kwh"].to_pylist() == pytest.approx([0.45, 0.45])
    assert result["metric_last"].to_pylist() == [25.0, 25.0]
    assert result["gpu_hours"].to_pylist() == pytest.approx([8.0, 4.0])
    text = table_text(out, ".md")
    assert "| a100 | 8 |" in text and NAME in text
    assert latex_rows(table_text(out, ".tex"))[1][:2] == ["a100", "8"]
    with open(out.with_suffix(".csv"), newline="") as file:
        assert [r["energy_origin"] for r in csv.DictReader(file)] == ["measured"] * 2


def test_estimated_energies_have_their_interval_in_a_column() -> None:
    ends = {"energy_low_kwh": 26.83, "energy_high_kwh": 782.3}
    estimated = row(energy_origin="estimated", **ends)
    printed = markdown(made(estimated, row())).splitlines()
    assert cells(printed[0])[-1] == "Estimated: truly within (kWh)"
    assert [cells(line)[-1] for line in printed[2:4]] == ["26.8 to 782", ""]
    unknown = row(energy_origin="mixed", energy_low_kwh=None, energy_high_kwh=None)
    assert cells(markdown(made(unknown)).splitlines()[2])[-1] == "–"
    assert "truly within" not in markdown(made(row(**ends)))
