"""Files of other tools become runs: what they do not say of themselves stands in a YAML beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from campaign_files import ROOT
from run_files import run_row

from scalewatt.common.errors import InputError
from scalewatt.energies.account import write_energy
from scalewatt.registration.register import register
from scalewatt.results.tables.run_row import RunFiles

FACTS = {
    "model": "vit",
    "device": "h100",
    "gpus": 2,
    "local_batch_size": 256,
    "dataset_samples": 1_281_167,
    "epochs": 90,
}
WIDE = {
    "time": {"column": "t", "unit": "s"},
    "sensors": [{"column": f"gpu{i}", "kind": "gpu", "index": i, "unit": "W"} for i in range(2)],
}
EVENTS = "segment,stage,epoch,start_s,end_s\n0,train,0,{},{}\n"


def smi(watts: tuple[float, ...], seconds: int = 60) -> str:
    """A table of nvidia-smi, in local time, of GPUs of constant power."""
    lines = ["timestamp, index, power.draw [W], utilization.gpu [%]"]
    for t in range(seconds):
        stamp = f"2024/07/01 12:{t // 60:02d}:{t % 60:02d}.000"
        lines += [f"{stamp}, {i}, {power:.2f} W, 97 %" for i, power in enumerate(watts)]
    return "\n".join(lines) + "\n"


def wide(watts: tuple[float, float], begin: float = 1.72e9, seconds: int = 60) -> str:
    """A table with a column for each of two GPUs."""
    lines = ["t,gpu0,gpu1", *(f"{begin + t:.1f},{watts[0]},{watts[1]}" for t in range(seconds))]
    return "\n".join(lines) + "\n"


def described(path: Path, **more: Any) -> Path:
    """Write what is known of a recording beside it."""
    path.with_name(f"{path.name}.yaml").write_text(yaml.safe_dump({**FACTS, **more}))
    return path


def registered(folder: Path, *paths: Path) -> list[str]:
    return register("mine", list(paths), None, folder / "results", folder / "campaigns")


def registered_table(folder: Path) -> tuple[Path, Path]:
    """Register a table and the rules of its columns; both files."""
    path, columns = folder / "power.csv", folder / "columns.yaml"
    path.write_text(wide((200.0, 250.0)))
    columns.write_text(yaml.safe_dump(WIDE))
    registered(folder, described(path, columns="columns.yaml"))
    return path, columns


def row_of(folder: Path) -> dict[str, Any]:
    """The row of the only registered run in the table of runs."""
    results = folder / "results" / "mine"
    (configuration,) = (path.name for path in (results / "runs").iterdir())
    files = RunFiles(results, configuration, 1)
    write_energy(files.folder, files.folder / "spec.json", {}, files.traces, files.energy)
    return run_row(files)


def test_the_documents_example_registers_a_table_of_nvidia_smi(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n([^`]*^host: .*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    path = tmp_path / "gpus.csv"
    path.write_text(smi((300.0, 320.0)))
    (tmp_path / "gpus.csv.yaml").write_text(block)
    registered(tmp_path, path)
    row = row_of(tmp_path)
    assert row["gpu_energy_kwh"] == pytest.approx(620 * 59 / 3.6e6, rel=1e-6)
    assert row["energy_origin"] == "measured"
    assert "node17" in str(list((tmp_path / "results").rglob("*.recording")))


def test_stages_in_unix_time_fit_a_recording_of_the_zone_that_is_told(tmp_path: Path) -> None:
    begin = 1_719_828_000.0  # 2024-07-01 12:00 in Berlin
    path = tmp_path / "gpus.csv"
    path.write_text(smi((300.0, 300.0)))
    (tmp_path / "events.csv").write_text(EVENTS.format(begin + 10, begin + 40))
    described(path, time_zone="Europe/Berlin", events="events.csv")
    registered(tmp_path, path)
    row_of(tmp_path)
    (path,) = (tmp_path / "results" / "mine" / "energy").glob("*/1.parquet")
    stages = pd.read_parquet(path).set_index(["device_kind", "stage"])
    assert stages.loc[("gpu", "train"), "energy_j"] == pytest.approx(600 * 30, rel=1e-6)


def test_a_file_of_stages_in_the_folder_of_a_recording_is_not_noted_as_unread(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "gpus.csv").write_text(smi((300.0, 300.0)))
    (folder / "events.csv").write_text(EVENTS.format(1_719_828_010.0, 1_719_828_040.0))
    described(folder, time_zone="Europe/Berlin", events="run/events.csv")
    assert "not read" not in "\n".join(registered(tmp_path, folder))


def test_columns_that_a_yaml_names_are_kept_with_the_run(tmp_path: Path) -> None:
    for path in registered_table(tmp_path):
        path.unlink()
    assert row_of(tmp_path)["gpu_energy_kwh"] == pytest.approx(450 * 59 / 3.6e6, rel=1e-6)


def test_corrected_columns_are_no_further_run(tmp_path: Path) -> None:
    path, columns = registered_table(tmp_path)
    columns.write_text(columns.read_text().replace("unit: W", "unit: mW"))
    with pytest.raises(InputError, match="already registered, with columns_sha256"):
        registered(tmp_path, path)


def test_a_log_with_the_same_samples_is_already_there(tmp_path: Path) -> None:
    path, _ = registered_table(tmp_path)
    path.write_text(path.read_text() + "\n")
    assert "already there" in "\n".join(registered(tmp_path, path))


def test_a_window_needs_a_clock(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text(wide((200.0, 250.0), begin=0.0))
    wide_rule = WIDE | {"time": {"column": "t", "unit": "s", "since": "begin"}}
    (tmp_path / "columns.yaml").write_text(yaml.safe_dump(wide_rule))
    window = {"start_s": 1.72e9, "end_s": 1.72e9 + 30}
    with pytest.raises(InputError, match=r"window: .* states no clock time"):
        registered(tmp_path, described(path, columns="columns.yaml", window=window))


def test_a_folder_is_one_run_of_one_file_for_each_node(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    folder.mkdir()
    (folder / "n1.csv").write_text(smi((300.0,)))
    (folder / "n2.csv").write_text(smi((200.0,)))
    (folder / "n3.csv").write_text("unknown\n")
    described(folder)
    assert "no known format: n3.csv" in "\n".join(registered(tmp_path, folder))
    row = row_of(tmp_path)
    assert row["nodes"] == 2
    assert row["gpu_energy_kwh"] == pytest.approx(500 * 59 / 3.6e6, rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time_zone": "Europe/Nowhere"}, "Europe/Nowhere"),
        ({"host": "../n1"}, "host"),
        ({"columns": "absent.yaml"}, r"absent\.yaml"),
        ({"hostname": "n1"}, "unknown key 'hostname'.*host"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_what_is_told_wrongly_is_refused_and_nothing_is_written(
    tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    path = tmp_path / "gpus.csv"
    path.write_text(smi((300.0, 300.0)))
    with pytest.raises(InputError, match=message):
        registered(tmp_path, described(path, **wrong))
    assert not (tmp_path / "results").exists()
    assert not list((tmp_path / "campaigns").glob("*.yaml"))
