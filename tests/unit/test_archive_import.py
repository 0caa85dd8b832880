"""`scalewatt import`: nothing damaged or foreign comes in, and what comes in is used as it is."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from archived import Project, below, changed, content

from scalewatt.archive.bag import BagInfo, write_bag
from scalewatt.archive.cluster_facts import read_facts
from scalewatt.archive.import_archive import check_archive
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.campaign.load import is_results_only, load_campaign
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT

FOUR = "resnet50-a100-n004-lbs0256-s0020018"
SPEC = f"results/small/runs/{FOUR}/1/spec.json"
PAYLOAD, SUMS = f"data/{SPEC}", "manifest-sha256.txt"
HOREKA = PROJECT_ROOT / "config" / "horeka.yaml"


@pytest.fixture
def archive(simulated_project: Project, tmp_path: Path) -> Path:
    """Its archive."""
    out = tmp_path / "small.crate.zip"
    simulated_project.messages(out)
    return out


@pytest.fixture
def other(tmp_path: Path) -> Project:
    """Another machine, on which there is nothing."""
    (tmp_path / "other").mkdir()
    return Project(tmp_path / "other")


def refused(other: Project, archive: Path, why: str) -> None:
    """It is not imported, nor found sound, and nothing is left of it."""
    with pytest.raises(InputError, match=why):
        other.import_(archive)
    assert [p for p in below(other.path) if p not in ("results", "campaigns")] == []
    with pytest.raises(InputError, match=why):
        check_archive(archive)


def test_what_comes_in_is_what_was_exported(other: Project, archive: Path) -> None:
    other.import_(archive)
    files = {name: data for name, data in content(archive).items() if name != METADATA}
    for name, data in files.items():
        assert (other.path / name).read_bytes() == data, name
    assert {path for path in below(other.path) if (other.path / path).is_file()} == set(files)
    times = {path.stat().st_mtime_ns for path in other.results.rglob("*")}
    assert len(times) == 1, "nothing seems older than what it was made from"


def test_the_devices_are_those_it_ran_on_whatever_this_machine_has(
    other: Project, archive: Path
) -> None:
    other.import_(archive)
    assert load_cluster(HOREKA).devices["a100"].gpus_per_node == 4
    cluster = load_cluster(other.facts)
    campaign = load_campaign(other.campaign, cluster)
    assert campaign.configurations[FOUR].nodes == 2
    assert is_results_only(campaign, cluster)
    assert cluster.pue == {"value": 1.05, "source": "the site"}
    assert cluster.campaign == "campaigns/small.yaml"


def test_exporting_again_gives_the_same_bytes(other: Project, archive: Path) -> None:
    other.import_(archive)
    again = other.path / "again.zip"
    given = ["--results", str(other.path / "results"), "--out", str(again)]
    assert main(["export", str(other.campaign), "--site", str(other.facts), *given]) == 0
    assert again.read_bytes() == archive.read_bytes()


def times(other: Project) -> dict[str, int]:
    """When each file was written."""
    return {path: (other.path / path).stat().st_mtime_ns for path in below(other.path)}


def test_what_is_there_already_is_left_as_it_is_and_another_name_is_allowed(
    other: Project, archive: Path
) -> None:
    other.import_(archive)
    before = times(other)
    with pytest.raises(
        InputError, match=r"exists already, and nothing is overwritten.*--name OTHER"
    ):
        other.import_(archive)
    assert times(other) == before
    other.import_(archive, "theirs")
    cluster = load_cluster(other.path / "campaigns" / "theirs.cluster.yaml")
    assert cluster.campaign == "campaigns/theirs.yaml"
    assert load_campaign(other.path / cluster.campaign, cluster).name == "theirs"
    assert (other.path / "results" / "theirs" / "runs" / FOUR / "1" / "spec.json").exists()


@pytest.mark.parametrize("line", ["name: theirs", 'name: "theirs"', "name: theirs  # of 2026"])
def test_the_name_of_a_campaign_of_ones_own_is_refused(
    other: Project, archive: Path, line: str
) -> None:
    path = other.path / "campaigns" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"mine.yaml: is the campaign theirs here.*--name OTHER"):
        other.import_(archive, "theirs")
    assert not (other.path / "results").exists()
    other.import_(archive, "others")


def test_what_is_left_out_of_the_tables_comes_along(project: Project, tmp_path: Path) -> None:
    rows = "configuration,repeat,action,reason,date,measurement\n"
    rows += f"{FOUR},1,exclude,the node was shared,2026-01-31,\n"
    (project.path / "campaigns" / "small.exclusions.csv").write_text(rows)
    archive = project.export()
    other = Project(tmp_path / "other")
    other.import_(archive, "theirs")
    cluster = load_cluster(other.path / "campaigns" / "theirs.cluster.yaml")
    campaign = load_campaign(other.path / cluster.campaign, cluster)
    assert exclusions_path(campaign).read_text() == rows


# --- damage ---------------------------------------------------------------------------------------


def test_one_flipped_byte_is_named(other: Project, archive: Path) -> None:
    def flip(files: dict[str, bytes]) -> None:
        data = bytearray(files[PAYLOAD])
        data[len(data) // 2] ^= 1
        files[PAYLOAD] = bytes(data)

    refused(other, changed(archive, flip), r"spec\.json: differs from the manifest")


def test_a_flipped_byte_of_the_file_itself_is_found(other: Project, archive: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        info = packed.getinfo(f"small/data/results/small/energy/{FOUR}/1.parquet")
    damaged = bytearray(archive.read_bytes())
    damaged[info.header_offset + 200] ^= 1
    archive.write_bytes(damaged)
    refused(other, archive, r"energy/.*1\.parquet: (is damaged|differs)")


def test_a_file_too_many_and_one_too_few_are_named(other: Project, archive: Path) -> None:
    more = changed(archive, lambda files: files.update({"data/results/small/more.json": b"{}"}))
    refused(other, more, r"not in the manifest: results/small/more\.json")
    less = changed(archive, lambda files: files.__delitem__(PAYLOAD))
    refused(other, less, f"in the manifest, but missing: {SPEC}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *[(SUMS, None), (SUMS, b"{"), ("bagit.txt", None), ("bag-info.txt", b"Runs: 1\n")],
        ("bag-info.txt", b"External-Identifier: x\nRuns: 1\n"),
    ],
)
def test_what_is_not_a_bag_of_a_campaign_is_refused(
    other: Project, archive: Path, name: str, text: bytes | None
) -> None:
    def spoil(files: dict[str, bytes]) -> None:
        if text is None:
            del files[name]
        else:
            files[name] = text

    refused(other, changed(archive, spoil), "is not a bag of a campaign")


def add(files: dict[str, bytes], name: str) -> None:
    """Add a file that the manifest names, too."""
    files[f"data/{name}"] = b"{}"
    files[SUMS] += f"{hashlib.sha256(b'{}').hexdigest()}  data/{name}\n".encode()


@pytest.mark.parametrize(
    "name", ["../outside.json", "results/small/../../x", "a\\b", "C:x", "a//b"]
)
def test_a_path_that_leads_outside_is_refused(other: Project, archive: Path, name: str) -> None:
    refused(other, changed(archive, lambda files: add(files, name)), "outside of its folder")


@pytest.mark.parametrize(
    "name",
    [
        f"results/small/runs/{FOUR}/1/weights.pt",
        f"results/small/runs/{FOUR}/1/perun/segment-000.csv",
        "results/small/tables/x.py",
        "results/small/figures/x.so",
        "results/small/.snakemake/metadata/x.json",
        "results/small/.hidden.json",
        "results/smaller/tables/runs.csv",
        "config.yaml",
        "src/scalewatt/__init__.py",
        "campaigns/other.yaml",
    ],
)
def test_what_is_not_a_result_of_the_campaign_is_refused(
    other: Project, archive: Path, name: str
) -> None:
    refused(other, changed(archive, lambda files: add(files, name)), re.escape(name))


def test_of_several_imports_at_a_time_one_wins_and_none_harms_it(
    other: Project, archive: Path
) -> None:
    command = [sys.executable, "-m", "scalewatt.cli", "import", str(archive)]
    started = [
        subprocess.Popen(command, cwd=other.path, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=100)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 1, 1]
    assert sum("exists already" in text for text in errors) == 2, errors
    for name, data in content(archive).items():
        if name != METADATA:
            assert (other.path / name).read_bytes() == data, name
    assert sorted(path.name for path in (other.path / "results").iterdir()) == ["small"]


def test_a_campaign_that_is_none_leaves_nothing(other: Project, archive: Path) -> None:
    files = {**content(archive), "campaigns/small.yaml": b"name: small\n"}
    bad = archive.with_name("bad.zip")
    described = files.pop(METADATA)
    write_bag(files, BagInfo("small", 2), bad, (METADATA, lambda _: described))
    assert "sound: campaign small, runs: 2" in check_archive(bad)[0]
    with pytest.raises(InputError, match=r"small\.yaml: missing key"):
        other.import_(bad)
    assert below(other.path) == ["results"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("setup", "[rm x]", "unknown key 'setup'"),
        ("launcher", "srun -n {gpus}", "starts runs"),
        ("results_only", "false", "starts runs"),
    ],
)
def test_a_cluster_that_could_start_anything_is_refused(
    archive: Path, tmp_path: Path, key: str, value: str, why: str
) -> None:
    facts = tmp_path / "small.cluster.yaml"
    lines = content(archive)["campaigns/small.cluster.yaml"].decode().splitlines()
    kept = [line for line in lines if not line.startswith(f"{key}:")]
    facts.write_text("\n".join([*kept, f"{key}: {value}"]))
    with pytest.raises(InputError, match=why):
        read_facts(facts)
