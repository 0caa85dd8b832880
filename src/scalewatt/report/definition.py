"""What a report is about beyond its tables: what the campaign asks for, and where it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster


@dataclass(frozen=True)
class Definition:
    """The part of a campaign and its cluster that the page names."""

    campaign: str
    command: str = "snakemake {}"
    """What regenerates a target, in braces."""
    figures: tuple[str, ...] = ()
    """Keys of the campaign's `figures`; the page offers no others."""
    planned: tuple[tuple[str, int], ...] = ()
    """Configuration and repeat of each run, finished or not."""
    currency: str = ""
    basis: tuple[str, ...] = ()
    """Sentences on the numbers that come from the cluster file."""
    remeasured: tuple[dict[str, Any], ...] = ()
    """Rows of `remeasure` of the campaign's table of exclusions."""
    claims: bool = True
    """True if the campaign has a model of the paper, so that the page shows the paper's claims."""


def report_definition(
    campaign: Campaign,
    cluster: Cluster,
    basis: Sequence[str],
    remeasured: Sequence[dict[str, Any]] = (),
) -> Definition:
    """Definition of a campaign's report."""
    limits = {"max_gpus": cluster.max_gpus, "only": cluster.only}
    given = [f"{key}={value}" for key, value in limits.items() if value is not None]
    config = shlex.join([f"campaign={campaign.path}", *given])
    return Definition(
        campaign=campaign.name,
        command=f"snakemake --profile profiles/{cluster.name} {{}} --config {config}",
        figures=tuple(campaign.figures),
        planned=tuple((run.configuration.id, run.repeat) for run in campaign.runs()),
        currency=cluster.currency,
        basis=tuple(basis),
        remeasured=tuple(remeasured),
        claims=campaign.has_papers_models,
    )
