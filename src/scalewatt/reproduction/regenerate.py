"""Make tables and figures again: Snakemake, in a fresh directory that links the runs and their energies."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.campaign.load import SIMULATED
from scalewatt.common.yaml_files import read_yaml
from scalewatt.reproduction.manifest import FOLDERS, MANIFEST, SUMS

RULES = (
    *("manifest", "tables", "runs_table", "figure_table", "table_text", "claims_table"),
    *("plan_table", "prediction_table", "figures", "draw_figure", "pages_of_runs", "run_pages"),
)
"""What may run: nothing that writes to the runs and energies, which are links."""
_MADE = (*FOLDERS, "logs", "reproduction", "report.html", MANIFEST, SUMS)
_CAMPAIGN = "reproduced-campaign"
_LONGEST = 500
"""Characters of Snakemake's last words that are kept."""


def regenerate(
    folder: Path,
    campaign: Campaign,
    results: Path,
    name: str,
    config: Mapping[str, Any],
    snakemake: Sequence[str],
) -> tuple[Path, str | None]:
    """Make the files of a campaign again below `folder`; return its results there, and how that failed.

    `results`: the stored ones, which are only read; `name`: the campaign's when they were made.
    `config`: Snakemake's; `snakemake`: its command.
    """
    # Links to the workflow, and to what of the results is not made again.
    made = folder / "results" / name
    made.mkdir(parents=True)
    for path in Path.cwd().iterdir():
        if path.name not in ("results", "work", ".snakemake", _CAMPAIGN):
            (folder / path.name).symlink_to(path)
    for path in results.resolve().iterdir():
        if path.name not in _MADE and not path.name.startswith("."):
            (made / path.name).symlink_to(path)
    (made / "tables").mkdir()
    for path in kept_tables(results):
        (made / "tables" / path.name).symlink_to(path.resolve())
    file = _write_campaign(folder / _CAMPAIGN, campaign, name)
    content = {**config, "campaign": str(file.relative_to(folder)), "results_only": True}
    (folder / _CAMPAIGN / "cluster.json").write_text(json.dumps(content), encoding="utf-8")
    # All that the manifest depends on, as far as it can be made.
    done = subprocess.run(
        [
            *(*snakemake, "manifest", "--configfile", f"{_CAMPAIGN}/cluster.json"),
            *("--cores", "all", "--keep-going", "--quiet", "rules", "--workflow-profile", "none"),
            *("--scheduler", "greedy", "--allowed-rules", *RULES),
        ],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    # The first job that failed, as our onerror says it; else Snakemake's own words.
    first = done.stdout.split("scalewatt: failed: ", 2)[1:2] or [done.stdout[-_LONGEST:]]
    return made, " ".join(first[0].split())[:_LONGEST] if done.returncode else None


def kept_tables(results: Path) -> list[Path]:
    """Stored tables that cannot be made again: of idle probes, and of power without the runs' traces."""
    names = ["idle", *([] if (results / "traces").is_dir() else ["figure5"])]
    return [path for name in names for path in sorted((results / "tables").glob(f"{name}.*"))]


def _write_campaign(folder: Path, campaign: Campaign, name: str) -> Path:
    """Write the campaign under the name that it had, which its tables have; return its file."""
    simulated = SIMULATED if campaign.name.endswith(SIMULATED) else ""
    content = {**read_yaml(campaign.path), "name": name.removesuffix(simulated)}
    content.pop("runs", None)  # registered runs lie where all others do, here
    folder.mkdir()
    path = folder / campaign.path.name
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    exclusions = exclusions_path(campaign)
    if exclusions.exists():
        (folder / exclusions.name).symlink_to(exclusions.resolve())
    return path
