"""Registered runs all the way: from recordings and a table to figures, without any training."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import energy_files
import numpy as np
import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long]

T0 = 1_795_000_000.0
SECONDS = 30
RECORDINGS = {
    # name: hosts, GPUs of each, W of each GPU, seconds from T0
    "one": (("n1",), 1, 300.0, 0),
    "one-again": (("n1",), 1, 310.0, 100),
    "two": (("n1",), 2, 280.0, 200),
    "four": (("n1", "n2"), 2, 260.0, 300),
}
TRAINING = {"train", "spec", "dataset"}


def write_journal(path: Path, host: str, gpus: int, watts: float, start: float) -> None:
    """One sample a second of `gpus` GPUs and one package of 100 W, as our sampler writes them."""
    seconds = np.arange(SECONDS)
    sensors = {f"CUDA:{i}_POWER": np.full(SECONDS, 1000.0 * watts) for i in range(gpus)}
    sensors["cpu_0_package-0"] = 1e6 * (500.0 + 100.0 * seconds)
    energy_files.write_journal(path, host, sensors, start=start)


def make_recordings(folder: Path) -> Path:
    """The recordings, and the table that describes them."""
    rows: list[dict[str, Any]] = []
    for name, (hosts, gpus, watts, offset) in RECORDINGS.items():
        path = f"{name}.csv" if len(hosts) == 1 else name
        for host in hosts:
            file = path if len(hosts) == 1 else f"{path}/segment-000.{host}.csv"
            write_journal(folder / file, host, gpus, watts, T0 + offset)
        rows.append({"path": path, "gpus": gpus * len(hosts), "metric": 20 + len(rows)})
    common = {
        "model": "vit",
        "device": "gpu9000",
        "local_batch_size": 32,
        "dataset_samples": 960,
        "epochs": 2,
        "metric_name": "top5_error_percent",
        "label": "ViT",
    }
    stages = folder / "stages.csv"
    stages.write_text(f"stage,start_s,end_s\ntrain,{T0 + 205},{T0 + 229}\n")
    with open(folder / "runs.csv", "w", newline="") as handle:
        writer = csv.DictWriter(handle, [*rows[0], *common, "events"])
        writer.writeheader()
        writer.writerows(
            {**row, **common, "events": "stages.csv" if row["path"] == "two.csv" else ""}
            for row in rows
        )
    return folder / "runs.csv"


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose campaign `mine` is registered and drawn."""
    folder = tmp_path_factory.mktemp("registered")
    workspace = Workspace.create(folder / "project")
    table = make_recordings(folder / "recordings")
    workspace.scalewatt("register", "mine", "--table", str(table))
    workspace.done("all", *CAMPAIGN)
    return workspace


CAMPAIGN = ("--config", "campaign=campaigns/mine.yaml")


def table(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    return pq.read_table(
        workspace.path / "results" / "mine" / "tables" / f"{name}.parquet"
    ).to_pylist()


def test_figures_tables_and_report_are_there(registered: Workspace) -> None:
    results = registered.path / "results" / "mine"
    for figure in (2, 5, 6):
        for suffix in ("pdf", "svg", "png", "csv"):
            assert (results / "figures" / f"figure{figure}.{suffix}").stat().st_size > 100
    assert "Top5 error (%)" in (results / "figures" / "figure2.svg").read_text()
    assert "Top5 error (%)" in (results / "tables" / "table1.md").read_text()
    report = (results / "report.html").read_text()
    assert "vit: power and throughput" in report
    caption = (results / "figures" / "figure5.caption.md").read_text()
    assert "A sample of the GPU is an instantaneous power or a mean, which is not known." in caption
    # This machine's PUE and carbon say nothing of another.
    assert {row["facility_energy_kwh"] for row in table(registered, "runs")} == {None}
    assert registered.jobs("all", *CAMPAIGN) == {}


def test_energies_are_those_of_scalewatt_energy(registered: Workspace) -> None:
    rows = table(registered, "runs")
    assert [(r["gpus"], r["repeat"]) for r in rows] == [(1, 1), (1, 2), (2, 1), (4, 1)]
    printed = registered.path.parent / "recordings"
    for row, (name, (hosts, gpus, watts, _)) in zip(rows, RECORDINGS.items(), strict=True):
        truth = (SECONDS - 1) * len(hosts) * (gpus * watts + 100) / 3.6e6
        assert row["energy_kwh"] == pytest.approx(truth, rel=1e-9)
        assert (row["energy_origin"], row["energy_scope"]) == ("measured", "gpu+cpu")
        if len(hosts) == 1:
            path = str(printed / f"{name}.csv")
            account = json.loads(registered.scalewatt("energy", "--json", path))
            joules = {total["device_kind"]: total["energy_j"] for total in account["totals"]}
            assert row["energy_kwh"] * 3.6e6 == pytest.approx(joules["all"], rel=1e-12)
            assert row["gpu_energy_kwh"] * 3.6e6 == pytest.approx(joules["gpu"], rel=1e-12)


def test_repeats_are_averaged_and_stages_are_the_users(registered: Workspace) -> None:
    first, *_ = table(registered, "configurations")
    assert (first["gpus"], first["n_repeats"]) == (1, 2)
    assert first["metric_last_mean"] == 20.5
    energy = registered.path / "results" / "mine" / "energy"
    (two,) = energy.glob("*-n002-*/1.parquet")
    rows = pq.read_table(two).to_pylist()
    assert {r["stage"] for r in rows} == {"train", "unattributed"}
    train = sum(r["energy_j"] for r in rows if r["stage"] == "train" and r["energy_j"])
    assert train == pytest.approx(24 * (2 * 280 + 100), rel=1e-9)


def test_figure5_counts_from_the_recording_where_no_stages_are_known(registered: Workspace) -> None:
    rows = table(registered, "figure5")
    assert {r["gpus"] for r in rows} == {4}
    assert min(r["time_s"] for r in rows) == 0
    drawn = (registered.path / "results" / "mine" / "figures" / "figure5.svg").read_text()
    assert "Time since the recording began" in " ".join(drawn.split())


@pytest.mark.parametrize("profile", ["local", "horeka"])
def test_nothing_is_ever_trained(registered: Workspace, tmp_path: Path, profile: str) -> None:
    workspace = registered.copy(tmp_path / "project")
    # A cluster that wants to train.
    only = ("results_only=false",) if profile == "local" else ()
    code, output = workspace.snakemake("-n", "all", "-F", *CAMPAIGN, *only, profile=profile)
    assert code == 0, output
    rules = {line.split()[0] for line in output.rsplit("Job stats:", 1)[1].splitlines() if line}
    assert "energy" in rules and not rules & TRAINING


def test_a_further_recording_is_the_only_one_accounted(
    registered: Workspace, tmp_path: Path
) -> None:
    workspace = registered.copy(tmp_path / "project")
    make_recordings(tmp_path / "recordings")
    write_journal(tmp_path / "recordings" / "new.csv", "n1", 2, 290.0, T0 + 400)
    (tmp_path / "recordings" / "new.csv.yaml").write_text(
        "{model: vit, device: gpu9000, gpus: 2, local_batch_size: 32, dataset_samples: 960, "
        "epochs: 2, metric: 22.5, metric_name: top5_error_percent}"
    )
    out = workspace.scalewatt("register", "mine", str(tmp_path / "recordings" / "new.csv"))
    assert "-n002-lbs0032-s0000960-e002 repeat 2" in out
    assert workspace.jobs("all", *CAMPAIGN)["energy"] == 1
