"""YAML and JSON that people write: what they hide is refused in one line, the rest is read as it looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_files import DEMO, LOCAL, Edits, Refused, edited, write_yaml

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json
from scalewatt.common.yaml_files import read_yaml

NAME = "resnet50-full-lbs16"


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("energy_budget_kwh: 1:30:00", ["1:30:00", "base 60", "quotes"]),
        ("seed: 1:30", ["1:30", "base 60", "quotes"]),
        ("energy_budget_kwh: 1:30.5", ["1:30.5", "quotes"]),
        ("seed: 0100", ["0100", "octal", "quotes"]),
        ("name: again", ["'name'", "given twice"]),
        ("seed: !mine 1", ["!mine"]),
        ("seed: [1", ["line"]),
        ("[a, b]: 1", ["line"]),
        ("7: 1", ["'7'"]),
        ("~: 1", ["mine.yaml"]),
        ("energy_budget_kwh: 1e3", ["line", "1e3", "1.0e3"]),
    ],
)
def test_a_campaign_file_is_refused_in_one_line_for(
    line: str, words: list[str], refused: Refused
) -> None:
    message = refused.text(f"{DEMO.read_text(encoding='utf-8')}\n{line}\n")
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "text", ["", "a: b\0c\n", "--- {a: 1}\n--- {b: 1}\n", "- a\n", "a: !!bool x"]
)
def test_a_text_that_is_no_mapping_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.yaml: ") as refusal:
        read_yaml(path)
    assert "\n" not in str(refusal.value)


def test_a_time_of_day_in_quotes_and_a_date_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text('a: "1:30:00"\nb: 2026-01-31\nc: 10:00-12:00\nd: [0, 1_000, 0x10, 0.5]\n')
    found = read_yaml(path)
    assert found == {"a": "1:30:00", "b": "2026-01-31", "c": "10:00-12:00", "d": [0, 1000, 16, 0.5]}


def test_merged_mappings_repeat_no_key(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("b: &b {x: 1}\nc: {<<: *b, x: 2}\nd: {<<: *b}\n")
    assert read_yaml(path) == {"b": {"x": 1}, "c": {"x": 2}, "d": {"x": 1}}


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: demo\r\nseed: 3\r\n")
    assert read_yaml(path) == {"name": "demo", "seed": 3}


@pytest.mark.parametrize("name", ["none.yaml", ".", "a" * 300])
def test_a_path_that_is_no_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": Infinity}',
        "",
        '{"a": [1, ',
        "{} {}",
        b'{"a": "\xff"}',
    ],
)
def test_a_text_is_no_json_that_holds(text: str | bytes) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_json(text)
    assert 0 < len(str(refusal.value)) < 200


def test_what_is_json_is_read_as_it_is() -> None:
    text = '\ufeff{"a": [1, -2.5e-3, true, null, "ä"], "b": {"c": 18446744073709551615}}'
    found = {"a": [1, -0.0025, True, None, "ä"], "b": {"c": 2**64 - 1}}
    assert parse_json(text) == parse_json(text.encode()) == found


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({("seed",): 2**32}, ["seed", "at most 4294967295"]),
        ({("models", "resnet50", "epochs"): 10**9}, ["models.resnet50.epochs", "at most"]),
        ({("series", NAME, "repeats"): 10**6}, [f"{NAME}.repeats", "at most"]),
        ({("series", NAME, "gpus"): [10**12]}, [f"{NAME}.gpus", "at most"]),
        (
            {("series", name, "repeats"): 1000 for name in edited({})["series"]},
            ["runs", "at most 10000"],
        ),
        (
            {("series", "../../evil"): edited({})["series"][NAME]},
            ["series", "../../evil", "letters"],
        ),
        ({("datasets", "{br}"): edited({})["datasets"]["scans"]}, ["datasets", "{br}"]),
        (
            {("figures", "figure2", "series"): [NAME, NAME]},
            ["figures.figure2.series", NAME, "once"],
        ),
        ({("sampling_period_s",): float("nan")}, ["sampling"]),
    ],
)
def test_a_campaign_is_refused_for(edits: Edits, words: list[str], refused: Refused) -> None:
    message = refused.campaign(edits)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("launcher", "word"),
    [
        ("mpiexec -n 4", "{gpus}"),
        ("mpiexec -n {gpus} 'a", "quot"),
        ("mpiexec -n {gpus.__class__}", "{gpus.__class__}"),
        ("mpiexec -n {gpus!r}", "{gpus}"),
        ("  ", "launcher"),
        ("srun --nodes={nodes}", "{gpus}"),
    ],
)
def test_a_launcher_is_refused_for(launcher: str, word: str, refused: Refused) -> None:
    message = refused.cluster({("launcher",): launcher})
    assert "launcher" in message and word in message


def test_nodes_and_ranks_per_node_say_how_many_ranks_there_are(tmp_path: Path) -> None:
    launcher = "srun --nodes={nodes} --ntasks-per-node={ranks_per_node}"
    path = write_yaml(tmp_path / "cluster.yaml", edited({("launcher",): launcher}, LOCAL))
    assert load_cluster(path).launcher == launcher


@pytest.mark.parametrize("name", ["../../evil", "{br}", "a,b"])
def test_a_device_is_refused_that_is_named_by(name: str, refused: Refused) -> None:
    device = edited({}, LOCAL)["devices"]["local"]
    message = refused.cluster({("devices", name): device})
    assert "devices" in message and "letters" in message
