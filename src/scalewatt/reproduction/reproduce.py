"""Run all checks of a campaign, and write their results: a page, a JSON file, and text."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, campaign_path
from scalewatt.campaign.load import load_campaign
from scalewatt.common.files import write_json, write_text
from scalewatt.report.html_tables import STYLE, templates
from scalewatt.reproduction.check_result import (
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
    exit_code,
    not_checked,
    verdict,
)
from scalewatt.reproduction.file_check import file_findings
from scalewatt.reproduction.manifests import Manifest, read_manifest
from scalewatt.reproduction.provenance_check import environment_findings, run_findings
from scalewatt.reproduction.regenerate import Remaking
from scalewatt.reproduction.rerun_check import (
    GPU_POINTS,
    GPU_RELATIVE,
    OF_THE_MACHINE,
    Repeat,
    found_repeats,
    repeat_findings,
)
from scalewatt.reproduction.run_selection import again_folder, choose_run
from scalewatt.results.text.number_format import listed

_FOLDER = Path(__file__).parent
LABELS = {SAME: "same", DIFFERS: "differs", NOT_CHECKED: "not checked"}
REPORT_VERSION = 1
JSON_NAME = "reproduction.json"
PAGE_NAME = "index.html"
_MOST_LINES, _MOST_NAMED = 40, 3
"""Lines, and names in each, that are shown in the terminal; the page shows all."""


@dataclass(frozen=True)
class Reproduction:
    """The findings about a campaign."""

    campaign: str
    """Its name here; the manifest has its name when it was made."""
    manifest: Manifest
    cluster: str
    findings: tuple[Finding, ...]
    repeats: tuple[Repeat, ...]
    folder: Path
    """Where the page is."""

    @property
    def exit_code(self) -> int:
        """Return 0 where files are as recorded and nothing differs, else 1 (`check_result.exit_code`)."""
        return exit_code(self.findings)

    def counts(self, check: str) -> dict[str, int]:
        """Return how many findings of a check have each outcome."""
        own = [one.outcome for one in self.findings if one.check == check]
        return {outcome: own.count(outcome) for outcome in OUTCOMES}

    def counted(self, check: str) -> str:
        """Return the same in words."""
        counts = self.counts(check).items()
        words = ", ".join(f"{count} {LABELS[name]}" for name, count in counts if count)
        return words or "nothing to check"


def reproduce(cluster: Cluster, campaign: Path | None, results: Path) -> Reproduction:
    """Run all checks of a campaign and write its page; its stored files are only read.

    `campaign`: its file, by default the cluster's;
    `results`: the folder of all campaigns. InputError if there is no manifest, or a file is wrong.
    """
    found = load_campaign(campaign or campaign_path(cluster), cluster, to_run=False)
    folder = results / found.name
    manifest = read_manifest(folder)
    findings = environment_findings(manifest)
    with tempfile.TemporaryDirectory(prefix="scalewatt-reproduce-") as temporary:
        place = Remaking(folder, found, cluster, manifest.campaign, Path(temporary))
        findings += file_findings(manifest, place)
    findings += run_findings(manifest, folder)
    findings += repeat_findings(folder, found) or _none_repeated(found, cluster, folder)
    done = Reproduction(
        found.name,
        manifest,
        cluster.name,
        tuple(findings),
        tuple(found_repeats(folder)),
        again_folder(folder),
    )
    _write(done)
    return done


def _none_repeated(campaign: Campaign, cluster: Cluster, folder: Path) -> list[Finding]:
    """Return why there is no re-run."""
    choice = choose_run(campaign, cluster, folder)
    why = choice.reason
    if choice.run is not None:
        name = f"{choice.run[0]}/{choice.run[1]}"
        why = f"no run has been repeated; `snakemake reproduce` would re-run {name}: {why}"
    return [not_checked(check, "a re-run", why) for check in (HISTORY, ENERGY)]


def _write(done: Reproduction) -> None:
    """Write the page, one self-contained HTML file, and the JSON file."""
    environment = templates(_FOLDER)
    environment.filters["shown"] = shown
    page = environment.get_template("page.html.j2").render(
        campaign=done.campaign,
        manifest=done.manifest,
        cluster=done.cluster,
        repeats=done.repeats,
        parts=[_part(done, check) for check in CHECKS],
        verdict=verdict(done.findings),
        labels=LABELS,
        gpu_relative=GPU_RELATIVE,
        gpu_points=GPU_POINTS,
        of_the_machine=OF_THE_MACHINE,
        style=STYLE.read_text(encoding="utf-8"),
    )
    write_text(done.folder / PAGE_NAME, page)
    write_json(done.folder / JSON_NAME, as_json(done))


def _part(done: Reproduction, check: str) -> dict[str, Any]:
    """Return one check on the page: first what differs, then what was not checked, then the same."""
    own = {
        outcome: [one for one in done.findings if (one.check, one.outcome) == (check, outcome)]
        for outcome in OUTCOMES
    }
    return {
        "name": check,
        "counts": done.counted(check),
        "loud": own[DIFFERS] + own[NOT_CHECKED],
        "quiet": own[SAME],
    }


def as_json(done: Reproduction) -> dict[str, object]:
    """Return the findings, JSON-ready."""
    return {
        "report_version": REPORT_VERSION,
        "campaign": done.campaign,
        "cluster": done.cluster,
        "scalewatt": __version__,
        "exit_code": done.exit_code,
        "counts": {check: done.counts(check) for check in CHECKS},
        "repeats": [asdict(one) for one in done.repeats],
        "findings": [asdict(one) for one in done.findings],
    }


def as_text(done: Reproduction) -> str:
    """Return counts by check, each difference, why checks were skipped, and the page, for a terminal."""
    lines = [f"{done.campaign}: {verdict(done.findings)}"]
    for check in CHECKS:
        lines.append(f"  {check:<12} {done.counted(check)}")
    told = _told(done.findings)
    lines += told[:_MOST_LINES]
    if len(told) > _MOST_LINES:
        lines.append(f"{len(told) - _MOST_LINES} more lines: on the page")
    for one in done.repeats:
        unlike = listed(one.circumstances, _MOST_NAMED)
        more = f"; unlike the first run:  {unlike}" if unlike else ""
        lines.append(f"re-run: {one.configuration}/{one.repeat}, {one.made}{more}")
    return "\n".join([*lines, str(done.folder / PAGE_NAME)])


def _told(findings: Iterable[Finding]) -> list[str]:
    """Return what differs, then what was not checked, one line for all that have one reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in findings:
        groups.setdefault((one.outcome, one.check, _why(one)), []).append(one.what)
    return [
        f"{LABELS[outcome]}: {check}: {listed(names, _MOST_NAMED)}: {why}"
        for outcome in (DIFFERS, NOT_CHECKED)
        for (of, check, why), names in groups.items()
        if of == outcome
    ]


def _why(one: Finding) -> str:
    """Return in what a finding differs; hashes of files are not shown, as they mean nothing to a reader."""
    of_file = one.check in (STORED, REGENERATED)
    without = of_file or one.outcome == NOT_CHECKED or one.expected is one.found is None
    if one.detail and without:
        return one.detail
    values = f"{shown(one.expected)} expected, {shown(one.found)} found"
    return f"{values}: {one.detail}" if one.detail else values


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
