"""A copy of the workflow in a folder of its own, driven as a user drives it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.files import file_sha256
from scalewatt.provenance.versions import installed_versions, source_commit

PROJECT = Path(__file__).parents[2]
COPIED = (
    "Snakefile",
    "config.yaml",
    "config",
    "pyproject.toml",
    "workflow",
    "profiles",
    "campaigns",
    "reference",
    "src",
    "envs",
)
TINY = Path(__file__).parent / "tiny.yaml"
SIMULATED = TINY.with_name("simulated.yaml").read_text(encoding="utf-8")
CHOSEN = ("--config", "campaign=campaigns/small.yaml")


def environment() -> dict[str, str]:
    """The environment with this Python's commands first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def start_process(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
    """Start a command without input, whose output and errors are one text; options are those of Popen."""
    usual = {"env": environment(), "stdin": subprocess.DEVNULL, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, **(usual | pipes | options))


def run_process(command: Sequence[str | Path], **options: Any) -> tuple[int, str]:
    """Run such a command to its end: exit code and all it printed."""
    process = start_process(command, **options)
    output, _ = process.communicate()
    return process.returncode, output


def first_on_path(folder: Path) -> str:
    """PYTHONPATH with a folder before what is on it, where the project itself may be."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def copy_workflow(path: Path) -> None:
    """Copy the workflow to a new folder, without the user's exclusions beside the campaigns that ship."""
    path.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.exclusions.csv")
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, path / name, ignore=ignore)
        else:
            shutil.copy2(source, path / name)


def project_hash() -> str:
    """What a finished campaign depends on: the files, as they are copied, the commit and the packages."""
    total = hashlib.sha256(f"{source_commit()} {sys.version} {installed_versions()}".encode())
    for file in sorted(
        f for name in COPIED for f in [PROJECT / name, *(PROJECT / name).rglob("*")]
    ):
        if file.is_file() and not {"__pycache__", "scalewatt.egg-info"} & set(file.parts):
            total.update(f"{file.relative_to(PROJECT)} {file_sha256(file)}".encode())
    total.update(TINY.read_bytes())
    return total.hexdigest()


def _end(process: subprocess.Popen[str]) -> None:
    """End a snakemake, which TERM lets wait for its jobs: those of a Slurm that is gone never end."""
    for number, patience_s in ((signal.SIGTERM, 15.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def job_counts(output: str) -> dict[str, int]:
    """How many jobs of each rule Snakemake executes, or would, by its output."""
    if "Job stats:" not in output:
        assert "Nothing to be done" in output, output
        return {}
    table = output.rsplit("Job stats:", 1)[1].partition("\n\n")[0]
    counts = re.findall(r"^(\w+)\s+(\d+)$", table, flags=re.MULTILINE)
    return {rule: int(count) for rule, count in counts if rule not in ("total", "all")}


def trained_runs(output: str) -> set[tuple[str, int]]:
    """The runs (configuration, repeat) that a dry run would train, by what it prints with `-p`."""
    trained = re.findall(r": train (\S+) repeat (\d+)", output)
    return {(configuration, int(repeat)) for configuration, repeat in trained}


@dataclass(frozen=True)
class Workspace:
    """A working copy at `path`."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> Workspace:
        """Copy the workflow to `path`, with the tiny campaign as the local default."""
        copy_workflow(path)
        shutil.copy2(TINY, path / "campaigns" / "tiny.yaml")
        workspace = cls(path)
        workspace.edit("config.yaml", "campaigns/demo.yaml", "campaigns/tiny.yaml")
        # These trainings are too short for a checkpoint every ten minutes.
        workspace.edit("config.yaml", "work_root:", "checkpoint_every_s: 0\nwork_root:")
        return workspace

    @classmethod
    def kept(cls, shared: Path, make: Callable[[Path], Workspace]) -> Workspace:
        """What `make` makes, once for a state of the project, kept in `shared` for all workers."""
        with open(shared / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            original = shared / project_hash()
            if not original.exists():
                for other in shared.glob("*/"):
                    shutil.rmtree(other)
                make(shared / "unfinished").path.rename(original)
            return cls(original)

    @classmethod
    def finished(cls, path: Path) -> Workspace:
        """The tiny campaign, run to its end by one snakemake."""
        made = cls.create(path)
        made.done("all")
        return made

    @classmethod
    def planned(cls, path: Path) -> Workspace:
        """The small campaign that is simulated, of which nothing was made."""
        made = cls.create(path)
        (made.path / "campaigns" / "small.yaml").write_text(SIMULATED)
        return made

    @classmethod
    def simulated(cls, path: Path) -> Workspace:
        """The small campaign, simulated to its end."""
        made = cls.planned(path)
        made.done("all", *CHOSEN, profile="simulate")
        return made

    def copy(self, path: Path) -> Workspace:
        """A second workspace with the same results, times included."""
        shutil.copytree(self.path, path)
        return Workspace(path)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that stands in a file exactly once."""
        file = self.path / name
        text = file.read_text()
        assert text.count(old) == 1, (name, old, text.count(old))
        file.write_text(text.replace(old, new))

    def start(self, *arguments: str, profile: str | None = "local") -> subprocess.Popen[str]:
        """Start snakemake in a process group of its own."""
        chosen = ("--profile", f"profiles/{profile}") if profile else ()
        command = [sys.executable, "-m", "snakemake", *chosen, *arguments]
        return start_process(command, cwd=self.path, start_new_session=True)

    def snakemake(self, *arguments: str, profile: str | None = "local") -> tuple[int, str]:
        """Run snakemake; exit code and all it printed."""
        process = self.start(*arguments, profile=profile)
        try:
            output, _ = process.communicate()
        except BaseException as error:  # the test's time is over
            try:
                error.add_note(self.state())
            finally:
                _end(process)
            raise
        return process.returncode, output

    def state(self) -> str:
        """What Snakemake wrote last, for whoever reads a failure."""
        logs = sorted((self.path / ".snakemake" / "log").glob("*.log"))
        return f"Snakemake:\n{logs[-1].read_text(errors='replace')[-4000:] if logs else ''}"

    def done(self, *arguments: str, **profile: str) -> str:
        """Run snakemake, which must succeed."""
        code, output = self.snakemake(*arguments, **profile)
        assert code == 0, output
        return output

    def scalewatt(self, *arguments: object) -> str:
        """Run a command, which must succeed; all it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "scalewatt.cli", *map(str, arguments)],
            cwd=self.path,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def jobs(self, *arguments: str, profile: str | None = "local") -> dict[str, int]:
        """How many jobs of each rule a dry run would execute."""
        code, output = self.snakemake("-n", *arguments, profile=profile)
        assert code == 0, output
        return job_counts(output)

    def trainings(self, *arguments: str) -> set[tuple[str, int]]:
        """The runs (configuration, repeat) that a dry run would train."""
        return trained_runs(self.done("-np", *arguments))

    def drawn(self, *arguments: str) -> set[str]:
        """The figures that a dry run would draw."""
        return set(re.findall(r": draw (\w+)", self.done("-np", *arguments)))

    @property
    def results(self) -> Path:
        """The tiny campaign's results."""
        return self.path / "results" / "tiny"
