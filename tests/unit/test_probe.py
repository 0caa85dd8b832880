"""Idle probes: what is asked for, and what their recordings say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaign_files import LOCAL
from energy_files import T0, codes, counter, gpu, write_journal

from scalewatt.cli import main
from scalewatt.common.files import write_json
from scalewatt.results.tables.frames import frame_of, values
from scalewatt.results.tables.idle import (
    IDLE,
    device_rows,
    idle_energies_j,
    probe_powers,
    without_baseline,
    write_idle,
)
from scalewatt.results.tables.table_schema import RUNS

NOTHING = {"cpu": None, "gpu": None, "ram": None}
RATED = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}
SECONDS = 30
WINDOW = slice(10, 10 + SECONDS)
"""The samples of the window: recordings are of 60 s, one sample a second."""
Sensors = dict[str, Any]


def make_probe(folder: Path, sensors: Sensors, repeat: int = 1, **changes: Any) -> Path:
    """A finished probe whose window begins 10 s after its recording."""
    folder = folder / str(repeat)
    write_journal(folder / "perun" / "segment-000.n1.csv", "n1", sensors)
    finished = {
        "device": "box",
        "repeat": repeat,
        "seconds": SECONDS,
        "torch_device": "cuda",
        "hostnames": ["n1"],
        "device_name": "A100",
        "gpus": {"n1": [0, 1]},
        "window": {"start_s": T0 + 10, "end_s": T0 + 10 + SECONDS},
    }
    write_json(folder / "probe.json", finished | changes)
    return folder


def node(watts: float = 100.0) -> Sensors:
    """Two GPUs, a CPU at 70 W and its memory at 7 W; outside of the window the GPUs draw more."""
    power = gpu(60, 300.0)
    power[WINDOW] = 1000 * watts
    power[WINDOW.stop] = 1000 * watts
    return {
        "CUDA:0_POWER": power,
        "CUDA:1_POWER": power + 10_000,
        "cpu_0_package-0": counter(60, 70.0),
        "ram_0_dram": counter(60, 7.0),
    }


# --- one probe ----------------------------------------------------------------------------------


def test_a_probe_gives_the_mean_power_of_its_window_only(tmp_path: Path) -> None:
    result = probe_powers(make_probe(tmp_path, node(100.0)), NOTHING)
    means = {name: kind["mean_w"] for name, kind in result.kinds.items()}
    assert means == {
        "gpu": pytest.approx(210.0),
        "cpu": pytest.approx(70.0),
        "ram": pytest.approx(7.0),
    }
    assert {kind["energy_origin"] for kind in result.kinds.values()} == {"measured"}
    assert codes(result.flags) == set()


def test_gpus_that_a_probe_does_not_open_are_separate(tmp_path: Path) -> None:
    folder = make_probe(tmp_path, node(100.0), gpus={"n1": [1]})
    kinds = probe_powers(folder, NOTHING).kinds
    assert (kinds["gpu"]["devices"], kinds["gpu"]["mean_w"]) == (1, pytest.approx(110.0))
    assert (kinds["unused_gpu"]["devices"], kinds["unused_gpu"]["mean_w"]) == (
        1,
        pytest.approx(100.0),
    )


def test_power_is_estimated_where_there_is_no_sensor(tmp_path: Path) -> None:
    folder = make_probe(tmp_path, {"CPU_BUSY": np.full(60, 2.0)}, torch_device="cpu", gpus=None)
    ((name, kind),) = probe_powers(folder, RATED).kinds.items()
    assert (name, kind["devices"], kind["energy_origin"]) == ("cpu", 2, "estimated")
    assert kind["mean_w"] == pytest.approx(2 * 0.74 * 150 * (0.1 + 0.9 * 0.02))


@pytest.mark.parametrize(("percent", "flagged"), [(2.0, False), (30.0, True)])
def test_a_node_with_busy_cores_is_flagged(tmp_path: Path, percent: float, flagged: bool) -> None:
    busy = np.full(60, 100.0)
    busy[WINDOW] = busy[WINDOW.stop] = percent
    result = probe_powers(make_probe(tmp_path, node() | {"CPU_BUSY": busy}), NOTHING)
    assert ("not_idle" in codes(result.flags)) is flagged
    assert result.kinds["cpu"]["mean_w"] == pytest.approx(70.0)


# --- several probes -----------------------------------------------------------------------------


def idle_of(tmp_path: Path, *nodes: Sensors) -> Path:
    """The table of probes of `box` that found these nodes."""
    for repeat, each in enumerate(nodes, 1):
        make_probe(tmp_path / "idle" / "box", each, repeat)
    repeats = list(range(1, len(nodes) + 1))
    out = tmp_path / "tables" / "idle.parquet"
    devices = {"box": {"repeats": repeats, "powers": NOTHING}}
    write_idle({"campaign": "study", "devices": devices}, tmp_path, out)
    return out


@pytest.fixture()
def idle_table(tmp_path: Path) -> Path:
    """The table of two probes of `box`; a third folder is not asked for."""
    make_probe(tmp_path / "idle" / "box", node(500.0), 3)
    return idle_of(tmp_path, node(100.0), node(102.0))


def test_two_probes_have_a_spread(idle_table: Path) -> None:
    row = pq.read_table(idle_table).to_pylist()[0]
    assert row["mean_w"] == pytest.approx(212.0)
    assert row["mean_per_device_w"] == pytest.approx(106.0)
    assert row["sd_w"] == pytest.approx(np.std([210, 214], ddof=1))
    assert row["high_w"] - row["mean_w"] == pytest.approx(12.706 * row["sd_w"] / 2**0.5, rel=1e-4)


def test_a_probe_that_may_not_be_stated_makes_the_mean_unknown(tmp_path: Path) -> None:
    sensors = node()
    del sensors["CUDA:1_POWER"]
    probes = [
        probe_powers(make_probe(tmp_path, given, i), NOTHING)
        for i, given in enumerate((node(), sensors), 1)
    ]
    rows = {row["device_kind"]: row for row in device_rows("study", "box", probes)}
    assert (rows["gpu"]["mean_w"], rows["gpu"]["sd_w"]) == (None, None)
    assert rows["cpu"]["mean_w"] == pytest.approx(70.0)
    details = [f["detail"] for f in json.loads(rows["gpu"]["flags"]) if f["code"] == "not_recorded"]
    assert len(details) == 1 and details[0].startswith("repeat 2: ")


def test_measured_and_estimated_probes_are_not_averaged(tmp_path: Path) -> None:
    estimated = {"CPU_BUSY": np.full(60, 2.0)}
    probes = [
        probe_powers(make_probe(tmp_path, node(), 1), RATED),
        probe_powers(make_probe(tmp_path, estimated, 2, gpus=None), RATED),
    ]
    cpu = next(r for r in device_rows("study", "box", probes) if r["device_kind"] == "cpu")
    for name in ("mean_w", "mean_per_device_w", "devices", "energy_origin", "sd_w"):
        assert cpu[name] is None, name
    assert cpu["coverage"] > 0.9
    details = [f["detail"] for f in json.loads(cpu["flags"]) if f["code"] == "probes_differ"]
    assert "cpu: energy_origin estimated, measured: no mean of unlike nodes" in details


# --- the table ----------------------------------------------------------------------------------


def test_the_table_has_a_row_per_kind(idle_table: Path) -> None:
    table = pq.read_table(idle_table)
    assert table.schema.equals(IDLE)
    assert table["device_kind"].to_pylist() == ["gpu", "cpu", "ram"]
    assert len(idle_table.with_suffix(".csv").read_text().splitlines()) == 4


def idle_j(path: Path, device: str, seconds: Any, origins: Any) -> dict[str, Any]:
    """Idle energy by device kind, of a run with these seconds and origins."""
    schema = pa.schema([(n, pa.string()) for n in ("device", "device_kind", "energy_origin")])
    parts = [
        {"device": device, "device_kind": kind, "energy_origin": origins[kind], "device_s": each}
        for kind, each in seconds.items()
    ]
    result = idle_energies_j(
        path, frame_of(parts, schema.append(pa.field("device_s", pa.float64())))
    )
    return dict(zip(seconds, values(result), strict=True))


def test_without_a_probe_idle_energy_is_not_known(idle_table: Path) -> None:
    cpu = {"cpu": 1.0}, {"cpu": "measured"}
    assert idle_j(idle_table, "box", *cpu) == {"cpu": pytest.approx(70.0)}
    assert idle_j(idle_table, "other", *cpu) == {"cpu": None}
    assert idle_j(idle_table.with_name("none.parquet"), "box", *cpu) == {"cpu": None}


def test_the_power_of_a_node_that_was_busy_is_no_idle_power(tmp_path: Path) -> None:
    busy = node() | {"CPU_BUSY": np.full(60, 86.0)}
    path = idle_of(tmp_path, node(), busy)
    assert pq.read_table(path)["mean_w"].null_count == 0
    kinds = dict.fromkeys(("gpu", "cpu"), 1.0)
    result = idle_j(path, "box", kinds, dict.fromkeys(kinds, "measured"))
    assert result == {"gpu": None, "cpu": None}
    run = dict.fromkeys(RUNS.names) | {"device": "box", "energy_kwh": 1.0}
    why = without_baseline(path, frame_of([run], RUNS))
    assert why == {"box": "repeat 2: n1: cpu 86 % busy, so not idle"}


# --- asking for probes --------------------------------------------------------------------------


def probe_command(tmp_path: Path, *options: str, device: str = "local") -> list[str]:
    out = ("--site", str(LOCAL), "--out", str(tmp_path / "out"))
    return ["probe", device, *out, *options]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--seconds", "9"),
            "scalewatt probe: idle_probe.seconds: 9.0 does not fit: input",
        ),
        (("--seconds", "nan"), "scalewatt probe: idle_probe.seconds: NaN"),
        (("--sampling-period", "30"), "scalewatt probe: sampling_period_s: 30.0"),
        (("--sampling-period", "0.05"), "scalewatt probe: sampling_period_s: 0.05"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert main(probe_command(tmp_path, *options)) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_finished_probe_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "probe.json").write_text("{}")
    assert main(probe_command(tmp_path)) == 1
    assert "holds a finished probe" in capsys.readouterr().err
    assert (tmp_path / "out" / "probe.json").read_text() == "{}"
