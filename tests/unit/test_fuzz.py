"""Damaged files: never a hang, a traceback, or a number that moved without a flag.

Bits are flipped, blocks zeroed, overwritten or repeated, ends cut off, by a seeded generator. What a
file can prove is held: a recording's mean power moves by no more than 1 % without a flag, a table of
ours says what it said or is refused. Text that people write proves nothing: it is read or refused.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
import yaml
from energy_files import (
    T0,
    counter,
    write_record_journal,
)

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table
from scalewatt.datasets.imagenet.index import ImageFolderIndex, index_path, indexed_folder
from scalewatt.energies.accounting.energy_schema import ENERGY_SCHEMA
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.concurrent_samplers import read_samplers
from scalewatt.recordings.journal import last_sample_s
from scalewatt.recordings.stage_files import EVENTS_SCHEMA, read_stages
from scalewatt.recordings.telemetry import TelemetryWriter, read_telemetry
from scalewatt.recordings.telemetry_sources import Source
from scalewatt.registration.recording_discovery import open_recording
from scalewatt.registration.run_descriptions import read_descriptions
from scalewatt.results.tables.read_table import read_checked

FEW, MANY = 60, 400
N = 90
NOISE = np.random.default_rng(0)
NODE = {
    "CUDA:0_POWER": (1e3 * (100 + 50 * NOISE.random(N))).round(),
    "CUDA:1_POWER": (1e3 * (200 + 50 * NOISE.random(N))).round(),
    "cpu_0_package-0": counter(N, 150),
    "ram_0_dram": counter(N, 20),
}
SLOWEST_S = 60.0
"""For one file, on a machine with other work: a reader that hangs is ended after 1 s of computing."""


def damaged(content: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield damaged copies of a file's content, each with what was done."""
    choose = random.Random(seed)
    for _ in range(count):
        found, at = bytearray(content), choose.randrange(len(content))
        kind, length = choose.random(), choose.choice((1, 4, 16, 64, 512))
        inside = slice(at, min(at + length, len(content)))
        if kind < 0.6:
            found[at] ^= 1 << choose.randrange(8)
        elif kind < 0.8:
            found[inside] = bytes(inside.stop - at)
        elif kind < 0.88:
            found[inside] = choose.randbytes(inside.stop - at)
        elif kind < 0.94:
            found[at:at] = content[inside]
        else:
            del found[at:]
        yield f"seed {seed}, {kind:.3f}, {length} bytes at {at}", bytes(found)


@dataclass(frozen=True)
class Reader:
    """A kind of file: how an intact one is written, and how it is read."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    proves: Callable[[Any, Any], bool] = lambda true, found: True
    """Whether what was read of a damaged file is as true as the file can tell."""


def energy(path: Path) -> dict[str, Any]:
    """Read a recording as the command does."""
    return describe(path)


def mean_power_is_known(true: dict[str, Any], found: dict[str, Any]) -> bool:
    """Return True if the mean power is the true one to 1 %, or a flag is there."""
    if found["flags"] or found["energy_j"] is None:
        return bool(found["flags"])
    power, expected = (one["energy_j"] / one["runtime_s"] for one in (found, true))
    # A journal may end anywhere, in what its `runtime_s` says: few samples have another mean.
    tolerance = 0.01 if found["runtime_s"] > 0.9 * true["runtime_s"] else 0.1
    return bool(abs(power / expected - 1) < tolerance) or found["runtime_s"] < 20


def journal(path: Path) -> dict[str, Any]:
    """Read a journal in all ways there are."""
    last_sample_s(path)
    with_names = open_recording(path, None, None, "row 1")
    assert with_names.files
    return describe(path)


def telemetry(folder: Path) -> Path:
    """Write telemetry of a GPU's counter and of other samplers."""
    sources = [
        Source(("energy_total",), 0, lambda: (time.monotonic(),)),
        Source(("concurrent_samplers",), 0, lambda: (0.0,)),
    ]
    writer = TelemetryWriter(folder, "s.n1", {"host": "n1"}, sources)
    for _ in range(20):
        writer._last_s = -1e9
        assert writer.sample()
    return folder / "s.n1.telemetry"


STAGES = ["startup", "train", "validate", "train", "checkpoint", "shutdown"]
EVENTS = [
    {"segment": 0, "stage": s, "epoch": i or None, "start_s": T0 + i, "end_s": T0 + i + 1}
    for i, s in enumerate(STAGES)
]
MARKS = [{k: v for k, v in one.items() if k != "end_s"} for one in EVENTS]
ENERGIES = [
    {
        **dict.fromkeys(ENERGY_SCHEMA.names, 1.0),
        **{"configuration": "c", "repeat": 1, "segment": 0, "node": "n1", "device_kind": kind},
        **{"devices": 2, "stage": stage, "energy_j": 1e4, "energy_origin": "measured"},
        "short": False,
    }
    for kind in ("gpu", "cpu")
    for stage in STAGES
]
DESCRIPTION = {
    **{"path": "rec.hdf5", "model": "resnet50", "device": "h100", "gpus": 1},
    **{"local_batch_size": 256, "dataset_samples": 1000, "epochs": 3, "metric": 24.5},
}


