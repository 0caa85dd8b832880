"""Every command that a document shows is run here, is run by a named test, or is marked."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import PLAIN
from documents import (
    add_environment,
    all_commands,
    blocks,
    commands,
    documents,
    run,
    small_project,
    smaller,
)
from workspace import PROJECT, Workspace

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec

pytestmark = pytest.mark.slow

QUICK = r"(scalewatt (campaign|plan --profile|keys|pilot|.* reference)\b|cp |sed |\. )"
"""What needs no results and takes a second; `make test` runs these, `make test-nightly` all."""

CHAIN = "tests/workflow/test_chain.py::test_every_promised_file_is_there"
SIMULATED = "tests/workflow/test_simulated.py"
OF_ALL = f"{SIMULATED}::test_of_the_papers_campaign_every_run_is_simulated_and_nothing_else_is_made"
STATUS = "tests/workflow/test_status_command.py::test_the_text_names_what_runs"
COMPARED = "tests/unit/test_compare.py::test_a_campaign_is_compared_by_its_name_with_an_archive"
ARCHIVES = (
    "tests/workflow/test_archives.py"
    "::test_a_figure_is_drawn_from_an_archive_as_it_was_drawn_from_the_runs"
)
CONDA = "tests/workflow/test_conda.py"
WITHOUT_TORCH = f"{CONDA}::test_all_of_a_campaign_but_trainings_is_made_without_torch"
INSTALLED = f"{CONDA}::test_what_is_installed_is_the_same_as_in_the_environment_of_make"
OWN_TORCH = (
    "tests/workflow/test_own_torch.py"
    "::test_a_node_with_its_own_torch_has_neither_snakemake_nor_an_installed_scalewatt"
)
SITE = "tests/workflow/test_docs_site.py::test_the_site_is_built_without_a_warning"
COMPLETION = "tests/unit/test_completion.py::test_the_documents_lines_leave_a_file_for_each_shell"
DOCTOR = "tests/unit/test_doctor.py"
EXAMINED = f"{DOCTOR}::test_the_command_examines_this_machine_and_perun_really_samples"
AGAIN = (
    "tests/workflow/test_reproduce_target.py"
    "::test_a_campaign_that_was_just_made_is_the_same_in_all_checks"
)
THIRD = "tests/workflow/test_third_model.py"
ELSEWHERE = {
    # Its two commands.
    "make docs": SITE,
    # Its Snakemake command with a smaller campaign.
    "make demo": CHAIN,
    # All of its jobs as a dry run there; some of its runs to the report.
    "make paper-simulated": OF_ALL,
    "snakemake --profile profiles/simulate all": OF_ALL,
    "snakemake --profile profiles/simulate figure4": (
        f"{SIMULATED}::test_figures_report_and_claims_say_that_energies_are_simulated"
    ),
    # It goes on until Ctrl-C.
    "scalewatt status --profile profiles/horeka --all --watch 60": STATUS,
    # With the tiny campaign.
    "scalewatt export config.yaml --profile profiles/horeka": ARCHIVES,
    "scalewatt import paper.crate.zip --name paper-horeka": ARCHIVES,
    "snakemake --profile profiles/local figure2 --config campaign=campaigns/paper-horeka.yaml": ARCHIVES,
    # Of a small simulated campaign and its archive.
    "scalewatt compare demo theirs.crate.zip": COMPARED,
    "scalewatt compare paper paper-simulated --json": COMPARED,
    # The part of the lock without torch; what is made with it, there with linked packages.
    "python3.11 -m venv analysis": INSTALLED,
    "envs/install.sh analysis analysis": INSTALLED,
    ". analysis/bin/activate": INSTALLED,
    "snakemake --profile profiles/local figure2 --config campaign=config.yaml": WITHOUT_TORCH,
    # In a venv that has what such a node has, with the page's own blocks.
    "python3 -m pip download --no-deps -r envs/gpu-node.txt -d wheels": OWN_TORCH,
    "python3 -m venv --system-site-packages .venv-node": OWN_TORCH,
    ". .venv-node/bin/activate": OWN_TORCH,
    "pip install --no-index --no-deps --find-links wheels -r envs/gpu-node.txt": OWN_TORCH,
    "export PYTHONPATH=$PWD/src": OWN_TORCH,
    "python -m scalewatt.cli doctor": OWN_TORCH,
    # With a program that stands in for conda.
    "snakemake --profile profiles/local figure2 --sdm conda": (
        f"{CONDA}::test_a_figure_is_made_in_the_environment_that_its_rules_name"
    ),
    # Their exit code is this machine's.
    "scalewatt doctor": EXAMINED,
    "scalewatt doctor --json": EXAMINED,
    "scalewatt doctor --profile profiles/horeka": (
        "tests/cluster/test_doctor_on_slurm.py::test_a_login_node_says_what_slurm_answers"
    ),
    "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj": (
        f"{DOCTOR}::test_counters_of_root_are_limited_and_the_command_opens_them"
    ),
    # In a home of its own.
    "mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc ~/.config/fish/completions": (
        COMPLETION
    ),
    "scalewatt completion bash > ~/.local/share/bash-completion/completions/scalewatt": COMPLETION,
    "scalewatt completion zsh > ~/.zfunc/_scalewatt": COMPLETION,
    "scalewatt completion fish > ~/.config/fish/completions/scalewatt.fish": COMPLETION,
    "snakemake --profile profiles/local reproduce": AGAIN,
    "scalewatt reproduce --profile profiles/local --campaign campaigns/demo.yaml": AGAIN,
    # Some twenty runs: simulated there.
    "snakemake --profile profiles/local tables --config campaign=campaigns/pilot.yaml": (
        "tests/unit/test_pilot.py::test_what_the_pilot_takes_calibrates_the_papers_campaign"
    ),
    # 52 runs: fewer there.
    "snakemake --profile profiles/local variants --config campaign=campaigns/variants.yaml": (
        "tests/workflow/test_variants_target.py::test_variants_are_trained_compared_and_drawn"
    ),
}
NO_TEST = {
    # No test types these; what stands here in place of one is all there is.
    "pip install .": "nobody yet: pyproject.toml names no dependencies so far",
    "make setup": ".ci/run: `make lint` begins with it",
    "make lint": ".ci/run",
    "make test": ".ci/run",
    "make lock": "a person, now and then: it asks the package index for the newest",
    'make test-versions PYTHONS="python3.12 python3.13"': "a person: it runs the tests twice more",
}
PAGES = {
    # Documents whose commands another test runs with the page's own blocks.
    "docs/add-a-model.md": (
        f"{THIRD}::test_the_campaign_of_the_page_trains_the_model_and_draws_its_figure"
    ),
    "docs/your-script.md": (
        "tests/cluster/test_lightning_on_slurm.py"
        "::test_the_pages_commands_measure_the_script_on_one_and_two_nodes"
    ),
}
BY_HAND = (
    "tests/workflow/test_exclusions_command.py"
    "::test_the_old_measurement_is_taken_back_as_the_documentation_says"
)
RECORDINGS = PROJECT / "tests" / "unit" / "recordings"
RECORDED = {
    "vit_1gpu": "perun-0.8.10-node.hdf5",
    "vit_1gpu_again": "perun-0.8.10-unreadable.hdf5",
    "vit_2gpus": "perun-0.9.1-node.hdf5",
    "segment-000": "perun-0.9.1-node.hdf5",
    "job": "perun-0.9.1-runs.hdf5",
    "a": "perun-1.0.0-amd.hdf5",
    "b": "perun-1.0.0-grace.hdf5",
}
"""The recording that stands for each file that a document names."""
ONE_RUN = """
name: mine
protocol: paper
datasets:
  imagenet: {format: imagenet, source: data_root, train_samples: 20000, validation_samples: 1000, classes: 10}
