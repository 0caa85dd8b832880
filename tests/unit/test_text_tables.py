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
from scalewatt.results.figure_schema import TABLE1
from scalewatt.results.text_tables import latex, markdown, origin_sentence


def row(**changes: Any) -> dict[str, Any]:
    return {
        "device": "a100",
        "gpus": 16,
        "local_batch_size": 1,
        "global_batch_size": 16,
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


def made(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TABLE1)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def typeset(text: str) -> str:
    """LaTeX without its comments."""
    return re.sub(r"(?<!\\)%.*", "", text)


def latex_rows(text: str) -> list[list[str]]:
    found = re.findall(r"^(.*)\\\\$", typeset(text), re.M)
    return [[cell.strip() for cell in line.split("&")] for line in found if "&" in line]


HEADS = ["Device", "GPUs", "LBS", "GBS", "Energy (kWh)", "Energy per node (kWh)", "Run time (h)"]


def test_markdown_has_a_head_a_rule_and_a_line_for_each_row() -> None:
    lines = markdown(made(row(), row(gpus=32))).splitlines()
    assert cells(lines[0])[:7] == HEADS
    assert cells(lines[0])[7:] == ["GPUh (h)", "Z500 RMSE (m²/s²)"]
    assert set(cells(lines[1])) == {"---", "--:"}
    assert cells(lines[2]) == [
        "a100", "16", "1", "16", "144.9", "36.22", "43.28", "692.5", "91.25",
    ]  # fmt: skip
    assert cells(lines[3])[1] == "32"
    assert lines[4] == ""
    assert len({len(cells(line)) for line in lines[:4]}) == 1


def test_latex_is_one_tabular_whose_lines_have_its_columns() -> None:
    text = latex(made(row(), row(gpus=32)))
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None and columns[1] == "lrrrrrrrr"
    rows = latex_rows(text)
    assert [len(cells) for cells in rows] == [9, 9, 9]
    assert rows[1][:5] == ["a100", "16", "1", "16", "144.9"]


def test_latex_has_no_character_that_needs_escaping() -> None:
    body = typeset(latex(made(row(device="my_gpu", energy_kwh=None))))
    assert r"my\_gpu" in body
    assert r"m\textsuperscript{2}/s\textsuperscript{2}" in body
    assert re.search(r"(?<!\\)[_%#$]", body) is None
    assert body.isascii()


@pytest.mark.parametrize("form", [markdown, latex])
def test_an_unknown_energy_is_a_dash_and_not_zero(form: Any) -> None:
    text = form(made(row(energy_kwh=None, energy_per_node_kwh=None)))
    line = next(line for line in text.splitlines() if "a100" in line)
    found = [cell.strip() for cell in re.split(r"[|&]", line.strip("| "))]
    assert found[4] == found[5] == {markdown: "–", latex: "--"}[form]


@pytest.mark.parametrize("origin", ["measured", "estimated", "simulated", "published"])
def test_a_table_says_on_its_face_where_the_energies_come_from(origin: str) -> None:
    table = made(row(energy_origin=origin, energy_scope="cpu"))
    assert f"{origin} (cpu)" in markdown(table)
    assert f"{origin} (cpu)" in typeset(latex(table))


def test_every_origin_and_scope_is_named_once() -> None:
    a100 = row()
    h100 = row(device="h100", energy_scope="gpu+cpu")
    lost = row(energy_origin=None, energy_scope=None)
    assert origin_sentence(made(a100, a100, h100)) == (
        "Energy: measured (gpu+cpu); measured (gpu+cpu+ram). "
        "Totals of unequal scope are not comparable."
    )
    assert "unknown (no sensor)" in origin_sentence(made(a100, lost))


@pytest.mark.parametrize("form", [markdown, latex])
def test_a_table_without_finished_runs_says_so(form: Any) -> None:
    assert "No finished run" in typeset(form(made()))


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
    found = pq.read_table(out)
    assert found.schema.equals(TABLE1)
    assert found["configuration"].to_pylist() == ["b", "a"]
    assert found["energy_kwh"].to_pylist() == pytest.approx([0.45, 0.45])
    assert found["metric_last"].to_pylist() == [25.0, 25.0]
    assert found["gpu_hours"].to_pylist() == pytest.approx([8.0, 4.0])
    assert "| a100 | 8 |" in out.with_suffix(".md").read_text()
    assert latex_rows(out.with_suffix(".tex").read_text())[1][:2] == ["a100", "8"]
    with open(out.with_suffix(".csv"), newline="") as file:
        assert [r["energy_origin"] for r in csv.DictReader(file)] == ["measured"] * 2