def text(name: str, content: str) -> Callable[[Path], Path]:
    """Return what writes a text file."""

    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def table(
    name: str, rows: list[dict[str, Any]], schema: pa.Schema | None
) -> Callable[[Path], Path]:
    """Return what writes a table, as Parquet or CSV."""

    def write(folder: Path) -> Path:
        found = pa.Table.from_pylist(rows, schema=schema)
        if name.endswith("csv"):
            pc.write_csv(found, folder / name)
        else:
            write_table(found, folder / name)
        return folder / name

    return write


def index(folder: Path) -> Path:
    """Write an index of images."""
    sizes = np.arange(40)
    ImageFolderIndex(
        folder, [f"train/a/{i}.jpg" for i in sizes], np.zeros(40, np.int32), ["a"], sizes
    ).save(folder, "train")
    return index_path(folder, "train")


def indexed(path: Path) -> Any:
    """Read an index of images."""
    path.rename(index_path(path.parent, "train"))
    found = ImageFolderIndex.load(path.parent, "train")
    return found.paths, found.labels.tolist(), indexed_folder(path.parent, "train")


def stages(path: Path) -> Any:
    """Read a table of stages."""
    return read_stages(path).to_pylist()


def energies(path: Path) -> Any:
    """Read a table of energies."""
    return read_checked(path, ENERGY_SCHEMA).to_pylist()


def descriptions(path: Path) -> Any:
    """Read descriptions of runs."""
    return [(str(one.point), one.samples, one.metric) for one in read_descriptions([], path)]


def same(true: Any, found: Any) -> bool:
    """Return True if nothing changed."""
    return bool(true == found)


READERS = {
    "journal": Reader(
        lambda folder: write_record_journal(folder / "a.journal", "n1", NODE),
        journal,
        mean_power_is_known,
    ),
    "telemetry": Reader(telemetry, lambda path: read_telemetry([path])),
    "samplers": Reader(
        text("a.samplers.jsonl", '{"run": "a/1", "host": "n1", "pid": 7}\n' * 3),
        lambda path: list(read_samplers([path])),
    ),
    "stages, Parquet": Reader(table("s.parquet", EVENTS, EVENTS_SCHEMA), stages, same),
    "stages, CSV": Reader(table("s.csv", EVENTS, EVENTS_SCHEMA), stages),
    "stages, JSON": Reader(text("s.json", json.dumps(EVENTS)), stages),
    "stages, JSON lines": Reader(text("s.jsonl", "\n".join(map(json.dumps, EVENTS))), stages),
    "marks": Reader(text("m.jsonl", "\n".join(map(json.dumps, MARKS))), stages),
    "energies, Parquet": Reader(table("e.parquet", ENERGIES, ENERGY_SCHEMA), energies, same),
    "energies, CSV": Reader(table("e.csv", ENERGIES, ENERGY_SCHEMA), energies),
    "descriptions, YAML": Reader(
        text("d.yaml", yaml.safe_dump({"runs": [DESCRIPTION]})), descriptions
    ),
    "descriptions, CSV": Reader(table("d.csv", [DESCRIPTION], None), descriptions),
    "descriptions, Parquet": Reader(table("d.parquet", [DESCRIPTION], None), descriptions, same),
    "index of images": Reader(index, indexed, same),
}


def fuzz(reader: Reader, folder: Path, seed: int, count: int) -> None:
    """Read damaged copies of a file; fail on the first that gives what it must not."""
    path = reader.write(folder)
    content = path.read_bytes()
    copies = folder / "copies"
    copies.mkdir()
    copy = copies / path.name
    copy.write_bytes(content)
    true = reader.read(copy)
    for how, found in damaged(content, seed, count):
        copy.write_bytes(found)
        began = time.monotonic()
        try:
            said = reader.read(copy)
        except InputError as error:
            assert "\n" not in str(error), how
        except Exception as error:
            raise AssertionError(f"{how}: {error!r}") from error
        else:
            assert reader.proves(true, said), f"{how}: {str(said)[:500]}"
        assert time.monotonic() - began < SLOWEST_S, how


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_refused_in_one_line_or_read_as_far_as_it_can_prove(
    name: str, tmp_path: Path
) -> None:
    fuzz(READERS[name], tmp_path, seed=1, count=FEW)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_refused_in_one_line_or_read_as_far_as_they_can_prove(
    name: str, tmp_path: Path
) -> None:
    fuzz(READERS[name], tmp_path, seed=2, count=MANY)
