"""The commands that README, CONTRIBUTING and docs show, and what a reader needs to type them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workspace import PROJECT, Workspace, environment

MARKS = {
    "<!-- needs a cluster -->": "cluster",
    "<!-- needs data -->": "data",
    "<!-- needs Apptainer -->": "apptainer",
    "<!-- needs a GPU -->": "gpu",
}
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
"""What campaigns of documents are trained with here; batches and names stay."""


@dataclass(frozen=True)
class Command:
    """One command of a document; `mark` is a word of MARKS, or nothing."""

    document: str
    line: int
    text: str
    mark: str

    @property
    def bare(self) -> str:
        """Without its comments, and with single spaces."""
        lines = (re.sub(r"(^|\s)#\s.*", "", line) for line in self.text.splitlines())
        return " ".join(" ".join(lines).replace("\\ ", " ").split())

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.document}:{self.line}"


def documents() -> list[str]:
    """All documents, from the project's folder."""
    docs = sorted(path.relative_to(PROJECT) for path in (PROJECT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *map(str, docs)]


def commands(document: str) -> list[Command]:
    """The commands of a document's shell blocks, in its order."""
    lines = (PROJECT / document).read_text(encoding="utf-8").splitlines()
    return [one for begin in _shell_blocks(lines) for one in _of_block(document, lines, begin)]


def all_commands() -> list[Command]:
    """Those of all documents."""
    return [command for document in documents() for command in commands(document)]


def _shell_blocks(lines: list[str]) -> Iterator[int]:
    """The index of each line that opens a shell block, however it calls the language."""
    inside = False
    for index, line in enumerate(lines):
        fence = re.match(r"\s*```\s*(\w*)", line)
        if fence:
            if not inside and fence[1] in ("", "sh", "bash", "shell", "console"):
                yield index
            inside = not inside


def _of_block(document: str, lines: list[str], begin: int) -> Iterator[Command]:
    before = next((line for line in reversed(lines[:begin]) if line.strip()), "")
    mark = MARKS.get(before.strip(), "")
    whole: list[str] = []
    for index in range(begin + 1, len(lines)):
        if lines[index].lstrip().startswith("```"):
            break
        whole.append(lines[index])
        text = "\n".join(whole)
        if _is_whole(text):
            if re.search(r"^\s*[^#\s]", text, flags=re.MULTILINE):
                yield Command(document, index + 2 - len(whole), text, mark)
            whole = []
    if whole:  # no shell takes it as it stands, such as one with <placeholders>
        yield Command(document, index + 1 - len(whole), "\n".join(whole), mark)


def _is_whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0


def run(command: Command, folder: Path) -> str:
    """Run a command as a reader does, in `folder`; what it printed. It must succeed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.text],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command.place}: {command.text}\n{done.stdout[-4000:]}"
    return done.stdout


# --- what a document needs ----------------------------------------------------------------------


def smaller(text: str) -> str:
    """A campaign's text with SMALLER in place of its numbers, one training year, and no n = 4."""
    for key, value in SMALLER.items():
        text = re.sub(rf"\b{key}: [\d.]+", f"{key}: {value}", text)
    text = re.sub(r"gpus: (\[.*2), 4\]", r"gpus: \1]", text).replace("gpus: 4}", "gpus: 2}")
    return re.sub(r"train_years: \[\d+, (\d+)\]", r"train_years: [\1, \1]", text)


def small_project(path: Path) -> Workspace:
    """A copy of the workflow and of the documents, with a smaller demo."""
    workspace = Workspace.create(path)
    workspace.edit("profiles/local/cluster.yaml", "campaigns/tiny.yaml", "campaigns/demo.yaml")
    (path / "campaigns" / "tiny.yaml").unlink()
    demo = path / "campaigns" / "demo.yaml"
    demo.write_text(smaller(demo.read_text()))
    for name in documents():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text((PROJECT / name).read_text(encoding="utf-8"), encoding="utf-8")
    return workspace


def add_environment(folder: Path) -> None:
    """Give a project its .venv; last, for a copy of the project would copy all of it."""
    (folder / ".venv").symlink_to(sys.prefix)


def blocks(document: str, language: str) -> list[str]:
    """The contents of a document's blocks in a language."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
