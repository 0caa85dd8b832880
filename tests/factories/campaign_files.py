"""Campaign files for tests: the project's own ones, and small edits of the demo's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from pydantic import BaseModel

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.cli import main

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "campaigns" / "demo.yaml"
PAPER = ROOT / "campaigns/paper.yaml"
LOCAL = ROOT / "config.yaml"

T = TypeVar("T", bound=BaseModel)
DELETE = object()
Key = tuple[str, ...]
Edits = Mapping[Key, Any]


@cache
def _content(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def edited(edits: Edits, path: Path = DEMO) -> dict[str, Any]:
    """The content of a file with values set (by the path of keys to them) or deleted."""
    content = json.loads(json.dumps(_content(path)))  # aliases must not be edited together
    for (*parents, key), value in edits.items():
        level = content
        for parent in parents:
            level = level[parent]
        if value is DELETE:
            del level[key]
        else:
            level[key] = value
    return content


def replaced(settings: T, **changes: Any) -> T:
    """A cluster or device with other values, unchecked."""
    return settings.model_copy(update=changes)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_yaml(path: Path, content: Any) -> Path:
    """Write `content` as YAML, keys in their order."""
    path.write_text(yaml.dump(content, Dumper=_NoAliases, sort_keys=False), encoding="utf-8")
    return path


def demo(edits: Edits | None = None) -> Campaign:
    """The demo's campaign, edited."""
    return expand(edited(edits or {}), DEMO, known_devices())


class Refused:
    """Runs `scalewatt campaign` in an empty folder and checks how it refuses."""

    def __init__(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder = tmp_path / "given"
        self.cwd = tmp_path / "cwd"
        self.folder.mkdir()
        self.cwd.mkdir()
        self.capsys = capsys
        monkeypatch.chdir(self.cwd)

    def message(self, *arguments: str | Path) -> str:
        """The one message of a refusal; everything else about it is asserted here."""
        before = sorted(self.folder.rglob("*"))
        code = main(["campaign", *map(str, arguments)])
        out, err = self.capsys.readouterr()
        assert code == 1
        assert out == ""
        assert err.startswith("scalewatt: error: ")
        assert err.count("\n") == 1 and err.endswith("\n"), "not one message on one line"
        assert list(self.cwd.iterdir()) == []
        assert sorted(self.folder.rglob("*")) == before
        return err

    def campaign(self, edits: Edits) -> str:
        """The message about an edited demo; it names the file."""
        path = write_yaml(self.folder / "mine.yaml", edited(edits))
        return self._message_about(path, path)

    def cluster(self, edits: Edits) -> str:
        """The message about an edited cluster file; it names that file."""
        path = write_yaml(self.folder / "cluster.yaml", edited(edits, LOCAL))
        return self._message_about(path, DEMO, "--site", path)

    def text(self, text: str | bytes) -> str:
        """The message about a campaign file of this text; it names the file."""
        path = self.folder / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self._message_about(path, path)

    def _message_about(self, path: Path, *arguments: str | Path) -> str:
        message = self.message(*arguments)
        assert str(path) in message
        return message
