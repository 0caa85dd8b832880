"""Stages that are too short for their energy to be told from that of the stages around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from energy_files import codes, gpu, make_run, record
from figure_tables import rows_of_runs
from run_files import make_run as made_run
from run_files import make_spec, part

import scalewatt
from scalewatt.energies.read import Account
from scalewatt.energies.stages import UNATTRIBUTED

# --- in the tables --------------------------------------------------------------------------------

N = 101


def recorded(folder: Path, *lengths_s: float) -> Account:
    """Account for 100 s of a GPU at 100 W, a sample a second, in four stages of these lengths."""
    ends = np.cumsum([0.0, *lengths_s, 100 - sum(lengths_s)])
    names = ("startup", "train", "checkpoint", "validate")
    stages = [(0, name, *ends[i : i + 2]) for i, name in enumerate(names)]
    run = make_run(folder, stages=stages)
    record(run, {"n1": {"CUDA:0_POWER": gpu(N, 100)}})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    return scalewatt.energy(run)


@pytest.mark.parametrize(
    ("train_s", "checkpoint_s", "short"),
    [(40.0, 0.5, {"checkpoint"}), (4.9, 5.0, {"train"}), (5.0, 6.0, set())],
)
def test_a_stage_of_under_five_periods_is_short_and_totals_stay(
    tmp_path: Path, train_s: float, checkpoint_s: float, short: set[str]
) -> None:
    account = recorded(tmp_path, 30.0, train_s, checkpoint_s)
    rows = account.stages[account.stages["device_kind"] == "gpu"]
    assert set(rows["stage"][rows["short"]]) == short
    assert account.joules("gpu") == pytest.approx(100 * 100)
    assert ("stage_short" in codes(account.flags)) == bool(short)


# --- in the breakdown -----------------------------------------------------------------------------


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
    second = [row | {"flags": (), "short": False} for row in first]
    files = [
        made_run(tmp_path, energy, spec=make_spec(repeat=repeat))
        for repeat, energy in enumerate((first, second), 1)
    ]
    rows = rows_of_runs("breakdown", tmp_path, files)
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
