"""Write the table of tools whose output is known into docs/guide/formats.md, from the package's presets.

    python .ci/site/presets.py

Run it after a change of a preset; tests/unit/test_recordings_page.py holds the page against them.
"""

from __future__ import annotations

from pathlib import Path

from scalewatt.recordings.tables import presets

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "formats.md"
BEGIN = "<!-- presets (made by `python .ci/site/presets.py`) -->\n"
END = "<!-- end of presets -->\n"
HEAD = "| format | tool | how to record it | what it gives | what it lacks |"


def written(page: str) -> str:
    """Page with the table between its markers made anew."""
    rows = [
        [
            f"`{preset['name']}`",
            *(preset["docs"][key] for key in ("tool", "record", "gives", "lacks")),
        ]
        for preset in presets()
    ]
    lines = [HEAD, "| --- | --- | --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
