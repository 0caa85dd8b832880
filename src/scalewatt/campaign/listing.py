"""A campaign as a table for people, and its runs as objects of JSON."""

from __future__ import annotations

from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec

_COLUMNS = {
    "GPUs": "gpus",
    "nodes": "nodes",
    "LBS": "local_batch_size",
    "GBS": "global_batch_size",
    "samples": "dataset_samples",
    "epochs": "epochs",
    "updates": "updates",
}
"""Numbers of a configuration by their heads in the table."""
_FEW_REPEATS = {
    1: "no error bars, and no difference can be told from chance",
    2: "a 95 % t interval has 1 degree of freedom and is ± 9 standard deviations; with 3 ± 2.5",
}
"""What so few repeats cannot show."""


def runs_json(campaign: Campaign) -> list[dict[str, Any]]:
    """An object per run: its campaign, its spec and the series that share it."""
    return [
        {
            "campaign": campaign.name,
            **run_spec(campaign, id_, repeat).as_json(),
            "series": campaign.series_of(id_),
        }
        for id_, repeat in campaign.runs()
    ]


def campaign_text(campaign: Campaign) -> str:
    """A line per configuration, the sums, what is left out, and what few repeats cannot show."""
    gpus = [configuration.gpus for configuration in campaign.configurations.values()]
    sums = (
        f"\n{campaign.path}: campaign '{campaign.name}', protocol {campaign.protocol}; "
        f"series: {len(campaign.series)}, configurations: {len(gpus)}, "
        f"runs: {sum(campaign.repeats.values())}, GPUs: {min(gpus)} to {max(gpus)}"
    )
    repeats = list(campaign.repeats.values())
    notes = [
        f"repeats: {few} (configurations: {repeats.count(few)}): {words}"
        for few, words in _FEW_REPEATS.items()
        if few in repeats
    ]
    return "\n".join([*configuration_table(campaign), sums, *campaign.left_out, *notes])


def configuration_table(campaign: Campaign) -> list[str]:
    """Lines of the table of configurations, the first with its heads."""
    import pandas as pd

    rows = [
        {
            "configuration": c.id,
            "repeats": campaign.repeats[c.id],
            **{head: getattr(c, name) for head, name in _COLUMNS.items()},
            "series": ", ".join(campaign.series_of(c.id)),
        }
        for c in campaign.configurations.values()
    ]
    frame = pd.DataFrame(rows, dtype=object).fillna("–")
    for name in ("configuration", "series"):  # words to the left, numbers to the right
        width = frame[name].str.len().max()
        frame = frame.rename(columns={name: name.ljust(width)})
        frame[name.ljust(width)] = frame[name.ljust(width)].str.ljust(width)
    return [line.strip() for line in frame.to_string(index=False).splitlines()]
