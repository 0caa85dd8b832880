"""The folders of examples/: each README is short, and what it shows works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pyarrow.parquet as pq
import pytest
from documents import commands, run
from workspace import PROJECT, Workspace

from scalewatt.campaign.load import load_campaign

SCRIPTS = ("ddp", "huggingface")
EXAMPLES = sorted(path.name for path in (PROJECT / "examples").iterdir() if path.is_dir())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_readme_is_one_screen_long(name: str) -> None:
    text = (PROJECT / "examples" / name / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Copies of the examples that need no training."""
    for name in ("nvidia-smi", "notebook"):
        shutil.copytree(PROJECT / "examples" / name, tmp_path / "examples" / name)
    return tmp_path


def test_the_commands_about_a_log_of_nvidia_smi_work(logs: Path) -> None:
    page = "examples/nvidia-smi/README.md"
    printed = [run(command, logs) for command in commands(page) if not command.mark]
    assert "train" in printed[0] and "node17" in printed[0]
    assert "registered: vit-a100-n002-lbs0256-s0020000-e002 repeat 1" in printed[1]


def test_the_notebook_runs_from_its_first_to_its_last_cell(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs / "examples" / "notebook")
    monkeypatch.setattr(plt, "show", lambda: None)
    names: dict[str, object] = {}
    for cell in json.loads(Path("energy.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    plt.close("all")
    by_stage_kwh = names["by_stage_kwh"]
    assert isinstance(by_stage_kwh, pd.Series)
    # 57 s of training at about 390 W and 395 W.
    assert by_stage_kwh["train"] == pytest.approx(57 * 785 / 3.6e6, rel=0.02)


@pytest.mark.parametrize(
    ("example", "gpus"), [("ddp", [1, 2]), ("huggingface", [1, 2]), ("lightning", [1, 2, 4])]
)
def test_the_campaign_of_a_script_is_right(
    monkeypatch: pytest.MonkeyPatch, example: str, gpus: list[int]
) -> None:
    monkeypatch.chdir(PROJECT)
    campaign = load_campaign(Path("examples", example, "campaign.yaml"))
    assert [point.gpus for point in campaign.configurations.values()] == gpus


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_commands_about_a_script_train_and_measure(name: str, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "project")
    shutil.copytree(PROJECT / "examples" / name, workspace.path / "examples" / name)
    for command in commands(f"examples/{name}/README.md"):
        printed = run(command, workspace.path)
    assert "2 done" in printed
    results = workspace.path / "results" / f"{name}-example"
    rows = pq.read_table(results / "tables" / "table1.parquet").to_pylist()
    assert [row["gpus"] for row in rows] == [1, 2]
    provenance = next((results / "runs").glob("*-n002-*/1/provenance.json"))
    reports = json.loads(provenance.read_text())["reports"]
    assert reports["epochs"] == 3
