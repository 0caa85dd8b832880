"""docs/guide/python.md and the three functions behind it: its code runs, and its tables are the schemas'."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from energy_files import T0, counter, gpu, write_perun
from report_results import demo, made_runs, write_results
from run_files import device, part, write_energy

import scalewatt
from scalewatt.energies.tables import DEVICES_SCHEMA
from scalewatt.energies.traces import SAMPLES_SCHEMA

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)

SECONDS = 120
"""Two GPUs at 100 and 300 W, a sample a second."""


def write_gpu_table(path: Path) -> None:
    """Write what nvidia-smi logs from noon in Berlin."""
    lines = ["timestamp, index, power.draw [W]"]
    for second in range(SECONDS + 1):
        stamp = f"2026/03/02 12:{second // 60:02d}:{second % 60:02d}.000"
        lines += [f"{stamp}, 0, 100.00 W", f"{stamp}, 1, 300.00 W"]
    path.write_text("\n".join(lines) + "\n")


NOON_S = 1_772_449_200
"""2026-03-02 12:00 in Berlin."""


def write_stages(path: Path) -> None:
    """Write a table of two stages of 30 and 90 s."""
    rows = [("startup", NOON_S, NOON_S + 30), ("train", NOON_S + 30, NOON_S + SECONDS)]
    path.write_text("stage,start_s,end_s\n" + "".join(f"{s},{b},{e}\n" for s, b, e in rows))


def write_demo(folder: Path) -> Path:
    """Write results like the demo's, with the energy tables of one run."""
    runs = made_runs(demo())
    write_results(folder, demo(), runs)
    first = {name: runs[0][name] for name in ("configuration", "repeat")}
    energy = folder / "energy" / first["configuration"] / f"{first['repeat']}.parquet"
    write_energy(energy, [{**part("cpu", "train", 100, 5000), **first}])
    devices = [{**device(), **first}]
    pq.write_table(
        pa.Table.from_pylist(devices, DEVICES_SCHEMA), energy.with_suffix(".devices.parquet")
    )
    return folder


@pytest.fixture(scope="module")
def made_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo(tmp_path_factory.mktemp("page") / "demo")


@pytest.fixture
def workplace(tmp_path: Path, made_demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_gpu_table(tmp_path / "gpu.csv")
    write_stages(tmp_path / "stages.csv")
    shutil.copytree(made_demo, tmp_path / "results" / "demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_pages_code_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib.use("agg")
    assert len(BLOCKS) == 3
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/guide/python.md", "exec"), names)
    assert names["by_stage"].to_dict() == pytest.approx({"startup": 12_000, "train": 36_000})
    assert "'figure4'" in capsys.readouterr().out


def test_every_column_and_fact_of_an_account_is_on_the_page(workplace: Path) -> None:
    account = scalewatt.energy("gpu.csv", time_zone="Europe/Berlin")
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {*account.to_dict(), *account.totals} <= named


def test_samples_have_the_columns_of_traces(workplace: Path) -> None:
    samples = scalewatt.read_recording("gpu.csv", stages="stages.csv", time_zone="Europe/Berlin")
    assert list(samples.columns) == SAMPLES_SCHEMA.names
    assert len(samples) == 2 * (SECONDS + 1)
    assert samples.time.min() == pd.Timestamp(NOON_S, unit="s", tz="UTC")
    assert set(samples.power_w) == {100.0, 300.0}
    assert set(samples.stage) >= {"startup", "train"}


def test_a_power_that_is_not_true_is_null_in_samples_and_named_in_flags(tmp_path: Path) -> None:
    path = tmp_path / "one.hdf5"
    watts = gpu(101, 100.0) + np.arange(101) % 3
    watts[50:53] = 0.0
    write_perun(path, {"n1": {"CUDA:0_POWER": watts, "cpu_0_package-0": counter(101, 150.0)}})
    samples = scalewatt.read_recording(path)
    of_gpu = samples[samples.device_kind == "gpu"]
    assert of_gpu.power_w.isna().sum() == 3
    flags = scalewatt.energy(path).flags.set_index("code")
    assert flags.device_kind["missing_samples"] == "gpu"


def test_totals_have_energy_but_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "windows.csv"
    path.write_text(f"start_time,window_name,elapsed_time,gpu0_energy\n{T0},epoch,10.0,1500.0\n")
    assert scalewatt.energy(path, run="epoch").joules() == 1500.0
    with pytest.raises(scalewatt.InputError, match=r"windows\.csv: holds totals"):
        scalewatt.read_recording(path)


def test_a_campaigns_tables_come_with_those_of_its_runs(workplace: Path) -> None:
    results = scalewatt.load_campaign_results("results/demo")
    assert set(results.tables) == {p.stem for p in Path("results/demo/tables").glob("*.parquet")}
    assert results.runs.equals(results.tables["runs"])
    assert "claims" not in results.tables
    assert results.stages[["stage", "energy_j"]].values.tolist() == [["train", 5000.0]]
    assert len(results.devices) == 1
    with pytest.raises(scalewatt.InputError, match="does not exist"):
        results.samples("none", 1)
