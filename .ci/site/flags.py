"""Write the table of quality flags into docs/tables/flags.md, from the package's flags.csv.

    python .ci/site/flags.py

Run it after a change of flags.csv; tests/unit/test_docs.py holds the page against it.
"""

from __future__ import annotations

from pathlib import Path

from scalewatt.recordings.terms import flag_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables" / "flags.md"
BEGIN = "| code | severity | meaning |\n"


def written(page: str) -> str:
    """Page with its table, which is its end, made anew."""
    rows = (
        f"| `{code}` | {row['severity']} | {row['sentence']} |"
        for code, row in flag_table().items()
    )
    return page.partition(BEGIN)[0] + BEGIN + "\n".join(["| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
