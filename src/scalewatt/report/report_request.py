"""What a report is about beyond its tables: what the campaign asks for, and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.common.errors import InputError


@dataclass(frozen=True)
class Definition:
    """The part of a campaign and its cluster that the page names."""

    campaign: str
    profile: str = "profiles/local"
    """For the commands shown."""
    campaign_file: str | None = None
    """Likewise; None where the profile's own campaign is meant."""
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

    def command(self, target: str) -> str:
        """Return the command that regenerates a target of this campaign."""
        choice = f" --config campaign={self.campaign_file}" if self.campaign_file else ""
        return f"snakemake --profile {self.profile} {target}{choice}"


def report_definition(
    campaign: Campaign,
    cluster: Cluster,
    basis: Sequence[str],
    results_only: bool,
    remeasured: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the definition of a campaign's report as JSON-ready values."""
    return asdict(
        Definition(
            campaign=campaign.name,
            profile=f"profiles/{cluster.name}",
            campaign_file=str(campaign.path),
            figures=tuple(campaign.figures),
            planned=dict(campaign.repeats),
            currency=(cluster.price or {}).get("currency", ""),
            basis=tuple(basis),
            results_only=bool(results_only),
            remeasured=tuple(remeasured),
        )
    )


def parse_definition(given: Any) -> Definition:
    """Return the definition from JSON values; InputError where it is none."""
    where = "report: --definition is no definition of a report"
    try:
        content = {**given}
        for name, (fits, expected) in _VALUES.items():
            if name in content and not fits(content[name]):
                raise InputError(f"{where} ({name} is {content[name]!r}; expected {expected})")
        for name in ("figures", "basis", "remeasured"):
            content[name] = tuple(content.get(name, ()))
        return Definition(**content)
    except TypeError as error:
        raise InputError(f"{where} ({error})") from error


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(n) is int and n >= 0 for n in value.values())


def _are_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(row, dict)
        and type(row.get("repeat")) is int
        and all(_is_text(row.get(name)) for name in _OF_ROWS)
        for row in value
    )


_OF_ROWS = ("configuration", "reason", "date", "measurement")
_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "campaign": (_is_text, "a name"),
    "profile": (_is_text, "a folder"),
    "campaign_file": (lambda value: value is None or _is_text(value), "a file, or null"),
    "figures": (_are_texts, "a list of names"),
    "planned": (_are_counts, "an object with the number of repeats of each configuration"),
    "currency": (_is_text, "a name"),
    "basis": (_are_texts, "a list of sentences"),
    "results_only": (lambda value: isinstance(value, bool), "true or false"),
    "remeasured": (_are_rows, "a list of rows of the table of exclusions"),
}
"""Which values a key may have, and what to call them."""
