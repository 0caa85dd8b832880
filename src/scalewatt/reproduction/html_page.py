"""Write the page: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.files import write_text
from scalewatt.report.html_tables import STYLE, templates
from scalewatt.reproduction.check_result import (
    CHECKS,
    DIFFERS,
    ENERGY,
    ENVIRONMENT,
    HISTORY,
    NOT_CHECKED,
    PROVENANCE,
    REGENERATED,
    SAME,
    STORED,
    Finding,
    verdict,
)
from scalewatt.reproduction.history_check import OF_THE_MACHINE, TOLERANCE

_FOLDER = Path(__file__).parent
TITLES = {
    ENVIRONMENT: "Environment",
    STORED: "Stored files",
    REGENERATED: "Regenerated files",
    PROVENANCE: "Provenance of runs",
    HISTORY: "A re-run: what it learnt",
    ENERGY: "A re-run: its energy",
}
MEANINGS = {
    ENVIRONMENT: "The packages installed here compared with the lock, and Python and the lock compared "
    "with those that the results were made with.",
    STORED: "The SHA-256 of each stored table and figure compared with the manifest: whether a file was "
    "changed since.",
    REGENERATED: "Each figure redrawn from its table, each table rebuilt from the files of its runs, its "
    "texts from the table; their SHA-256 compared with the manifest.",
    PROVENANCE: "Each run's provenance.json: its spec compared with its spec.json, its data with the "
    "campaign's, its commit and lock with those of the manifest, its packages with its lock.",
    HISTORY: "One run trained (or simulated) again, and its history compared with the first one's. On a "
    "CPU every value must be bitwise equal. "
    + TOLERANCE
    + f" Not compared: columns that end in _s, {', '.join(OF_THE_MACHINE)}, which are about the run's "
    "execution.",
    ENERGY: "The energy of that run compared with the earlier repeats of its configuration with the same "
    "origin, scope and machine: within the 95 % Student-t prediction interval of one more "
    "observation, mean ± t·s·√(1 + 1/n). One earlier run has no scatter, so nothing is concluded.",
}
LABELS = {SAME: "same", DIFFERS: "differs", NOT_CHECKED: "not checked"}


@dataclass(frozen=True)
class Part:
    """One check on the page."""

    name: str
    title: str
    meaning: str
    counts: str
    loud: Sequence[Finding]
    """What differs, then what was not checked."""
    quiet: Sequence[Finding]
    """What is the same."""


def write_page(
    out: Path,
    *,
    findings: Sequence[Finding],
    counts: Mapping[str, Mapping[str, int]],
    **said: Any,
) -> None:
    """Write the page to `out`; `said` are the other names that its template uses."""
    environment = templates(_FOLDER)
    environment.filters["shown"] = shown
    page = environment.get_template("page.html.j2").render(
        parts=[_part(check, findings, counts[check]) for check in CHECKS],
        verdict=verdict(findings),
        labels=LABELS,
        style=STYLE.read_text(encoding="utf-8"),
        **said,
    )
    write_text(out, page)


def _part(check: str, findings: Sequence[Finding], counts: Mapping[str, int]) -> Part:
    own = [one for one in findings if one.check == check]
    loud = [one for outcome in (DIFFERS, NOT_CHECKED) for one in own if one.outcome == outcome]
    quiet = [one for one in own if one.outcome == SAME]
    said = ", ".join(f"{count} {LABELS[name]}" for name, count in counts.items() if count)
    return Part(check, TITLES[check], MEANINGS[check], said or "nothing to check", loud, quiet)


def shown(value: Any) -> str:
    """Return an expected or found value, shortened: of a hash its first digits."""
    if value is None:
        return "–"
    if isinstance(value, list | tuple):
        return " to ".join(map(shown, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    is_hash = len(text) == 64 and all(c in "0123456789abcdef" for c in text)
    return f"{text[:12]}…" if is_hash else text
