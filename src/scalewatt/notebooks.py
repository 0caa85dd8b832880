"""The functions for notebooks: recordings and results as pandas DataFrames (docs/python.md).

Reached as `scalewatt.read_recording`, `scalewatt.energy` and `scalewatt.load_campaign_results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.cluster import powers_by_device
from scalewatt.common.errors import InputError
from scalewatt.energies.read import Account, Reading, read_account
from scalewatt.energies.traces import SAMPLES_SCHEMA, TRACES_SCHEMA, read_samples, write_traces
from scalewatt.results.tables.read_table import opened_parquet
from scalewatt.results.tables.table_schema import metadata

PathOrText = str | PathLike[str]
_RUN = ("configuration", "repeat")


class Options(TypedDict, total=False):
    """What is asked of a recording, and what it does not say of itself, as of `scalewatt energy`."""

    run: str | None
    round: str | None
    gpus_per_node: int | None
    node: str | Mapping[str, str] | None
    """Name of the node, or those of a folder's files by their names."""
    time_zone: str | None
    columns: PathOrText | None
    cluster: PathOrText | None
    """Cluster file with rated powers to estimate from, in place of those that a run was made with."""


def energy(
    path: PathOrText, stages: PathOrText | None = None, **options: Unpack[Options]
) -> Account:
    """Account for the energy of one recording.

    `stages` is a file of stage events; a run folder has its own. Raises InputError.
    """
    return read_account(Path(path), _reading(stages, **options))


def read_recording(
    path: PathOrText, stages: PathOrText | None = None, **options: Unpack[Options]
) -> pd.DataFrame:
    """Read the power samples of one recording, a row a sensor and sample, with the columns of a run's traces.

    `power_w` (W) is null where a sample cannot be true. Where the recording's clock is unknown (flag
    `time_unknown`), times count from 1970. Options are those of `energy`. Raises InputError for a file that
    cannot be read, and for one of totals, which has no samples.
    """
    with TemporaryDirectory() as folder:
        written = Path(folder) / "traces.parquet"
        with write_traces(written) as traces:
            read_account(Path(path), _reading(stages, **options), traces)
        samples = _samples(written, "not totals")
        if samples.empty and not _samples(written).empty:
            raise InputError(f"{path}: holds totals without samples; scalewatt.energy reads them")
    return samples


def _reading(
    stages: PathOrText | None,
    node: str | Mapping[str, str] | None = None,
    columns: PathOrText | None = None,
    cluster: PathOrText | None = None,
    **same: Any,
) -> Reading:
    return Reading(
        **same,
        stages=None if stages is None else Path(stages),
        columns=None if columns is None else Path(columns),
        powers=None if cluster is None else powers_by_device(str(cluster)),
        node=node if isinstance(node, str) else None,
        nodes=node if isinstance(node, Mapping) else {},
    )


@dataclass(frozen=True, eq=False)
class CampaignResults:
    """The tables of one campaign; docs/tables.md has every column."""

    folder: Path
    tables: Mapping[str, pd.DataFrame]
    """All of tables/*.parquet by their names, such as `runs`, `scaling` or `figure4`."""
    stages: pd.DataFrame
    """energy/*/*.parquet of all runs: a row a segment, node, device kind and stage."""
    devices: pd.DataFrame
    """energy/*/*.devices.parquet: a row a segment, device and stage."""
    epochs: pd.DataFrame
    """energy/*/*.epochs.parquet: a row an epoch, stage and device kind."""
    flags: pd.DataFrame
    """energy/*/*.flags.parquet: a row a quality flag."""

    @property
    def runs(self) -> pd.DataFrame:
        """tables/runs.parquet: a row a run."""
        return self.tables["runs"]

    def samples(self, configuration: str, repeat: int) -> pd.DataFrame:
        """Traces of one run, as `read_recording` has samples. Raises InputError."""
        return _samples(self.folder / "traces" / configuration / f"{repeat}.parquet")


def load_campaign_results(folder: PathOrText) -> CampaignResults:
    """Read the tables of a campaign from its folder, results/<campaign>.

    Each DataFrame has the table's metadata as `attrs`. Of the runs' own tables those in `runs` are read.
    Raises InputError for a folder without tables, and for a table that cannot be read.
    """
    folder = Path(folder)
    paths = sorted((folder / "tables").glob("*.parquet"))
    if not any(path.stem == "runs" for path in paths):
        raise InputError(f"{folder}: holds no tables/runs.parquet; expected results/<campaign>")
    tables = {path.stem: _read(path, _RUN if path.stem == "runs" else ()) for path in paths}
    runs = tables["runs"][list(_RUN)].itertuples(index=False)
    energy = [folder / "energy" / str(name) / f"{repeat}.parquet" for name, repeat in runs]
    parts = ("devices", "epochs", "flags")
    named = {
        part: _joined(path.with_suffix(f".{part}.parquet") for path in energy) for part in parts
    }
    return CampaignResults(folder, tables, _joined(energy), **named)


def _samples(traces: Path, where: str = "block >= 0") -> pd.DataFrame:
    """Frame with a row a sensor and time of a file of traces; `where`: a query of its devices."""
    with opened_parquet(traces, TRACES_SCHEMA.names) as file:
        parts = [pa.Table.from_pandas(one, SAMPLES_SCHEMA) for one in read_samples(file, where)]
    return _frame(pa.concat_tables([SAMPLES_SCHEMA.empty_table(), *parts]))


def _read(path: Path, needed: Sequence[str] = ()) -> pd.DataFrame:
    with opened_parquet(path, needed) as file:
        return _frame(file.read())


def _joined(paths: Iterable[Path]) -> pd.DataFrame:
    """Rows of all tables that exist, as one."""
    found = [_read(path) for path in paths if path.exists()]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _frame(table: pa.Table) -> pd.DataFrame:
    """Frame with Arrow's types, so that null, NaN and 0 are three things."""

    def of(kind: pa.DataType) -> pd.ArrowDtype | None:  # words that repeat are categories
        return None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)

    frame: pd.DataFrame = table.to_pandas(types_mapper=of)
    frame.attrs.update(metadata(table))
    return frame
