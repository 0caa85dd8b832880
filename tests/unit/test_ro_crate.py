"""Archives are valid RO-Crates: by roc-validator, without a network."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from archived import Project

from scalewatt.archive.ro_crate import CONTEXT, METADATA

services = pytest.importorskip(
    "rocrate_validator.services", reason="roc-validator is not installed"
)

pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")

SCHEMA_ORG = (
    *("CreativeWork", "Dataset", "Person", "ScholarlyArticle", "about", "author", "citation"),
    *("contentSize", "datePublished", "description", "hasPart", "identifier"),
    *("license", "name", "sha256"),
)
TERMS = {name: f"http://schema.org/{name}" for name in SCHEMA_ORG} | {
    "File": "http://schema.org/MediaObject",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}
"""What archives use of the context of RO-Crate 1.1 (version 1.1.3), which the validator would fetch."""


LACKING = [
    "Missing or invalid `encodingFormat`",  # the suffix says it
    "The `publisher` property",  # nobody is asked for one, or where authors work
    "The author SHOULD have a Contextual Entity",
    "The author SHOULD have an organizational affiliation",
]
"""What of the recommended is not in an archive, and why; the validator's words begin so."""


def issues(crate: Path, recommended: bool = False) -> list[str]:
    """What roc-validator finds wrong with a folder, whose context is replaced by TERMS."""
    path = crate / METADATA
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert content["@context"] == CONTEXT
    content["@context"] = TERMS
    path.write_text(json.dumps(content))
    severity = services.Severity.RECOMMENDED if recommended else services.Severity.REQUIRED
    settings = services.ValidationSettings(
        rocrate_uri=str(crate),
        profile_identifier="ro-crate-1.1",
        requirement_severity=severity,
        offline=True,
    )
    return [str(issue.message) for issue in services.validate(settings).get_issues()]


@pytest.fixture(scope="module")
def archive(simulated_project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with all that may be given to its metadata."""
    out = tmp_path_factory.mktemp("archive") / "small.crate.zip"
    given = {"authors": ("Ada Lovelace",), "license_": "CC-BY-4.0"}
    simulated_project.messages(out, traces=True, **given)
    return out


def unpacked(archive: Path, crate: Path) -> Path:
    """The payload of an archive, which is the crate."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(crate)
    return crate / "small" / "data"


def test_an_exported_archive_is_a_valid_ro_crate(archive: Path, tmp_path: Path) -> None:
    messages = sorted(set(issues(unpacked(archive, tmp_path), recommended=True)))
    assert [text for text in messages if not text.startswith(tuple(LACKING))] == []
    assert len(messages) == len(LACKING), messages


def test_what_is_missing_is_found(archive: Path, tmp_path: Path) -> None:
    crate = unpacked(archive, tmp_path)
    path = crate / METADATA
    path.write_text(path.read_text(encoding="utf-8").replace('"datePublished"', '"undefined"'))
    assert issues(crate)
