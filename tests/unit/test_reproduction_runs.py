"""What stored runs and a re-run record of their code, data and packages."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_files import NAME, WHOLE, make_run

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.files import read_json_object, write_json
from scalewatt.provenance import versions
from scalewatt.reproduction import provenance
from scalewatt.reproduction.findings import DIFFERS, NOT_CHECKED, SAME, Finding
from scalewatt.reproduction.manifest import Manifest
from scalewatt.reproduction.provenance import environment_findings, run_findings
from scalewatt.reproduction.rerun import made_alike

RUN = f"{NAME}/1"
COMMIT, DATA, LOCK = "0123456789ab", "d" * 64, "a" * 64
MANIFEST = Manifest("made", "1.0", COMMIT, "3.11.7", LOCK, {})
RECORD: dict[str, Any] = {
    "commit": COMMIT,
    "dataset_sha256": DATA,
    "packages_installed": {"torch": "2.7.0"},
    "lock": {"sha256": LOCK, "differences": []},
}
CHECKED = ["spec", "data", "lock", "packages", "commit"]
TORCH = {"package": "torch", "locked": "2.7.0", "installed": "2.11.0"}


def findings(results: Path, manifest: Manifest = MANIFEST, **changes: Any) -> dict[str, Finding]:
    """Findings about one run with this provenance."""
    files = make_run(results, WHOLE, **RECORD)
    record = files.folder / "provenance.json"
    write_json(record, read_json_object(record) | changes)
    dataset = read_spec(files.folder / "spec.json").dataset["name"]
    (results / "datasets").mkdir()
    write_json(results / "datasets" / f"{dataset}.json", {"content_sha256": DATA})
    return {row.what.removeprefix(f"{RUN}: "): row for row in run_findings(manifest, results)}


@pytest.mark.parametrize(
    ("what", "changes", "shown"),
    [
        ("nothing", {}, None),
        ("data", {"dataset_sha256": "e" * 64}, "e" * 64),
        ("spec", {"spec_sha256": "e" * 64}, "e" * 64),
        ("lock", {"lock": RECORD["lock"] | {"sha256": "e" * 64}}, "e" * 64),
        ("packages", {"lock": {"sha256": LOCK, "differences": [TORCH]}}, "torch 2.11.0 (2.7.0)"),
    ],
)
def test_other_data_another_spec_or_lock_is_a_difference(
    tmp_path: Path, what: str, changes: dict[str, Any], shown: str | None
) -> None:
    rows = findings(tmp_path, **changes)
    assert [*rows] == CHECKED
    for name, row in rows.items():
        assert row.outcome == (DIFFERS if name == what else SAME), name
    assert what not in rows or rows[what].actual == shown


@pytest.fixture()
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Commits of a clone, by what each changed."""
    clone = tmp_path / "clone"
    monkeypatch.setattr(versions, "PROJECT_ROOT", clone)
    (clone / "src").mkdir(parents=True)
    (clone / "campaigns").mkdir()

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = ["git", "-C", str(clone), *who, *words]
        return subprocess.run(done, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    made = {}
    for name in ("src/train.py", "campaigns/own.exclusions.csv", "src/model.py"):
        (clone / name).write_text("text\n")
        git("add", "--all")
        git("commit", "--quiet", "--message", name)
        made[name] = git("rev-parse", "--short=12", "HEAD")
    return made


def test_a_run_is_compared_with_what_made_it_and_not_with_the_clone(
    tmp_path: Path, commits: dict[str, str]
) -> None:
    first, exclusions, other = commits.values()
    manifest = replace(MANIFEST, commit=other)
    assert findings(tmp_path / "later", manifest, commit=first)["commit"].outcome == SAME
    segments = [{"commit": first}, {"commit": exclusions}]
    rows = findings(tmp_path / "excluded", commit=exclusions, segments=segments)
    assert rows["commit"].outcome == SAME
    segments = [{"commit": exclusions}, {"commit": other}]
    row = findings(tmp_path / "other", commit=other, segments=segments)["commit"]
    assert (row.outcome, row.expected) == (DIFFERS, other)
    assert row.detail == "src, workflow, envs, Snakefile differ between the commits: other code"


@pytest.mark.parametrize("lock", [None, LOCK])
def test_a_lock_is_compared_where_both_have_one(
    lock: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "current_lock_sha256", lambda: lock)
    for manifest, outcome in (
        (replace(MANIFEST, lock_sha256=None), NOT_CHECKED),
        (MANIFEST, SAME if lock else NOT_CHECKED),
    ):
        rows = {row.what: row for row in environment_findings(manifest)}
        assert rows[provenance.LOCK_FILE].outcome == outcome


def outcomes(first: dict[str, Any], again: dict[str, Any]) -> dict[str, str]:
    """Whether data and code of a re-run are the same."""
    return {row.what.split(": ")[1]: row.outcome for row in made_alike(RUN, first, again)}


def test_a_repeat_of_other_data_or_code_is_a_difference(commits: dict[str, str]) -> None:
    first, exclusions, other = commits.values()
    assert outcomes(RECORD, RECORD) == {"data": SAME, "commit": SAME}
    before = RECORD | {"commit": first}
    assert outcomes(before, RECORD | {"commit": exclusions})["commit"] == SAME
    assert outcomes(before, RECORD | {"commit": other})["commit"] == DIFFERS
    assert outcomes(before, RECORD)["commit"] == NOT_CHECKED
    assert outcomes(RECORD, RECORD | {"dataset_sha256": "e" * 64})["data"] == DIFFERS
    assert outcomes(RECORD, {}) == {}
