"""Simulated runs for tests: simulated, accounted for, and the truth beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from campaign_files import replaced
from injected_faults import Fault, Truth, simulate_with_faults
from run_files import run_row

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device, load_cluster, powers
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.files import read_json
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.energies.account import write_energy
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.scaling.predict import read_model
from scalewatt.scaling.simulation.simulate import Simulation, simulation, write_run

MODEL = PROJECT_ROOT / "reference" / "scaling_model.json"
J_PER_KWH = 3.6e6


@cache
def cluster() -> Cluster:
    """The cluster of profiles/simulate."""
    return load_cluster(PROJECT_ROOT / "config" / "simulate.yaml")


@cache
def campaign() -> Campaign:
    """The paper's, as it is simulated."""
    return load_campaign(PROJECT_ROOT / "campaigns/paper.yaml", cluster())


def spec_of(configuration: str, repeat: int = 1, **changes: Any) -> RunSpec:
    """The spec of one of the paper's runs."""
    return replace(run_spec(campaign(), configuration, repeat), **changes)


def with_device(name: str, **changes: Any) -> Cluster:
    """The cluster with another device."""
    device: Device = replaced(cluster().devices[name], **changes)
    return replaced(cluster(), devices={**cluster().devices, name: device})


@dataclass(frozen=True)
class Simulated:
    """A simulated run."""

    files: RunFiles
    run: Simulation
    truth: Truth

    @property
    def folder(self) -> Path:
        """Its run folder."""
        return self.files.folder

    @property
    def provenance(self) -> dict[str, Any]:
        """Its provenance.json."""
        return read_json(self.folder / "provenance.json")

    def true_j(self, kind: str) -> float:
        """The true energy of a device kind."""
        return float(self.truth.joules("kind").get(kind, 0.0))

    def true_stage_j(self, kind: str) -> dict[str, float]:
        """The true energy of a device kind by stage."""
        return dict(self.truth.joules("kind", "stage")[kind])

    def row(self, on: Cluster | None = None) -> dict[str, Any]:
        """Its row of runs.parquet, accounted for as a training's."""
        path = self.folder / "spec.json"
        rated = powers((on or cluster()).devices[read_spec(path).device])
        write_energy(self.folder, path, rated, self.files.traces, self.files.energy)
        return run_row(self.files)


def simulated(
    spec: RunSpec, on: Cluster | None = None, model: Path = MODEL, period_s: float | None = None
) -> Simulation:
    """What happens in a run, by the model in a file; sampled every `period_s`, if given."""
    run = simulation(spec, on or cluster(), read_model(model))
    return replace(run, period_s=period_s, fine_start_s=0.0) if period_s else run


def simulate(
    results: Path,
    spec: RunSpec,
    on: Cluster | None = None,
    faults: Sequence[Fault] = (),
    model: Path = MODEL,
    period_s: float | None = None,
) -> Simulated:
    """Simulate a spec into the results folder `results`."""
    files = RunFiles(results, spec.configuration, spec.repeat)
    files.folder.mkdir(parents=True)
    (files.folder / "spec.json").write_text(spec.text + "\n", encoding="utf-8")
    run = simulated(spec, on, model, period_s)
    if faults:
        return Simulated(files, run, simulate_with_faults(run, faults, files.folder, model))
    write_run(run, files.folder, model)
    truth = Truth()
    truth.add(run)
    return Simulated(files, run, truth)
