"""Files of people and other programs, damaged as disks, transfers and editors do: read, or refused by name.

Every reader of such files has a row in READERS. What it makes of a damaged one is a result or an
InputError with the file's name, never another exception (the command prints it in one line). HDF5 is only
cut off or overwritten from its beginning: its library may loop or crash on damage within, which is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pytest
from campaign_files import DEMO, LOCAL, ROOT
from energy_files import T0, counter, gpu, write_perun
from foreign_samples import EMISSIONS, FILES, RULES, TABLE, WINDOWS, options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_files import make_spec

from scalewatt import energy
from scalewatt.archive.bag import BagInfo, write_bag
from scalewatt.archive.import_archive import check_archive
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_table
from scalewatt.energies.tables import ENERGY_SCHEMA
from scalewatt.recordings.stages import EVENTS_SCHEMA, read_stages
from scalewatt.registration.run_descriptions import read_descriptions
from scalewatt.results.tables.frames import read_checked
from scalewatt.scaling.predict import read_model

TEMPORARY = TemporaryDirectory()
BLOCKS = st.integers(1, 600)
LINES = st.sampled_from(("dropped", "doubled"))


@st.composite
def damage(draw: st.DrawFn, content: bytes) -> bytes:
    """A damaged copy of a file's content."""
    at = draw(st.integers(0, max(len(content) - 1, 0)))
    match draw(st.sampled_from(("cut", "flip", "nul", "garbage", "lines"))):
        case "cut":
            return content[:at]
        case "flip":
            flipped = content[at] ^ 1 << draw(st.integers(0, 7))
            return content[:at] + bytes([flipped]) + content[at + 1 :]
        case "nul":
            length = draw(BLOCKS)
            return content[:at] + bytes(len(content[at : at + length])) + content[at + length :]
        case "garbage":
            return content[:at] + draw(st.binary(min_size=1, max_size=64)) + content[at:]
        case _:
            lines = content.splitlines(keepends=True)
            start = draw(st.integers(0, len(lines) - 1))
            stop = draw(st.integers(start, min(start + 5, len(lines))))
            kept = 0 if draw(LINES) == "dropped" else 2
            return b"".join(lines[:start] + lines[start:stop] * kept + lines[stop:])


@st.composite
def damage_of_hdf5(draw: st.DrawFn, content: bytes) -> bytes:
    """A copy that is cut off, or overwritten from its beginning."""
    at = draw(st.integers(0, len(content) - 1))
    if draw(st.booleans()):
        return content[:at]
    return draw(st.binary(min_size=1, max_size=64)) + content[64:]


@dataclass(frozen=True)
class Reader:
    """A kind of file: the content of a whole one, and what reads it."""

    name: str
    content: bytes
    read: Callable[[Path], Any]
    damage: Callable[[bytes], st.SearchStrategy[bytes]] = damage
    examples: int = 20


def recording(kind: str, text: str) -> Reader:
    """A recording of another tool; most of these have one reader."""
    read = lambda path: energy(path, **options(path.parent, kind))  # noqa: E731
    return Reader("recording", text.encode(), read, examples=6)


def table(name: str, rows: list[dict[str, Any]], schema: pa.Schema | None, read: Any) -> Reader:
    """A table in CSV or Parquet."""
    sink = pa.BufferOutputStream()
    made = pa.Table.from_pylist(rows, schema=schema)
    if name.endswith(".csv"):
        pc.write_csv(made, sink)
        return Reader(name, sink.getvalue().to_pybytes(), read)
    path = Path(TEMPORARY.name) / name
    write_table(made, path)
    return Reader(name, path.read_bytes(), read)


def perun() -> Reader:
    """A file of perun's."""
    path = Path(TEMPORARY.name) / "perun.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(60), "cpu_0_package-0": counter(60, 100)}})
    return Reader("a.hdf5", path.read_bytes(), energy, damage_of_hdf5)


