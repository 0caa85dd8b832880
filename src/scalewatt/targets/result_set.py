"""Which runs, tables, figures and pages a campaign's results consist of, and what they are made from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device, basis, powers
from scalewatt.campaign.exclusions import REMEASURE, excluded_runs, read_exclusions
from scalewatt.campaign.load import is_results_only
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.campaign.table_definitions import runs_definition, table_definition
from scalewatt.common.project_files import find_file
from scalewatt.figures.draw_figure import SUFFIXES
from scalewatt.run_files.inventory import is_of_campaign, missed_by_notes
from scalewatt.targets.changes import note_change

if TYPE_CHECKING:
    from scalewatt.scaling.predict import ScalingModel

Run = list[Any]
"""[configuration, repeat], as JSON has it."""

PROVENANCE = "runs/{configuration}/{repeat}/provenance.json"
ROW = "energy/{configuration}/{repeat}.row.parquet"
"""What a table waits for of each of its runs: the last file of the energy step."""
ENERGY_BESIDE = tuple(
    f".{name}.parquet" for name in ("epochs", "devices", "flags", "cross-checks", "row")
)
"""Endings of the files that are made with an energy."""
CLAIMS_ENDINGS = (".csv", ".parquet", ".md", ".json")
_PROBE_FILES = ("probe.json", "perun")
TRACES = "traces/{configuration}/{repeat}.parquet"
PAGE_FILES = (ROW, TRACES)
_RECORDINGS = "runs/{configuration}/{repeat}/perun"
_PAGE = "figures/runs/{configuration}/{repeat}.svg"
_OF_SITE = ("campaign", "facility", "torch_devices")
"""Of a table's definition, what the campaign does not set."""
_TABLE_SUFFIXES = {
    "table1": (".parquet", ".csv", ".md", ".tex"),
    "variants": (".parquet", ".csv", ".md"),
}


