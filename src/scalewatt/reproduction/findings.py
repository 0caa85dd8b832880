"""Findings of checks: one table, shown as text, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from scalewatt import __version__
from scalewatt.common.files import write_json, write_text
from scalewatt.report.html_tables import STYLE, templates
from scalewatt.reproduction.manifest import Manifest
from scalewatt.results.text.number_format import listed, number

SAME, DIFFERS, NOT_CHECKED = "same", "differs", "not_checked"
OUTCOMES = (DIFFERS, NOT_CHECKED, SAME)
"""In the order in which they are shown."""
ENVIRONMENT, STORED, REGENERATED = "environment", "stored", "regenerated"
PROVENANCE, HISTORY, ENERGY = "provenance", "history", "energy"
CHECKS = (ENVIRONMENT, STORED, REGENERATED, PROVENANCE, HISTORY, ENERGY)
"""In the order in which they are made and shown."""
_MOST_LINES, _MOST_NAMED = 40, 3
"""Lines, and names in each, that the text shows; the page shows all."""


class Finding(NamedTuple):
    """What was compared with what, and the outcome."""

    check: str
    """One of CHECKS."""
    what: str
    """A package, a file, or a run and its quantity."""
    outcome: str
    """One of OUTCOMES."""
    expected: Any = None
    """As recorded; null if nothing is."""
    actual: Any = None
    """As it is now; null if nothing is."""
    detail: str | None = None
    """Where it differs, or why it was not checked."""


def compare(check: str, what: str, expected: Any, actual: Any, why: str | None = None) -> Finding:
    """Compare two values that should be equal; `why` explains those that are not."""
    if expected == actual:
        return Finding(check, what, SAME, expected, actual)
    return Finding(check, what, DIFFERS, expected, actual, why)


def skip(check: str, what: str, why: str) -> Finding:
    """Make the finding of what cannot be checked."""
    return Finding(check, what, NOT_CHECKED, detail=why)


def frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """Findings as a table with a column for each field."""
    return pd.DataFrame(list(findings), columns=Finding._fields, dtype=object)


def counts(findings: pd.DataFrame) -> pd.DataFrame:
    """Number of findings of each check (rows) by outcome (columns)."""
    numbers = findings.groupby(["check", "outcome"]).size().unstack(fill_value=0)
    return numbers.reindex(index=list(CHECKS), columns=list(OUTCOMES), fill_value=0)


def exit_code(findings: pd.DataFrame) -> int:
    """0 if nothing differs, and a stored and a regenerated file are as recorded; else 1."""
    numbers = counts(findings)
    is_enough = numbers.loc[[STORED, REGENERATED], SAME].all()
    return 0 if is_enough and not numbers[DIFFERS].any() else 1


def verdict(findings: pd.DataFrame) -> str:
    """The result in one sentence, with how much could not be checked."""
    total = counts(findings).sum()
    made = total[SAME] + total[DIFFERS]
    sentence = f"nothing differs in {made} checks"
    if total[DIFFERS]:
        sentence = f"differences: {total[DIFFERS]} in {made} checks"
    elif exit_code(findings):
        sentence = "too little was checked: no stored, or no regenerated, file is as recorded"
    left = total[NOT_CHECKED]
    return f"{sentence}; {left} could not be made" if left else sentence


# --- text, page and JSON --------------------------------------------------------------------------


def as_text(campaign: str, findings: pd.DataFrame, page: Path) -> str:
    """Counts by check, what differs or was not checked with the reason, and the page, for a terminal."""
    lines = [f"{campaign}: {verdict(findings)}", counts(findings).to_string()]
    loud = findings[findings["outcome"] != SAME]
    loud = loud.assign(why=[_why(Finding(*row)) for row in loud.itertuples(index=False)])
    reasons = [
        f"{outcome}: {check}: {listed(rows['what'], _MOST_NAMED)}: {why}"
        for (outcome, check, why), rows in loud.groupby(["outcome", "check", "why"])
    ]
    if len(reasons) > _MOST_LINES:
        reasons[_MOST_LINES:] = [f"{len(reasons) - _MOST_LINES} more lines: on the page"]
    return "\n".join([*lines, *reasons, str(page)])


def write_page(
    folder: Path, campaign: str, cluster: str, manifest: Manifest, findings: pd.DataFrame
) -> Path:
    """Write the findings to `folder` as JSON and as one self-contained page; return the page's path."""
    facts = {"campaign": campaign, "cluster": cluster, "scalewatt": __version__}
    content = {
        **{**facts, "exit_code": exit_code(findings)},
        "counts": counts(findings).to_dict("index"),
        "findings": findings.to_dict("records"),
    }
    write_json(folder / "reproduction.json", content)
    template = templates(Path(__file__).parent).get_template("page.html.j2")
    style = STYLE.read_text(encoding="utf-8")
    sentence = verdict(findings)
    page = template.render(
        **{**facts, "manifest": manifest, "style": style},
        verdict=sentence[0].upper() + sentence[1:],
        tables={
            (check, outcome): _table(rows)
            for (check, outcome), rows in findings.groupby(["check", "outcome"])
        },
    )
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _table(rows: pd.DataFrame) -> str:
    shown = rows[["what", "expected", "actual", "detail"]].map(_shown)
    return shown.to_html(index=False, border=0)


def _why(finding: Finding) -> str:
    """Say in what a finding differs; hashes of files say nothing to a reader."""
    values = f"{_shown(finding.expected)} expected, {_shown(finding.actual)} now"
    if finding.detail and (
        finding.outcome == NOT_CHECKED or finding.check in (STORED, REGENERATED)
    ):
        return finding.detail
    return f"{values}: {finding.detail}" if finding.detail else values


def _shown(value: Any) -> str:
    """A value, shortened: of a hash its first digits."""
    if isinstance(value, list):
        return " to ".join(map(_shown, value))
    text = number(value, 6)
    is_hash = len(text) == 64 and " " not in text
    return f"{text[:12]}…" if is_hash else text
