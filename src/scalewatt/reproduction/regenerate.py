"""Regenerate tables and figures, in a separate folder, from the stored files of a campaign."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, write_text
from scalewatt.reproduction.manifests import (
    ALL_RUNS,
    CLAIMS,
    FIGURE,
    IDLE,
    PLAN,
    PREDICTION,
    RUN_PAGE,
    RUNS,
    TEXT,
    FileEntry,
)
from scalewatt.results.carbon import carbon_path
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.tables.table_schema import metadata

_ROW_FILES = ("spec.json", "history.parquet", "provenance.json")
_NO_TRACES = (
    "its runs' power against time (traces/) is missing; `scalewatt export --traces` adds it"
)


class NotRemadeError(Exception):
    """A file cannot be regenerated here; the message says why."""


@dataclass(frozen=True)
class Remaking:
    """A campaign whose files are regenerated; its stored files are only read."""

    results: Path
    """The campaign's folder."""
    campaign: Campaign
    cluster: Cluster
    name: str
    """The name of the campaign when the files were made."""
    folder: Path
    """Where the files go: those of each step in a separate folder, at the same places as below `results`."""
    _done: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def remade(self, entry: FileEntry) -> Path:
        """Regenerate a file and return its path; NotRemadeError where that cannot be done here."""
        step, stem = entry.step, entry.path.rpartition(".")[0]
        if step == FIGURE:  # of figure2.caption.tex, figure2
            stem = entry.path.partition(".")[0]
        if stem in ("tables/" + name for name in ALL_RUNS) and step == RUNS:
            stem = "tables/runs"
        key = (step, stem)
        if key not in self._done:
            self._done[key] = self._tried(step, stem)
        why = self._done[key]
        if why is not None:
            raise NotRemadeError(why)
        path = self.folder / step / entry.path
        if not path.exists():
            raise NotRemadeError(f"what is regenerated from {stem} has no such file")
        return path

    def _tried(self, step: str, stem: str) -> str | None:
        """Make the files of a step; why it cannot be done."""
        if step == IDLE:
            return "tables of idle probes are not regenerated: only their text is"
        make = _STEPS.get(step)
        if make is None:
            return f"the step '{step}' is unknown"
        try:
            make(self, stem, self.folder / step)
        except NotRemadeError as error:
            return str(error)
        return None

    def needs(self, paths: Iterable[Path]) -> None:
        """Raise NotRemadeError where an input file is missing; it is named."""
        missing = [path for path in paths if not path.exists()]
        if missing and all(path.is_relative_to(self.results / "traces") for path in missing):
            raise NotRemadeError(_NO_TRACES)
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise NotRemadeError(
                f"{missing[0].relative_to(self.results)}{more} is missing, which it is made from"
            )

    def table(self, name: str) -> pa.Table:
        """Return a stored table; NotRemadeError where it is missing."""
        import pyarrow.parquet as pq

        path = self.results / f"{name}.parquet"
        self.needs([path])
        with pq.ParquetFile(path) as file:
            return file.read()

    @cached_property
    def reasons(self) -> dict[tuple[str, int], str]:
        """Return why runs are left out, by the table of runs."""
        rows = self.table("tables/runs").select(["configuration", "repeat", "excluded"]).to_pylist()
        return {
            (row["configuration"], row["repeat"]): row["excluded"]
            for row in rows
            if row["excluded"] is not None
        }


def _figure(place: Remaking, stem: str, out: Path) -> None:
    from scalewatt.figures.draw_figure import draw_figure

    name = stem.rpartition("/")[2]
    number = name.removeprefix("figure")
    table = place.results / "tables" / f"{name}.parquet"
    place.needs([table])
    draw_figure(int(number) if number.isdigit() else name, table, out / stem)


def _text(place: Remaking, stem: str, out: Path) -> None:
    """Write the texts of a Parquet table: CSV, and Markdown and LaTeX where the table has them."""
    import pyarrow.csv as pc

    from scalewatt.results.figures.table_text import TEXTS

    table = place.table(stem)
    out = out / stem
    with atomic_path(out.with_name(f"{out.name}.csv")) as temporary:
        pc.write_csv(table, temporary)
    for (name, suffix), text in TEXTS.items():
        if name == out.name:
            write_text(out.with_suffix(suffix), text(table))


