"""Parquet files put together of columns that are encoded one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalewatt.energies.traces.parquet_chunks import ChunkedParquet

SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("word", pa.dictionary(pa.int8(), pa.string())),
        pa.field("value", pa.float32()),
        pa.field("number", pa.int16(), nullable=False),
    ],
    metadata={"of": "a test"},
)
OPTIONS = {
    "compression": "zstd",
    "write_page_checksum": True,
    "use_dictionary": ["word"],
    "column_encoding": {"time": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"},
    "write_statistics": ["time", "number"],
}


def columns(rows: int, seed: int) -> list[pa.Array]:
    """Return one row group's columns, with nulls and several words."""
    random = np.random.default_rng(seed)
    words = pa.array(random.choice(np.array(["a", "b", None], dtype=object), rows), pa.string())
    return [
        pa.array(np.cumsum(random.integers(1, 1000, rows))).cast(SCHEMA.field("time").type),
        words.dictionary_encode().cast(SCHEMA.field("word").type),
        pa.array(random.random(rows).astype("float32"), mask=random.random(rows) < 0.1),
        pa.array(random.integers(-99, 99, rows).astype("int16")),
    ]


@pytest.mark.parametrize("sizes", [(), (1,), (1000, 1, 70_000), (3,) * 40])
def test_all_readers_find_what_was_encoded(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    groups = [columns(rows, seed) for seed, rows in enumerate(sizes)]
    with (tmp_path / "a.parquet").open("wb") as handle:
        file = ChunkedParquet(handle, SCHEMA, **OPTIONS)
        for group in groups:
            file.write(list(map(file.encode, SCHEMA.names, group)))
        file.close()
    path = tmp_path / "a.parquet"
    found = pq.read_table(path, page_checksum_verification=True)
    assert found.schema.equals(SCHEMA, check_metadata=True)
    tables = [pa.Table.from_arrays(group, schema=SCHEMA) for group in groups]
    expected = pa.concat_tables([SCHEMA.empty_table(), *tables])
    assert found.to_pylist() == expected.to_pylist()
    about = pq.ParquetFile(path).metadata
    assert about.num_rows == sum(sizes) and about.num_row_groups == len(sizes)
    for place, table in enumerate(tables):
        group = about.row_group(place)
        column = group.column(0)
        times = table["time"].cast(pa.int64()).to_pylist()
        assert (column.statistics.min_raw, column.statistics.max_raw) == (times[0], times[-1])
        assert group.column(2).statistics is None
        assert "DELTA_BINARY_PACKED" in column.encodings
        columns_of = [group.column(i) for i in range(group.num_columns)]
        assert group.total_byte_size == sum(one.total_uncompressed_size for one in columns_of)


def test_the_file_is_that_of_pyarrow_but_for_its_row_groups_place(tmp_path: Path) -> None:
    group = columns(5000, 7)
    table = pa.Table.from_arrays(group, schema=SCHEMA)
    pq.write_table(table, tmp_path / "theirs.parquet", **OPTIONS)
    with (tmp_path / "ours.parquet").open("wb") as handle:
        file = ChunkedParquet(handle, SCHEMA, **OPTIONS)
        file.write(list(map(file.encode, SCHEMA.names, group)))
        file.close()
    ours, theirs = (pq.ParquetFile(tmp_path / f"{name}.parquet") for name in ("ours", "theirs"))
    assert ours.metadata.schema.equals(theirs.metadata.schema)
    assert ours.metadata.row_group(0).equals(theirs.metadata.row_group(0))
    assert ours.metadata.created_by == theirs.metadata.created_by


def test_a_chunk_may_stand_in_many_row_groups(tmp_path: Path) -> None:
    with (tmp_path / "a.parquet").open("wb") as handle:
        file = ChunkedParquet(handle, SCHEMA, **OPTIONS)
        chunks = list(map(file.encode, SCHEMA.names, columns(100, 1)))
        other = list(map(file.encode, SCHEMA.names, columns(100, 2)))
        for group in (chunks, [*other[:2], *chunks[2:]], chunks):
            file.write(group)
        file.close()
    first, second = columns(100, 1), columns(100, 2)
    expected = [first, [*second[:2], *first[2:]], first]
    found = pq.read_table(tmp_path / "a.parquet", page_checksum_verification=True)
    tables = [pa.Table.from_arrays(group, schema=SCHEMA) for group in expected]
    assert found.to_pylist() == pa.concat_tables(tables).to_pylist()