models:
  resnet50: {dataset: imagenet, epochs: 2}
series:
  one: {model: resnet50, device: a100, gpus: [4], local_batch_size: 256}
figures:
  figure2: {series: [one]}
"""


def elsewhere(command: str, document: str) -> str | None:
    """What runs a command in place of this file: a test, or for NO_TEST somebody else."""
    if document == "docs/exclusions.md" and command.startswith("cd results/<campaign>"):
        return BY_HAND
    return PAGES.get(document) or ELSEWHERE.get(command) or NO_TEST.get(command)


# --- what a document tells its reader to have ---------------------------------------------------


def campaign_of(document: str, file: str) -> Callable[[Path], None]:
    """Write the document's campaign to where it says, smaller."""

    def write(folder: Path) -> None:
        (found,) = [b for b in blocks(document, "yaml") if re.search(r"^series:", b, re.M)]
        (folder / file).write_text(smaller(found).replace("repeats: 3", "repeats: 1"))

    return write


def one_run(folder: Path) -> None:
    (folder / "campaigns" / "mine.yaml").write_text(ONE_RUN)


def recording(name: str, folder: Path) -> None:
    shutil.copy2(RECORDINGS / RECORDED[name], folder / f"{name}.hdf5")


def for_energy(folder: Path) -> None:
    for name in ("segment-000", "job", "a", "b"):
        recording(name, folder)
    (folder / "events.csv").write_text("stage,start_s,end_s\ntrain,0,4000000000\n")


def for_register(folder: Path) -> None:
    runs = folder / "runs"
    runs.mkdir()
    for name in ("vit_1gpu", "vit_1gpu_again", "vit_2gpus"):
        recording(name, runs)
    (runs / "vit_2gpus.yaml").write_text(blocks("docs/register.md", "yaml")[0])
    (runs / "runs.csv").write_text(blocks("docs/register.md", "csv")[0])


