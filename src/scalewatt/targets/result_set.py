"""Which runs, tables, figures and pages a campaign's results consist of, and what they are made from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster, Device
from scalewatt.campaign.cluster import carbon_file, powers
from scalewatt.campaign.table_requests import runs_definition, table_definition
from scalewatt.common.schema_validation import shipped
from scalewatt.figures.draw_figure import SUFFIXES

Run = list[Any]
"""[configuration, repeat], as JSON has it."""

ROW_FILES = (
    "runs/{configuration}/{repeat}/provenance.json",
    "energy/{configuration}/{repeat}.parquet",
)
"""What a run's row in a table waits for, below the results folder: the last file of each job.

The row is made from all that they wrote. To Snakemake, each further file of each run costs time;
`files` asks for those of ENERGY_BESIDE that are lost.
"""
_ENERGY = ROW_FILES[1]
ENERGY_BESIDE = tuple(
    f".{name}.parquet" for name in ("epochs", "devices", "flags", "telemetry", "cross-checks")
)
"""Endings of the files that are made with an energy."""
CLAIMS_ENDINGS = (".csv", ".parquet", ".md", ".json")
CARBON = "energy/{configuration}/{repeat}.carbon.parquet"
TRACES = "traces/{configuration}/{repeat}.parquet"
PAGE_FILES = (*ROW_FILES, TRACES)
_TABLE_SUFFIXES = {
    "table1": (".parquet", ".csv", ".md", ".tex"),
    "variants": (".parquet", ".csv", ".md"),
}


@dataclass(frozen=True)
class ResultSet:
    """The results of one campaign as they are to be."""

    campaign: Campaign
    cluster: Cluster
    devices: Mapping[str, Device]
    """All that the campaign's runs may name."""
    finished_only: bool
    """True if nothing is trained: then only what is there counts."""
    excluded: Sequence[dict[str, Any]]
    """Runs left out of the tables: configuration, repeat, reason."""
    set_aside: Mapping[tuple[str, int], Sequence[Path]]
    """The notes of earlier measurements, by run."""

    @property
    def folder(self) -> str:
        """Return results/<campaign>."""
        return f"results/{self.campaign.name}"

    # --- runs -------------------------------------------------------------------------------------

    def is_finished(self, configuration: str, repeat: int) -> bool:
        """Return True if the run's results are there; the provenance is written last."""
        return Path(self.folder, "runs", configuration, str(repeat), "provenance.json").exists()

    def runs(self, configurations: Iterable[str] | None = None) -> list[Run]:
        """Return the runs of these configurations, or of all; those finished with `finished_only`."""
        chosen = self.campaign.configurations if configurations is None else configurations
        repeats_of = self.campaign.repeats_of
        runs: list[Run] = [[one, repeat] for one in chosen for repeat in repeats_of(one)]
        return [run for run in runs if self.is_finished(*run)] if self.finished_only else runs

    def by_repeats(self) -> dict[tuple[int, ...], list[str]]:
        """Return the configurations that have the same repeats, by these repeats."""
        found: dict[tuple[int, ...], list[str]] = {}
        for one in self.campaign.configurations:
            repeats = tuple(repeat for _, repeat in self.runs([one]))
            if repeats:
                found.setdefault(repeats, []).append(one)
        return found

    def files(self, runs: Iterable[Run], *names: str) -> list[str]:
        """Return files of runs; `names` are patterns below the results folder.

        With the notes of earlier measurements that were set aside: Snakemake alone does not miss a
        run whose tables are there. With an energy come files that were made with it and are lost.
        """
        runs = list(runs)
        files = [self._path(name, *run) for run in runs for name in names]
        if _ENERGY in names and not self.campaign.imported and not self.campaign.registered:
            files += self._lost_beside_energies(runs)
        return files + [str(note) for run in runs for note in self.set_aside.get(tuple(run), ())]

    def _path(self, name: str, configuration: str, repeat: int) -> str:
        return f"{self.folder}/" + name.format(configuration=configuration, repeat=repeat)

    def _lost_beside_energies(self, runs: Iterable[Run]) -> list[str]:
        """Return which of ENERGY_BESIDE are not there beside energies that are.

        A folder is listed once: on a cluster's file system each look at a file may take a millisecond.
        """
        lost: list[str] = []
        there: dict[str, set[str]] = {}
        for run in runs:
            folder, _, name = self._path(_ENERGY, *run).rpartition("/")
            if folder not in there:
                there[folder] = set(os.listdir(folder)) if os.path.isdir(folder) else set()
            if name in there[folder]:
                beside = [name.removesuffix(".parquet") + ending for ending in ENERGY_BESIDE]
                lost += [f"{folder}/{one}" for one in beside if one not in there[folder]]
        return lost

    # --- tables and figures -----------------------------------------------------------------------

    @cached_property
    def figures(self) -> list[str]:
        """Return the campaign's `figures` (and table1) that can be made."""
        return [name for name in self.campaign.figures if not self.lacks_traces(name)]

    def lacks_traces(self, figure: str) -> bool:
        """Return True if the campaign was imported without the table of figure 5 and its traces."""
        if not self.campaign.imported or figure != "figure5":
            return False
        return not (
            came_with([f"{self.folder}/tables/{figure}.parquet"])
            or came_with(self.table_inputs(figure))
        )

    def figure_runs(self, figure: str) -> list[Run]:
        """Return the runs that a figure shows."""
        if figure == "figure1":  # drawn from the campaign alone
            return []
        out = [[one["configuration"], one["repeat"]] for one in self.excluded]
        runs = self.runs(self.campaign.figure_configurations(figure))
        runs = [run for run in runs if run not in out]
        if figure == "figure5":  # the first run of each configuration
            return list({run[0]: run for run in reversed(runs)}.values())
        return runs

    def table_inputs(self, figure: str) -> list[str]:
        """Return the files that a figure's table, or Table 1, waits for."""
        traces = (TRACES,) if figure == "figure5" else ()
        files = self.files(self.figure_runs(figure), *ROW_FILES, *traces)
        if self.campaign.figures[figure].get("overlay") == "published":
            files.append(str(shipped("reference/published_results.csv")))
        if figure == "breakdown":
            files += self.idle_table[:1]
        return files

    @property
    def claims_files(self) -> list[str]:
        """Return what the target `all`, report and manifest have of the paper's claims.

        Nothing without a model of the paper; the target `claims` checks them all the same.
        """
        if not self.campaign.has_papers_models:
            return []
        return [f"{self.folder}/tables/claims{ending}" for ending in CLAIMS_ENDINGS]

    def table_files(self, name: str) -> list[str]:
        """Return the files of a table."""
        suffixes = _TABLE_SUFFIXES.get(name, (".parquet", ".csv"))
        return [f"{self.folder}/tables/{name}{suffix}" for suffix in suffixes]

    def figure_files(self, figure: str) -> list[str]:
        """Return the files that the target of a figure asks for; of table1 and variants the table."""
        if figure in _TABLE_SUFFIXES:
            return self.table_files(figure)
        return [f"{self.folder}/figures/{figure}{suffix}" for suffix in SUFFIXES]

    # --- idle probes ------------------------------------------------------------------------------

    @cached_property
    def probes(self) -> dict[str, list[int]]:
        """Return the repeats of all idle probes by device; those finished with `finished_only`.

        A campaign of chosen runs alone has no probe made: those there are count.
        """
        probe, campaign = self.campaign.idle_probe, self.campaign
        if probe is None or self.cluster.simulates:
            return {}
        # An imported campaign came with the table, and without the probes' recordings.
        if campaign.imported and not came_with([f"{self.folder}/tables/idle.parquet"]):
            return {}
        repeats = range(1, probe.repeats + 1)
        found = {
            device: [
                repeat
                for repeat in repeats
                if not (self.finished_only or campaign.only)
                or Path(self.folder, "idle", device, str(repeat), "probe.json").exists()
            ]
            for device in sorted(campaign.devices())
        }
        return {device: numbers for device, numbers in found.items() if numbers}

    @property
    def idle_table(self) -> list[str]:
        """Return the files of the table of idle powers; none without probes."""
        return self.table_files("idle") if self.probes else []

    # --- carbon over time -------------------------------------------------------------------------

    @cached_property
    def has_carbon(self) -> bool:
        """Return True if there is a file of carbon intensity, and runs have been when it tells of.

        An imported campaign came with what the file says of its runs, or without.
        """
        if carbon_file(self.cluster) is None or self.cluster.simulates:
            return False
        return not self.campaign.imported or bool(came_with(self.files(self.runs(), CARBON)))

    @property
    def carbon_tables(self) -> list[str]:
        """Return the tables of the carbon intensity that runs met; none without a file of it."""
        return self.files(self.runs(), CARBON) if self.has_carbon else []

    # --- pages of runs ----------------------------------------------------------------------------

    @cached_property
    def pages(self) -> dict[str, list[int]]:
        """Return the repeats of each configuration that have a page.

        Of an imported campaign those it came with, or those whose traces it has.
        """
        found = {}
        for one in self.campaign.configurations:
            runs = self.runs([one])
            if self.campaign.imported and not came_with(self.files(runs, *PAGE_FILES)):
                runs = [run for run in runs if came_with([self._page_file(run)])]
            if runs:
                found[one] = [repeat for _, repeat in runs]
        return found

    def _page_file(self, run: Run) -> str:
        return f"{self.folder}/figures/runs/{run[0]}/{run[1]}.svg"

    def page_exclusions(self, configuration: str) -> dict[str, str]:
        """Return why repeats of a configuration are excluded, by repeat."""
        return {
            str(one["repeat"]): one["reason"]
            for one in self.excluded
            if one["configuration"] == configuration
        }

    # --- requests ---------------------------------------------------------------------------------

    def request(self, name: str) -> dict[str, Any]:
        """Return what a table is asked to show: `runs`, `idle`, a figure's name or table1."""
        if name == "idle":
            devices = {
                device: {"repeats": numbers, "powers": powers(self.devices[device])}
                for device, numbers in self.probes.items()
            }
            return {"campaign": self.campaign.name, "devices": devices}
        if name == "runs":
            request = runs_definition(self.campaign, self.runs(), self.excluded)
        else:
            excluded = [] if name == "figure1" else self.excluded  # it has no run
            request = table_definition(self.campaign, name, self.figure_runs(name), excluded)
        if name == "runs" and self.has_carbon:
            request["carbon_over_time"] = True
        if name in ("runs", "breakdown") and self.probes:
            request["idle"] = True
        return {**request, "facility": self._facility()}

    def _facility(self) -> dict[str, Any]:
        """Return PUE, carbon and price of the cluster, where it names them."""
        from scalewatt.results.tables.derived_quantities import facility_of  # with pyarrow

        given = asdict(facility_of(self.cluster))
        return {name: value for name, value in given.items() if value is not None}


def came_with(files: list[str]) -> list[str]:
    """Return `files` if an imported campaign came with all of them, else none: it cannot make them."""
    return files if all(Path(path).exists() for path in files) else []
