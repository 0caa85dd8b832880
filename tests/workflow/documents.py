"""The commands that README, CONTRIBUTING and docs show."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workspace import PROJECT, run_process


@dataclass(frozen=True)
class Command:
    """One command of a document; `mark` is what it needs that is not here, or nothing."""

    document: str
    line: int
    text: str
    mark: str

    @property
    def bare(self) -> str:
        """Without its comments, and with single spaces."""
        lines = (re.sub(r"(^|\s)#\s.*", "", line) for line in self.text.splitlines())
        return " ".join(" ".join(lines).replace("\\ ", " ").split())


def blocks(document: str, language: str) -> list[str]:
    """The contents of a document's blocks in a language."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(document: str) -> list[Command]:
    """The commands of a document's shell blocks, in its order."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    fences = re.finditer(r"(?:^<!-- needs ([^\n]+) -->\n)?^```sh\n(.*?)^```$", text, re.M | re.S)
    return [command for block in fences for command in _of_block(document, text, block)]


def _of_block(document: str, text: str, block: re.Match[str]) -> Iterator[Command]:
    first = text.count("\n", 0, block.start(2)) + 1
    whole: list[str] = []
    for number, line in enumerate(block[2].splitlines(), first):
        whole.append(line)
        shown = "\n".join(whole)
        if _is_whole(shown):
            if re.search(r"^\s*[^#\s]", shown, flags=re.MULTILINE):
                yield Command(document, number + 1 - len(whole), shown, block[1] or "")
            whole = []
    if whole:  # no shell takes it as it stands, such as one with <placeholders>
        yield Command(document, first, "\n".join(whole), block[1] or "")


def _is_whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0


def run(command: Command, folder: Path) -> str:
    """Run a command as a reader does, in `folder`; what it printed. It must succeed."""
    code, output = run_process(["bash", "-euo", "pipefail", "-c", command.text], cwd=folder)
    assert code == 0, f"{command.document}:{command.line}: {command.text}\n{output[-4000:]}"
    return output