def _runs(place: Remaking, stem: str, out: Path) -> None:
    """Build a table from the files of its runs, by the definition in its metadata."""
    from scalewatt.results.build import write_figure_table, write_runs

    definition = metadata(place.table(stem)).get("definition")
    if definition is None:
        raise NotRemadeError(
            "the table does not record what it was made from (an older version made it)"
        )
    place.needs(_needed(place.results, definition))
    out = out / stem
    if "figure" in definition:
        write_figure_table(definition, place.results, out.with_name(f"{out.name}.parquet"))
    else:
        write_runs(definition, place.results, out.parent)


def _needed(results: Path, definition: dict[str, Any]) -> list[Path]:
    """Return the files of runs that a table is made from."""
    figure = definition.get("figure")
    found = []
    for configuration, repeat in [] if figure == "figure1" else definition["runs"]:
        files = RunFiles(results, configuration, repeat)
        found += [*(files.folder / name for name in _ROW_FILES), files.energy, files.flags]
        found += [files.traces, files.devices] if figure == "figure5" else []
        found += [files.epochs] if figure == "learning" else []
        found += [carbon_path(files.energy)] if definition.get("carbon_over_time") else []
    return found + ([results / "tables" / "idle.parquet"] if definition.get("idle") else [])


def _page(place: Remaking, stem: str, out: Path) -> None:
    """Draw the page of one run in the formats in which it is there."""
    from scalewatt.figures.output.save_figure import FORMATS
    from scalewatt.figures.run_page import PAGE_FORMATS, save_pages
    from scalewatt.results.figures.run_page_table import read_page

    configuration, repeat = stem.split("/")[-2:]
    files = RunFiles(place.results, configuration, int(repeat))
    names = (*_ROW_FILES, "events.parquet")
    tables = (files.energy, files.flags, files.traces)
    place.needs([*(files.folder / name for name in names), *tables])
    reason = place.reasons.get((configuration, int(repeat)))
    page = read_page(place.results, configuration, int(repeat), reason)
    there = [name for name in FORMATS if (place.results / f"{stem}.{name}").exists()]
    save_pages([page], out, there or PAGE_FORMATS)


def _claims(place: Remaking, stem: str, out: Path) -> None:
    from scalewatt.claims.check_claims import write_claims
    from scalewatt.claims.load_evidence import campaign_evidence

    tables = place.results / "tables"
    place.needs(tables / f"{name}.parquet" for name in ALL_RUNS)
    # They name the campaign, which may have been imported under another name.
    campaign = replace(place.campaign, name=place.name)
    write_claims(campaign_evidence(campaign, tables), out / stem)


def _plan(place: Remaking, stem: str, out: Path) -> None:
    from scalewatt.scaling.commands import plan_campaign, write_plan
    from scalewatt.scaling.planning.plan import plan_sha256

    plan_metadata = metadata(place.table("tables/plan"))
    _check_model(place, plan_metadata)
    if place.name != place.campaign.name:
        raise NotRemadeError(f"it was made from the campaign when it was called {place.name}")
    sha256 = plan_metadata.get("definition_sha256")
    if sha256 is not None and sha256 != plan_sha256(place.campaign, place.cluster):
        raise NotRemadeError(
            f"it was made for another cluster file or campaign than '{place.cluster.name}' and "
            f"{place.campaign.path} are now"
        )
    write_plan(plan_campaign(place.cluster, place.campaign.path), out / stem)


def _prediction(place: Remaking, stem: str, out: Path) -> None:
    from scalewatt.scaling.commands import write_prediction

    _check_model(place, metadata(place.table("tables/prediction")))
    place.needs([place.results / "tables" / "configurations.parquet"])
    table = out / f"{stem}.parquet"
    write_prediction(place.results, place.campaign.path, place.cluster, table)


def _check_model(place: Remaking, plan_metadata: dict[str, Any]) -> None:
    """Raise NotRemadeError where the cluster names another scaling model than a table was made with."""
    model, own = plan_metadata.get("scaling_model"), place.cluster.scaling_model
    if own is None or (model is not None and Path(model).name != Path(own).name):
        raise NotRemadeError(
            f"it was made with the scaling model {model}, and the cluster '{place.cluster.name}' names "
            f"{own or 'none'}"
        )


_STEPS: dict[str, Callable[[Remaking, str, Path], None]] = {
    FIGURE: _figure,
    TEXT: _text,
    RUNS: _runs,
    RUN_PAGE: _page,
    CLAIMS: _claims,
    PLAN: _plan,
    PREDICTION: _prediction,
}


def error_line(error: Exception) -> str:
    """Return the message of an error; of an unforeseen one with its type."""
    words = " ".join(str(error).split())
    return words if isinstance(error, InputError) else f"{type(error).__name__}: {words}"
