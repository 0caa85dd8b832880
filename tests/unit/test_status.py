"""The status of a campaign, whatever its files hold and whatever becomes of them meanwhile."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading

import pytest
from energy_files import gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from status_files import (
    ONE,
    Made,
    epochs_of_14_s,
    everything,
    record,
    running,
    submitted,
)

from scalewatt.tracking.status_text import WIDTH, status_json, status_text


def test_the_queue_is_asked_once_and_only_about_jobs_of_unfinished_runs(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "scalewatt.tracking.status.ask_queue", lambda jobs: asked.append(sorted(jobs))
    )
    running(made)
    submitted(made)
    made.attempt(ONE)
    made.publish(ONE)
    made.status()
    assert asked == [["7", "8"]]


WRONG = [
    b"",
    b"null",
    b"[1]",
    b"{}",
    b"[[]]",
    b'[{"segment": {}, "outcome": []}]',
    b"\xff\x00",
    b"1e999",
]


def test_whatever_damaged_files_hold_there_is_a_status(made: Made) -> None:
    everything(made)
    submitted(made)
    dice = random.Random(3)
    kept = {path: path.read_bytes() for path in sorted(made.folder.rglob("*")) if path.is_file()}
    for path, content in kept.items():
        for other in (*WRONG, content[: len(content) // 2], dice.randbytes(200)):
            path.write_bytes(other)
            assert_is_told(made)
        path.unlink()
        assert_is_told(made)
        path.write_bytes(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_values_the_notes_hold_there_is_a_status(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    made = Made.create(tmp_path_factory.mktemp("odd"))
    folder = running(made, 45)
    epochs_of_14_s(folder, 4, step_s=5.0)
    submitted(made)
    names = ["progress.json", "position.json", "segments.json", "holder.json", "segment-000.json"]
    paths = [*(folder / name for name in names), *(made.work / "attempts").glob("*.json")]
    path = data.draw(st.sampled_from(paths))
    said = json.loads(path.read_text())
    one = said[0] if isinstance(said, list) else said
    one[data.draw(st.sampled_from(sorted(one)))] = data.draw(JSON)
    path.write_text(json.dumps(said))
    assert_is_told(made)


def assert_is_told(made: Made) -> None:
    status = made.status()
    assert len(status.runs) == 4
    json.dumps(status_json(status), allow_nan=False)
    assert max(map(len, status_text(status).splitlines())) <= WIDTH


def test_files_that_come_and_go_meanwhile_do_no_harm(made: Made) -> None:
    folder = running(made, 45)
    done = threading.Event()
    errors: list[BaseException] = []

    def come_and_go() -> None:
        try:
            while not done.is_set():
                running(made, 45)
                epochs_of_14_s(folder, 4, step_s=5.0)
                record(folder, {"CUDA:0_POWER": gpu(30), "CUDA:1_POWER": gpu(30)})
                made.publish(ONE)
                made.account(ONE)
                for path in (folder, made.results / "runs" / ONE, made.results / "energy"):
                    shutil.rmtree(path, ignore_errors=True)
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(60):
            assert_is_told(made)
    finally:
        done.set()
        other.join()
    assert not errors


def test_it_needs_neither_torch_nor_perun() -> None:
    code = "import sys, scalewatt.tracking.status_text; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "'pyarrow'" in loaded
    for package in ("torch", "perun", "mpi4py", "snakemake"):
        assert f"'{package}'" not in loaded
