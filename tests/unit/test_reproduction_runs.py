"""What stored runs and a re-run record of their code, data and packages."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_files import NAME, WHOLE, make_run

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.files import write_json
from scalewatt.provenance import versions
from scalewatt.reproduction.findings import DIFFERS, NOT_CHECKED, SAME, Finding
from scalewatt.reproduction.manifest import Manifest
from scalewatt.reproduction.provenance_check import run_findings
from scalewatt.reproduction.rerun_check import made_alike

RUN = f"{NAME}/1"
COMMIT, DATA, LOCK = "0123456789ab", "d" * 64, "a" * 64
MANIFEST = Manifest("made", "1.0", COMMIT, "3.11.7", LOCK, {})
SAID: dict[str, Any] = {
    "commit": COMMIT,
    "dataset_sha256": DATA,
    "packages_installed": {"torch": "2.7.0"},
    "lock": {"sha256": LOCK, "differences": []},
}


def found(results: Path, manifest: Manifest = MANIFEST, **said: Any) -> list[Finding]:
    """What is found of one run whose provenance says this."""
    files = make_run(results, WHOLE, **(SAID | said))
    dataset = read_spec(files.folder / "spec.json").dataset["name"]
    (results / "datasets").mkdir()
    write_json(results / "datasets" / f"{dataset}.json", {"content_sha256": DATA})
    return list(run_findings(manifest, results))


def test_a_run_as_it_was_recorded_is_the_same(tmp_path: Path) -> None:
    (one,) = found(tmp_path)
    assert (one.what, one.outcome) == (RUN, SAME)
    assert one.detail == "the same: spec, data, lock, packages, commit"


@pytest.mark.parametrize(
    ("what", "said", "shown"),
    [
        ("data", {"dataset_sha256": "e" * 64}, "e" * 64),
        ("spec", {"spec_sha256": "e" * 64}, "e" * 64),
        ("lock", {"lock": SAID["lock"] | {"sha256": "e" * 64}}, "e" * 64),
        (
            "packages",
            {
                "lock": {
                    "sha256": LOCK,
                    "differences": [{"package": "torch", "locked": "2.7.0", "installed": "2.11.0"}],
                }
            },
            "torch 2.11.0 (2.7.0)",
        ),
    ],
)
def test_other_data_another_spec_or_lock_is_a_difference(
    tmp_path: Path, what: str, said: dict[str, Any], shown: str
) -> None:
    (one,) = found(tmp_path, **said)
    assert (one.what, one.outcome, one.found) == (f"{RUN}: {what}", DIFFERS, shown)
    assert one.detail


@pytest.fixture()
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A clone of three commits, by what each changed."""
    clone = tmp_path / "clone"
    monkeypatch.setattr(versions, "PROJECT_ROOT", clone)
    (clone / "src").mkdir(parents=True)
    (clone / "campaigns").mkdir()

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = ["git", "-C", str(clone), *who, *words]
        return subprocess.run(done, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    found = {}
    for name in ("src/train.py", "campaigns/own.exclusions.csv", "src/model.py"):
        (clone / name).write_text("one\n")
        git("add", "--all")
        git("commit", "--quiet", "--message", name)
        found[name] = git("rev-parse", "--short=12", "HEAD")
    return found


def test_a_run_is_compared_with_what_made_it_and_not_with_the_clone(
    tmp_path: Path, commits: dict[str, str]
) -> None:
    first, exclusions, other = commits.values()
    (one,) = found(tmp_path / "later", replace(MANIFEST, commit=other), commit=first)
    assert (one.what, one.outcome) == (RUN, SAME)
    segments = [{"commit": first}, {"commit": exclusions}]
    (one,) = found(tmp_path / "excluded", commit=exclusions, segments=segments)
    assert (one.what, one.outcome) == (RUN, SAME)
    segments = [{"commit": exclusions}, {"commit": other}]
    (one,) = found(tmp_path / "other", commit=other, segments=segments)
    assert (one.what, one.outcome, one.expected) == (f"{RUN}: commit", DIFFERS, other)
    assert one.detail == "src, workflow, envs, Snakefile differ between the commits: other code"


def test_what_a_run_does_not_record_is_not_checked_and_named(tmp_path: Path) -> None:
    (one,) = found(tmp_path, commit=None, lock=None)
    assert (one.what, one.outcome) == (RUN, NOT_CHECKED)
    assert one.detail == "provenance.json does not record: lock, packages, commit"


def outcomes(own: dict[str, Any], again: dict[str, Any]) -> dict[str, str]:
    """What of a re-run is the same."""
    return {one.what.split(": ")[1]: one.outcome for one in made_alike(RUN, own, again)}


def test_a_repeat_of_other_data_or_code_is_a_difference(commits: dict[str, str]) -> None:
    first, exclusions, other = commits.values()
    assert outcomes(SAID, SAID) == {"data": SAME, "commit": SAME}
    own = SAID | {"commit": first}
    assert outcomes(own, SAID | {"commit": exclusions})["commit"] == SAME
    assert outcomes(own, SAID | {"commit": other})["commit"] == DIFFERS
    assert outcomes(own, SAID)["commit"] == NOT_CHECKED
    assert outcomes(SAID, SAID | {"dataset_sha256": "e" * 64})["data"] == DIFFERS
    assert outcomes(SAID, {}) == {}
