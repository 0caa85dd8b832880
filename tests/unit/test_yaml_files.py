"""YAML and JSON that people write: what they hide is refused in one line, the rest is read as it looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_files import DEMO, Refused

from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("energy_budget_kwh: 1:30:00", ["line", "1:30:00", "quotes"]),
        ("energy_budget_kwh: 1:30.5", ["1:30.5", "quotes"]),
        ("energy_budget_kwh: .inf", [".inf", "quotes"]),
        ("energy_budget_kwh: 1e3", ["1e3", "1.0e+3"]),
        ("energy_budget_kwh: 1.0e3", ["1.0e3", "1.0e+3"]),
        ("seed: 0100", ["0100", "quotes"]),
        ("name: again", ["'name'", "given twice"]),
        ("seed: !mine 1", ["!mine"]),
        ("seed: !!python/object/apply:os.getcwd []", ["python"]),
        ("seed: *smal", ["alias"]),
        ("seed: [1", ["line"]),
        ("[a, b]: 1", ["line"]),
        ("7: 1", ["'7'"]),
        ("~: 1", ["mine.yaml"]),
    ],
)
def test_a_campaign_file_is_refused_in_one_line_for(
    line: str, words: list[str], refused: Refused
) -> None:
    message = refused.text(f"{DEMO.read_text(encoding='utf-8')}\n{line}\n")
    assert [word for word in words if word not in message] == []


def test_what_looks_like_one_thing_is_read_as_that(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(
        b'\xef\xbb\xbfa: "1:30:00"\r\nb: 2026-01-31\r\nc: 10:00-12:00\r\n'
        b"d: [0, 1_000, 0x10, 0.5, 1.0e+3, n01]\r\ne: &e {x: 1}\r\nf: &f {<<: *e, x: 2}\r\ng: {<<: *f}\r\n"
    )
    assert read_yaml(path) == {
        "a": "1:30:00", "b": "2026-01-31", "c": "10:00-12:00", "d": [0, 1000, 16, 0.5, 1e3, "n01"],
        "e": {"x": 1}, "f": {"x": 2}, "g": {"x": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [b"", b"a: b\0c\n", b"--- {a: 1}\n--- {b: 1}\n", b"- a\n", b"a: !!bool x", b"\xff\xfe\0\1\x80"],
)
def test_a_text_that_is_no_mapping_is_refused_by_name(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"a\.yaml: ") as refusal:
        read_yaml(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["none.yaml", ".", "a" * 300])
def test_a_path_that_is_no_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(tmp_path / name)
