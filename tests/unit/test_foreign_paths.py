"""Whatever a path leads to, and whatever a file holds, a command ends within seconds and in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from archived import Project, make_project
from campaign_files import ROOT

from scalewatt.cli import main

FOUR = "resnet50-a100-n004-lbs0256-s0020018"
HOREKA = ROOT / "profiles" / "horeka" / "cluster.yaml"
PAPER = ROOT / "config.yaml"
MODEL = ROOT / "reference" / "scaling_model.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign with an archive of it; not to be changed."""
    project = make_project(tmp_path_factory.mktemp("made") / "project")
    project.export()
    return project


Arguments = Callable[[str, Project, Path], list[object]]


def _spec(made: Project) -> Path:
    return made.results / "runs" / FOUR / "1" / "spec.json"


def _cluster(made: Project) -> list[object]:
    return ["--cluster", made.path / "cluster.yaml"]


READING: dict[str, Arguments] = {
    "campaign": lambda p, made, out: ["campaign", p],
    "campaign --cluster": lambda p, made, out: ["campaign", made.campaign, "--cluster", p],
    "plan": lambda p, made, out: ["plan", "--campaign", p, "--cluster", HOREKA],
    "plan --cluster": lambda p, made, out: ["plan", "--campaign", PAPER, "--cluster", p],
    "plan --model": lambda p, made, out: [
        *("plan", "--campaign", PAPER, "--cluster", HOREKA, "--model", p)
    ],
    "pilot": lambda p, made, out: ["pilot", p, "--out", out / "pilot.yaml"],
    "calibrate": lambda p, made, out: ["calibrate", p, "--out", out / "model.json"],
    "status": lambda p, made, out: ["status", "--profile", p],
    "exclude": lambda p, made, out: ["exclude", "--profile", made.path, "--campaign", p],
    "keys": lambda p, made, out: ["keys", "campaign", "--write", p],
    "prepare": lambda p, made, out: ["prepare", "--folder", p],
    "prepare --definition": lambda p, made, out: [
        *("prepare", "--folder", out / "data", "--definition", p)
    ],
    "simulate": lambda p, made, out: [
        *("simulate", p, *_cluster(made), "--model", MODEL, "--out", out / "run")
    ],
    "simulate --model": lambda p, made, out: [
        *("simulate", _spec(made), *_cluster(made), "--model", p, "--out", out / "run")
    ],
    "register": lambda p, made, out: [
        *("register", "theirs", p, "--results", out / "r", "--campaigns", out / "c")
    ],
    "register --table": lambda p, made, out: [
        *("register", "theirs", "--table", p, "--results", out / "r", "--campaigns", out / "c")
    ],
    "energy": lambda p, made, out: ["energy", p],
    "energy --stages": lambda p, made, out: ["energy", _spec(made).parent, "--stages", p],
    "account": lambda p, made, out: [
        *("account", p, "--powers", "{}", "--traces", out / "t.parquet"),
        *("--energy", out / "e.parquet"),
    ],
    "account --powers": lambda p, made, out: [
        *("account", _spec(made).parent, "--powers", p, "--traces", out / "t.parquet"),
        *("--energy", out / "e.parquet"),
    ],
    "table": lambda p, made, out: [
        *("table", "--definition", p, "--results", made.results, "--out", out / "t.parquet")
    ],
    "idle": lambda p, made, out: [
        *("idle", "--definition", p, "--results", made.results, "--out", out / "i.parquet")
    ],
    "report": lambda p, made, out: [
        *("report", "--definition", p, "--results", made.results, "--out", out / "r.html")
    ],
    "figure": lambda p, made, out: ["figure", "2", "--table", p, "--out", out / "figure2"],
    "run-pages": lambda p, made, out: ["run-pages", FOUR, "1", "--results", p],
    "run-pages --excluded": lambda p, made, out: [
        *("run-pages", FOUR, "9", "--results", made.results, "--excluded", p)
    ],
    "claims": lambda p, made, out: ["claims", "--results", p],
    "claims --campaign": lambda p, made, out: [
        *("claims", "--results", made.results, "--campaign", p)
    ],
    "prediction": lambda p, made, out: [
        *("prediction", "--results", p, "--campaign", made.campaign, *_cluster(made)),
        *("--out", out / "p.parquet"),
    ],
    "export": lambda p, made, out: ["export", p, "--out", out / "a.zip"],
    "export --results": lambda p, made, out: [
        *("export", made.campaign, *_cluster(made), "--results", p, "--out", out / "a.zip")
    ],
    "import": lambda p, made, out: [
        *("import", p, "--results", out / "r", "--campaigns", out / "c")
    ],
    "manifest": lambda p, made, out: ["manifest", "--results", p],
    "reproduce": lambda p, made, out: ["reproduce", "--campaign", p],
}
"""Every command that reads a path, with each path that it reads."""


