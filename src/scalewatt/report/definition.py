"""What a report is asked to show. Imported whenever Snakemake starts, so without pandas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster


@dataclass(frozen=True)
class Definition:
    """The part of a campaign and its cluster that the page names."""

    campaign: str
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
    return Definition(
        campaign=campaign.name,
        figures=tuple(campaign.figures),
        planned=tuple(campaign.runs()),
        currency=cluster.currency,
        basis=tuple(basis),
        remeasured=tuple(remeasured),
        claims=campaign.has_papers_models,
    )
