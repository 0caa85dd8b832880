"""Write the rules of claims and their tolerances into docs/paper/claim-rules.md.

    python .ci/site/claim_rules.py

Rules are described by their docstrings, tolerances by reference/tolerances.csv. Run it after a change of one;
tests/unit/test_claims_table.py holds the page against them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scalewatt.claims.comparisons import COMPARISON_RULES
from scalewatt.claims.reference_tables import tolerances
from scalewatt.claims.settings import RUN_RULES, SPEC_RULES
from scalewatt.claims.shapes import SERIES_RULES
from scalewatt.claims.traces import TRACE_RULES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "paper" / "claim-rules.md"
BEGIN = "<!-- rules and tolerances (made by `python .ci/site/claim_rules.py`) -->\n"
RULES = {
    "Rules on the points of a series, with a scope": SERIES_RULES,
    "Rules on several series": COMPARISON_RULES,
    "Rules on power against time": TRACE_RULES,
    "Rules on what runs recorded": RUN_RULES,
    "Rules on specs and provenance": SPEC_RULES,
}
TOLERANCES = """## Tolerances

`reference/tolerances.csv` contains every bound that this project chose. `chosen` says whether this was before
any run, or with knowledge of the published rows, in which case it is no blind test. The bounds of
neighbouring words meet: near-optimal ends at 0.9, where not near-optimal begins.

| name | expects | chosen | reason, and the claims that it decides |
| --- | --- | --- | --- |
"""


def written(page: str) -> str:
    """Page with its tables of rules and tolerances, which are its end, made anew."""
    parts = [page.partition(BEGIN)[0] + BEGIN]
    parts += [f"## {title}\n\n{_rules(rules)}" for title, rules in RULES.items()]
    rows = [
        f"| `{t.name}` | {t.expects} | {t.chosen} | {t.reason} |" for t in tolerances().values()
    ]
    return "\n".join([*parts, TOLERANCES + "\n".join(rows) + "\n"])


def _rules(rules: Mapping[str, Callable[..., Any]]) -> str:
    rows = [f"| `{name}` | {_meaning(rule)} |" for name, rule in sorted(rules.items())]
    return "\n".join(["| rule | holds where |", "| --- | --- |", *rows]) + "\n"


def _meaning(rule: Callable[..., Any]) -> str:
    """First sentence of a rule's docstring, without `Check whether`."""
    sentence = (inspect.getdoc(rule) or "").split("\n\n")[0].replace("\n", " ")
    return sentence.removeprefix("Check whether ").rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
