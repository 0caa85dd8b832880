"""Stages that are too short for their energy to be told from that of the stages around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import T0, accounted, codes, gpu, make_run, write_journal
from run_files import make_run as made_run
from run_files import make_spec, part

import scalewatt
from scalewatt.energies.account_text import account_text
from scalewatt.energies.node import stage_seconds
from scalewatt.energies.stages import STAGES as NAMES
from scalewatt.energies.stages import UNATTRIBUTED, StageIntervals, tile_window
from scalewatt.energies.tables import flags_of_run
from scalewatt.figures.breakdown import bars_of, note_sentences
from scalewatt.figures.figure_data import drawable
from scalewatt.results.figures.breakdown_table import BREAKDOWN, breakdown
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.run_row import run_record, runs_of

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}


def tiled(*stages: tuple[str, float], epochs: bool = False) -> Any:
    """Stages one after the other, with their lengths."""
    ends = np.cumsum([0.0, *(seconds for _, seconds in stages)])
    events = [
        {"stage": name, "epoch": i if epochs else None, "start_s": ends[i], "end_s": ends[i + 1]}
        for i, (name, _) in enumerate(stages)
    ]
    return tile_window(events, (0.0, float(ends[-1])))[0]


def short(intervals: StageIntervals, period_s: float) -> dict[str, float]:
    """Mean length in s of the pieces of the short stages."""
    rows, _ = stage_seconds(intervals, period_s)
    by_stage = zip(rows["stage"], rows["short_s"], strict=True)
    return {NAMES[stage]: mean_s for stage, mean_s in by_stage if not np.isnan(mean_s)}


@pytest.mark.parametrize(
    ("period_s", "stages"),
    [
        (1.0, {"train": 4.9, "checkpoint": 0.4}),
        (0.5, {"checkpoint": 0.4}),
        (10.0, {"startup": 5.0, "train": 4.9, "checkpoint": 0.4}),
        (0.0, {}),
    ],
)
def test_a_stage_of_under_five_periods_is_short(period_s: float, stages: dict[str, float]) -> None:
    found = tiled(("startup", 5.0), ("train", 4.9), ("checkpoint", 0.4))
    assert short(found, period_s) == pytest.approx(stages)


# --- in the tables --------------------------------------------------------------------------------

N = 101
STAGES = [(0, "train", 0.0, 48.0), (0, "checkpoint", 48.0, 48.5), (0, "validate", 48.5, 100.0)]


def recorded(folder: Path, **sensors: Any) -> Path:
    run = make_run(folder, stages=STAGES)
    host = {"CUDA:0_POWER": gpu(N, 100), **sensors}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", host, start=T0)
    return run


def test_only_the_rows_of_a_short_stage_are_flagged_and_totals_stay(tmp_path: Path) -> None:
    found = accounted(recorded(tmp_path), make_spec(ranks_per_node=1), NO_POWERS)
    short = {row["stage"] for row in found.energy.to_pylist() if row["short"]}
    assert short == {"checkpoint"}
    assert found.totals.joules("gpu") == pytest.approx(100 * 100)
    assert "stage_short" not in codes(flags_of_run(found.tables.flags))
    of_stages = found.tables.flags[found.tables.flags["stage"].notna()]
    (detail,) = of_stages["detail"].drop_duplicates()
    assert detail.startswith(
        "checkpoint: pieces of 0.5 s on average, gpu resolved to 1 s: their energy"
    )


def test_the_energy_of_a_short_stage_is_not_stated_as_known(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    account = scalewatt.energy(run)
    (line,) = (x for x in account_text(account).splitlines() if x.startswith("  checkpoint  "))
    assert line.split() == ["checkpoint", "-", "-"]
    assert account.joules("gpu") == pytest.approx(10_000)
    assert "stage_short" in codes(account.flags)


# --- in the breakdown -----------------------------------------------------------------------------


def built(results: Path, *runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    files = [
        made_run(results, energy, spec=make_spec(repeat=repeat))
        for repeat, energy in enumerate(runs, 1)
    ]
    runs = runs_of([run_record(one, "made") for one in files], Facility())
    definition = {
        "figure": "breakdown",
        "series": [
            {"name": "a", "label": "a", "points": [{"configuration": files[0].configuration}]}
        ],
        "runs": [[one.configuration, one.repeat] for one in files],
    }
    return records(breakdown(definition, configurations_of(runs), results))


def test_what_a_short_stage_spent_is_unattributed_in_the_breakdown(tmp_path: Path) -> None:
    short = ("stage_short",)
    first = [
        part("gpu", "train", 90, 8 * 3.6e6, discarded_j=3.6e6),
        part("gpu", "checkpoint", 1, 1 * 3.6e6, flags=short),
        part("gpu", "unattributed", 2, 1 * 3.6e6),
        part("cpu", "train", 90, 5 * 3.6e6),
        part("cpu", "checkpoint", 1, 2 * 3.6e6, flags=short, discarded_j=3.6e6),
    ]
    # Of the second the checkpoint was long enough.
    second = [one | {"flags": (), "short": False} for one in first]
    rows = built(tmp_path, first, second)
    assert [(r["device_kind"], r["stage"], r["energy_kwh"], r["short_stages"]) for r in rows] == [
        ("gpu", "train", pytest.approx(8), None),
        ("gpu", "checkpoint", pytest.approx(0.5), None),
        ("gpu", UNATTRIBUTED, pytest.approx(1.5), "checkpoint"),
        ("cpu", "train", pytest.approx(5), None),
        ("cpu", "checkpoint", pytest.approx(1), None),
        ("cpu", UNATTRIBUTED, pytest.approx(1), "checkpoint"),
    ]
    assert [r["discarded_energy_kwh"] for r in rows] == pytest.approx([1, 0, 0, 0, 0.5, 0.5])
    assert sum(r["energy_share"] for r in rows) == pytest.approx(1)
    said = notes(rows)
    assert "stages shorter than 5 sampling periods, which cannot be told" in said
    assert "around them: checkpoint." in said


def notes(rows: list[dict[str, Any]]) -> str:
    parts = drawable(frame_of(rows, BREAKDOWN))
    return " ".join(note_sentences(parts, bars_of(parts, "interval")[0], "interval"))


def test_without_a_short_stage_the_breakdown_says_nothing_of_it(tmp_path: Path) -> None:
    rows = built(tmp_path, [part("gpu", "train", 90, 8e6), part("gpu", "checkpoint", 9, 1e6)])
    assert {r["stage"] for r in rows} == {"train", "checkpoint"}
    assert {r["short_stages"] for r in rows} == {None}
    assert "sampling periods" not in notes(rows)
