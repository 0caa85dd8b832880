"""A YAML file that is hostile, or wrong in a way that YAML hides, ends in one line within seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_campaigns import series
from campaign_files import DEMO, LOCAL, Edits, Refused, demo, edited, write_yaml

from scalewatt.campaign.load import MOST_RUNS
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import MOST_REPEATED, read_yaml
from scalewatt.registration.campaign_file import write_campaign

NAME = "resnet50-full-lbs16"


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


def _with(line: str) -> str:
    """The demo, and one line more."""
    return f"{DEMO.read_text(encoding='utf-8')}\n{line}\n"


_LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
_MERGED = "a0: &a0 {k0: 1}\n" + "".join(
    f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}\n" for n in range(1, 12)
)
TEXTS: dict[str, tuple[str, list[str]]] = {
    "a tag !!bool": (_with("seed: !!bool x"), ["line", "!!bool", "plain"]),
    "a tag !!int": (_with('seed: !!int ""'), ["line", "!!int"]),
    "a tag !!float": (_with("seed: !!float x"), ["!!float"]),
    "a tag !!timestamp": (_with("seed: !!timestamp x"), ["!!timestamp"]),
    "a tag !!binary": (_with("seed: !!binary x"), ["!!binary"]),
    "a tag !!set": (_with("seed: !!set {a, b}"), ["!!set"]),
    "a tag !!omap": (_with("seed: !!omap [a: 1]"), ["!!omap"]),
    "a tag of one's own": (_with("seed: !mine 1"), ["!mine"]),
    "a number of 4,000 digits": (_with(f"seed: {'9' * 4000}"), ["line", "4000", "40"]),
    "a number of 100,000 digits": (_with(f"seed: {'9' * 100_000}"), ["100000", "40"]),
    "a hexadecimal number of 9,000 digits": (_with(f"seed: 0x{'f' * 9000}"), ["40"]),
    "half a character": (_with('seed: "\\ud800"'), ["line", "half a character"]),
    "half a character in a key": (_with('"\\ud800": 1'), ["half a character"]),
    "a character beyond Unicode": (_with('seed: "\\U00110000"'), ["mine.yaml"]),
    "aliases of aliases": (_LAUGHS, [f"{MOST_REPEATED}", "aliases"]),
    "aliases of aliases in mappings": (_MERGED, [f"{MOST_REPEATED}", "aliases"]),
    "merges of merges": (
        "a0: &a0 {k: 1}\n"
        + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
        [f"{MOST_REPEATED}"],
    ),
    "an alias of what it stands in": ("a: &a [*a]\n", ["itself"]),
    "sexagesimal": (_with("energy_budget_kwh: 1:30:00"), ["line", "1:30:00", "5400", "quotes"]),
    "sexagesimal of two parts": (_with("seed: 1:30"), ["1:30", "90", "quotes"]),
    "sexagesimal with a point": (_with("energy_budget_kwh: 1:30.5"), ["1:30.5", "quotes"]),
    "an octal number": (_with("seed: 0100"), ["line", "0100", "64", "octal"]),
    "brackets without end": ("a: " + "[" * 100_000, ["nested too deeply"]),
    "mappings without end": ("{a: " * 50_000, ["nested too deeply"]),
    "a NUL": ("name: a\0b\n", ["mine.yaml"]),
    "UTF-16": (DEMO.read_text(encoding="utf-8").encode("utf-16").decode("latin-1"), ["mine.yaml"]),
    "two documents": ("name: a\n---\nname: b\n", ["mine.yaml"]),
    "a key that is a list": ("[a, b]: 1\n", ["mine.yaml"]),
    "a key that is a number": (_with("7: 1"), ["'7'"]),
    "a key that is no word but yes": (_with("yes: 1"), ["mine.yaml"]),
    "a key that is null": (_with("~: 1"), ["mine.yaml"]),
    "a number in scientific notation that YAML takes for a word": (
        _with("energy_budget_kwh: 1e3"),
        ["energy_budget_kwh", '"1e3"', "1.0e3"],
    ),
}


@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
def test_a_campaign_file_is_refused_within_seconds_for(
    text: str, words: list[str], refused: Refused
) -> None:
    began = time.process_time()
    message = refused.text(text)
    assert time.process_time() - began < 2
    assert len(message) < 1000, message
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


def test_more_values_than_any_campaign_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalewatt.common.yaml_files.MOST_VALUES", 1000)
    path = tmp_path / "a.yaml"
    path.write_text(f"a: [{', '.join(map(str, range(997)))}]\n")
    assert len(read_yaml(path)["a"]) == 997
    path.write_text(f"a: [{', '.join(map(str, range(998)))}]\n")
    with pytest.raises(InputError, match="line 1: here it has more than 1000 values"):
        read_yaml(path)


@pytest.mark.long
def test_10000_registered_runs_can_be_read(tmp_path: Path) -> None:
    points = [
        {"gpus": n, "nodes": 1, "local_batch_size": 32, "dataset_samples": 1_281_167, "epochs": 90}
        | {"precision": "bf16", "variant": "a", "protocol": "other", "repeats": 1}
        for n in range(1, MOST_RUNS + 1)
    ]
    one = {"label": "a", "model": "mine", "device": "a100", "points": points}
    content = {"registered": True, "name": "mine", "series": {"a": one}, "figures": {}}
    path = tmp_path / "mine.yaml"
    write_campaign(path, content)
    began = time.process_time()
    assert read_yaml(path) == content
    assert time.process_time() - began < 15


def test_a_time_of_day_in_quotes_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text('a: "1:30:00"\nb: 2026-01-31\nc: 10:00-12:00\nd: [0, 1_000, 0x10, 0.5]\n')
    found = read_yaml(path)
    assert found == {"a": "1:30:00", "b": "2026-01-31", "c": "10:00-12:00", "d": [0, 1000, 16, 0.5]}


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: demo\r\nseed: 3\r\n")
    assert read_yaml(path) == {"name": "demo", "seed": 3}


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _large(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


PLACES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a pipe": (_fifo, "no plain file"),
    "a folder": (Path.mkdir, "directory"),
    "a broken link": (lambda path: path.symlink_to("nowhere"), "No such file"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "symbolic links"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "no plain file"),
    "a file of a terabyte": (_large, "bytes"),
}


@pytest.mark.parametrize(("make", "word"), PLACES.values(), ids=PLACES)
def test_a_path_is_refused_that_is(make: Callable[[Path], Any], word: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    make(path)
    with pytest.raises(InputError, match=word) as refusal:
        read_yaml(path)
    assert str(refusal.value).startswith(str(path))


def test_a_path_of_300_letters_or_with_a_nul_is_refused(tmp_path: Path) -> None:
    for name in ("a" * 300, "a\0b"):
        with pytest.raises(InputError):
            read_yaml(tmp_path / name)


VALUES: dict[str, tuple[Edits, list[str]]] = {
    "a seed that torch cannot take": ({("seed",): 2**70}, ["seed", "at most 4294967295"]),
    "a seed beyond 32 bits": ({("seed",): 2**32}, ["seed", "at most 4294967295"]),
    "epochs without bound": (
        {("models", "resnet50", "epochs"): 10**9},
        ["models.resnet50.epochs", "at most"],
    ),
    "a series' epochs without bound": (
        series(NAME, settings={"epochs": 10**9}),
        [f"series.{NAME}.settings", "at most"],
    ),
    "repeats without bound": (series(NAME, repeats=10**6), [f"{NAME}.repeats", "at most"]),
    "probes without bound": ({("idle_probe",): {"repeats": 10**6}}, ["repeats", "at most"]),
    "more GPU counts than any figure can show": (
        series(NAME, gpus=list(range(1, 2002))),
        [f"{NAME}.gpus", "at most"],
    ),
    "more runs than a queue takes": (
        {("series", name, "repeats"): 1000 for name in edited({})["series"]},
        ["runs", "at most 10000"],
    ),
    "a GPU count without bound": (series(NAME, gpus=[10**12]), [f"{NAME}.gpus", "at most"]),
    "a series' name that leads out of its folder": (
        {("series", "../../evil"): edited({})["series"][NAME]},
        ["series", "../../evil", "letters"],
    ),
    "a series' name with a line break": (
        {("series", "a\nb"): edited({})["series"][NAME]},
        ["series", "letters"],
    ),
    "a series' name of 300 letters": (
        {("series", "a" * 300): edited({})["series"][NAME]},
        ["series", "letters"],
    ),
    "a series' name in a path": (
        {("series", "a/b"): edited({})["series"][NAME]},
        ["series", "a/b"],
    ),
    "a series' name with a wildcard of Snakemake": (
        {("series", "{br}"): edited({})["series"][NAME]},
        ["series", "{br}"],
    ),
    "a dataset's name that leads out of its folder": (
        {("datasets", "../../evil"): edited({})["datasets"]["scans"]},
        ["datasets", "../../evil", "letters"],
    ),
    "a dataset's name of a hidden file": (
        {("datasets", ".a"): edited({})["datasets"]["scans"]},
        ["datasets", ".a", "letters"],
    ),
    "a dataset's name with a wildcard of Snakemake": (
        {("datasets", "{br}"): edited({})["datasets"]["scans"]},
        ["datasets", "{br}"],
    ),
    "a dataset's name of 200 letters of two bytes": (
        {
            ("datasets", "ä" * 200): edited({})["datasets"]["scans"],
            ("models", "resnet50", "dataset"): "ä" * 200,
        },
        ["dataset", "400 bytes", "at most 200"],
    ),
    "a campaign's name of 300 letters": ({("name",): "a" * 300}, ["name"]),
    "a name with a line break behind it": ({("name",): "demo\n"}, ["name", "letters"]),
    "a series twice in one figure": (
        {("figures", "figure2", "series"): [NAME, NAME]},
        ["figures.figure2.series", NAME, "once"],
    ),
    "a series twice in a figure of variants": (
        {("figures",): {"variants": {"series": [NAME, NAME], "baselines": [NAME]}}},
        ["figures.variants.series", NAME, "once"],
    ),
    "a point twice in Table 1": (
        {("figures", "table1", "points"): [{"series": NAME, "gpus": 1}] * 2},
        ["figures.table1.points", NAME, "once"],
    ),
    "a label of 100,000 letters": (series(NAME, label="a" * 100_000), [f"{NAME}.label"]),
    "a label with a NUL": (series(NAME, label="a\0b"), ["mine.yaml"]),
    "a sampling period that is no number": ({("sampling_period_s",): float("nan")}, ["sampling"]),
    "an energy budget without bound": (
        {("energy_budget_kwh",): float("inf")},
        ["energy_budget_kwh"],
    ),
}


@pytest.mark.parametrize(("edits", "words"), VALUES.values(), ids=VALUES)
def test_a_campaign_is_refused_within_seconds_for(
    edits: Edits, words: list[str], refused: Refused
) -> None:
    began = time.process_time()
    message = refused.campaign(edits)
    assert time.process_time() - began < 3
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


def test_a_configuration_whose_folder_no_file_system_could_hold_is_refused() -> None:
    command = {
        "workload": "command",
        "command": "python a.py",
        "files": ["a.py"],
        "epochs": 1,
    }
    edits: Edits = {
        ("models", "mine"): command,
        ("series",): {
            "a": {
                "model": "mine",
                "device": "local",
                "gpus": [1],
                "local_batch_size": 1,
                "settings": {"precision": "p" * 300},
            }
        },
        ("figures",): {},
    }
    with pytest.raises(InputError, match=r"series\.a.*letters"):
        demo(edits)


LAUNCHERS = {
    "no placeholder of the ranks": ("mpiexec -n 4", ["{gpus}"]),
    "an unbalanced quote": ("mpiexec -n {gpus} 'a", ["quot"]),
    "an attribute": ("mpiexec -n {gpus.__class__}", ["{gpus.__class__}", "{gpus}"]),
    "an index": ("mpiexec -n {gpus[0]}", ["{gpus}"]),
    "a format": ("mpiexec -n {gpus:>9999999999}", ["{gpus}"]),
    "a conversion": ("mpiexec -n {gpus!r}", ["{gpus}"]),
    "a number": ("mpiexec -n {0}", ["{gpus}"]),
    "nothing": ("", ["launcher"]),
    "blanks": ("  ", ["launcher"]),
    "a NUL": ("mpiexec\0 -n {gpus}", ["cluster.yaml"]),
    "nodes alone": ("srun --nodes={nodes}", ["{gpus}"]),
}


@pytest.mark.parametrize(("launcher", "words"), LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_launcher_is_refused_for(launcher: str, words: list[str], refused: Refused) -> None:
    message = refused.cluster({("launcher",): launcher})
    missing = [word for word in ["launcher", *words] if word not in message]
    assert not missing, f"{missing} not in: {message}"


def test_nodes_and_ranks_per_node_say_how_many_ranks_there_are(tmp_path: Path) -> None:
    from scalewatt.campaign.cluster import load_cluster

    launcher = "srun --nodes={nodes} --ntasks-per-node={ranks_per_node}"
    path = write_yaml(tmp_path / "cluster.yaml", edited({("launcher",): launcher}, LOCAL))
    assert load_cluster(path).launcher == launcher


DEVICES = {
    "a path": "../../evil",
    "a wildcard": "{br}",
    "a line break": "a\nb",
    "300 letters": "a" * 300,
    "a comma": "a,b",
}


@pytest.mark.parametrize("name", DEVICES.values(), ids=DEVICES)
def test_a_device_is_refused_that_is_named_by(name: str, refused: Refused) -> None:
    device = edited({}, LOCAL)["devices"]["local"]
    message = refused.cluster({("devices", name): device})
    assert "devices" in message and "letters" in message
