"""Which files of a user's script have changed since its finished runs were measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.external_command import command_files, differing_files
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import published_runs

_NAMED = 3


def changed_files(campaign: Campaign, results: Path) -> Iterator[str]:
    """Yield a sentence on each command whose finished runs used other files than there are now.

    A changed file alone never trains a finished run again; an unfinished one is refused when it would go on.
    `results` is the campaign's own folder.
    """
    finished = published_runs(results)
    for model in sorted(campaign.command_settings()):
        specs = {
            run: run_spec(campaign, *run)
            for run in campaign.runs()
            if campaign.configurations[run[0]].model == model
        }
        try:
            files = command_files(next(iter(specs.values())))
        except InputError:  # refused where it would be trained
            continue
        changed = [
            differing_files(run.files, files)
            for name, run in finished.items()
            if name in specs
            and run.spec_sha256 == specs[name].sha256
            and run.files not in (None, files)
        ]
        if changed:
            names = listed(sorted(set().union(*changed)), _NAMED)
            yield (
                f"{campaign.path}: models.{model}: files unlike those of finished runs "
                f"({len(changed)}): {names}; scalewatt remeasure repeats a run"
            )
