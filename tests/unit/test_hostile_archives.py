"""Archives whose hashes are right and whose content is not: nothing of it comes in, and nothing is left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from archived import Project, below, changed, content, make_project

from scalewatt.archive import import_archive as importing
from scalewatt.archive.archive_file import write_archive
from scalewatt.archive.archive_layout import belongs
from scalewatt.archive.import_archive import check_archive
from scalewatt.archive.ro_crate import METADATA, Description, metadata
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.redaction import Redaction, known_keys, mail_addresses
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.reproduction.manifests import MANIFEST, ArchiveManifest, entries_of

FOUR = "resnet50-a100-n004-lbs0256-s0020018"
RUN = f"results/small/runs/{FOUR}/1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign; not to be changed."""
    return make_project(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture(scope="module")
def sound(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its archive; not to be changed."""
    out = tmp_path_factory.mktemp("sound") / "small.crate.zip"
    made.said(out)
    return out


@pytest.fixture
def other(tmp_path: Path) -> Project:
    """Another machine, on which there is nothing."""
    (tmp_path / "other").mkdir()
    return Project(tmp_path / "other")


Change = Callable[[dict[str, bytes]], object]


def resealed(archive: Path, change: Change, out: Path) -> Path:
    """A copy of an archive with other files, whose hashes and description are right."""
    files = content(archive)
    del files[MANIFEST], files[METADATA]
    change(files)
    entries = entries_of(files)
    described = metadata(entries, Description("small", "changed", "2026-01-31"))
    entries |= entries_of({METADATA: described})
    write_archive(
        {**files, METADATA: described}, ArchiveManifest("small", "campaign", entries), out
    )
    return out


def put(name: str, data: bytes) -> Change:
    """A change that puts a file to its place."""
    return lambda files: files.update({name: data})


def cut(name: str) -> Change:
    """A change that leaves half of a file."""
    return lambda files: files.update({name: files[name][: len(files[name]) // 2]})


def spec(**values: object) -> Change:
    """A change of the spec of a run."""

    def change(files: dict[str, bytes]) -> None:
        files[f"{RUN}/spec.json"] = json.dumps(
            json.loads(files[f"{RUN}/spec.json"]) | values
        ).encode()

    return change


FOREIGN = {
    "weights": f"{RUN}/weights.pt",
    "a checkpoint": f"{RUN}/checkpoint.pt",
    "a program": "results/small/x.py",
    "a program among tables": "results/small/tables/x.py",
    "a compiled program": "results/small/tables/x.pyc",
    "a shared library": "results/small/figures/x.so",
    "Snakemake's notes": "results/small/.snakemake/metadata/x.json",
    "a hidden file": "results/small/.hidden.json",
    "a hidden table": "results/small/tables/.x.parquet",
    "a hidden folder": "results/small/tables/.x/x.csv",
    "a lock": "results/small/.exclusions.lock",
    "a notebook": "results/small/figures/x.ipynb",
    "a page": "results/small/figures/x.html",
    "a page beside the report": "results/small/other.html",
    "a recording": f"{RUN}/perun/x.hdf5",
    "a log": f"{RUN}/train.log",
    "a pickle": "results/small/tables/x.pkl",
    "a run of no number": f"results/small/runs/{FOUR}/x/spec.json",
    "a run's spec deeper": f"{RUN}/a/spec.json",
    "a name of 300 letters": f"results/small/tables/{'a' * 300}.csv",
    "a wildcard of Snakemake": "results/small/tables/{br}.csv",
    "a blank": "results/small/tables/a b.csv",
    "letters of no alphabet": "results/small/tables/\N{ZERO WIDTH SPACE}runs.csv",
    "another campaign's results": "results/smaller/tables/runs.csv",
    "a profile": "profiles/local/cluster.yaml",
    "the code": "src/scalewatt/__init__.py",
    "another campaign": "campaigns/other.yaml",
}


@pytest.mark.parametrize("name", FOREIGN.values(), ids=FOREIGN)
def test_an_archive_brings_nothing_but_results_such_as(
    name: str, sound: Path, other: Project, tmp_path: Path
) -> None:
    bad = resealed(sound, put(name, b"{}"), tmp_path / "bad.zip")
    for look in (other.import_, check_archive):
        with pytest.raises(InputError, match="allowed: ") as refusal:
            look(bad)
        assert str(refusal.value).startswith(f"{bad}: ")
    assert below(other.path) == []


def test_all_that_is_exported_belongs_into_an_archive(sound: Path) -> None:
    own = [name for name in content(sound) if name.startswith("results/small/")]
    assert len(own) > 20
    assert all(belongs(name.removeprefix("results/small/")) for name in own)
    for name in (
        "tables/table1.tex",
        "figures/runs/a.b-c-n001/1.svg",
        "figures/figure2.caption.tex",
        "idle/a100.json",
        "idle/a100/1/probe.json",
        "datasets/imagenet.json",
        "datasets/era5/1979.json",
        "superseded/a/1/1/run/provenance.json",
        "superseded/a/1/1/energy.parquet",
        "traces/a/12.parquet",
        "energy/a/12.cross-checks.parquet",
        "report.html",
        "manifest.json",
    ):
        assert belongs(name), name
        assert not belongs(f"{name}\n") and not belongs(f"../{name}") and not belongs(f"/{name}")


def test_what_scalewatt_does_not_make_is_not_exported_but_named(
    made: Project, tmp_path: Path
) -> None:
    project = made.copy(tmp_path / "project")
    (project.results / "figures").mkdir(exist_ok=True)
    (project.results / "figures" / "mine.ipynb").write_text("{}")
    said = project.said(tmp_path / "a.zip")
    assert "not in it: figures/mine.ipynb, which scalewatt does not make" in said
    assert "results/small/figures/mine.ipynb" not in content(tmp_path / "a.zip")


BROKEN: dict[str, tuple[Change, str]] = {
    "a spec that is none": (put(f"{RUN}/spec.json", b"[]"), f"{RUN}/spec.json: spec_version"),
    "a spec of 100,000 brackets": (
        put(f"{RUN}/spec.json", b"[" * 100_000),
        f"{RUN}/spec.json: is no spec.json",
    ),
    "the spec of another run": (spec(repeat=2), f"{RUN}/spec.json: is the spec of"),
    "a spec that contradicts itself": (spec(updates=1), f"{RUN}/spec.json: updates is 1"),
    "a provenance that is a list": (put(f"{RUN}/provenance.json", b"[]"), "provenance.json"),
    "a provenance that is none": (put(f"{RUN}/provenance.json", b"{"), "provenance.json"),
    "a request that is no JSON": (
        put("results/small/requests/figure2.json", b"\0"),
        "results/small/requests/figure2.json",
    ),
    "a table of runs that is none": (
        put("results/small/tables/runs.parquet", b"PAR1"),
        "results/small/tables/runs.parquet: is no readable Parquet file",
    ),
    "half a table": (
        cut("results/small/tables/configurations.parquet"),
        "results/small/tables/configurations.parquet: is no readable Parquet file",
    ),
    "half an energy": (cut(f"results/small/energy/{FOUR}/1.parquet"), "1.parquet"),
    "flags that are none": (
        put(f"results/small/energy/{FOUR}/1.flags.parquet", b"x"),
        "1.flags.parquet",
    ),
    "half a history": (cut(f"{RUN}/history.parquet"), "history.parquet"),
    "a manifest that leads out": (
        put(
            "results/small/manifest.json",
            json.dumps(
                {
                    "manifest_version": 1,
                    "campaign": "small",
                    "files": [
                        {
                            "path": "tables/../../x",
                            "sha256": "0" * 64,
                            "size_bytes": 1,
                            "step": "x",
                            "made_from": [],
                        }
                    ],
                }
            ).encode(),
        ),
        "results/small/manifest.json",
    ),
    "a picture that is a program": (
        put("results/small/figures/figure2.png", b"#!/bin/sh\n"),
        "results/small/figures/figure2.png: is no PNG file",
    ),
    "exclusions without columns": (
        put("campaigns/small.exclusions.csv", b"a,b\n1,2\n"),
        "campaigns/small.exclusions.csv: line 1: unknown column",
    ),
    "exclusions of a run that is not there": (
        put(
            "campaigns/small.exclusions.csv",
            b"configuration,repeat,action,reason,date,measurement\nx,1,exclude,a,2026-01-31,\n",
        ),
        "campaigns/small.exclusions.csv: line 2: no configuration 'x'",
    ),
    "exclusions of bytes": (put("campaigns/small.exclusions.csv", b"\xff\xfe"), "exclusions.csv"),
    "a campaign of tags": (
        put("campaigns/small.yaml", b"name: !!bool x\n"),
        "campaigns/small.yaml: is no readable YAML",
    ),
    "a cluster of brackets": (put("campaigns/small.imported.json", b"[" * 100_000), "imported"),
}


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN)
def test_content_is_held_against_what_is_demanded_of_ones_own(
    change: Change, said: str, sound: Path, other: Project, tmp_path: Path
) -> None:
    bad = resealed(sound, change, tmp_path / "bad.zip")
    with pytest.raises(InputError) as refusal:
        other.import_(bad)
    message = str(refusal.value)
    assert said in message and str(bad) in message
    assert ".importing" not in message and "\n" not in message and len(message) < 1000
    assert below(other.path) == ["results"]


def test_under_another_name_files_are_named_as_the_archive_does(
    sound: Path, other: Project, tmp_path: Path
) -> None:
    bad = resealed(sound, put("campaigns/small.yaml", b"name: small\n"), tmp_path / "bad.zip")
    with pytest.raises(InputError, match=r"bad\.zip: campaigns/small\.yaml: missing key"):
        other.import_(bad, "theirs")


def test_import_looks_at_free_space_before_it_writes(
    sound: Path, other: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        importing.os, "statvfs", lambda path: os.statvfs_result((1, 1, 1, 1, 1, 1, 1, 1, 0, 255))
    )
    with pytest.raises(InputError, match=r"GB are free, the files of .*small\.crate\.zip need"):
        other.import_(sound)
    assert below(other.path) == []


def test_a_bomb_is_refused_unread(sound: Path, other: Project, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as one:
        one.writestr("a", bytes(10_000_000))
    data = bytearray(bomb.read_bytes())
    at = data.rindex((10_000_000).to_bytes(4, "little"))
    data[at : at + 4] = (4_000_000_000).to_bytes(4, "little")
    bomb.write_bytes(data)
    with pytest.raises(InputError, match="4000000000 bytes in a file of"):
        other.import_(bomb)


KINDS = {"a pipe": stat.S_IFIFO, "a device": stat.S_IFCHR, "a socket": stat.S_IFSOCK}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_member_is_refused_that_is(
    kind: int, sound: Path, other: Project, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.zip"
    bad.write_bytes(sound.read_bytes())
    with zipfile.ZipFile(bad, "a") as one:
        info = zipfile.ZipInfo("results/small/tables/x.csv")
        info.create_system, info.external_attr = 3, (kind | 0o666) << 16
        one.writestr(info, "")
    with pytest.raises(InputError, match="not a plain file"):
        other.import_(bad)


def test_a_pipe_a_device_and_nothing_are_no_archives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, endless, loop = (tmp_path / name for name in ("pipe", "endless", "loop"))
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    loop.symlink_to("loop")
    for path in (pipe, endless, loop, tmp_path / "none", tmp_path / ("a" * 300), "a\0b"):
        assert main(["import", str(path), "--check"]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_names_that_differ_only_in_case_are_refused(
    sound: Path, other: Project, tmp_path: Path
) -> None:
    bad = resealed(sound, put("results/small/tables/RUNS.parquet", b"x"), tmp_path / "bad.zip")
    with pytest.raises(InputError, match="is a duplicate"):
        other.import_(bad)


def test_of_several_imports_at_a_time_one_wins_and_none_harms_it(
    sound: Path, other: Project
) -> None:
    command = [sys.executable, "-m", "scalewatt.cli", "import", str(sound)]
    started = [
        subprocess.Popen(command, cwd=other.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=100)[1].decode() for process in started]
    codes = sorted(process.returncode for process in started)
    assert codes == [0, 1, 1]
    assert all("Traceback" not in text for text in said), said
    refusals = sum("exists already" in text for text in said)
    assert refusals == sum(codes), said
    for name, data in content(sound).items():
        if name not in (MANIFEST, METADATA):
            assert (other.path / name).read_bytes() == data, name
    assert sorted(path.name for path in (other.path / "results").iterdir()) == ["small"]


# --- keys -----------------------------------------------------------------------------------------

LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hI5kL7nO9qR1tU3wX5zA7cD9fG1iJ3lM5oP7rS9u"
"""Put together here, so that no file of this project has what looks like a key."""
KEYS = {
    "AWS": "AKIA" + "ABCDEFGHIJKLMNOP",
    "AWS, short-lived": "ASIA" + "ABCDEFGHIJKLMNOP",
    "AWS, secret": "aws_secret_access_key = " + LETTERS[:40],
    "AWS, secret in JSON": '"SecretAccessKey": "' + LETTERS[:40] + '"',
    "Hugging Face": "hf_" + LETTERS[:34],
    "GitHub": "ghp_" + LETTERS[:36],
    "GitHub, app": "ghs_" + LETTERS[:36],
    "GitHub, fine-grained": "github_pat_" + LETTERS[:22] + "_" + LETTERS[:40],
    "GitLab": "glpat-" + LETTERS[:20],
    "OpenAI": "sk-" + LETTERS[:48],
    "OpenAI, project": "sk-proj-" + LETTERS[:48],
    "Anthropic": "sk-ant-api03-" + LETTERS[:60],
    "Slack": "xoxb-" + "123456789012-" + LETTERS[:24],
    "Google": "AIza" + LETTERS[:35],
    "PyPI": "pypi-" + LETTERS[:60],
    "npm": "npm_" + LETTERS[:36],
    "JWT": "eyJ" + LETTERS[:20] + ".eyJ" + LETTERS[:20] + "." + LETTERS[:20],
    "a header": "Authorization: Bearer " + LETTERS[:30],
    "PEM": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "PEM of OpenSSH": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "a password in an address": "https://me:" + LETTERS[:12] + "@example.org/x",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_in_a_comment_is_refused_by_line_and_never_repeated(
    key: str, made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project(tmp_path)
    for name in ("campaigns", "results"):
        (tmp_path / name).symlink_to(made.path / name)
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "small.yaml"
    file.write_text(f"# first\n# second: {key}\n{made.campaign.read_text()}")
    given = ["--cluster", str(made.path / "cluster.yaml"), "--results", str(tmp_path / "results")]
    out = ["--out", str(tmp_path / "a.zip")]
    for more in ([], ["--allow-private"]):
        assert main(["export", str(file), *given, *out, *more]) == 1
        message = capsys.readouterr().err
        assert "campaigns/small.yaml: line 2 (" in message
        assert all(part not in message for part in (LETTERS[:10], "ABCDEFGHIJ"))
    assert not (tmp_path / "a.zip").exists() and project.campaign.exists()


def test_a_token_in_an_edited_provenance_and_an_address_of_a_person_are_refused(
    made: Project, tmp_path: Path
) -> None:
    project = made.copy(tmp_path / "project")
    path = project.results / "runs" / FOUR / "1" / "provenance.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "note": KEYS["Hugging Face"]}))
    with pytest.raises(InputError, match=r"provenance\.json: line 1 \(a token of Hugging Face\)"):
        project.export()
    path.write_text(kept)
    project.campaign.write_text(f"# ask ada@example.org\n{project.campaign.read_text()}")
    with pytest.raises(InputError, match=r"small\.yaml \(line 1: an e-mail address\)") as refusal:
        project.export()
    assert "ada" not in str(refusal.value)
    assert project.export(allow_private=True).exists()


def test_texts_of_this_project_have_neither_keys_nor_addresses() -> None:
    for folder in ("campaigns", "profiles", "reference", "workflow"):
        for path in (PROJECT_ROOT / folder).rglob("*.*"):
            if path.suffix in (".yaml", ".csv", ".json", ".md", ".rst"):
                text = path.read_text(encoding="utf-8")
                assert [*known_keys(text), *mail_addresses(text)] == [], path


HARMLESS = [
    *(
        "task-sk-1",
        "sk-learn",
        "scikit-learn",
        "https://example.org:8080/a@b",
        "git@github.com:a/b",
    ),
    *("hf_hub_download", "ghp_", "0" * 64, "sha256:" + "a1" * 32, "n001@node", "key: value"),
    *("resnet50-a100-n004-lbs0256-s0020018", "AKIAabcdefghijklmnop", "xoxo-kisses", "@media print"),
]


@pytest.mark.parametrize("text", HARMLESS)
def test_it_is_no_key(text: str) -> None:
    assert [*known_keys(text), *mail_addresses(text)] == []


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_provenance_is_recorded_without_keys(key: str) -> None:
    said = Redaction((), ()).text(f"train.py {key} --epochs 3")
    assert LETTERS[:10] not in said and "ABCDEFGHIJ" not in said and "train.py" in said


def test_a_whole_private_key_is_taken_out() -> None:
    key = f"-----BEGIN {'PRIVATE KEY'}-----\n{LETTERS}\n-----END {'PRIVATE KEY'}-----"
    assert Redaction((), ()).text(f"a\n{key}\nb") == "a\n<secret>\nb"


def test_a_changed_file_is_still_named_by_the_archive(
    sound: Path, other: Project, tmp_path: Path
) -> None:
    bad = tmp_path / "small.crate.zip"
    bad.write_bytes(sound.read_bytes())
    broken = changed(bad, lambda files: files.update({f"{RUN}/spec.json": b"x"}))
    with pytest.raises(InputError, match=r"changed\.zip: .*spec\.json"):
        other.import_(broken)
