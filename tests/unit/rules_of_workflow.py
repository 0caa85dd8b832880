"""The rules that clusters and campaigns have, as Snakemake understands the workflow.

    python rules_of_workflow.py CLUSTER_FILE[,KEY=VALUE…] …

Prints as JSON, for each rule of each case, the command that it runs, its conda environment's file, how
many outputs it has, and whether it runs where Snakemake runs. A process of its own: Snakemake's objects
live as long as the process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings


def rules_of(cluster: str, *given: str) -> list[dict[str, Any]]:
    """The rules of one cluster file and what `--config` says besides."""
    config = dict(setting.split("=", 1) for setting in given)
    with SnakemakeApi(OutputSettings()) as api:
        workflow = api.workflow(
            ResourceSettings(cores=1),
            config_settings=ConfigSettings(config=config, configfiles=[Path(cluster)]),
            snakefile=Path("Snakefile"),
        )._workflow
        return [
            {
                "name": rule.name,
                "command": rule.shellcmd or rule.script,
                "conda": str(rule.conda_env) if rule.conda_env else None,
                "outputs": len(rule.output),
                "local": rule.name in workflow._localrules,
            }
            for rule in workflow.rules
        ]


print(json.dumps([rule for case in sys.argv[1:] for rule in rules_of(*case.split(","))]))
