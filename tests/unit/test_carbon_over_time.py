"""What a run emits by a file of carbon intensity: along its power, over segments, and null outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from energy_files import NO_POWERS, T0, accounted, counter, gpu, make_run, write_journal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_files import epochs, make_spec

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json, write_table
from scalewatt.energies.tables import EnergyTotals
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.carbon import carbon_path, emitted, write_carbon
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.run_row import Facility, RunFiles, run_record, runs_of
from scalewatt.training.history import history_table

STAGES = [(0, "startup", 0.0, 20.0), (0, "train", 20.0, 280.0), (0, "shutdown", 280.0, 300.0)]


@dataclass(frozen=True)
class Made:
    """A run that was accounted for."""

    folder: Path
    traces: Path
    energy: Path

    @property
    def totals(self) -> EnergyTotals:
        return EnergyTotals(pq.read_table(self.energy).to_pandas(), with_staging=True)

    def grams(self, file: Path) -> float | None:
        """What it emitted by a file, in g."""
        write_carbon(
            self.folder, self.traces, self.energy, file, "a test", carbon_path(self.energy)
        )
        return emitted(self.energy, self.totals)[0]


def made(
    folder: Path, sensors: dict[str, Any], stages: Any = STAGES, *more: dict[str, Any], **noted: Any
) -> Made:
    """A run with one journal each second for each segment; `more`: sensors of further segments, `start`."""
    run = make_run(folder / "run", stages=stages, **noted)
    for number, one in enumerate(({"start": T0, **sensors}, *more)):
        values = {name: own for name, own in one.items() if name != "start"}
        path = run / "perun" / f"segment-{number:03d}.n1.csv"
        write_journal(path, "n1", values, start=one["start"])
    spec = make_spec(gpus=1, ranks_per_node=1)
    (run / "spec.json").write_text(spec.text + "\n")
    found = accounted(run, spec, NO_POWERS)
    energy = folder / "energy.parquet"
    found.tables.write(energy)
    return Made(run, run / "made-traces.parquet", energy)


def grid(folder: Path, *rows: tuple[float, float | None]) -> Path:
    """A file of intensity; times from T0."""
    path = folder / "grid.csv"
    lines = [f"{T0 + time:.6f},{'' if value is None else value}" for time, value in rows]
    path.write_text("\n".join(["time,g_per_kwh", *lines]) + "\n")
    return path


def wave(n: int = 301) -> dict[str, Any]:
    power = 100 + 50 * np.sin(np.arange(n) / 7)
    return {"CUDA:0_POWER": 1000 * power, "cpu_0_package-0": counter(n, 80.0)}


# --- exact --------------------------------------------------------------------------------------


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=st.floats(2, 1500))
def test_a_constant_file_gives_the_constant(
    value: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    run = made(folder, wave())
    steps = [(60.0 * n - 120, value) for n in range(12)]
    whole_j = run.totals.joules()
    assert whole_j is not None
    expected = whole_j / J_PER_KWH * value
    assert run.grams(grid(folder, *steps)) == pytest.approx(expected, rel=1e-12)


def test_a_step_in_mid_run_is_the_sum_of_both_sides(tmp_path: Path) -> None:
    run = made(tmp_path, {"CUDA:0_POWER": gpu(301, 360.0)})
    file = grid(tmp_path, (-200, 100.0), (90.5, 400.0), (381, 50.0))
    assert run.totals.joules() == pytest.approx(360 * 300)
    by_hand = 360 * (90.5 * 100 + 209.5 * 400) / J_PER_KWH
    assert run.grams(file) == pytest.approx(by_hand, rel=1e-9)


def test_a_night_between_two_segments_does_not_count(tmp_path: Path) -> None:
    night = 36_000.0
    stages = [
        (0, "train", 0.0, 300.0),
        (1, "train", night, night + 300.0),
    ]
    segments = [{"segment": n, "outcome": "stopped"} for n in (0, 1)]
    later = {"CUDA:0_POWER": gpu(301, 200.0), "start": T0 + night}
    run = made(tmp_path, {"CUDA:0_POWER": gpu(301, 100.0)}, stages, later, segments=segments)
    file = grid(tmp_path, *((3600.0 * n - 600, 50.0 + 100 * n) for n in range(12)))
    by_hand = 300 * (100 * 50 + 200 * (50 + 100 * 10)) / J_PER_KWH
    assert run.grams(file) == pytest.approx(by_hand, rel=1e-9)


def test_lost_work_counts_as_its_energy_does(tmp_path: Path) -> None:
    stages = [(0, "train", 0.0, 300.0)]
    segments = [{"segment": 0, "outcome": "killed"}]
    run = made(tmp_path, {"CUDA:0_POWER": gpu(301, 100.0)}, stages, segments=segments)
    assert run.totals.joules("gpu", "discarded_j") == pytest.approx(30_000)
    file = grid(tmp_path, (-500, 200.0), (0, 200.0), (500, 200.0))
    assert run.grams(file) == pytest.approx(30_000 * 200 / J_PER_KWH, rel=1e-12)


# --- null ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [(100.0, 100.0), (250, 100.0), (400, 100.0)],  # begins within the training
        [(-600, 100.0), (-300, 100.0)],  # ended before it
        [(-200, 100.0), (-100, 100.0), (0, 100.0), (100, None), (200, 100.0), (300, 100.0)],
    ],
    ids=["begins later", "ended before", "has a gap"],
)
def test_outside_of_the_cover_it_is_null_with_the_reason(
    rows: list[tuple[float, float | None]], tmp_path: Path
) -> None:
    run = made(tmp_path, wave())
    assert run.grams(grid(tmp_path, *rows)) is None
    ((flag,),) = emitted(run.energy, run.totals)[1:]
    assert flag["code"] == "carbon_unknown"
    assert "grid.csv, " in flag["detail"] and "outside of it" in flag["detail"]


def test_cover_is_needed_only_where_energy_was_used(tmp_path: Path) -> None:
    run = made(tmp_path, {"CUDA:0_POWER": gpu(301, 100.0)})
    exactly = grid(tmp_path, (0, 100.0), (150, 100.0))
    assert run.grams(exactly) == pytest.approx(30_000 * 100 / J_PER_KWH)


# --- in the tables ------------------------------------------------------------------------------


def test_the_table_says_which_file_it_is_of(tmp_path: Path) -> None:
    run = made(tmp_path, wave())
    run.grams(grid(tmp_path, (-500, 1.0), (0, 2.0), (500, 3.0)))
    told = json.loads(pq.read_schema(carbon_path(run.energy)).metadata[b"scalewatt"])
    assert (told["file"], told["source"]) == ("grid.csv", "a test")
    assert (told["begin_s"], told["end_s"]) == (T0 - 500, T0 + 1000)


def row_with(
    results: Path, run: Made, facility: Facility, over_time: bool = True
) -> dict[str, Any]:
    """The row of RUNS of a run that was made."""
    spec = make_spec(gpus=1, ranks_per_node=1)
    files = RunFiles(results, spec.configuration, spec.repeat)
    files.folder.mkdir(parents=True, exist_ok=True)
    files.energy.parent.mkdir(parents=True, exist_ok=True)
    (files.folder / "spec.json").write_text(spec.text + "\n")
    write_table(history_table(epochs([40.0, 30.0])), files.folder / "history.parquet")
    provenance = {
        **{"spec_sha256": spec.sha256, "device_name": "A100", "torch_device": "cuda"},
        **{"metric_name": "top1_error_percent", "metric_persistence": None, "segments": []},
    }
    write_json(files.folder / "provenance.json", provenance)
    for path in run.energy.parent.glob("energy.*parquet"):
        name = path.name.replace("energy", str(spec.repeat), 1)
        (files.energy.parent / name).write_bytes(path.read_bytes())
    return records(runs_of([run_record(files, "made", over_time=over_time)], facility))[0]


def test_it_stands_beside_the_constant_and_has_the_pue(tmp_path: Path) -> None:
    run = made(tmp_path, wave())
    assert run.grams(grid(tmp_path, *((60.0 * n - 120, 380.0) for n in range(12)))) is not None
    row = row_with(tmp_path / "r", run, Facility(pue=1.3, carbon_g_per_kwh=380.0))
    assert row["carbon_over_time_kg"] == pytest.approx(row["carbon_kg"], rel=1e-12)
    assert row["carbon_over_time_kg"] == pytest.approx(1.3 * 0.38 * row["energy_kwh"], rel=1e-12)
    alone = row_with(tmp_path / "r", run, Facility(pue=1.3))
    assert alone["carbon_kg"] is None and alone["carbon_over_time_kg"] is not None


def test_without_a_pue_or_a_file_it_is_null(tmp_path: Path) -> None:
    run = made(tmp_path, wave())
    run.grams(grid(tmp_path, (-500, 1.0), (0, 2.0), (500, 3.0)))
    assert row_with(tmp_path / "r", run, Facility())["carbon_over_time_kg"] is None
    row = row_with(tmp_path / "r", run, Facility(pue=1.1), over_time=False)
    assert row["carbon_over_time_kg"] is None and "carbon_unknown" not in row["flags"]


def test_why_it_is_null_stands_in_the_row(tmp_path: Path) -> None:
    run = made(tmp_path, wave())
    run.grams(grid(tmp_path, (-600, 1.0), (-300, 2.0)))
    row = row_with(tmp_path / "r", run, Facility(pue=1.1))
    assert row["carbon_over_time_kg"] is None and row["energy_kwh"] is not None
    assert json.loads(row["flags"])[-1]["code"] == "carbon_unknown"


def test_a_row_that_should_have_it_and_does_not_is_refused(tmp_path: Path) -> None:
    run = made(tmp_path, wave())
    with pytest.raises(InputError, match=r"1\.carbon\.parquet: does not exist"):
        row_with(tmp_path / "r", run, Facility(pue=1.1))
