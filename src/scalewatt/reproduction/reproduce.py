"""Run all checks of a campaign, and write their results: a page, a JSON file, and text."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt import __version__
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, campaign_path, parse_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.files import write_json, write_text
from scalewatt.report.html_tables import STYLE, templates
from scalewatt.reproduction.file_check import file_findings
from scalewatt.reproduction.findings import (
    CHECKS,
    DIFFERS,
    ENERGY,
    HISTORY,
    NOT_CHECKED,
    OUTCOMES,
    REGENERATED,
    SAME,
    STORED,
    Finding,
    counts,
    exit_code,
    frame,
    not_checked,
    verdict,
)
from scalewatt.reproduction.manifest import read_manifest
from scalewatt.reproduction.provenance_check import environment_findings, run_findings
from scalewatt.reproduction.regenerate import regenerate
from scalewatt.reproduction.rerun_check import found_repeats, repeat_findings
from scalewatt.reproduction.run_selection import again_folder, choose_run
from scalewatt.results.text.number_format import listed

LABELS = {SAME: "same", DIFFERS: "differs", NOT_CHECKED: "not checked"}
JSON_NAME = "reproduction.json"
PAGE_NAME = "index.html"
_MOST_LINES, _MOST_NAMED = 40, 3
"""Lines, and names in each, that are shown in the terminal; the page shows all."""


@dataclass(frozen=True)
class Reproduction:
    """The findings about a campaign."""

    campaign: str
    cluster: str
    findings: pd.DataFrame
    repeats: list[dict[str, Any]]
    """The re-runs."""
    folder: Path
    """Where the page is."""

    @property
    def exit_code(self) -> int:
        """0 where files are as recorded and nothing differs, else 1."""
        return exit_code(self.findings)


def reproduce(
    config: Mapping[str, Any],
    campaign: Path | None,
    results: Path,
    snakemake: Sequence[str] = (sys.executable, "-m", "snakemake"),
) -> Reproduction:
    """Run all checks of a campaign and write its page; its stored files are only read.

    `config`: the cluster file's content; `campaign`: its file, by default the cluster's; `results`: the
    folder of all campaigns. InputError if there is no manifest, or a file is wrong.
    """
    cluster = parse_cluster(dict(config), "cluster")
    loaded = load_campaign(campaign or campaign_path(cluster), cluster, to_run=False)
    folder = results / loaded.name
    manifest = read_manifest(folder)
    findings = [*environment_findings(manifest)]
    with tempfile.TemporaryDirectory(prefix="scalewatt-reproduce-") as temporary:
        remade, failure = None, None
        if Path("Snakefile").is_file():
            fresh, name = Path(temporary), manifest.campaign
            remade, failure = regenerate(fresh, loaded, folder, name, config, snakemake)
        findings += file_findings(manifest, folder, remade, failure)
    findings += run_findings(manifest, folder)
    findings += repeat_findings(folder, loaded) or _none_repeated(loaded, cluster, folder)
    done = Reproduction(
        loaded.name,
        cluster.name,
        frame(findings),
        found_repeats(folder),
        again_folder(folder),
    )
    _write(done, {**asdict(manifest), "files": None})
    return done


def _none_repeated(campaign: Campaign, cluster: Cluster, folder: Path) -> list[Finding]:
    """Say why there is no re-run."""
    choice = choose_run(campaign, cluster, folder)
    why = choice.reason
    if choice.run is not None:
        name = f"{choice.run[0]}/{choice.run[1]}"
        why = f"no run has been repeated; `snakemake reproduce` would re-run {name}: {why}"
    return [not_checked(check, "a re-run", why) for check in (HISTORY, ENERGY)]


def _write(done: Reproduction, manifest: Mapping[str, Any]) -> None:
    """Write the page, one self-contained HTML file, and the JSON file."""
    content = {
        "campaign": done.campaign,
        "cluster": done.cluster,
        "scalewatt": __version__,
        "exit_code": done.exit_code,
        "counts": counts(done.findings).to_dict("index"),
        "repeats": done.repeats,
        "findings": done.findings.to_dict("records"),
    }
    page = (
        templates(Path(__file__).parent)
        .get_template("page.html.j2")
        .render(
            content,
            manifest=manifest,
            verdict=verdict(done.findings),
            tables={check: _tables(done.findings, check) for check in CHECKS},
            totals={check: _totals(done.findings, check) for check in CHECKS},
            style=STYLE.read_text(encoding="utf-8"),
        )
    )
    write_text(done.folder / PAGE_NAME, page)
    write_json(done.folder / JSON_NAME, content)


def _tables(findings: pd.DataFrame, check: str) -> list[str]:
    """A check's findings as HTML: what differs or was not checked, then what is the same."""
    rows = findings[findings["check"] == check].drop(columns="check")
    shown = rows.assign(
        outcome=rows["outcome"].map(LABELS),
        expected=rows["expected"].map(_shown),
        found=rows["found"].map(_shown),
        detail=rows["detail"].fillna(""),
    )
    order = rows["outcome"].map(OUTCOMES.index)
    parts = (order[order < OUTCOMES.index(SAME)].sort_values(kind="stable"), order[order == 2])
    return [
        shown.loc[part.index].to_html(index=False, border=0) if len(part) else "" for part in parts
    ]


