"""`scalewatt export`: what goes into an archive, what never does, and when there is none."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
import zipfile
from pathlib import Path
from typing import IO
from urllib.parse import unquote

import pytest
import yaml
from archived import ACCOUNT, Project, content, make_project, tag_file

from scalewatt.archive import bag
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_definitions import runs_definition
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.redaction import absolute_paths
from scalewatt.reproduction.manifest import write_manifest
from scalewatt.results.build import write_runs

TWO = "resnet50-a100-n002-lbs0256-s0010009"
FOUR = "resnet50-a100-n004-lbs0256-s0020018"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign; not to be changed."""
    return make_project(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    return made.copy(tmp_path / "project")


def test_the_same_content_gives_the_same_bytes_whenever_it_was_written(project: Project) -> None:
    first = project.export("first.zip").read_bytes()
    for path in project.results.rglob("*"):
        os.utime(path, (time.time() + 1000, time.time() + 1000))
    assert project.export("second.zip").read_bytes() == first


def test_an_archive_has_what_figures_are_made_from_and_no_raw_data(project: Project) -> None:
    files = content(project.export())
    run = f"results/small/runs/{FOUR}/1"
    assert {path for path in files if path.startswith(run)} == {
        f"{run}/{name}"
        for name in ("spec.json", "history.parquet", "events.parquet", "provenance.json")
    }
    for name in (".parquet", ".epochs.parquet"):
        assert f"results/small/energy/{FOUR}/1{name}" in files
    assert "results/small/tables/figure2.parquet" in files
    assert "campaigns/small.yaml" in files
    assert not [path for path in files if "perun" in path or "traces" in path or "log" in path]


def test_traces_are_exported_on_request(project: Project) -> None:
    archive = project.export(traces=True)
    assert f"results/small/traces/{FOUR}/1.parquet" in content(archive)
    assert "Traces: yes\n" in tag_file(archive, "bag-info.txt")


def test_an_archive_is_a_bag_whose_manifest_has_the_sha256_of_every_file(
    project: Project, tmp_path: Path
) -> None:
    archive = project.export()
    files = content(archive)
    assert METADATA in files
    assert tag_file(archive, "bagit.txt").startswith("BagIt-Version: 1.0\n")
    size = sum(map(len, files.values()))
    assert f"Payload-Oxum: {size}.{len(files)}\n" in tag_file(archive, "bag-info.txt")
    with zipfile.ZipFile(archive) as one:
        one.extractall(tmp_path)
    command = ["sha256sum", "--check", "--quiet", "--strict", "manifest-sha256.txt"]
    subprocess.run(command, cwd=tmp_path / "small", check=True)
    assert len(tag_file(archive, "manifest-sha256.txt").splitlines()) == len(files)


def test_the_metadata_are_what_ro_crate_demands(project: Project) -> None:
    archive = project.export(license="CC-BY-4.0", authors=("Ada Lovelace",))
    files = content(archive)
    crate = json.loads(files[METADATA])
    assert crate["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    nodes = {node["@id"]: node for node in crate["@graph"]}
    assert len(nodes) == len(crate["@graph"]), "each entity is described once"
    assert nodes[METADATA] == {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    root = nodes["./"]
    assert root["@type"] == "Dataset" and root["name"] and root["description"]
    assert root["datePublished"] == "2000-01-01"  # where the simulator's clock stands
    assert nodes[root["license"]["@id"]]["name"] == "CC-BY-4.0"
    assert nodes[root["author"]["@id"]] == {
        "@id": "#Ada-Lovelace",
        "@type": "Person",
        "name": "Ada Lovelace",
    }
    assert nodes[root["citation"]["@id"]]["@type"] == "ScholarlyArticle"
    described = {unquote(part["@id"]) for part in root["hasPart"]}
    assert described == set(files) - {METADATA}
    for path in described:
        assert nodes[path]["contentSize"] == str(len(files[path]))
        assert nodes[path]["sha256"] == hashlib.sha256(files[path]).hexdigest()
        assert "/" in nodes[path]["encodingFormat"], path
    assert all(id_ in nodes for id_ in references(crate["@graph"])), "nothing is left undescribed"


def references(value: object) -> set[str]:
    """Ids that are referred to."""
    if isinstance(value, dict):
        own = {value["@id"]} if set(value) == {"@id"} else set()
        known = {"https://w3id.org/ro/crate/1.1"}
        return own.union(*(references(one) for one in value.values())) - known
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_of_the_cluster_go_in_its_devices_and_factors_alone(project: Project) -> None:
    files = content(project.export())
    facts = yaml.safe_load(files["campaigns/small.cluster.yaml"])
    assert facts["pue"] == {"value": 1.05, "source": "the site"}
    assert facts["devices"]["a100"]["gpus_per_node"] == 2
    assert not {"partition", "time_limit_min"} & set(facts["devices"]["a100"])
    for name, data in files.items():
        assert ACCOUNT.encode() not in data and b"of-somebody" not in data, name


@pytest.mark.parametrize(
    "told",
    [
        *(ACCOUNT, "/home/somebody/data", "~/data/x", "/scratch/of-somebody/work"),
        *("[/home/alice/train.py, x]", "file:///home/alice/x", "`/home/alice/x`"),
        *("a;/home/alice/x", ">/home/a/b", "/data"),
    ],
)
def test_files_that_reveal_the_machine_are_refused_by_name(project: Project, told: str) -> None:
    path = project.results / "runs" / FOUR / "1" / "provenance.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "note": f"at {told}"}))
    with pytest.raises(InputError, match=r"provenance\.json \(.*; allowed: .*--allow-private"):
        project.export()
    assert not list(project.path.glob("*.zip"))
    assert project.export(allow_private=True).exists()


def test_a_key_is_exported_by_no_option(project: Project) -> None:
    path = project.results / "runs" / FOUR / "1" / "provenance.json"
    said = json.loads(path.read_text())
    key = "hf_" + "a" * 34
    path.write_text(json.dumps({**said, "note": key}))
    with pytest.raises(
        InputError, match=r"whoever has it could use it: .*provenance\.json: line"
    ) as told:
        project.export(allow_private=True)
    assert key not in str(told.value) and not list(project.path.glob("*.zip"))


def test_folders_of_the_system_are_not_private(project: Project) -> None:
    path = project.results / "runs" / FOUR / "1" / "provenance.json"
    said = json.loads(path.read_text())
    note = (
        r"-L/usr/lib64 3/4 kWh/GPUh and/or https://x.org/a <path>/b $HOME/c f(x)/n m²/s² CUDA:\d+"
    )
    path.write_text(json.dumps({**said, "note": note}))
    assert project.export().exists()


@pytest.mark.parametrize(
    "name",
    [
        "campaigns/paper.yaml",
        "campaigns/demo.yaml",
        "campaigns/variants.yaml",
        "reference/claims.csv",
    ],
)
def test_campaigns_of_this_project_tell_of_no_machine(name: str) -> None:
    assert list(absolute_paths((PROJECT_ROOT / name).read_text())) == []


def test_an_account_that_is_unknown_here_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project.path / "cluster.yaml"
    file.write_text(file.read_text().replace(ACCOUNT, "$MY_ACCOUNT"))
    monkeypatch.delenv("MY_ACCOUNT", raising=False)
    said = "not searched for: the account, as $MY_ACCOUNT is not set here"
    assert said in project.said(project.path / "one.zip")
    monkeypatch.setenv("MY_ACCOUNT", ACCOUNT)
    assert said not in project.said(project.path / "two.zip")


@pytest.mark.parametrize("account", ["abc", "h1"])
def test_an_account_of_few_letters_is_not_exported(project: Project, account: str) -> None:
    file = project.path / "cluster.yaml"
    file.write_text(file.read_text().replace(ACCOUNT, account))
    path = project.results / "runs" / FOUR / "1" / "provenance.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "note": f"{account}s, x{account}"}))
    assert project.export("words.zip").exists(), "only as a whole word"
    path.write_text(json.dumps({**said, "note": f"-A {account}"}))
    with pytest.raises(InputError, match=rf"provenance\.json \(the account: {account}\)"):
        project.export()


def test_an_archive_is_never_overwritten(project: Project) -> None:
    project.export().write_bytes(b"mine")
    with pytest.raises(InputError, match="exists already; allowed: another --out"):
        project.export()
    assert (project.path / "small.crate.zip").read_bytes() == b"mine"


def test_a_file_that_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "notes.json", bag.shutil.copyfileobj
    path.write_text("{}")

    def late(source: IO[bytes], target: IO[bytes]) -> None:
        path.write_text("[]")
        copy(source, target)

    monkeypatch.setattr(bag.shutil, "copyfileobj", late)
    with pytest.raises(InputError, match=r"notes\.json: changed meanwhile; export again"):
        bag.write_bag({"notes.json": path}, bag.BagInfo("small", 0, False), tmp_path / "bag.zip")
    assert not (tmp_path / "bag.zip").exists()


def test_what_the_campaign_asks_for_and_is_not_there_is_named(project: Project) -> None:
    said = project.said(project.path / "some.zip")
    assert "not in it: figure2" in said  # its table is there, but nobody drew it
    assert "not in it: pages of runs (2 of 2)" in said
    assert "not in it: report.html" in said
    assert said[-1].endswith(f"runs: 2, files: {len(content(project.path / 'some.zip'))}")


def test_a_campaign_without_runs_or_tables_is_refused_with_the_command(project: Project) -> None:
    (project.results / "tables" / "configurations.parquet").unlink()
    with pytest.raises(
        InputError, match=r"configurations\.parquet: is missing; `snakemake .* tables"
    ):
        project.export()
    for path in project.results.rglob("provenance.json"):
        path.unlink()
    with pytest.raises(InputError, match=r"has no finished run of .*snakemake --configfile=.* all"):
        project.export()


def test_tables_that_lack_a_finished_run_are_refused(project: Project) -> None:
    run = project.results / "runs" / FOUR / "1"
    kept = run.rename(project.path / "kept")
    with pytest.raises(InputError, match=rf"runs\.parquet: has deleted runs: {FOUR} repeat 1"):
        project.export()
    kept.rename(run)
    (project.results / "energy" / FOUR / "1.parquet").unlink()
    with pytest.raises(InputError, match=r"1\.parquet: is missing; `snakemake"):
        project.export()


def test_the_way_out_of_a_partial_campaign_waits_for_no_training(project: Project) -> None:
    (project.results / "tables" / "runs.parquet").unlink()
    with pytest.raises(
        InputError, match=r"`snakemake .* tables --config campaign=\S+small\.yaml` makes"
    ):
        project.export()
    run = project.results / "runs" / FOUR / "1"
    kept = run.rename(project.path / "kept")
    with pytest.raises(InputError, match=r"small\.yaml results_only=true` makes it"):
        project.export()
    kept.rename(run)


def test_a_partial_campaign_is_told_how_its_tables_are_made_where_they_lack_a_run(
    project: Project,
) -> None:
    tables = project.results / "tables"
    definition = {**runs_definition(load_campaign(project.campaign), [[TWO, 1]]), "facility": {}}
    write_runs(definition, project.results, tables)
    (project.results / "runs" / TWO / "1").rename(project.path / "kept")
    with pytest.raises(
        InputError, match=rf"lacks: {FOUR} repeat 1; `snakemake .* results_only=true`"
    ):
        project.export()


def test_files_that_are_not_what_the_manifest_recorded_are_refused_by_name(
    project: Project,
) -> None:
    write_manifest(project.results)
    assert project.export("first.zip").exists()
    (project.results / "tables" / "figure2.csv").write_text("edited by hand\n")
    (project.results / "tables" / "runs.csv").unlink()
    said = (
        r"differs: tables/figure2\.csv, tables/runs\.csv; delete these files and `snakemake .* all"
    )
    with pytest.raises(InputError, match=said):
        project.export()
    write_manifest(project.results)
    assert project.export().exists()


def test_another_cluster_than_it_ran_on_is_refused(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    out = project.path / "other.zip"
    given = ["--results", str(project.path / "results"), "--out", str(out)]
    assert main(["export", str(project.campaign), *given]) == 1
    assert "the cluster 'local' has no device a100; --site names" in capsys.readouterr().err
    assert not out.exists()


def test_what_scalewatt_does_not_make_is_not_exported_but_named(project: Project) -> None:
    (project.results / "figures").mkdir(exist_ok=True)
    (project.results / "figures" / "mine.ipynb").write_text("{}")
    out = project.path / "a.zip"
    assert "not in it: figures/mine.ipynb, which scalewatt does not make" in project.said(out)
    assert "results/small/figures/mine.ipynb" not in content(out)
