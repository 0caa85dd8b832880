"""Write the columns of every table into its page in docs/tables, from the package's columns.csv.

    python .ci/site/tables.py

Run it after a change of columns.csv; tests/unit/test_docs.py holds the pages against it.
"""

from __future__ import annotations

import re
from pathlib import Path

from scalewatt.common.columns import columns

PAGES = Path(__file__).resolve().parents[2] / "docs" / "tables"
HEAD = "| column | type | unit | meaning | null |\n| --- | --- | --- | --- | --- |\n"
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def pages() -> list[Path]:
    """List the pages of tables: all but the index and that of the flags."""
    return [path for path in sorted(PAGES.glob("*.md")) if path.stem not in ("index", "flags")]


def written(page: str, table: str) -> str:
    """Page with its table of columns made anew."""
    rows = (
        f"| `{row.name}` | {row.type} | {row.unit} | {row.meaning} | {row.null} |".replace(
            "|  |", "| |"
        )
        for row in columns(table).values()
    )
    return _TABLE.sub(lambda _: HEAD + "".join(f"{row}\n" for row in rows), page)


if __name__ == "__main__":
    for path in pages():
        path.write_text(written(path.read_text(encoding="utf-8"), path.stem), encoding="utf-8")
