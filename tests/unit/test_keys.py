"""`scalewatt keys`: every key of campaigns and clusters is documented, as the schema has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign_files import ROOT

from scalewatt.cli import main
from scalewatt.cli.key_reference import KINDS, keys_text, sections
from scalewatt.common.yaml_files import read_yaml

DOCUMENTS = {
    "campaign": ROOT / "docs" / "your-campaign.md",
    "cluster": ROOT / "docs" / "your-cluster.md",
}
FILES = {
    "campaign": [ROOT / "config.yaml", *sorted((ROOT / "campaigns").glob("*.yaml"))],
    "cluster": sorted((ROOT / "profiles").glob("*/cluster.yaml")),
}
FREE = ("settings", "data_roots", "max_local_batch_size")
"""Keys whose content has names of the user's, not of the schema's."""


def documented(kind: str) -> set[str]:
    """The last word of every documented key or place."""
    found = set()
    for section in sections(kind):
        places = [place.partition(" ")[0] for place in section.places if place]
        for path in [*places, *(key.path for key in section.keys)]:
            found |= set(re.split(r"[.\[\]]+", path))
    return found


def used(content: dict[str, Any], named: bool = False) -> Iterator[str]:
    """Every key that a file uses, but names that its user chose."""
    for key, value in content.items():
        if not named:
            yield key
        if key in FREE and not named:
            continue
        chosen = not named and key in (
            *("datasets", "models", "series", "devices", "sources", "step_time"),
        )
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from used(part, chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_has_the_keys_as_the_schema_has_them(kind: str) -> None:
    assert keys_text(kind) in DOCUMENTS[kind].read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_that_the_projects_own_files_use_is_documented(kind: str) -> None:
    for path in FILES[kind]:
        missing = set(used(read_yaml(path))) - documented(kind)
        assert not missing, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_says_what_it_is_and_what_it_takes(kind: str) -> None:
    for section in sections(kind):
        for key in section.keys:
            assert key.description and key.allowed, (section.places, key.path)


def test_keys_are_told_with_what_they_take_and_their_default() -> None:
    rows = keys_text("campaign").splitlines()
    assert (
        "| `epochs` | whole number ≥ 1, ≤ 100000 | `80` (pretrain), `50` (finetune) | Passes over the"
        in "".join(row for row in rows if "`80`" in row)
    )
    assert any(row.startswith("| `protocol` | `paper`, `corrected` | needed |") for row in rows)
    assert "| `crop_scale` | list of 2 × number > 0, ≤ 1 | `[0.5, 1.0]` |" in "\n".join(rows)


def test_no_word_of_a_schema_becomes_markup() -> None:
    for kind in KINDS:
        prose = re.sub(r"`[^`\n]*`", "", keys_text(kind))
        prose = re.sub(r"^<!-- .* -->$", "", prose, flags=re.MULTILINE)
        assert not re.search(r"(?<!\\)<\w|(?<!\\)\*", prose), kind


def test_the_part_between_the_markers_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    document = tmp_path / "mine.md"
    begin, *_, end = keys_text("cluster").splitlines()
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    assert main(["keys", "cluster", "--write", str(document)]) == 0
    assert document.read_text(encoding="utf-8") == f"before\n{keys_text('cluster')}after\n"


def test_a_document_without_markers_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "mine.md"
    document.write_text("no keys here\n", encoding="utf-8")
    assert main(["keys", "campaign", "--write", str(document)]) == 1
    assert "has no part for the keys of a campaign" in capsys.readouterr().err
    assert document.read_text(encoding="utf-8") == "no keys here\n"
    assert main(["keys", "campaign", "--write", str(tmp_path / "missing.md")]) == 1