def _totals(findings: pd.DataFrame, check: str) -> str:
    """How many findings of a check have each outcome, in words."""
    totals = counts(findings).loc[check]
    words = [
        f"{totals[outcome]} {LABELS[outcome]}" for outcome in OUTCOMES[::-1] if totals[outcome]
    ]
    return ", ".join(words) or "nothing to check"


def as_text(done: Reproduction) -> str:
    """Counts by check, each difference, why checks were skipped, and the page, for a terminal."""
    lines = [f"{done.campaign}: {verdict(done.findings)}"]
    lines += [f"  {check:<12} {_totals(done.findings, check)}" for check in CHECKS]
    loud = done.findings[done.findings["outcome"] != SAME]
    loud = loud.assign(why=[_why(Finding(*row)) for row in loud.itertuples(index=False)])
    reasons = [
        f"{LABELS[outcome]}: {check}: {listed(rows['what'], _MOST_NAMED)}: {why}"
        for outcome in OUTCOMES[:2]
        for (check, why), rows in loud[loud["outcome"] == outcome].groupby(
            ["check", "why"], sort=False
        )
    ]
    lines += reasons[:_MOST_LINES]
    if len(reasons) > _MOST_LINES:
        lines.append(f"{len(reasons) - _MOST_LINES} more lines: on the page")
    for repeat in done.repeats:
        unlike = listed(repeat["unlike"], _MOST_NAMED)
        more = f"; unlike the first run: {unlike}" if unlike else ""
        lines.append(
            f"re-run: {repeat['configuration']}/{repeat['repeat']}, {repeat['made']}{more}"
        )
    return "\n".join([*lines, str(done.folder / PAGE_NAME)])


def _why(finding: Finding) -> str:
    """Say in what a finding differs; hashes of files are not shown, as they mean nothing to a reader."""
    of_file = finding.check in (STORED, REGENERATED)
    without = of_file or finding.outcome == NOT_CHECKED
    if finding.detail and (without or finding.expected is finding.found is None):
        return finding.detail
    values = f"{_shown(finding.expected)} expected, {_shown(finding.found)} found"
    return f"{values}: {finding.detail}" if finding.detail else values


def _shown(value: Any) -> str:
    """An expected or found value, shortened: of a hash its first digits."""
    if value is None:
        return "–"
    if isinstance(value, list | tuple):
        return " to ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    is_hash = len(text) == 64 and all(c in "0123456789abcdef" for c in text)
    return f"{text[:12]}…" if is_hash else text
