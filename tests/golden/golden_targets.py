"""The names of all targets: what Snakemake may be asked for."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from golden_project import PROJECT, link_workflow, snakemake
from golden_tables import Golden

TARGETS = Golden("targets.txt", ("target",))


def made(folder: Path) -> dict[Golden, pd.DataFrame]:
    """The golden of today's code, asked in a new folder."""
    return {TARGETS: pd.DataFrame({"target": targets(folder)})}


def targets(folder: Path) -> list[str]:
    """The rules without wildcards that a page of the documentation names."""
    link_workflow(folder)
    (folder / "campaigns" / "demo.yaml").symlink_to(PROJECT / "campaigns" / "demo.yaml")
    printed = snakemake(folder, "--profile", "profiles/local", "--list-target-rules")
    documented = (PROJECT / "docs" / "figures.md").read_text(encoding="utf-8")
    names = [line.strip() for line in printed.splitlines()]
    return [name for name in names if f"`{name}`" in documented or name.startswith("figure")]
