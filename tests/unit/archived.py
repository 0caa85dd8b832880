"""A small finished campaign on a cluster of its own, for tests of archives."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulated_runs import simulate

from scalewatt.archive.export_archive import export_campaign
from scalewatt.archive.import_archive import import_archive
from scalewatt.campaign.cluster import load_cluster, powers
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.campaign.table_definitions import runs_definition, table_definition
from scalewatt.energies.account import write_energy
from scalewatt.reproduction.manifest import write_manifest
from scalewatt.results.build import write_figure_table, write_runs
from scalewatt.results.tables.run_row import write_row

ACCOUNT = "hk-project-secret"
CAMPAIGN = """
name: small
protocol: paper
datasets:
  imagenet:
    {format: imagenet, source: data_root, train_samples: 1281167, validation_samples: 50000, classes: 1000}
models:
  resnet50: {dataset: imagenet, epochs: 3}
series:
  lbs256:
    {model: resnet50, device: a100, gpus: [2, 4], local_batch_size: 256, dataset_fraction: n/256}
figures:
  figure2: {series: [lbs256]}
"""
CLUSTER = f"""
cluster: elsewhere
campaign: campaigns/small.yaml
account: {ACCOUNT}
launcher: srun -n {{gpus}}
work_root: /scratch/of-somebody/work
data_roots: {{imagenet: /lsdf/of-somebody/imagenet}}
pue: {{value: 1.05, source: the site}}
devices:
  a100:
    description: two to a node
    gpus_per_node: 2
    max_gpus: 64
    cpus_per_rank: 38
    partition: somewhere
    time_limit_min: 600
    gpu: {{idle_w: 50, rated_w: 400}}
    cpu: {{sockets: 2, idle_w: 80, rated_w: 270}}
"""


@dataclass(frozen=True)
class Project:
    """A folder with a campaign, a cluster file and results."""

    path: Path

    @property
    def results(self) -> Path:
        """The campaign's results."""
        return self.path / "results" / "small"

    @property
    def campaign(self) -> Path:
        """The campaign file."""
        return self.path / "campaigns" / "small.yaml"

    @property
    def facts(self) -> Path:
        """The cluster file of an imported campaign."""
        return self.path / "campaigns" / "small.cluster.yaml"

    def export(self, name: str = "small.crate.zip", **wanted: Any) -> Path:
        """Export it; the archive."""
        out = self.path / name
        self.messages(out, **wanted)
        return out

    def messages(self, out: Path, **wanted: Any) -> list[str]:
        """Export it; what the export prints."""
        files = self.campaign, self.path / "cluster.yaml", self.path / "results"
        return export_campaign(*files, out, **wanted)

    def import_(self, archive: Path, name: str | None = None) -> list[str]:
        """Import an archive here; what the import prints."""
        return import_archive(archive, self.path / "results", self.path / "campaigns", name)

    def copy(self, path: Path) -> Project:
        """The same, elsewhere."""
        shutil.copytree(self.path, path)
        return Project(path)


def make_project(path: Path) -> Project:
    """Simulate both runs of the campaign, and make their tables."""
    project = Project(path)
    project.campaign.parent.mkdir(parents=True)
    project.campaign.write_text(CAMPAIGN)
    (path / "cluster.yaml").write_text(CLUSTER)
    cluster = load_cluster(path / "cluster.yaml")
    campaign = load_campaign(project.campaign, cluster)
    runs = []
    for run in campaign.runs():
        spec = run_spec(campaign, *run)
        files = simulate(project.results, spec, cluster).files
        rated = powers(cluster.devices["a100"])
        write_energy(files.folder, files.folder / "spec.json", rated, files.traces, files.energy)
        write_row(files)
        (files.folder / "train.log").write_text("/home/somebody/log\n")
        runs.append([*run])
    tables = project.results / "tables"
    write_runs({**runs_definition(campaign, runs), "facility": {}}, project.results, tables)
    figure2 = {**table_definition(campaign, "figure2", runs), "facility": {}}
    write_figure_table(figure2, project.results, tables / "figure2.parquet")
    write_manifest(project.results)
    return project


def content(archive: Path) -> dict[str, bytes]:
    """The files of an archive by path in its payload, in its order."""
    with zipfile.ZipFile(archive) as packed:
        names = [name for name in packed.namelist() if "/data/" in name]
        return {name.partition("/data/")[2]: packed.read(name) for name in names}


def tag_file(archive: Path, name: str) -> str:
    """A text beside the payload: bag-info.txt, manifest-sha256.txt."""
    with zipfile.ZipFile(archive) as packed:
        return packed.read(f"{packed.namelist()[0].partition('/')[0]}/{name}").decode()


def changed(archive: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive with other files in it, by path in the ZIP without the bag's name."""
    with zipfile.ZipFile(archive) as packed:
        top = packed.namelist()[0].partition("/")[0]
        files = {name.partition("/")[2]: packed.read(name) for name in packed.namelist()}
    change(files)
    out = archive.with_name("changed.zip")
    with zipfile.ZipFile(out, "w") as packed:
        for name, data in files.items():
            packed.writestr(f"{top}/{name}", data)
    return out


def below(folder: Path) -> list[str]:
    """All that is in a folder, links and folders too."""
    return sorted(
        os.path.relpath(Path(at, name), folder)
        for at, folders, names in os.walk(folder)
        for name in (*folders, *names)
    )
