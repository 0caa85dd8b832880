"""JSON that anybody may have written: every reader of it ends in one line, whatever it holds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaign_files import LOCAL, ROOT

from scalewatt.campaign.cluster import given_cluster, read_source
from scalewatt.campaign.exclusions import measurement_of
from scalewatt.campaign.imported_campaign import read_imported
from scalewatt.campaign.run_spec import read_spec
from scalewatt.cli import main
from scalewatt.cli.command import json_of
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_content, read_json
from scalewatt.common.untrusted_text import parse_json
from scalewatt.reproduction.manifests import parse_archive_manifest, read_manifest
from scalewatt.scaling.model.model_file import read_model

BAD = {
    "100,000 brackets": "[" * 100_000 + "]" * 100_000,
    "100 brackets": "[" * 100 + "]" * 100,
    "100,000 braces": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a number of 401 digits": '{"a": 1' + "0" * 400 + "}",
    "a number of 100,000 digits": '{"a": ' + "9" * 100_000 + "}",
    "a number beyond floats": '{"a": 1e400}',
    "infinity": '{"a": Infinity}',
    "NaN": '{"a": NaN}',
    "half a character": '{"a": "\\ud800"}',
    "half a character in a key": '{"\\udfff": 1}',
    "a key twice": '{"a": 1, "a": 2}',
    "nothing": "",
    "half of it": '{"a": [1, ',
    "two of it": "{} {}",
    "no UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_text_is_no_json_that_holds(text: str | bytes) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_json(text)
    assert 0 < len(str(refusal.value)) < 200


def test_what_is_json_is_read_as_it_is() -> None:
    text = '\ufeff{"a": [1, -2.5e-3, true, null, "\\ud83d\\ude00 ä"], "b": {"c": 18446744073709551615}}'
    found = {"a": [1, -0.0025, True, None, "\N{GRINNING FACE} ä"], "b": {"c": 2**64 - 1}}
    assert parse_json(text) == parse_json(text.encode()) == found
    assert parse_json("[" * 60 + "]" * 60)


READERS: dict[str, Callable[[Path], Any]] = {
    "a spec": read_spec,
    "a provenance": read_json,
    "a scaling model": read_model,
    "a manifest": lambda path: read_manifest(path.parent),
    "an archive's manifest": lambda path: parse_archive_manifest(path.read_bytes(), str(path)),
    "a definition": lambda path: json_of(f"--definition {path}", str(path)),
    "an imported campaign's cluster": lambda path: read_imported(path.with_name("a.yaml")),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_reader_refuses_by_name(
    read: Callable[[Path], Any], text: str | bytes, tmp_path: Path
) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    for name in ("manifest.json", "a.imported.json"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as refusal:
        read(tmp_path / "manifest.json")
    message = str(refusal.value)
    assert str(tmp_path) in message and len(message) < 1000 and "\n" not in message


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_note_that_is_none_is_taken_for_a_missing_one(text: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert read_content(path) is None


@pytest.mark.parametrize("option", [given_cluster, read_source])
def test_an_option_of_json_is_refused_shortly(option: Callable[[str], Any]) -> None:
    for text in ('{"a":' * 100_000, '{"launcher": 1e400}', '{"a": "\\ud800"}'):
        with pytest.raises(InputError) as refusal:
            option(text)
        assert len(str(refusal.value)) < 500


def test_a_definition_of_json_is_refused_shortly(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("[" * 100_000, '{"a": NaN}', "a" * 300, "\ud800"):
        assert main(["prepare", "--folder", "x", "--definition", text]) == 1
        message = capsys.readouterr().err
        assert message.startswith("scalewatt: error: --definition: ") and len(message) < 500


DEFINITIONS = {
    "a list": "[]",
    "no name": '{"format": "imagenet"}',
    "no format": '{"name": "a"}',
    "a format that is a list": '{"name": "a", "format": []}',
    "no source": '{"name": "a", "format": "imagenet"}',
    "a name that leads out": '{"name": "../a", "format": "imagenet"}',
    "an unknown key": '{"name": "a", "format": "era5", "x": 1}',
}


@pytest.mark.parametrize("text", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_dataset_is_not_prepared_for_a_definition_of(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", "--folder", str(tmp_path / "x"), "--definition", text]) == 1
    assert capsys.readouterr().err.startswith("scalewatt: error: --definition")
    assert not (tmp_path / "x").exists()


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    pipe, endless = tmp_path / "pipe", tmp_path / "endless"
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless, tmp_path):
        with pytest.raises(InputError):
            read_json(path)
        with pytest.raises(InputError):
            read_spec(path)
        assert read_content(path) is None


MODEL = json.loads((ROOT / "reference" / "scaling_model.json").read_text(encoding="utf-8"))


def _set(content: Any, value: Any) -> None:
    content["kinds"][0]["points"][0]["runtime_s"] = value


MODELS: dict[str, Callable[[Any], Any]] = {
    "a point of 1e300 s": lambda c: _set(c, 1e300),
    "a point of no samples": lambda c: c["kinds"][0]["points"][0].update(gpus=0),
    "an energy of 1e300 J": lambda c: c["kinds"][0]["points"][0].update(energy_j=1e300),
    "an energy that is a list": lambda c: c["kinds"][0]["points"][0].update(energy_j=[1]),
    "a draw of 1e300": lambda c: c["draws"]["0"]["time"][0].__setitem__(0, 1e300),
    "a draw that is a text": lambda c: c["draws"]["0"]["time"][0].__setitem__(0, "1e5x"),
    "a row of another length": lambda c: c["draws"]["0"]["time"].__setitem__(0, [1]),
    "no draws": lambda c: c["draws"]["0"].update(time=[]),
    "kinds that are a text": lambda c: c.update(kinds="abc"),
    "kinds that are null": lambda c: c.update(kinds=None),
    "a knee of 1e300": lambda c: c["kinds"][0]["time"].update(knee_local_batch_size=1e300),
    "draws that are a list": lambda c: c.update(draws=[]),
    "a device that is an object": lambda c: c["kinds"][0].update(device={"a": 1}),
}


@pytest.mark.parametrize("change", MODELS.values(), ids=MODELS)
def test_a_scaling_model_is_refused_that_has(change: Callable[[Any], Any], tmp_path: Path) -> None:
    content = json.loads(json.dumps(MODEL))
    change(content)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"model\.json: is no scaling model") as refusal:
        read_model(path)
    assert "expected" in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_provenance_that_is_a_list_counts_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a" / "1"
    folder.mkdir(parents=True)
    (folder / "provenance.json").write_text("[]")
    assert measurement_of(tmp_path, "a", 1) is not None


def test_nothing_else_in_the_package_reads_json() -> None:
    """What is named here reads what this package itself has just written, or its own schemas."""
    trusted = {
        "common/schema_validation.py": "the schemas",
        "scaling/model/training_kind.py": "a text that it has made",
        "scaling/planning/pilot.py": "a text that it has made",
        "datasets/prepare.py": "a text that it has made",
        "doctor/probe_child.py": "what the doctor asks of its child",
        "doctor/subprocess_runner.py": "what its child has written",
        "events.py": "what the launcher tells its ranks",
        "recordings/journal.py": "lines, each of which is left out if it is none",
        "recordings/stage_files.py": "cells, each of which is refused by row and key",
    }
    source = ROOT / "src" / "scalewatt"
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"\bjson\.loads?\b|\bjson_loads\b", path.read_text(encoding="utf-8"))
    }
    assert found <= trusted.keys()
    assert LOCAL.exists()
