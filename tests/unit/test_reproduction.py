"""Manifest, comparison of histories and energies, and the choice of the run to repeat."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from run_files import NAME, WHOLE, epochs, make_run, make_spec
from workspace import PROJECT, start_process

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, parse_cluster
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import InitialWeights
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table_with_csv
from scalewatt.reproduction.files import difference
from scalewatt.reproduction.findings import (
    DIFFERS,
    HISTORY,
    NOT_CHECKED,
    REGENERATED,
    SAME,
    STORED,
    Finding,
    frame,
    verdict,
)
from scalewatt.reproduction.manifest import read_manifest, write_manifest
from scalewatt.reproduction.rerun import (
    GPU_RELATIVE,
    energy_findings,
    history_findings,
    prediction_interval,
)
from scalewatt.reproduction.run_choice import choose_run, gpu_hours
from scalewatt.training.history import history_table

RUN = f"{NAME}/1"
# --- the interval -----------------------------------------------------------------------------------


def test_two_values_predict_a_third_as_the_textbook_says() -> None:
    half = 12.706204736432095 * math.sqrt(2.0) * math.sqrt(1.5)
    assert prediction_interval([10.0, 12.0]) == pytest.approx((11 - half, 11 + half))


# --- energies ---------------------------------------------------------------------------------------


def energy(repeat: int, kwh: float | None, **changes: Any) -> dict[str, Any]:
    """A run's row, as far as energies are compared; all of it is the GPUs'."""
    return {
        "repeat": repeat,
        "energy_kwh": kwh,
        "gpu_energy_kwh": kwh,
        "cpu_energy_kwh": None,
        "ram_energy_kwh": None,
        "energy_origin": "measured",
        "energy_scope": "gpu",
        "device_name": "A100",
    } | changes


ALIKE = [energy(1, 1.0), energy(2, 1.1), energy(3, 0.9)]
OTHERS: list[dict[str, str]] = [
    {"energy_origin": "estimated"},
    {"energy_scope": "gpu+cpu"},
    {"device_name": "H100"},
]


@pytest.mark.parametrize(
    ("earlier", "kwh", "outcome", "detail"),
    [
        (ALIKE, 1.2, SAME, "within the 95 % prediction interval of 3 earlier runs"),
        (ALIKE, 2.0, DIFFERS, "outside the 95 % prediction interval of 3 earlier runs"),
        (ALIKE[:1], 1.5, NOT_CHECKED, "ratio 1.5"),
        (ALIKE, None, NOT_CHECKED, "is unknown"),
        ([*ALIKE, energy(4, None)], 1.05, SAME, "machine, or unknown: 1"),
        *(
            ([*ALIKE[:1], energy(2, 1.1, **other)], 1.0, NOT_CHECKED, "machine, or unknown: 1")
            for other in OTHERS
        ),
    ],
)
def test_an_energy_is_compared_with_earlier_ones_of_its_origin_scope_and_machine(
    earlier: list[dict[str, Any]], kwh: float | None, outcome: str, detail: str
) -> None:
    whole, *kinds = energy_findings(RUN, earlier, energy(9, kwh))
    assert (whole.what, whole.outcome) == (f"{RUN}: energy_kwh", outcome)
    assert whole.detail is not None and detail in whole.detail
    assert [row.what for row in kinds] == [f"{RUN}: gpu_energy_kwh"] * (kwh is not None)


# --- histories --------------------------------------------------------------------------------------


def history(**changes: Any) -> pd.DataFrame:
    """Four epochs; `changes` of a column are values of its rows."""
    rows = epochs([40.0, 30.0, 20.0, 25.0])
    for name, column in changes.items():
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return history_table(rows).to_pandas()


def differing(
    first: pd.DataFrame,
    again: pd.DataFrame,
    on_gpu: bool = False,
    metric_name: str = "top1_error_percent",
) -> list[str]:
    """The columns that are said to differ."""
    rows = history_findings(RUN, first, again, on_gpu, metric_name)
    return [row.what.removeprefix(f"{RUN}: ") for row in rows if row.outcome == DIFFERS]


def flipped(value: float, bit: int) -> float:
    """The value with one bit of its 64 another."""
    (number,) = struct.unpack("<q", struct.pack("<d", value))
    return float(struct.unpack("<d", struct.pack("<q", number ^ (1 << bit)))[0])


@given(st.integers(0, 51), st.integers(0, 3))
def test_on_a_cpu_one_flipped_bit_is_a_difference(bit: int, row: int) -> None:
    losses = [2.0, 1.9, 1.8, 1.7]
    changed = [flipped(v, bit) if at == row else v for at, v in enumerate(losses)]
    assert differing(history(train_loss=losses), history(train_loss=changed)) == ["train_loss"]


ONES, NEAR, FAR = [1.0] * 4, 1.0 + 0.9 * GPU_RELATIVE, 1.0 + 1.1 * GPU_RELATIVE


@pytest.mark.parametrize(
    ("column", "first", "again", "on_cpu", "on_gpu"),
    [
        ("train_loss", 0.0, -0.0, True, False),
        ("train_loss", math.nan, math.nan, False, False),
        ("train_loss", math.nan, 0.0, True, True),
        ("train_metric", None, 1.0, True, True),
        ("train_metric", 1.0, None, True, True),
        ("train_loss", 1.0, NEAR, True, False),
        ("train_loss", 1.0, FAR, True, True),
        ("updates", 10, 11, True, True),
        ("metric", 2.0, 2.9, True, False),
        ("metric", 2.0, 3.1, True, True),
        ("metric", 2.0, math.nan, True, True),
    ],
)
def test_values_are_equal_to_the_bit_or_on_a_gpu_within_a_tolerance_or_a_point_of_a_percentage(
    column: str, first: Any, again: Any, on_cpu: bool, on_gpu: bool
) -> None:
    before, now = (history(**{column: [*ONES[:3], value]}) for value in (first, again))
    assert differing(before, now) == [column] * on_cpu
    assert differing(before, now, on_gpu=True) == [column] * on_gpu
    if (first, again) == (2.0, 2.9):
        assert differing(before, now, True, "rmse") == [column], "no percentage"


def test_fewer_epochs_are_a_difference() -> None:
    assert differing(history(), history()[:3]) == ["epochs"]


# --- files ------------------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "figure2.svg").write_text("<svg/>")
    write_table_with_csv(pa.table({"a": [1.5, 2.5]}), folder / "tables" / "figure2.parquet")
    return folder


def test_the_manifest_has_every_file_with_its_sha256_and_is_the_same_each_time(
    results: Path,
) -> None:
    run = results / "runs" / "resnet50" / "1" / "spec.json"
    run.parent.mkdir(parents=True)
    run.write_text("{}")
    write_manifest(results)
    first = (results / "SHA256SUMS").read_bytes()
    write_manifest(results)
    assert (results / "SHA256SUMS").read_bytes() == first
    files = read_manifest(results).files
    assert [*files] == [
        *("tables/figure2.csv", "tables/figure2.parquet", "figures/figure2.svg"),
        "runs/resnet50/1/spec.json",
    ]
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(check, cwd=results, check=True, capture_output=True)


def test_a_folder_without_results_has_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected results/<campaign>"):
        write_manifest(tmp_path)
    with pytest.raises(InputError, match=r"SHA256SUMS: does not exist"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", [b"0123\n", b"0123\xff  tables/runs.csv\n"])
def test_a_damaged_manifest_is_refused(results: Path, content: bytes) -> None:
    write_manifest(results)
    (results / "SHA256SUMS").write_bytes(content)
    with pytest.raises(InputError, match="SHA256SUMS: is damaged; `snakemake all` writes it"):
        read_manifest(results)


def test_a_differing_table_names_row_column_and_both_values(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("a,b\n1,0.30000000000000004\n2,5\n")
    second.write_text("a,b\n1,0.3\n2,5\n")
    assert difference(first, second) == (
        'DataFrame.iloc[:, 1] (column name="b") values are different (50.0 %) At positional index 0, '
        "first diff: '0.30000000000000004' != '0.3'"
    )
    first, second = first.with_suffix(".parquet"), second.with_suffix(".parquet")
    write_table_with_csv(pa.table({"a": [0.1 + 0.2]}), first)
    write_table_with_csv(pa.table({"a": [0.3]}), second)
    text = difference(first, second)
    assert 'name="a"' in text and "index 0, first diff: '0.30000000000000004' != '0.3'" in text


def test_of_other_files_the_first_differing_byte_is_shown(tmp_path: Path) -> None:
    first, second = tmp_path / "first.png", tmp_path / "second.png"
    first.write_bytes(b"abcd")
    second.write_bytes(b"abXd")
    assert difference(first, second) == "the first difference is at byte 3 (4 and 4 bytes)"


# --- outcome ------------------------------------------------------------------------


def findings(*outcomes: str) -> pd.DataFrame:
    """Of a stored file, of a regenerated one, and of what a run learnt."""
    checks = (STORED, REGENERATED, HISTORY)
    return frame(
        Finding(check, "x", outcome) for check, outcome in zip(checks, outcomes, strict=True)
    )


@pytest.mark.parametrize(
    ("outcomes", "code", "sentence"),
    [
        ((SAME, SAME, SAME), 0, "nothing differs in 3 checks"),
        ((SAME, SAME, NOT_CHECKED), 0, "nothing differs in 2 checks; 1 could not be made"),
        ((SAME, SAME, DIFFERS), 1, "differences: 1 in 3 checks"),
        (
            (DIFFERS, NOT_CHECKED, DIFFERS),
            1,
            "differences: 2 in 2 checks; 1 could not be made",
        ),
        ((NOT_CHECKED, SAME, SAME), 1, "too little was checked"),
        ((SAME, NOT_CHECKED, SAME), 1, "too little was checked"),
    ],
)
def test_the_exit_code_is_0_only_where_files_are_the_same_and_nothing_differs(
    outcomes: tuple[str, str, str], code: int, sentence: str
) -> None:
    rows = findings(*outcomes)
    assert verdict(rows)[1] == code
    assert verdict(rows)[0].startswith(sentence)
    assert verdict(frame([]))[1] == 1


# --- the run to repeat --------------------------------------------------------------------------------


DEVICE = {
    "gpus_per_node": 4,
    "cpus_per_rank": 1,
    "cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150},
}
CAMPAIGN = """
name: made
protocol: corrected
datasets:
  scans: {format: imagenet, source: embedded, classes: 10, train_samples: 1437, validation_samples: 360}
