"""What a report is about beyond its tables: what the campaign asks for, and where it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster

_LISTS = ("figures", "basis", "remeasured", "limits")
_IF_LIMITED = ("only", "limits")
"""What the definition of a whole campaign does not have."""


@dataclass(frozen=True)
class Definition:
    """The part of a campaign and its cluster that the page names."""

    campaign: str
    profile: str = "profiles/local"
    """For the commands shown."""
    campaign_file: str | None = None
    """Likewise; None if the profile's own campaign is meant."""
    figures: tuple[str, ...] = ()
    """Keys of the campaign's `figures`; the page offers no others."""
    planned: dict[str, int] = field(default_factory=dict)
    """Repeats of each configuration, finished or not."""
    currency: str = ""
    basis: tuple[str, ...] = ()
    """Sentences on the numbers that come from the cluster file."""
    results_only: bool = False
    """True if missing runs are left out on purpose."""
    remeasured: tuple[dict[str, Any], ...] = ()
    """Rows of `remeasure` of the campaign's table of exclusions."""
    claims: bool = True
    """True if the page shows the paper's claims: the campaign has a model of the paper."""
    only: dict[str, list[int]] = field(default_factory=dict)
    """Which repeats are planned, where the campaign is limited to some; empty: all."""
    limits: tuple[str, ...] = ()
    """The limits, as words of `--config`."""

    def repeats(self, configuration: str) -> Sequence[int]:
        """Return the numbers of a configuration's planned repeats."""
        return self.only.get(configuration, range(1, self.planned[configuration] + 1))

    def command(self, target: str) -> str:
        """Return the command that regenerates a target of this campaign."""
        campaign = [f"campaign={self.campaign_file}"] if self.campaign_file else []
        words = shlex.join([*campaign, *self.limits])
        return f"snakemake --profile {self.profile} {target}{f' --config {words}' if words else ''}"


def report_definition(
    campaign: Campaign,
    cluster: Cluster,
    basis: Sequence[str],
    results_only: bool,
    remeasured: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the definition of a campaign's report as JSON-ready values."""
    definition = asdict(
        Definition(
            campaign=campaign.name,
            profile=f"profiles/{cluster.name}",
            campaign_file=str(campaign.path),
            figures=tuple(campaign.figures),
            planned=dict(campaign.repeats),
            currency=cluster.currency,
            basis=tuple(basis),
            results_only=bool(results_only),
            remeasured=tuple(remeasured),
            claims=campaign.has_papers_models,
            only={id_: list(repeats) for id_, repeats in (campaign.only or {}).items()},
            limits=_limits(cluster),
        )
    )
    definition |= {name: list(definition[name]) for name in _LISTS}
    return {k: v for k, v in definition.items() if v or k not in _IF_LIMITED}


def _limits(cluster: Cluster) -> tuple[str, ...]:
    """Return what limits a campaign, as words of `--config`."""
    given = {"max_gpus": cluster.max_gpus, "only": cluster.only}
    return tuple(f"{key}={value}" for key, value in given.items() if value is not None)


def parse_definition(given: dict[str, Any]) -> Definition:
    """Return the definition from the JSON values that `report_definition` gave."""
    return Definition(**{**given, **{name: tuple(given.get(name, ())) for name in _LISTS}})
