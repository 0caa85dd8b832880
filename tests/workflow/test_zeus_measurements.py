"""Zeus's tables all the way: from a row to the tables, the report and the optima, by the commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from documents import commands, run
from workspace import PROJECT, Workspace, environment

pytestmark = [pytest.mark.slow, pytest.mark.long]

TRAINING = "imagenet,resnet50"
EPOCHS = {
    # batch, W limit: s of an epoch, mean W
    (128, 150): (4600.0, 146.0),
    (128, 250): (3900.0, 215.0),
    (256, 150): (4100.0, 145.0),
    (256, 250): (3500.0, 220.0),
}
NEEDED = {128: (18, 20), 256: (20, 22)}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with the campaigns `epochs` and `to-target`, registered and drawn."""
    folder = tmp_path_factory.mktemp("zeus")
    powers, train = folder / "summary_power_v100.csv", folder / "summary_train.csv"
    heading = "dataset,network,batch_size,optimizer"
    powers.write_text(
        f"{heading},power_limit,time_per_epoch,average_power\n"
        + "".join(
            f"{TRAINING},{batch},adadelta,{limit},{seconds},{watts}\n"
            for (batch, limit), (seconds, watts) in EPOCHS.items()
        )
    )
    train.write_text(
        f"{heading},learning_rate,run,target_metric,target_epoch\n"
        + "".join(
            f"{TRAINING},{batch},adadelta,1e-1,{run},0.65,{epochs}\n"
            for batch, both in NEEDED.items()
            for run, epochs in enumerate(both, 1)
        )
        + f"{TRAINING},256,adadelta,1e-1,3,0.65,\n"
    )
    workspace = Workspace.create(folder / "project")
    for name, paths in (("epochs", [powers]), ("to-target", [powers, train])):
        command = [sys.executable, "-m", "scalewatt.cli", "register", name, *map(str, paths)]
        subprocess.run(command, cwd=workspace.path, env=environment(), check=True)
        workspace.done("all", "--config", f"campaign=campaigns/{name}.yaml")
    return workspace


def runs(workspace: Workspace, name: str) -> Path:
    return workspace.path / "results" / name / "tables" / "runs.parquet"


def test_each_row_is_a_measured_energy_of_the_gpu(workspace: Workspace) -> None:
    found = pd.read_parquet(runs(workspace, "epochs"))
    assert len(found) == len(EPOCHS)
    for row in found.to_dict("records"):
        seconds, watts = EPOCHS[row["local_batch_size"], row["gpu_power_limit_w"]]
        assert row["energy_kwh"] == pytest.approx(seconds * watts / 3.6e6, rel=1e-12)
        assert row["energy_per_sample_j"] == pytest.approx(seconds * watts / 1_281_167, rel=1e-12)
        assert (row["energy_origin"], row["energy_scope"]) == ("measured", "gpu")
        assert {"total_only"} <= {one["code"] for one in json.loads(row["flags"])}
        assert pd.isna(row["excluded"])


def test_repeats_to_the_target_have_their_spread(workspace: Workspace) -> None:
    found = pd.read_parquet(runs(workspace, "to-target").with_name("configurations.parquet"))
    assert len(found) == len(EPOCHS) and set(found["n_repeats"]) == {2}
    for row in found.to_dict("records"):
        seconds, watts = EPOCHS[row["local_batch_size"], row["gpu_power_limit_w"]]
        energies = [n * seconds * watts / 3.6e6 for n in NEEDED[row["local_batch_size"]]]
        assert row["energy_kwh_mean"] == pytest.approx(sum(energies) / 2, rel=1e-12)
        spread = pd.Series(energies).std()
        assert row["energy_kwh_sd"] == pytest.approx(spread, rel=1e-9)


def test_nothing_is_left_to_do_and_the_report_is_there(workspace: Workspace) -> None:
    for name in ("epochs", "to-target"):
        assert workspace.jobs("all", "--config", f"campaign=campaigns/{name}.yaml") == {}
        report = workspace.path / "results" / name / "report.html"
        assert "resnet50" in report.read_text()


def test_the_optima_are_told_from_the_tables(workspace: Workspace) -> None:
    script = PROJECT / "benchmarks" / "zeus_power_limits.py"
    paths = [str(runs(workspace, name)) for name in ("epochs", "to-target")]
    done = subprocess.run(
        [sys.executable, str(script), *paths],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    limits, batches = done.stdout.strip().split("\n\n")
    saved = 1 - 4100 * 145 / (3500 * 220)
    assert f"| V100 | 256 | 150 of 250 | {100 * saved:.0f} % | 17 % |" in limits
    # 256: 21 epochs of 0.1651 kWh; 128: 19 of 0.1866 kWh
    both = 1 - 4100 * 145 / (3500 * 220)
    assert f"| 256, 150 W: {100 * both:.0f} % |" in batches


OTHERS = os.environ.get("SCALEWATT_OTHERS")


@pytest.mark.skipif(
    not OTHERS or not Path(OTHERS, "zeus").is_dir(),
    reason="SCALEWATT_OTHERS names no folder with Zeus's tables",
)
def test_the_registrations_of_the_page_run_on_the_real_tables(tmp_path: Path) -> None:
    shutil.copytree(Path(OTHERS or "", "zeus"), tmp_path / "trace")
    shown = commands("docs/zeus-power-limits.md")
    walked = [one for one in shown if one.bare.startswith(("mkdir", "grep", "scalewatt register"))]
    printed = {one.bare: run(one, tmp_path) for one in walked}
    told = {
        text.split()[2]: re.findall(
            r"^registered: … and \d+ more, (\d+) in all$", out, re.MULTILINE
        )
        for text, out in printed.items()
        if out
    }
    assert told == {
        "zeus-v100": ["476"],
        "zeus-v100-to-target": ["2156"],
        "zeus-v100-resnet50": ["140"],
    }
