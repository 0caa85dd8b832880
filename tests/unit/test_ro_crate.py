"""Archives are valid RO-Crates: by roc-validator, without a network."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from archived import make_project

from scalewatt.archive.package_reference import FOLDER
from scalewatt.archive.ro_crate import CONTEXT, METADATA

services = pytest.importorskip(
    "rocrate_validator.services", reason="roc-validator is not installed (envs/requirements.in)"
)

pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")

SCHEMA_ORG = (
    *("CreateAction", "CreativeWork", "Dataset", "Person", "ScholarlyArticle"),
    *("SoftwareApplication", "about", "author", "citation", "contentSize", "datePublished"),
    *("description", "encodingFormat", "endTime", "hasPart", "identifier", "instrument"),
    *("license", "mentions", "name", "object", "result", "softwareVersion", "startTime"),
)
TERMS = {name: f"http://schema.org/{name}" for name in SCHEMA_ORG} | {
    "File": "http://schema.org/MediaObject",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}
"""What archives use of the context of RO-Crate 1.1 (version 1.1.3), which the validator would fetch."""


def issues(crate: Path) -> list[str]:
    """What roc-validator finds wrong with a folder, whose context is replaced by TERMS and its own terms."""
    path = crate / METADATA
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert content["@context"] == list(CONTEXT)
    content["@context"] = TERMS | CONTEXT[1]
    path.write_text(json.dumps(content))
    settings = services.ValidationSettings(
        rocrate_uri=str(crate), profile_identifier="ro-crate-1.1", offline=True
    )
    return [str(one.message) for one in services.validate(settings).get_issues()]


def test_an_exported_archive_is_a_valid_ro_crate(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    with zipfile.ZipFile(project.export(traces=True, authors=("Ada Lovelace",))) as archive:
        archive.extractall(tmp_path / "crate")
    assert issues(tmp_path / "crate") == []


def test_the_published_rows_are_a_valid_ro_crate(tmp_path: Path) -> None:
    assert issues(shutil.copytree(FOLDER, tmp_path / "reference")) == []


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    crate = shutil.copytree(FOLDER, tmp_path / "reference")
    path = crate / METADATA
    path.write_text(path.read_text(encoding="utf-8").replace('"datePublished"', '"undefined"'))
    assert issues(crate)
