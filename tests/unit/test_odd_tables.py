"""A table with metadata that cannot be."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from archived import make_project

from scalewatt.common.errors import InputError
from scalewatt.figures.draw_figure import draw_figure


def test_no_figure_is_drawn_of_a_table_whose_metadata_are_cut(tmp_path: Path) -> None:
    made = make_project(tmp_path / "project")
    table = pq.read_table(made.results / "tables" / "figure2.parquet")
    path = tmp_path / "figure2.parquet"
    pq.write_table(table.replace_schema_metadata({"scalewatt": "{"}), path)
    with pytest.raises(InputError, match=f"^{path}: .*is not a readable table"):
        draw_figure("figure2", path, tmp_path / "f")
    assert not list(tmp_path.glob("f.*"))