def _refused(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(one) for one in arguments]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("scalewatt: "), said.err[:500]
    assert said.err.count("\n") == 1 and len(said.err) < 1500, said.err[:2000]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.timeout(60)
@pytest.mark.parametrize("arguments", READING.values(), ids=READING)
def test_a_path_to_something_else_is_refused_by(
    arguments: Arguments,
    made: Project,
    tmp_path: Path,
    empty: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    names = ["pipe", "endless", "loop", "broken", "none", "a" * 300, "folder", "\udcff", "{br}"]
    for path in [*(str(tmp_path / name) for name in names), ".", "", "/dev/null"]:
        _refused(arguments(path, made, tmp_path / "out"), capsys)
    assert list(empty.iterdir()) == []


CONTENTS = {
    "nothing": b"",
    "zeros": bytes(4096),
    "a mark of byte order": b"\xef\xbb\xbf",
    "UTF-16": "name: a".encode("utf-16"),
    "Latin-1": b"name: \xe4\xf6\r\n",
    "brackets": b"[" * 2000,
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "half a character": b'{"name": "\\ud800"}',
    "a tag": b"name: !!bool x\n",
    "a table of one cell": b"a\n1\n",
    "one long line": b"a" * 100_000,
    "the ends of a Parquet file": b"PAR1" + bytes(8) + b"PAR1",
    "the head of an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "an empty ZIP file": b"PK\x05\x06" + bytes(18),
}
SUFFIXES = {
    **dict.fromkeys(["figure", "calibrate"], (".parquet", ".csv")),
    "register --table": (".parquet", ".csv", ".yaml"),
    "energy": (".hdf5", ".journal"),
    "energy --stages": (".csv", ".json", ".jsonl", ".parquet"),
    "import": (".zip",),
    **dict.fromkeys(["campaign", "campaign --cluster"], (".yaml",)),
}
OF_FILES = (
    *("campaign", "campaign --cluster", "plan --model", "prepare --definition", "simulate"),
    *("simulate --model", "register --table", "energy", "energy --stages", "account --powers"),
    *("table", "idle", "report", "figure", "calibrate", "run-pages --excluded", "import", "keys"),
)
"""One command for each reader of files; what a file in a folder holds is tested where it is read."""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", OF_FILES)
def test_a_file_of_something_else_is_refused_by(
    name: str, made: Project, tmp_path: Path, empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in SUFFIXES.get(name, (".json",)):
        path = tmp_path / f"file{suffix}"
        for content in CONTENTS.values():
            path.write_bytes(content)
            _refused(READING[name](str(path), made, tmp_path / "out"), capsys)


def test_what_is_printed_of_a_name_that_is_no_text_ends_in_no_traceback(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.yaml"
    Path(os.fsdecode(path)).write_bytes((ROOT / "campaigns" / "demo.yaml").read_bytes())
    command = [sys.executable, "-m", "scalewatt.cli", "campaign", path]
    for encoding in ("utf-8", "ascii"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\udcff.yaml: campaign 'demo'" in done.stdout


@pytest.mark.parametrize("reasons", ["[1]", "1", "null", '{"1": []}', '{"1": null}'])
def test_reasons_of_exclusions_are_texts_by_repeat(
    reasons: str, made: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ["--results", str(made.results)]
    _refused(["run-pages", FOUR, "1", *results, "--excluded", reasons], capsys)


POWERS = [
    *({"cpu": {"idle_w": "a"}}, {"gpu": []}, {"tpu": {"idle_w": 1}}, {"ram": {"power_w": -1}}),
    {"gpu": {"idle_w": 1, "rated_w": 1e999}},
]


@pytest.mark.parametrize("powers", POWERS, ids=[str(one)[:30] for one in POWERS])
def test_rated_powers_are_held_against_what_a_cluster_file_may_have(
    powers: object, made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _refused(READING["account --powers"](json.dumps(powers), made, tmp_path), capsys)
