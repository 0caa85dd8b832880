"""A campaign as a human-readable table and as JSON."""

from __future__ import annotations

from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.run_spec import run_spec

_COLUMNS = (
    ("configuration", "<"),
    ("repeats", ">"),
    ("GPUs", ">"),
    ("nodes", ">"),
    ("LBS", ">"),
    ("GBS", ">"),
    ("samples", ">"),
    ("epochs", ">"),
    ("updates", ">"),
    ("series", "<"),
)


def runs_json(campaign: Campaign) -> list[dict[str, Any]]:
    """Return one object per run: its spec, its campaign and the series that share it."""
    return [
        {
            "campaign": campaign.name,
            **run_spec(campaign, run.configuration.id, run.repeat).as_json(),
            "series": campaign.series_of(run.configuration.id),
        }
        for run in campaign.runs()
    ]


def campaign_table(campaign: Campaign) -> str:
    """Return one line per configuration, and the sums."""
    rows = [tuple(name for name, _ in _COLUMNS)]
    rows += [_row(campaign, c) for c in campaign.configurations.values()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            f"{cell:{align}{width}}"
            for cell, width, (_, align) in zip(row, widths, _COLUMNS, strict=True)
        ).rstrip()
        for row in rows
    ]
    runs = sum(campaign.repeats.values())
    gpus = [c.gpus for c in campaign.configurations.values()]
    lines.append(
        f"\n{campaign.path}: campaign '{campaign.name}', protocol {campaign.protocol}: "
        f"{len(campaign.series)} series, {len(campaign.configurations)} configurations, "
        f"{runs} runs, {min(gpus)} to {max(gpus)} GPUs"
    )
    return "\n".join(lines)


def _row(campaign: Campaign, c: Configuration) -> tuple[str, ...]:
    numbers = (
        campaign.repeats[c.id],
        c.gpus,
        c.nodes,
        c.local_batch_size,
        c.global_batch_size,
        c.dataset_samples,
        c.epochs,
        c.updates,
    )
    return (
        c.id,
        *("–" if n is None else str(n) for n in numbers),
        ", ".join(campaign.series_of(c.id)),
    )
