"""`scalewatt export`: what goes into an archive, what never does, and when there is none."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
import yaml
from archived import ACCOUNT, Project, content, tag_file

from scalewatt.archive.ro_crate import METADATA, PAPER, PAPERS_AUTHORS
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.redaction import absolute_paths
from scalewatt.reproduction.manifest import write_manifest

FOUR = "resnet50-a100-n004-lbs0256-s0020018"
RUN = f"results/small/runs/{FOUR}/1"


def note(project: Project, text: str) -> None:
    """Add a text to the provenance of a run."""
    path = project.path / RUN / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": text}))
    write_manifest(project.results)


def test_the_same_content_gives_the_same_bytes_whenever_it_was_written(project: Project) -> None:
    first = project.export("first.zip").read_bytes()
    for path in project.results.rglob("*"):
        os.utime(path, (time.time() + 1000, time.time() + 1000))
    assert project.export("second.zip").read_bytes() == first


@pytest.mark.parametrize("traces", [False, True])
def test_an_archive_has_what_figures_are_made_from_and_no_raw_data(
    project: Project, traces: bool
) -> None:
    (project.results / "mine.ipynb").write_text("{}")
    files = content(project.export(traces=traces))
    assert {path for path in files if path.startswith(RUN)} == {
        f"{RUN}/{name}"
        for name in ("spec.json", "history.parquet", "events.parquet", "provenance.json")
    }
    for name in (".parquet", ".epochs.parquet", ".devices.parquet", ".cross-checks.parquet"):
        assert f"results/small/energy/{FOUR}/1{name}" in files
    assert "results/small/tables/figure2.parquet" in files
    assert "campaigns/small.yaml" in files
    assert (f"results/small/traces/{FOUR}/1.parquet" in files) == traces
    assert not [path for path in files if "perun" in path or "log" in path or "ipynb" in path]


def test_an_archive_is_a_bag_whose_manifest_has_the_sha256_of_every_file(
    project: Project, tmp_path: Path
) -> None:
    archive = project.export()
    files = content(archive)
    assert METADATA in files
    assert tag_file(archive, "bagit.txt").startswith("BagIt-Version: 1.0\n")
    size = sum(map(len, files.values()))
    assert f"Payload-Oxum: {size}.{len(files)}\n" in tag_file(archive, "bag-info.txt")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path)
    command = ["sha256sum", "--check", "--quiet", "--strict", "manifest-sha256.txt"]
    subprocess.run(command, cwd=tmp_path / "small", check=True)
    assert len(tag_file(archive, "manifest-sha256.txt").splitlines()) == len(files)


def test_the_metadata_describe_every_file(project: Project) -> None:
    files = content(project.export(license_="CC-BY-4.0", authors=("Ada Lovelace",)))
    graph = json.loads(files[METADATA])["@graph"]
    nodes = {node["@id"]: node for node in graph}
    assert len(nodes) == len(graph), "each entity is described once"
    root = nodes["./"]
    assert root["datePublished"] == "2000-01-01"  # where the simulator's clock stands
    assert nodes[root["license"]["@id"]]["name"] == "CC-BY-4.0"
    assert nodes[root["author"]["@id"]]["name"] == "Ada Lovelace"
    assert nodes[root["citation"]["@id"]]["@type"] == "ScholarlyArticle"
    described = {unquote(part["@id"]) for part in root["hasPart"]}
    assert described == set(files) - {METADATA} and described < set(nodes)
    for name in described:
        file = nodes[quote(name)]
        assert file["sha256"] == hashlib.sha256(files[name]).hexdigest()
        assert file["contentSize"] == str(len(files[name]))
    cited = yaml.safe_load((PROJECT_ROOT / "CITATION.cff").read_text())["references"][0]["authors"]
    assert tuple(f"{a['given-names']} {a['family-names']}" for a in cited) == PAPERS_AUTHORS
    authors = [nodes[author["@id"]]["name"] for author in nodes[PAPER]["author"]]
    assert authors == [*PAPERS_AUTHORS]


def test_of_the_cluster_go_in_its_devices_and_factors_alone(project: Project) -> None:
    files = content(project.export())
    facts = yaml.safe_load(files["campaigns/small.cluster.yaml"])
    assert facts["pue"] == {"value": 1.05, "source": "the site"}
    assert facts["devices"]["a100"]["gpus_per_node"] == 2
    assert not {"partition", "time_limit_min"} & set(facts["devices"]["a100"])
    for name, data in files.items():
        assert ACCOUNT.encode() not in data and b"of-somebody" not in data, name


@pytest.mark.parametrize(
    "text",
    [ACCOUNT, "~/data/x", "/scratch/of-somebody/work", "[/home/a/train.py, x]", "file:///home/a/x"],
)
def test_files_that_reveal_the_machine_are_refused_by_name(project: Project, text: str) -> None:
    note(project, f"at {text}")
    with pytest.raises(InputError, match=r"provenance\.json \(.*; allowed: .*--allow-private"):
        project.export()
    assert not list(project.path.glob("*.zip"))
    assert project.export(allow_private=True).exists()


def test_folders_of_the_system_are_not_private(project: Project) -> None:
    note(
        project,
        r"-L/usr/lib64 3/4 kWh/GPUh and/or https://x.org/a <path>/b $HOME/c f(x)/n m²/s² CUDA:\d+",
    )
    assert project.export().exists()


@pytest.mark.parametrize("name", ["campaigns/paper.yaml", "campaigns/demo.yaml"])
def test_campaigns_of_this_project_tell_of_no_machine(name: str) -> None:
    assert list(absolute_paths((PROJECT_ROOT / name).read_text())) == []


def test_an_account_that_is_unknown_here_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project.path / "cluster.yaml"
    file.write_text(file.read_text().replace(ACCOUNT, "$MY_ACCOUNT"))
    monkeypatch.delenv("MY_ACCOUNT", raising=False)
    sentence = "not searched for: the account, as $MY_ACCOUNT is not set here"
    assert sentence in project.messages(project.path / "first.zip")
    monkeypatch.setenv("MY_ACCOUNT", ACCOUNT)
    assert sentence not in project.messages(project.path / "second.zip")


def test_an_account_of_few_letters_is_not_exported(project: Project) -> None:
    file, account = project.path / "cluster.yaml", "h1"
    file.write_text(file.read_text().replace(ACCOUNT, account))
    note(project, f"{account}s, x{account}")
    assert project.export("words.zip").exists(), "only as a whole word"
    note(project, f"-A {account}")
    with pytest.raises(InputError, match=rf"provenance\.json \(the account: {account}\)"):
        project.export()


def test_an_archive_is_never_overwritten(project: Project) -> None:
    project.export().write_bytes(b"mine")
    with pytest.raises(InputError, match="exists already; allowed: another --out"):
        project.export()
    assert (project.path / "small.crate.zip").read_bytes() == b"mine"


def test_what_the_campaign_asks_for_and_does_not_exist_is_named(project: Project) -> None:
    (project.path / RUN / "provenance.json").unlink()
    shutil.rmtree(project.results / "energy")
    write_manifest(project.results)
    lines = project.messages(project.path / "some.zip")
    missing = [
        "figures/figure2.svg",
        "tables/claims.csv",
        "report.html",
        "energies of runs (1 of 1)",
    ]
    missing += ["power traces (--traces)"]
    assert f"runs (1 of 2): {FOUR}/1" in lines[0]
    assert lines[1:-1] == [f"not in it: {text}" for text in missing]
    assert lines[-1].endswith(f"runs: 1, files: {len(content(project.path / 'some.zip'))}")
    assert "Missing: figures/figure2.svg\n" in tag_file(project.path / "some.zip", "bag-info.txt")


@pytest.mark.parametrize("path", [f"runs/{FOUR}/1/provenance.json", "tables/figure2.csv"])
def test_results_that_are_not_what_the_manifest_records_are_refused(
    project: Project, path: str
) -> None:
    (project.results / path).unlink()
    with pytest.raises(InputError, match=rf"SHA256SUMS: differs: {path}; .*--forcerun manifest"):
        project.export()
    write_manifest(project.results)
    assert project.export().exists()


def test_another_cluster_than_it_ran_on_is_refused(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    out = project.path / "other.zip"
    arguments: list[Any] = ["--results", project.path / "results", "--out", out]
    assert main(["export", str(project.campaign), *map(str, arguments)]) == 1
    assert "the cluster 'local' has no device a100; --site names" in capsys.readouterr().err
    assert not out.exists()


def test_runs_of_other_settings_than_the_campaigns_are_refused(project: Project) -> None:
    path = project.path / RUN / "spec.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "epochs": 99}))
    write_manifest(project.results)
    with pytest.raises(InputError, match=rf"runs of other settings than .*: {FOUR}/1; make them"):
        project.export()
