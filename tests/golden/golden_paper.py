"""What is made of frozen runs: the paper's campaign in small, and small trainings, from run folders.

The run folders are inputs that never change. Their energies and the figures are made here, one after the
other, as jobs of their own would import for minutes; all else is made by Snakemake, as a user makes it.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from golden_project import link_workflow, snakemake
from golden_tables import FOLDER, Golden

from scalewatt.campaign.cluster import Device, load_cluster, powers
from scalewatt.common.files import read_json
from scalewatt.energies.account import write_energy
from scalewatt.figures.draw_figure import draw_figure
from scalewatt.results.tables.run_row import RunFiles, write_row

INPUTS = FOLDER / "paper"
CAMPAIGN, TRAINED = "golden", "trained-corrected"
TARGETS = ("tables", "table1", "claims", "prediction", "idle_probe")
RUN = ("configuration", "repeat")
PART = (*RUN, "device_kind", "stage")
POINT = ("panel", "series", "gpus", "energy_origin", "y_name")
FIGURES = {
    "figure1": ("series", "gpus"),
    **dict.fromkeys(("figure2", "figure3", "figure4", "figure6", "figure7"), POINT),
    "figure5": ("panel", "configuration", "device_kind"),
    "breakdown": ("series", "configuration", "device_kind", "stage"),
    "learning": ("series", *RUN, "epoch"),
    "pareto": ("panel", "series", "configuration", "energy_origin", "x_name", "y_name"),
}
"""Figures, and the columns that name a point."""
TABLES = {
    "runs": RUN,
    "scaling": ("series", "configuration"),
    "comparisons": ("configuration", "baseline", "quantity"),
    "idle": ("device", "device_kind"),
    "table1": ("device", "gpus", "local_batch_size"),
    "claims": ("id",),
    "prediction": ("configuration", "quantity"),
}
PROSE = ("flags", "warnings", "reason", "calibrated_on", "detail", "claim", "expected", "stands")
"""Columns of sentences, which may be said otherwise."""
VERDICTS_REASON = ("claims", "reason")
"""No sentence, but a part of the verdict."""
STATISTICS = ("mean", "sd", "low", "high")
JOULES = ("energy_j", "energy_low_j", "energy_high_j", "recorded_j", "discarded_j")


def made(folder: Path) -> dict[Golden, pd.DataFrame]:
    """The goldens of today's code, made in a new folder."""
    return tables_of(make_results(folder))


def goldens() -> dict[str, Golden]:
    """All goldens of the frozen runs, by name."""
    keys = {
        "energies": PART,
        "flags": (*RUN, "code"),
        "configurations": ("configuration", "quantity"),
        **TABLES,
        **FIGURES,
    }
    return {name: Golden(f"paper/{name}.csv.xz", key) for name, key in keys.items()}


def make_results(folder: Path) -> Path:
    """Make the results of the frozen runs in a new folder; where they are."""
    link_workflow(folder)
    shutil.copy(INPUTS / "cluster.yaml", folder)
    for path in (*INPUTS.glob("golden.*"), FOLDER / "trainings" / "corrected.yaml"):
        shutil.copy(path, folder / "campaigns")
    with tarfile.open(INPUTS / "runs.tar.xz") as archive:
        archive.extractall(folder / "results", filter="data")
    account(folder / "results", load_cluster(folder / "cluster.yaml").devices)
    options = ("--configfile", "cluster.yaml", "--cores", "2", "--quiet", "all", "--config")
    results = folder / "results" / CAMPAIGN
    points = {name: results / "tables" / f"{name}.parquet" for name in FIGURES}
    targets = (*TARGETS, *(str(table.relative_to(folder)) for table in points.values()))
    snakemake(folder, *options, "results_only=true", "--", *targets)
    for name, table in points.items():
        draw_figure(name, table, results / "figures" / name)
    snakemake(
        folder, *options, "campaign=campaigns/corrected.yaml", "results_only=true", "--", "tables"
    )
    return folder / "results"