def described_table(path: Path) -> Any:
    """Read a whole table by damaged rules."""
    (path.parent / "t.csv").write_text(TABLE)
    return energy(path.parent / "t.csv", node="n1", columns=path)


EVENTS = [
    {"segment": 0, "stage": stage, "epoch": None, "start_s": T0 + i, "end_s": T0 + i + 1}
    for i, stage in enumerate(("startup", "train", "validate", "shutdown"))
]
ENERGIES = [
    {
        **dict.fromkeys(ENERGY_SCHEMA.names, 1.0),
        **{"configuration": "c", "repeat": 1, "segment": 0, "node": "n1", "device_kind": kind},
        **{"devices": 2, "stage": "train", "energy_origin": "measured", "supply": None},
        "short": False,
    }
    for kind in ("gpu", "cpu")
]
RUN = {
    **{"path": "rec.hdf5", "model": "resnet50", "device": "h100", "gpus": 1},
    **{"local_batch_size": 256, "dataset_samples": 1000, "epochs": 3, "metric": 24.5},
}
PAYLOAD = ("campaigns/a.yaml", "campaigns/a.cluster.yaml")


def archive() -> Reader:
    """The reader of archives, with a small one."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "a.zip"
        metadata = "ro-crate-metadata.json", lambda _: b"{}"
        write_bag(dict.fromkeys(PAYLOAD, b"{}"), BagInfo("a", 1), out, metadata)
        return Reader("a.zip", out.read_bytes(), check_archive)


def readers() -> dict[str, Reader]:
    """All readers of files that others write."""
    stages = lambda path: read_stages(path).to_pylist()  # noqa: E731
    runs = lambda path: read_descriptions([], path)  # noqa: E731
    energies = lambda path: read_checked(path, ENERGY_SCHEMA).to_pylist()  # noqa: E731
    model = ROOT / "reference" / "scaling_model.json"
    return {
        **{name: recording(name, text) for name, text in FILES.items()},
        "zeus-windows": recording("zeus-windows", WINDOWS),
        "codecarbon": recording("codecarbon", EMISSIONS),
        "perun": perun(),
        "rules of a table": Reader("c.yaml", json.dumps(RULES).encode(), described_table),
        "stages, Parquet": table("s.parquet", EVENTS, EVENTS_SCHEMA, stages),
        "stages, CSV": table("s.csv", EVENTS, EVENTS_SCHEMA, stages),
        "stages, lines": Reader("s.jsonl", "\n".join(map(json.dumps, EVENTS)).encode(), stages),
        "runs, CSV": table("r.csv", [RUN], None, runs),
        "energies, Parquet": table("e.parquet", ENERGIES, ENERGY_SCHEMA, energies),
        "energies, CSV": table("e.csv", ENERGIES, ENERGY_SCHEMA, energies),
        "campaign": Reader("m.yaml", DEMO.read_bytes(), load_campaign),
        "cluster": Reader("k.yaml", LOCAL.read_bytes(), load_cluster),
        "spec": Reader("spec.json", make_spec().text.encode(), read_spec),
        "notes": Reader("n.json", json.dumps(EVENTS).encode(), read_json),
        "archive": archive(),
        "model": Reader("model.json", model.read_bytes(), read_model),
    }


READERS = readers()


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    path = tmp_path / reader.name

    @settings(
        max_examples=reader.examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(reader.damage(reader.content))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            reader.read(path)
        except InputError as error:
            assert str(tmp_path) in str(error)

    path.write_bytes(reader.content)
    reader.read(path)
    check()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\0" * 200, b"{}", b"hello, world\n", b"\xff\xfe"]
)
def test_a_file_of_something_else_is_refused_by_name(
    name: str, content: bytes, tmp_path: Path
) -> None:
    reader = READERS[name]
    path = tmp_path / reader.name
    path.write_bytes(content)
    try:
        reader.read(path)
    except InputError as error:
        assert str(tmp_path) in str(error)
    else:
        assert content == b"{}" and name in ("notes", "runs, YAML", "cluster")
