"""The commands of pages that need no cluster and no data are run in a copy of the project."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import SCRIPTS
from documents import blocks, commands, run
from workspace import PROJECT, Workspace

pytestmark = pytest.mark.slow

RECORDINGS = PROJECT / "tests" / "unit" / "recordings"
QUICK = re.compile(r"scalewatt (campaign|plan --site|pilot|.* reference)\b|cp |sed ")
"""What needs no results and takes a second; `make test` runs these, `make test-nightly` all of a page."""
NOT_HERE = re.compile(
    # Set-up, what waits for Ctrl-C, what is this machine's, and campaigns that other tests make smaller.
    r"make |pip |shtab |\. |.*doctor|.* reproduce|.*campaigns/pilot.yaml|cd |export "
    r"|snakemake --profile profiles/simulate (all|figure4)$"
)
SMALLER = {
    "train_samples": "128",
    "validation_samples": "32",
    "epochs": "1",
    "samples_per_year": "40",
    "embed_dim": "16",
    "depth": "1",
    "initial_condition_spacing": "1",
    "sampling_period_s": "0.2",
}
"""What campaigns of pages are trained with here; batches and names stay."""


def smaller(text: str) -> str:
    """A campaign's text with SMALLER in place of its numbers, one training year, and no n = 4."""
    for key, value in SMALLER.items():
        text = re.sub(rf"\b{key}: [\d.]+", f"{key}: {value}", text)
    text = re.sub(r"gpus: (\[.*2), 4\]", r"gpus: \1]", text).replace("gpus: 4}", "gpus: 2}")
    return re.sub(r"train_years: \[\d+, (\d+)\]", r"train_years: [\1, \1]", text)


def small_project(path: Path) -> Workspace:
    """A copy of the workflow with a smaller demo."""
    workspace = Workspace.create(path)
    workspace.edit("config.yaml", "campaigns/tiny.yaml", "campaigns/demo.yaml")
    demo = path / "campaigns" / "demo.yaml"
    demo.write_text(smaller(demo.read_text()))
    return workspace


# --- what a page tells its reader to have -------------------------------------------------------


def campaign_of(document: str, file: str) -> Callable[[Path], None]:
    """Write the page's campaign to where it says, smaller."""

    def write(folder: Path) -> None:
        (block,) = [b for b in blocks(document, "yaml") if re.search(r"^series:", b, re.M)]
        (folder / file).write_text(smaller(block).replace("repeats: 3", "repeats: 1"))

    return write


def for_recordings(folder: Path) -> None:
    runs = folder / "runs"
    runs.mkdir()
    recorded = {
        "segment-000": "perun-0.9.1-node",
        "job": "perun-0.9.1-runs",
        "a": "perun-1.0.0-amd",
        "b": "perun-1.0.0-grace",
        "runs/vit_1gpu": "perun-0.8.10-node",
        "runs/vit_1gpu_again": "perun-0.8.10-unreadable",
        "runs/vit_2gpus": "perun-0.9.1-node",
    }
    for name, recording in recorded.items():
        shutil.copy2(RECORDINGS / f"{recording}.hdf5", folder / f"{name}.hdf5")
    (folder / "events.csv").write_text("stage,start_s,end_s\ntrain,0,4000000000\n")
    (runs / "vit_2gpus.yaml").write_text(blocks("docs/recordings.md", "yaml")[0])
    (runs / "runs.csv").write_text(blocks("docs/recordings.md", "csv")[0])


def for_horeka(folder: Path) -> None:
    (campaign,) = [b for b in blocks("docs/paper/horeka.md", "yaml") if b.startswith("name:")]
    (folder / "campaigns" / "first.yaml").write_text(campaign)


def for_readme(folder: Path) -> None:
    campaign_of("README.md", "campaigns/my-study.yaml")(folder)
    shutil.copytree(PROJECT / "examples/nvidia-smi", folder / "examples/nvidia-smi")
    (folder / "mynet").mkdir()
    (folder / "mynet" / "train.py").write_text(SCRIPTS["plain"])


def for_planning(folder: Path) -> None:
    shutil.copy2(folder / "campaigns/paper.yaml", folder / "campaigns" / "my-study.yaml")
    finished = folder / "results" / "demo"  # not there for what is quick, which needs none
    if finished.exists():
        shutil.copytree(finished, folder / "results" / "demo-pilot")


def nothing(folder: Path) -> None:
    """The project is enough."""


PAGES: dict[str, Callable[[Path], None]] = {
    "README.md": for_readme,
    "docs/figures.md": nothing,
    "docs/first-campaign.md": campaign_of("docs/first-campaign.md", "campaigns/first-study.yaml"),
    "docs/planning.md": for_planning,
    "docs/recordings.md": for_recordings,
    "docs/your-cluster.md": nothing,
    "docs/guide/idle-probe.md": nothing,
    "docs/guide/reruns.md": nothing,
    "docs/guide/slurm.md": nothing,
    "docs/guide/status.md": nothing,
    "docs/paper/claims.md": nothing,
    "docs/paper/horeka.md": for_horeka,
}


def run_page(document: str, folder: Path, wanted: re.Pattern[str]) -> None:
    """Run those of a page's commands that are wanted, in its order."""
    PAGES[document](folder)
    (folder / ".venv").symlink_to(sys.prefix)
    for command in commands(document):
        here = not command.mark and not NOT_HERE.match(command.bare)
        if here and wanted.match(command.bare):
            run(command, folder)


@pytest.mark.parametrize("document", PAGES)
def test_quick_commands_of_a_page_do_what_it_says(document: str, tmp_path: Path) -> None:
    if not any(QUICK.match(command.bare) for command in commands(document)):
        pytest.skip("no quick command")
    run_page(document, small_project(tmp_path / "project").path, QUICK)


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """What `make demo` leaves, of a smaller demo."""
    project = small_project(tmp_path_factory.mktemp("demo") / "project")
    project.done("all")
    return project


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", PAGES)
def test_all_commands_of_a_page_run_in_its_order(
    finished_demo: Workspace, tmp_path: Path, document: str
) -> None:
    run_page(document, finished_demo.copy(tmp_path / "project").path, re.compile(""))