def account(results: Path, devices: Mapping[str, Device]) -> None:
    """Do the energy step of all runs, as workflow/scripts/energy.py does."""
    for path in sorted(results.glob("*/runs/*/*/spec.json")):
        campaign, spec = path.parents[3], read_json(path)
        run = RunFiles(campaign, spec["configuration"], spec["repeat"])
        name = f"{run.configuration}/{run.repeat}.parquet"
        rated = powers(devices[spec["device"]])
        write_energy(
            path.parent, path, rated, campaign / "traces" / name, campaign / "energy" / name
        )
        write_row(run)


def tables_of(results: Path) -> dict[Golden, pd.DataFrame]:
    """The tables that are compared, from results on disk."""
    known = goldens()
    tables = {
        "energies": _of_both(results, _energies),
        "flags": _of_both(results, _flags),
        "configurations": _known(_csv(results / CAMPAIGN / "tables" / "configurations.csv")),
        **{name: _csv(results / CAMPAIGN / "tables" / f"{name}.csv") for name in TABLES},
        **{name: _csv(results / CAMPAIGN / "figures" / f"{name}.csv") for name in FIGURES},
    }
    predicted = tables["prediction"]
    of_figure = predicted.quantity.isin(["runtime_h", "energy_kwh"])
    tables["prediction"] = predicted[
        of_figure & predicted[["found", "predicted"]].notna().all(axis=1)
    ]
    tables["runs"] = pd.concat([tables["runs"], _csv(results / TRAINED / "tables" / "runs.csv")])
    return {known[name]: table for name, table in tables.items()}


def _csv(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path)
    prose = [name for name in PROSE if name in table and (path.stem, name) != VERDICTS_REASON]
    return table.drop(columns=prose)


def _of_both(results: Path, read: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([read(results / name / "energy") for name in (CAMPAIGN, TRAINED)])


def _of_runs(energy: Path, suffix: str) -> pd.DataFrame:
    """A table of each run, with the run's name."""
    parts = []
    for path in sorted(energy.glob(f"*/*{suffix}")):
        name = path.name.removesuffix(suffix)
        if name.isdigit():
            part = pq.read_table(path).to_pandas()
            parts.append(part.assign(configuration=path.parent.name, repeat=int(name)))
    return pd.concat(parts)


def _energies(energy: Path) -> pd.DataFrame:
    """Energy by run, device kind and stage: the sum over nodes and segments, null if one is."""
    rows = _of_runs(energy, ".parquet")
    rows["device_s"] = rows.devices * rows.duration_s
    rows["covered_s"] = rows.device_s * rows.coverage
    groups = rows.groupby(list(PART), dropna=False)
    total = groups[[*JOULES, "device_s", "covered_s"]].agg(lambda part: part.sum(skipna=False))
    total["origins"] = groups.energy_origin.agg(lambda part: "+".join(sorted(set(part.dropna()))))
    total["rows"] = groups.size()
    return total.reset_index()


def _flags(energy: Path) -> pd.DataFrame:
    """How often each flag is set."""
    return (
        _of_runs(energy, ".flags.parquet").groupby([*RUN, "code"]).size().rename("n").reset_index()
    )


def _known(wide: pd.DataFrame) -> pd.DataFrame:
    """Configurations' means, one row a quantity; those that are known."""
    rows = []
    for row in wide.to_dict("records"):
        for name in wide.columns:
            quantity = name.removesuffix("_mean")
            if quantity == name or pd.isna(row[name]):
                continue
            values = {statistic: row.get(f"{quantity}_{statistic}") for statistic in STATISTICS}
            rows.append(
                {
                    **{k: row[k] for k in ("configuration", "n_repeats")},
                    "quantity": quantity,
                    **values,
                }
            )
    return pd.DataFrame(rows)
