"""The functions for notebooks: recordings and results as pandas DataFrames (docs/guide/python.md).

Reached as `scalewatt.read_recording`, `scalewatt.energy` and `scalewatt.load_campaign_results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.energies.read import Account, Reading, read_account
from scalewatt.energies.traces import SAMPLES_SCHEMA, TRACES_SCHEMA, read_samples, write_traces
from scalewatt.results.tables.frames import metadata, opened_parquet

AnyPath = str | PathLike[str]
_RUN = ("configuration", "repeat")


def energy(path: AnyPath, stages: AnyPath | None = None, **options: Any) -> Account:
    """Account for the energy of one recording.

    `stages` is a file of stage events; a run folder has its own. `options` are those of `Reading`. Raises
    InputError.
    """
    return read_account(Path(path), Reading(stages=stages, **options))


def read_recording(path: AnyPath, stages: AnyPath | None = None, **options: Any) -> pd.DataFrame:
    """Read the power samples of one recording, a row a sensor and sample, with the columns of SAMPLES_SCHEMA.

    `power_w` (W) is null where a sample cannot be true. Where the recording's clock is unknown (flag
    `time_assumed`), times count from 1970. Raises InputError as `energy`, and for totals without samples.
    """
    with TemporaryDirectory() as folder:
        written = Path(folder) / "traces.parquet"
        with write_traces(written) as traces:
            read_account(Path(path), Reading(stages=stages, **options), traces)
        samples = _samples(written, "not totals")
        if samples.empty and not _samples(written).empty:
            raise InputError(f"{path}: holds totals without samples; scalewatt.energy reads them")
    return samples


@dataclass(frozen=True, eq=False)
class CampaignResults:
    """Tables of one campaign; docs/tables/index.md has every column."""

    folder: Path
    tables: Mapping[str, pd.DataFrame]
    """All of tables/*.parquet by their names, such as `runs`, `scaling` or `figure4`."""
    stages: pd.DataFrame
    """Energy tables of all runs, energy/*/*.parquet: a row a segment, node, device kind and stage."""
    devices: pd.DataFrame
    epochs: pd.DataFrame
    flags: pd.DataFrame

    @property
    def runs(self) -> pd.DataFrame:
        """Table of runs."""
        return self.tables["runs"]

    def samples(self, configuration: str, repeat: int) -> pd.DataFrame:
        """Traces of one run, as `read_recording` has samples. Raises InputError."""
        return _samples(self.folder / "traces" / configuration / f"{repeat}.parquet")


def load_campaign_results(folder: AnyPath) -> CampaignResults:
    """Read the tables of a campaign from its folder, results/<campaign>, and of the runs in its table.

    Metadata are `attrs`. Raises InputError for a folder without tables, and for a table that cannot be read.
    """
    folder = Path(folder)
    paths = sorted((folder / "tables").glob("*.parquet"))
    tables = {path.stem: _read(path, _RUN if path.stem == "runs" else ()) for path in paths}
    if "runs" not in tables:
        raise InputError(f"{folder}: holds no tables/runs.parquet; expected results/<campaign>")
    runs = tables["runs"][list(_RUN)].itertuples(index=False)
    energy = [folder / "energy" / str(name) / f"{repeat}.parquet" for name, repeat in runs]
    parts = {
        part: _concatenated(path.with_suffix(f".{part}.parquet") for path in energy)
        for part in ("devices", "epochs", "flags")
    }
    return CampaignResults(folder, tables, stages=_concatenated(energy), **parts)


def _samples(traces: Path, where: str = "block >= 0") -> pd.DataFrame:
    """Frame with a row a sensor and time of a file of traces; `where`: a query of its devices."""
    with opened_parquet(traces, TRACES_SCHEMA.names) as file:
        parts = [pa.Table.from_pandas(part, SAMPLES_SCHEMA) for part in read_samples(file, where)]
    return _frame(pa.concat_tables([SAMPLES_SCHEMA.empty_table(), *parts]))


def _read(path: Path, needed: Sequence[str] = ()) -> pd.DataFrame:
    with opened_parquet(path, needed) as file:
        return _frame(file.read())


def _concatenated(paths: Iterable[Path]) -> pd.DataFrame:
    """Rows of all tables that exist."""
    frames = [_read(path) for path in paths if path.exists()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _frame(table: pa.Table) -> pd.DataFrame:
    """Frame with Arrow's types, so that null, NaN and 0 are three things; repeated words are categories."""
    types = {k: pd.ArrowDtype(k) for k in table.schema.types if not pa.types.is_dictionary(k)}
    frame: pd.DataFrame = table.to_pandas(types_mapper=types.get)
    frame.attrs.update(metadata(table))
    return frame
