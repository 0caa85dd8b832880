"""Which files of a user's script have changed since runs of it were measured, or have begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.external_command import command_files, differing_files
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import published_run, run_folder, work_folders, work_name

_NAMED = 3


def changed_files(campaign: Campaign, results: Path, work: Path) -> list[str]:
    """Write a sentence on each command of which runs used other files than there are now.

    A changed file alone never trains a finished run again. `results` and `work` are the campaign's own
    folders.
    """
    return [
        f"{campaign.path}: models.{model}: {sentence}"
        for model in sorted(campaign.command_settings())
        for sentence in _changed_since(campaign, model, results, work)
    ]


def _changed_since(campaign: Campaign, model: str, results: Path, work: Path) -> Iterator[str]:
    runs = [run for run in campaign.runs() if run.configuration.model == model]
    specs = [run_spec(campaign, run.configuration.id, run.repeat) for run in runs]
    try:
        files = command_files(specs[0])
    except InputError:  # refused where it would be trained
        return
    begun = work_folders(work)
    changed: list[list[str]] = []
    unfinished = 0
    for spec in specs:
        run = spec.configuration, spec.repeat
        published = published_run(run_folder(results, run), *run)
        if published is not None and published.spec_sha256 == spec.sha256:
            if published.files not in (None, files):
                changed.append(differing_files(published.files or {}, files))
        elif spec.key in begun:
            now = work_name(spec.key, None, files)
            unfinished += all(path.name != now for path in begun[spec.key])
    if changed:
        names = listed(sorted(set().union(*changed)), _NAMED)
        remedy = "scalewatt remeasure repeats a run"
        yield f"files unlike those of finished runs ({len(changed)}): {names}; {remedy}"
    if unfinished:
        yield f"files unlike those that unfinished runs began with ({unfinished}), and would go on with"
