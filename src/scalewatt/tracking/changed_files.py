"""Which files of a user's script have changed since runs of it were measured, or have begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.external_command import command_files, differing_files, is_command_spec
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import WorkFolder, published_run, work_folders, work_name

_NAMED = 3


def changed_files(campaign: Campaign, results: Path, work: Path) -> list[str]:
    """Write a sentence on each command of which runs used other files than there are now.

    A changed file alone never trains a finished run again. `results` and `work` are the campaign's own
    folders.
    """
    if not campaign.commands():
        return []
    specs: dict[str, list[RunSpec]] = {}
    for one in campaign.runs():
        spec = run_spec(campaign, one.configuration.id, one.repeat)
        if is_command_spec(spec):
            specs.setdefault(spec.model, []).append(spec)
    begun = work_folders(work)
    return [
        f"{campaign.path}: models.{model}: {sentence}"
        for model, runs in specs.items()
        for sentence in _of_model(runs, results, work, begun)
    ]


def _of_model(
    specs: list[RunSpec], results: Path, work: Path, begun: Mapping[str, Sequence[WorkFolder]]
) -> Iterator[str]:
    try:
        files = command_files(specs[0])
    except InputError:  # who would train it is told
        return
    names: set[str] = set()
    finished = unfinished = 0
    for spec in specs:
        folder = results / "runs" / spec.configuration / str(spec.repeat)
        published = published_run(folder, spec.configuration, spec.repeat)
        if published is not None and published.spec_sha256 == spec.sha256:
            if published.files is not None and published.files != files:
                names |= set(differing_files(published.files, files))
                finished += 1
        elif spec.key in begun:
            now = work_name(spec.key, None, files)
            unfinished += all(one.path.name != now for one in begun[spec.key])
    if finished:
        yield (
            f"files unlike those of finished runs ({finished}): {listed(sorted(names), _NAMED)}; scalewatt "
            "remeasure repeats a run"
        )
    if unfinished:
        yield (
            f"files unlike those that unfinished runs ({unfinished}) began with; with the earlier files they "
            f"go on; those that stopped at a checkpoint begin afresh when their folders in {work} are removed"
        )