@dataclass(frozen=True)
class ResultSet:
    """The results of one campaign as they are to be."""

    campaign: Campaign
    cluster: Cluster
    finished_only: bool
    """True if nothing is trained: only what exists counts."""
    excluded: Sequence[dict[str, Any]] = ()
    """Runs left out of the tables: configuration, repeat, reason."""
    set_aside: Mapping[tuple[str, int], Sequence[Path]] = field(default_factory=dict)
    """The notes of earlier measurements, by run."""
    remeasured: Sequence[dict[str, Any]] = ()
    """Rows of the campaign's exclusions that asked for another measurement."""

    @classmethod
    def load(cls, campaign: Campaign, cluster: Cluster, with_exclusions: bool) -> ResultSet:
        """Read what is left out and set aside; InputError if the table of exclusions is wrong."""
        finished_only, results = is_results_only(campaign, cluster), Path("results", campaign.name)
        rows = read_exclusions(campaign) if with_exclusions else ()
        rows = tuple(row for row in rows if campaign.has_run(*row.run))
        return cls(
            campaign,
            facility_cluster(campaign, cluster),
            finished_only,
            excluded_runs(rows, results, finished_only),
            missed_by_notes(results),
            [row.model_dump() for row in rows if row.action == REMEASURE],
        )

    @cached_property
    def devices(self) -> Mapping[str, Device]:
        """All that the campaign's runs may name: those made elsewhere may be of any device."""
        if self.campaign.registered:
            return registered_devices(self.campaign, self.cluster)
        return self.campaign.known_devices

    @property
    def folder(self) -> str:
        """results/<campaign>."""
        return f"results/{self.campaign.name}"

    @property
    def facts(self) -> list[str]:
        """Sentences on what is left out, and on which numbers come from the cluster file."""
        devices = [self.devices[name] for name in sorted(self.campaign.devices())]
        return [f"{text}." for text in self.campaign.left_out] + basis(self.cluster, devices)

    def datasets(self, format_: str) -> list[str]:
        """Descriptions of the campaign's datasets of a format."""
        datasets = self.campaign.datasets().items()
        names = [name for name, definition in datasets if definition["format"] == format_]
        return [f"{self.folder}/datasets/{name}.json" for name in names]

    # --- the scaling model ------------------------------------------------------------------------

    @property
    def model_files(self) -> list[str]:
        """The file of the cluster's scaling model; none if the cluster file names none."""
        name = self.cluster.scaling_model
        return [str(find_file(name))] if name else []

    @cached_property
    def model(self) -> ScalingModel | None:
        """The cluster's scaling model; None if the cluster file names none."""
        if self.cluster.scaling_model is None:  # what reads models is imported where one is named
            return None
        from scalewatt.scaling.predict import read_model

        return read_model(self.cluster.scaling_model)

    def upper_s(self, spec: RunSpec) -> float | None:
        """Upper bound of a run's time in s by the scaling model; None if it is not known."""
        return self.model.upper_runtime_s(spec) if self.model else None

    # --- runs -------------------------------------------------------------------------------------

    def runs(self, configurations: Iterable[str] | None = None) -> list[Run]:
        """Runs of these configurations, or of all; with `finished_only` those that are finished."""
        chosen = self.campaign.configurations if configurations is None else configurations
        runs: list[Run] = [
            [id_, repeat] for id_ in chosen for repeat in self.campaign.repeats_of(id_)
        ]
        return [run for run in runs if not self.finished_only or tuple(run) in self._finished]

    @cached_property
    def _finished(self) -> set[tuple[str, int]]:
        """Runs whose results are there, and of the campaign's present settings."""
        there = [run for run in self.campaign.runs() if self._exists(PROVENANCE, [*run])]
        return {run for run in there if is_of_campaign(self.campaign, self.folder, run)}

    def _path(self, name: str, run: Run) -> str:
        return f"{self.folder}/" + name.format(configuration=run[0], repeat=run[1])

    def _exists(self, name: str, run: Run) -> bool:
        return os.path.exists(self._path(name, run))

    def _has_power(self, run: Run) -> bool:
        """True if a run has its power against time, or will have: an archive may lack it."""
        return not self.finished_only or self._exists(TRACES, run) or self._exists(_RECORDINGS, run)

    def files(self, runs: Iterable[Run], *names: str) -> list[str]:
        """Files of runs; `names` are patterns below the results folder.

        With the notes of earlier measurements that were set aside: Snakemake alone does not miss a
        run whose tables exist.
        """
        runs = list(runs)
        files = [self._path(name, run) for run in runs for name in names]
        return files + [str(note) for run in runs for note in self.set_aside.get(tuple(run), ())]

    # --- tables and figures -----------------------------------------------------------------------

    @cached_property
    def figures(self) -> list[str]:
        """The campaign's `figures` (and table1) that can be made."""
        return [name for name in self.campaign.figures if name != "figure5" or self._has_figure5()]

    def _has_figure5(self) -> bool:
        """True if the table of powers exists or can be made."""
        table = self.table_files("figure5")[0]
        return os.path.exists(table) or all(map(self._has_power, self.figure_runs("figure5")))

    def figure_runs(self, figure: str) -> list[Run]:
        """Runs that a figure shows."""
        if figure == "figure1":  # drawn from the campaign alone
            return []
        excluded = [[run["configuration"], run["repeat"]] for run in self.excluded]
        every = self.runs(self.campaign.figure_configurations(figure))
        runs = [run for run in every if run not in excluded]
        if figure == "figure5":  # the first run of each configuration
            return list({run[0]: run for run in reversed(runs)}.values())
        return runs

    def table_inputs(self, figure: str) -> list[str]:
        """Files that a table waits for: a figure's, Table 1, or `idle`."""
        if figure == "idle":
            return [
                f"{self.folder}/idle/{device}/{repeat}/{name}"
                for device, repeats in self.probes.items()
                for repeat in repeats
                for name in _PROBE_FILES
            ]
        traces = (TRACES,) if figure == "figure5" else ()
        files = self.files(self.figure_runs(figure), ROW, *traces)
        if self.campaign.figures[figure].get("overlay") == "published":
            files.append(str(find_file("reference/published_results.csv")))
        if figure == "breakdown":
            files += self.idle_table[:1]
        return files

    def change_of(self, name: str) -> list[str]:
        """Note that a table was made with another definition; none if it was not.

        An imported campaign has another name, and perhaps another site.
        """
        from scalewatt.results.tables.frames import stored_metadata  # with pyarrow

        table = Path(self.table_files(name)[0])
        stored = stored_metadata(table).get("definition") if table.exists() else None
        definitions = (
            each and {key: value for key, value in each.items() if key not in _OF_SITE}
            for each in (stored, self.definition(name))
        )
        return note_change(Path(self.folder), name, *definitions)

    @property
    def claims_files(self) -> list[str]:
        """What the target `all`, report and manifest have of the paper's claims.

        Nothing without a model of the paper; the target `claims` checks them all the same.
        """
        if not self.campaign.has_papers_models:
            return []
        return [f"{self.folder}/tables/claims{ending}" for ending in CLAIMS_ENDINGS]

    def table_files(self, name: str) -> list[str]:
        """Files of a table."""
        suffixes = _TABLE_SUFFIXES.get(name, (".parquet", ".csv"))
        return [f"{self.folder}/tables/{name}{suffix}" for suffix in suffixes]

    def figure_files(self, figure: str) -> list[str]:
        """Files that the target of a figure asks for; of table1 and variants the table."""
        if figure in _TABLE_SUFFIXES:
            return self.table_files(figure)
        return [f"{self.folder}/figures/{figure}{suffix}" for suffix in SUFFIXES]

    # --- idle probes ------------------------------------------------------------------------------

    @cached_property
    def probes(self) -> dict[str, list[int]]:
        """Repeats of all idle probes by device; those finished with `finished_only`.

        A campaign of chosen runs alone has no probe made: those that exist count.
        """
        probe, campaign = self.campaign.idle_probe, self.campaign
        if probe is None or self.cluster.simulates:
            return {}
        is_made = not (self.finished_only or campaign.only)
        probes = {
            device: [
                repeat
                for repeat in range(1, probe.repeats + 1)
                if is_made or os.path.exists(f"{self.folder}/idle/{device}/{repeat}/probe.json")
            ]
            for device in sorted(campaign.devices())
        }
        return {device: repeats for device, repeats in probes.items() if repeats}

    @property
    def idle_table(self) -> list[str]:
        """Files of the table of idle powers; none without probes."""
        return self.table_files("idle") if self.probes else []

    # --- pages of runs ----------------------------------------------------------------------------

    @cached_property
    def pages(self) -> dict[str, list[int]]:
        """Repeats of each configuration that have a page, or what it is drawn from."""
        pages = {
            id_: [
                run[1]
                for run in self.runs([id_])
                if self._exists(_PAGE, run) or self._has_power(run)
            ]
            for id_ in self.campaign.configurations
        }
        return {id_: repeats for id_, repeats in pages.items() if repeats}

    def page_inputs(self, configuration: str) -> list[str]:
        """Files that the pages of a configuration's runs wait for."""
        runs = [[configuration, repeat] for repeat in self.pages[configuration]]
        return self.files(runs, *PAGE_FILES)

    def page_exclusions(self, configuration: str) -> dict[str, str]:
        """Why repeats of a configuration are excluded, by repeat."""
        return {
            str(run["repeat"]): run["reason"]
            for run in self.excluded
            if run["configuration"] == configuration
        }

    # --- what tables show -------------------------------------------------------------------------

    def definition(self, name: str) -> dict[str, Any]:
        """Definition of a table: `runs`, `idle`, a figure's name or table1."""
        if name == "idle":
            devices = {
                device: {"repeats": repeats, "powers": powers(self.devices[device])}
                for device, repeats in self.probes.items()
            }
            return {"campaign": self.campaign.name, "devices": devices}
        if name == "runs":
            definition = runs_definition(self.campaign, self.runs(), self.excluded)
        else:
            runs = self.figure_runs(name)
            definition = table_definition(self.campaign, name, runs, self.excluded)
        if name in ("runs", "breakdown") and self.probes:
            definition["idle"] = True
        from scalewatt.results.tables.derived_quantities import facility_of  # with pyarrow

        facility = asdict(facility_of(self.cluster)).items()  # PUE, carbon and price, where given
        return {**definition, "facility": {k: value for k, value in facility if value is not None}}