models:
  resnet50: {dataset: scans, epochs: 4}
series:
  one: {model: resnet50, device: local, gpus: [1, 2], local_batch_size: 64, repeats: 2}
figures: {figure2: {series: [one]}}
"""


def cluster(**changes: Any) -> Cluster:
    content = {"cluster": "here", "launcher": "mpiexec -n {gpus}", "devices": {"local": DEVICE}}
    return parse_cluster(content | changes, "here")


def campaign(cluster_: Cluster) -> Campaign:
    return expand(yaml.safe_load(CAMPAIGN), Path("made.yaml"), cluster_.devices)


def finish(results: Path, gpus: int, repeat: int, seconds: float, **changes: Any) -> None:
    """A finished run that took so long."""
    name = f"resnet50-local-n{gpus:03d}-lbs0064-full"
    spec = make_spec(configuration=name, repeat=repeat, gpus=gpus, ranks_per_node=gpus, **changes)
    segment = {"segment": 0, "outcome": "finished", "started_s": 1e9, "ended_s": 1e9 + seconds}
    make_run(results, WHOLE, spec=spec, segments=[segment])


def test_the_run_with_the_fewest_gpu_hours_is_repeated(tmp_path: Path) -> None:
    finish(tmp_path, 1, 1, 90)
    finish(tmp_path, 1, 2, 80)
    finish(tmp_path, 2, 1, 41)
    here = cluster()
    assert gpu_hours(tmp_path, ("resnet50-local-n002-lbs0064-full", 1)) == pytest.approx(82 / 3600)
    run, why = choose_run(campaign(here), here, tmp_path)
    assert run == ("resnet50-local-n001-lbs0064-full", 2)
    assert why == "the fewest GPU hours (0.0222) of 3 possible runs"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"devices": {"a100": DEVICE}}, "has fewer than 2 of device 'local'"),
        ({"results_only": True}, "results_only"),
        ({"devices": {"local": DEVICE | {"gpus_per_node": 1}}}, "have 1 GPUs"),
        (
            {"devices": {"local": DEVICE | {"max_gpus": 1}}},
            "fewer than 2",
        ),
    ],
)
def test_a_run_that_this_machine_cannot_run_is_not_repeated_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    finish(tmp_path, 2, 1, 90)
    here = cluster(**changes)
    run, reason = choose_run(campaign(cluster()), here, tmp_path)
    assert run is None and why in reason


@pytest.mark.parametrize("configuration", ["../../elsewhere", "../energy/x"])
def test_weights_that_lie_elsewhere_are_not_started_from(
    tmp_path: Path, configuration: str
) -> None:
    source = InitialWeights(configuration, 1, "0" * 64)
    finish(tmp_path, 2, 1, 90, initial_weights=source)
    here = cluster()
    run, reason = choose_run(campaign(here), here, tmp_path)
    assert run is None and "allowed: weights below" in reason


def test_a_run_that_is_asked_for_is_repeated_or_refused(tmp_path: Path) -> None:
    finish(tmp_path, 1, 1, 90)
    finish(tmp_path, 1, 2, 80)
    name = "resnet50-local-n001-lbs0064-full"
    here = cluster(reproduce_run=f"{name}/1")
    assert choose_run(campaign(here), here, tmp_path) == ((name, 1), "asked for")
    here = cluster(reproduce_run=f"{name}/3")
    with pytest.raises(InputError, match=f"not a finished run.*allowed: {name}/1, {name}/2"):
        choose_run(campaign(here), here, tmp_path)


# --- Snakemake --------------------------------------------------------------------------------------

STARTED = """
import sys
from pathlib import Path
from scalewatt.campaign.load import load_campaign
from scalewatt.reproduction.files import regenerate

fresh, stored = map(Path, sys.argv[1:])
waits = [sys.executable, "-c", "import time; time.sleep(100)"]
regenerate(fresh, load_campaign("campaigns/demo.yaml"), stored, "demo", {}, waits)
"""


def test_snakemake_ends_with_the_command_that_was_killed(tmp_path: Path) -> None:
    folders = [tmp_path / "fresh", tmp_path / "stored"]
    for folder in folders:
        folder.mkdir()
    process = start_process([sys.executable, "-c", STARTED, *folders], cwd=PROJECT)
    parent = psutil.Process(process.pid)
    while not (started := [child for child in parent.children() if "manifest" in child.cmdline()]):
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(started, timeout=20)[1] == []