def for_horeka(folder: Path) -> None:
    (found,) = [text for text in blocks("docs/horeka.md", "yaml") if text.startswith("name:")]
    (folder / "campaigns" / "first.yaml").write_text(found)


def for_readme(folder: Path) -> None:
    campaign_of("README.md", "campaigns/my-study.yaml")(folder)
    (folder / "mynet").mkdir()
    (folder / "mynet" / "train.py").write_text(PLAIN)


def for_scaling(folder: Path) -> None:
    one_run(folder)
    finished = folder / "results" / "demo"  # not there for what is quick, which needs none
    if finished.exists():
        shutil.copytree(finished, folder / "results" / "demo-pilot")


def for_simulate(folder: Path) -> None:
    one_run(folder)
    campaign = load_campaign(folder / "campaigns" / "mine.yaml")
    (configuration,) = campaign.configurations
    (folder / "run").mkdir()
    (folder / "run" / "spec.json").write_text(run_spec(campaign, configuration, 1).text)


NEEDS: dict[str, Callable[[Path], None]] = {
    "README.md": for_readme,
    "docs/first-campaign.md": campaign_of("docs/first-campaign.md", "campaigns/first-study.yaml"),
    "docs/horeka.md": for_horeka,
    "docs/energy.md": for_energy,
    "docs/register.md": for_register,
    "docs/scaling.md": for_scaling,
    "docs/simulate.md": for_simulate,
}


# --- which are run ------------------------------------------------------------------------------


def runs_here(document: str) -> list[str]:
    """The commands of a document that this file runs."""
    found = [c for c in commands(document) if not c.mark]
    return [c.bare for c in found if elsewhere(c.bare, document) is None]


def quick(document: str) -> list[str]:
    return [bare for bare in runs_here(document) if re.match(QUICK, bare)]


def test_commands_are_found_in_documents_whatever_their_blocks_are_called() -> None:
    found = {command.place.partition(":")[0] for command in all_commands()}
    assert len(found) > 15
    assert {"README.md", "CONTRIBUTING.md", "docs/horeka.md"} <= found
    assert not re.search("^```(bash|shell|console)?$\n(scalewatt|snakemake|make)", joined(), re.M)


def joined() -> str:
    return "\n".join((PROJECT / name).read_text(encoding="utf-8") for name in documents())


def test_a_command_that_is_not_run_here_names_a_test_that_exists() -> None:
    for named in {*ELSEWHERE.values(), *PAGES.values(), BY_HAND}:
        file, _, function = named.partition("::")
        tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in defined, named


def test_a_command_that_is_named_with_a_test_is_shown_somewhere() -> None:
    shown = {command.bare for command in all_commands()}
    assert set(ELSEWHERE) | set(NO_TEST) <= shown
    assert not set(ELSEWHERE) & set(NO_TEST)
    assert set(PAGES) <= {command.document for command in all_commands()}


def test_a_reader_sees_which_commands_need_a_cluster_or_data() -> None:
    marker = re.compile(
        r"<!-- needs (a cluster|data|Apptainer|a GPU) -->\n```sh\n(.*?)```", re.DOTALL
    )
    words = {
        **{"a cluster": "cluster", "data": "data|finished runs", "Apptainer": "apptainer"},
        "a GPU": "GPU",
    }
    for document in documents():
        page = (PROJECT / document).read_text(encoding="utf-8")
        found = list(marker.finditer(page))
        assert len(found) == page.count("<!-- needs "), document
        for one in found:
            before = page[: one.start()].rstrip().rpartition("\n\n")[2]
            assert re.search(words[one[1]], before + one[2]), (document, one[2])


def test_what_only_ci_types_is_in_its_script() -> None:
    script = (PROJECT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"make lint", "make test"} <= set(script)
    assert {command for command, who in NO_TEST.items() if who == ".ci/run"} <= set(script)


# --- running them -------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [name for name in documents() if quick(name)])
def test_quick_commands_of_a_document_do_what_it_says(document: str, tmp_path: Path) -> None:
    project = small_project(tmp_path / "project").path
    add_environment(project)
    NEEDS.get(document, lambda folder: None)(project)
    wanted = quick(document)
    for command in commands(document):
        if command.bare in wanted and not command.mark:
            run(command, project)


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """What `make demo` leaves, of a smaller demo."""
    project = small_project(tmp_path_factory.mktemp("demo") / "project")
    project.done("all")
    return project


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", [name for name in documents() if runs_here(name)])
def test_all_commands_of_a_document_run_in_its_order(
    finished_demo: Workspace, tmp_path: Path, document: str
) -> None:
    project = finished_demo.copy(tmp_path / "project").path
    add_environment(project)
    NEEDS.get(document, lambda folder: None)(project)
    for command in commands(document):
        if not command.mark and elsewhere(command.bare, document) is None:
            run(command, project)
