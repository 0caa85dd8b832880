"""A run that its jobs' time limit cuts into segments equals the same run uncut."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mini_project import DEVICES, HERE, MiniProject
from minislurm import MiniSlurm, wait_for
from training import changed_python

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.traces import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1800), pytest.mark.nightly]

CUT = "fourcastnet.pretrain-a100-apart-n002-lbs0001-full"
UNCUT = "fourcastnet.pretrain-h100-n002-lbs0001-full"
WARNED = "fourcastnet.pretrain-a100-n001-lbs0001-full-epochs3"
LIMIT_MIN = 1
# Slurm looks at its jobs' limits every 30 s and warns up to 30 s early: 25 to 55 s after a start, in
# which a busy machine comes to its first update as well.
WARNING_S = 5
# Long enough for three jobs on a quick machine, and mostly idle.
UPDATE_S = 0.05
ROUNDING_S = 0.01
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def project(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """All runs, side by side, finished by one snakemake; Slurm warns one rank alone when we say so."""
    slurm.cancel_all()
    campaign = HERE / "segments.yaml"
    project = MiniProject.on(slurm, tmp_path_factory.mktemp("segments") / "project", campaign)
    short = {**DEVICES["a100-apart"], "time_limit_min": LIMIT_MIN}
    devices = {**DEVICES, "a100-apart": short}
    project.change("cluster", devices=devices, stop_warning_s=WARNING_S)
    project.variables.update(changed_python("slow_updates", UPDATE_S=UPDATE_S))
    snakemake = project.start("all")
    try:
        warn(project, WARNED)
        output, _ = snakemake.communicate()
    finally:
        if snakemake.poll() is None:
            snakemake.send_signal(signal.SIGINT)  # TERM would wait for its jobs
            print(snakemake.communicate()[0])
    assert snakemake.returncode == 0, output
    return project


def warn(project: MiniProject, configuration: str) -> None:
    """Send USR1, as Slurm does before a job's end, once the run has a checkpoint."""

    def job() -> str | None:
        for work in project.work.glob(f"{configuration}-1-*"):
            if (work / "checkpoint.pt").exists():
                return json.loads((work / "holder.json").read_text())["job"]
        return None

    project.slurm.command("scancel", "--signal=USR1", wait_for(job, "checkpoint", PATIENCE_S))


@pytest.fixture(scope="module")
def segments(project: MiniProject) -> list[dict[str, Any]]:
    """The segments of the run that was cut."""
    return project.provenance(CUT)["segments"]


def test_the_time_limit_cuts_the_run_into_at_least_three_jobs(
    project: MiniProject, segments: list[dict[str, Any]]
) -> None:
    assert len(segments) >= 3
    jobs = [segment["job"] for segment in segments]
    assert len(set(jobs)) == len(jobs)
    assert [segment["outcome"] for segment in segments[:-1]] == ["stopped"] * (len(jobs) - 1)
    assert segments[-1]["outcome"] == "finished"
    accounted = {job["JobID"]: job for job in project.slurm.sacct(*jobs)}
    states = [accounted[job]["State"] for job in jobs]
    assert set(states[:-1]) <= {"FAILED", "TIMEOUT"}
    assert states[-1] == "COMPLETED"
    (alone,) = project.provenance(UNCUT)["segments"]
    assert alone["outcome"] == "finished"


def test_segments_follow_one_another_without_gap_or_overlap(
    project: MiniProject, segments: list[dict[str, Any]]
) -> None:
    spec = read_spec(project.out(CUT) / "spec.json")
    assert segments[0]["from_updates"] == 0
    assert segments[-1]["to_updates"] == spec.updates
    for segment, following in pairwise(segments):
        assert segment["to_updates"] == following["from_updates"]
        assert segment["from_updates"] < segment["to_updates"]
        assert segment["ended_s"] <= following["started_s"]
    epochs = [row["epoch"] for row in project.history(CUT)]
    assert epochs == list(range(spec.epochs))
    events = pq.read_table(project.out(CUT) / "events.parquet").to_pylist()
    for segment, following in pairwise(events):
        assert segment["end_s"] <= following["start_s"]


def test_weights_and_history_are_those_of_the_run_uncut(project: MiniProject) -> None:
    project.assert_same_training(CUT, UNCUT)


def test_every_segment_is_recorded_on_both_nodes_and_the_energy_is_the_integral_of_its_power(
    project: MiniProject, segments: list[dict[str, Any]]
) -> None:
    files = sorted(path.name for path in (project.out(CUT) / "perun").glob("*.hdf5"))
    assert files == [f"segment-{number:03d}.hdf5" for number in range(len(segments))]
    with pq.ParquetFile(project.results / "traces" / CUT / "1.parquet") as file:
        traces = pd.concat(read_samples(file))
    traces = traces[(traces["device_kind"] == "cpu") & traces["power_w"].notna()]
    table = [row for row in project.energy(CUT) if row["device_kind"] == "cpu"]
    for (number, node), trace in traces.groupby(["segment", "node"]):
        times_s = trace["time"].astype("datetime64[ns, UTC]").astype("int64").to_numpy() / 1e9
        rows = [row for row in table if (row["segment"], row["node"]) == (number, node)]
        covered_s = sum(row["duration_s"] for row in rows)
        assert covered_s == pytest.approx(times_s[-1] - times_s[0], abs=ROUNDING_S)
        energy_j = np.trapezoid(trace["power_w"], times_s)
        assert sum(row["energy_j"] for row in rows) == pytest.approx(energy_j, rel=1e-4)
        segment = segments[number]
        assert segment["started_s"] <= times_s[0] < times_s[-1] <= segment["ended_s"]
    nodes = {(s["segment"], rank["host"]) for s in segments for rank in s["ranks"]}
    assert {*traces.groupby(["segment", "node"]).groups} == nodes and len(nodes) == 2 * len(
        segments
    )
    runs = pq.read_table(project.results / "tables" / "runs.parquet").to_pylist()
    (run,) = (row for row in runs if row["configuration"] == CUT)
    total_kwh = sum(row["energy_j"] for row in table) / 3.6e6
    assert run["energy_kwh"] == pytest.approx(total_kwh, rel=1e-6)
    assert run["segments"] == len(segments)
    assert run["runtime_s"] <= sum(s["ended_s"] - s["started_s"] for s in segments)


def test_nothing_is_done_twice_but_the_evaluation_that_a_stop_broke_off(
    project: MiniProject, segments: list[dict[str, Any]]
) -> None:
    each = read_spec(project.out(CUT) / "spec.json").updates_per_epoch
    for row in project.energy(CUT):
        if row["discarded_j"]:
            assert row["stage"] in ("evaluate_train", "validate")
            assert segments[row["segment"]]["to_updates"] % each == 0
            # All of it where the segment evaluated once and was stopped meanwhile.
            assert row["discarded_j"] <= row["energy_j"]


def test_one_rank_alone_is_warned_too_and_goes_on_where_it_stopped(project: MiniProject) -> None:
    segment, following = project.provenance(WARNED)["segments"]
    assert (segment["outcome"], segment["code"]) == ("stopped", 75)
    assert 0 < segment["to_updates"] == following["from_updates"]
    assert following["outcome"] == "finished"
    assert [row["epoch"] for row in project.history(WARNED)] == list(range(3))
    (job,) = project.slurm.sacct(segment["job"])
    assert job["State"] == "FAILED"  # ended by itself
