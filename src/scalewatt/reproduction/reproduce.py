"""Check whether the results of a campaign can be reproduced, and write a table of what differs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import campaign_path, parse_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.files import write_text
from scalewatt.reproduction.files import file_findings, regenerate
from scalewatt.reproduction.findings import as_text, frame, verdict
from scalewatt.reproduction.manifest import read_manifest
from scalewatt.reproduction.provenance import environment_findings, run_findings
from scalewatt.reproduction.rerun import rerun_findings
from scalewatt.reproduction.run_choice import FOLDER

TABLE = "findings.csv"


def reproduce(
    config: Mapping[str, Any],
    campaign: Path | None,
    results: Path,
    snakemake: Sequence[str] = (sys.executable, "-m", "snakemake"),
) -> tuple[str, int]:
    """Make all checks of a campaign and write their table; return a text of them, and the exit code.

    Stored files are only read. `config`: content of the cluster file; `campaign`: its file, by default
    the cluster's; `results`: folder of all campaigns. InputError if there is no manifest.
    """
    cluster = parse_cluster(dict(config), "cluster")
    loaded = load_campaign(campaign or campaign_path(cluster), cluster, to_run=False)
    folder = results / loaded.name
    manifest = read_manifest(folder)
    with tempfile.TemporaryDirectory(prefix="scalewatt-reproduce-") as temporary:
        remade, failure = None, None
        if Path("Snakefile").is_file():
            fresh, name = Path(temporary), manifest.campaign
            remade, failure = regenerate(fresh, loaded, folder, name, config, snakemake)
        findings = frame(
            [
                *environment_findings(manifest),
                *file_findings(manifest, folder, remade, failure),
                *run_findings(manifest, folder),
                *rerun_findings(loaded, cluster, folder),
            ]
        )
    table = folder / FOLDER / TABLE
    write_text(table, findings.to_csv(index=False))
    return f"{as_text(loaded.name, findings)}\n{table}", verdict(findings)[1]
