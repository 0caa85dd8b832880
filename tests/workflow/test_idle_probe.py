"""Idle probes on real processes: alone, on stand-in sensors, and as the workflow runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from commands import wait_for
from stand_in_rapl import WATTS
from training import CLUSTER
from workspace import Workspace, environment, first_on_path, start_process

from scalewatt.results.tables.idle import ProbePowers, probe_powers

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
RATED = {"cpu": CLUSTER["devices"]["local"]["cpu"], "gpu": None, "ram": None}


def command(out: Path, period_s: float = 0.5, **device: Any) -> list[str]:
    """A probe of ten seconds; `device` changes the cluster's."""
    devices = {"local": {**CLUSTER["devices"]["local"], **device}}
    out.parent.mkdir(parents=True, exist_ok=True)
    cluster = out.with_name(f"{out.name}.cluster.json")
    cluster.write_text(json.dumps({**CLUSTER, "devices": devices}))
    return [
        *(sys.executable, "-m", "scalewatt.cli", "probe", "local", "--site", str(cluster)),
        *("--seconds", "10", "--sampling-period", str(period_s), "--out", str(out)),
    ]


def ranks_and_sampler(out: Path) -> list[psutil.Process]:
    """The processes of a probe's ranks on this machine: they have its order file's name."""
    held = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if "-m" in words[:2] and words[-1].startswith(str(out / ".work")):
                held.append(process)
    return held


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ProbePowers:
    """A probe with stand-in counters and GPUs; the counters wrap so soon that samples are close."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("covering /sys/class/powercap needs a mount namespace (root)")
    out = tmp_path_factory.mktemp("measured") / "probe"
    nvml = first_on_path(HERE / "stand_in_nvml")
    subprocess.run(
        ["unshare", "-m", sys.executable, str(HERE / "stand_in_rapl.py"), *command(out, 0.1)],
        env={**environment(), "PYTHONPATH": nvml},
        check=True,
    )
    return probe_powers(out, RATED)


def test_a_probe_measures_what_the_sensors_say(measured: ProbePowers) -> None:
    assert {kind["energy_origin"] for kind in measured.kinds.values()} == {"measured"}
    assert measured.kinds["cpu"]["devices"] == 2
    assert measured.kinds["cpu"]["mean_w"] == pytest.approx(2 * WATTS["package"], rel=0.05)
    assert measured.kinds["ram"]["mean_w"] == pytest.approx(2 * WATTS["dram"], rel=0.05)


def test_a_probe_on_a_cpu_holds_no_gpu(measured: ProbePowers) -> None:
    assert "gpu" not in measured.kinds
    unused = measured.kinds["unused_gpu"]
    assert unused["devices"] >= 2
    assert unused["mean_w"] is not None and unused["mean_w"] > 0


def test_a_probe_whose_sampler_is_lost_fails(tmp_path: Path) -> None:
    out = tmp_path / "probe"
    process = start_process(command(out))
    wait_for(lambda: list(out.glob(".work/idle-*/perun/*.sensors.json")))
    ranks = ranks_and_sampler(out)
    (sampler,) = (p for p in ranks if p.ppid() in {rank.pid for rank in ranks})
    sampler.kill()
    output, _ = process.communicate()
    assert process.returncode == 70, output
    assert "the sampler (process" in output
    assert not (out / "probe.json").exists()
    assert not ranks_and_sampler(out)


# --- in the workflow ----------------------------------------------------------------------------

KEY = "idle_probe: {seconds: 10, repeats: 2}\n"


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The tiny campaign with the key, its probes done."""
    workspace = Workspace.create(tmp_path_factory.mktemp("probed") / "project")
    workspace.edit("campaigns/tiny.yaml", "protocol: corrected\n", f"protocol: corrected\n{KEY}")
    workspace.done("idle_probe")
    return workspace


def test_the_target_makes_the_table_of_every_device_with_its_spread(probed: Workspace) -> None:
    rows = pq.read_table(probed.results / "tables" / "idle.parquet").to_pylist()
    (row,) = (row for row in rows if row["device_kind"] == "cpu")
    assert (row["campaign"], row["device"], row["repeats"]) == ("tiny", "local", 2)
    assert (row["window_s"], row["energy_origin"]) == (10.0, "estimated")
    assert row["mean_w"] is not None and 11.1 <= row["mean_w"] <= 111.001
    assert row["sd_w"] is not None and row["low_w"] <= row["mean_w"] <= row["high_w"]
    folder = probed.results / "idle" / "local"
    windows = [json.loads((folder / n / "probe.json").read_text())["window"] for n in ("1", "2")]
    windows.sort(key=lambda window: window["start_s"])
    assert windows[0]["end_s"] < windows[1]["start_s"], "one at a time"
    assert "sd_w" in (probed.results / "tables" / "idle.csv").read_text()


def test_with_results_only_finished_probes_are_used_and_none_is_started(
    probed: Workspace, tmp_path: Path
) -> None:
    fewer = probed.copy(tmp_path / "fewer")
    (fewer.results / "idle" / "local" / "2" / "probe.json").unlink()
    (fewer.results / "tables" / "idle.parquet").unlink()
    fewer.done("idle_probe", "--config", "results_only=true")
    rows = pq.read_table(fewer.results / "tables" / "idle.parquet").to_pylist()
    assert {row["repeats"] for row in rows} == {1}
    assert {row["sd_w"] for row in rows} == {None}


def test_a_finished_probe_is_kept_when_it_is_made_again(probed: Workspace, tmp_path: Path) -> None:
    other = probed.copy(tmp_path / "other")
    before = (other.results / "idle" / "local" / "1" / "probe.json").read_bytes()
    other.edit("campaigns/tiny.yaml", "seconds: 10", "seconds: 11")
    code, output = other.snakemake("idle_probe", "--config", "launcher=false {gpus}")
    assert code == 1 and "the earlier one is in results/tiny/superseded/idle/local/1/1" in output
    kept = other.results / "superseded" / "idle" / "local" / "1" / "1"
    assert (kept / "probe.json").read_bytes() == before and (kept / "perun").is_dir()
