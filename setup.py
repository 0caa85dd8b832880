"""Build the wheel: the package, and with it the project's files that its workflow is made of.

All else is in pyproject.toml. In a checkout, and where it is installed with -e, nothing is copied:
scalewatt.common.schema_validation.PROJECT_ROOT is the checkout then.
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
FILES = ("Snakefile", "config.yaml")
FOLDERS = (
    "campaigns",
    "docs",
    "envs",
    "profiles/horeka",
    "profiles/local",
    "profiles/simulate",
    "profiles/slurm",
    "reference",
    "workflow/report",
    "workflow/rules",
    "workflow/schemas",
)


def commit() -> str:
    """Return the commit that is built, `-dirty` where files differ; "" if nobody knows."""
    noted = HERE / "COMMIT"
    if noted.is_file():
        return noted.read_text(encoding="utf-8")
    if not (HERE / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return done.stdout


class BuildWithProject(build_py):
    """Copies the project's files to scalewatt/project."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        package = Path(self.build_lib) / "scalewatt"
        # That of an earlier build has modules that are gone.
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        project = package / "project"
        project.mkdir(parents=True)
        for name in FILES:
            shutil.copy2(HERE / name, project / name)
        tracked = shutil.ignore_patterns("__pycache__", "*.new")
        for name in FOLDERS:
            shutil.copytree(HERE / name, project / name, ignore=tracked)
        (project / "COMMIT").write_text(commit(), encoding="utf-8")


class NoteCommit(sdist):
    """Notes the commit in the archive, which has no git."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        Path(base_dir, "COMMIT").write_text(commit(), encoding="utf-8")


setup(cmdclass={"build_py": BuildWithProject, "sdist": NoteCommit})
