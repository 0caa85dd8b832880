"""The functions for notebooks: recordings and results as pandas DataFrames (docs/python.md).

Reached as `scalewatt.read_recording`, `scalewatt.energy` and `scalewatt.load_campaign_results`.
Columns are Arrow-backed, so that null, NaN and 0 are three things; words that repeat are categories.
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
from scalewatt.energies.traces import SAMPLES_SCHEMA, TRACES_SCHEMA, read_samples, write_traces
from scalewatt.energies.views.any_recording import AccountsOfPath, Powers, accounts_of
from scalewatt.energies.views.describe import description
from scalewatt.energies.views.device_rows import device_rows
from scalewatt.recordings.tables import Options
from scalewatt.results.tables.read_table import opened_parquet
from scalewatt.results.tables.table_schema import metadata

PathOrText = str | PathLike[str]

_RUN = ("configuration", "repeat")
_PARTS = ("devices", "epochs", "flags")
"""The tables of each run that `load_campaign_results` reads beside its energy."""


def read_recording(
    path: PathOrText,
    *,
    stages: PathOrText | None = None,
    run: str | None = None,
    round: str | None = None,
    gpus_per_node: int | None = None,
    node: str | None = None,
    time_zone: str | None = None,
    columns: PathOrText | None = None,
) -> pd.DataFrame:
    """Return the power samples of one recording, one row per sensor and sample.

    The columns are those of a run's traces (docs/tables.md): `segment`, `time` (UTC), `node`,
    `device_kind`, `device_index`, `uuid`, `power_w` (W; null where a sample cannot be true), `quantity`,
    `energy_origin`, `stage`, `flag`. `attrs["flags"]` has the quality flags of the recording. Where its
    clock is unknown (flag `time_unknown`), times count from 1970.

    The options are those of `scalewatt energy`. Raises InputError for a file that cannot be read, and
    for one that holds totals alone, which have no samples.
    """
    _check_gpus(gpus_per_node)
    options = Options(node, time_zone, _path(columns))
    with TemporaryDirectory() as folder:
        written = Path(folder) / "traces.parquet"
        with write_traces(written) as traces:
            found = accounts_of(
                Path(path), run, round, _path(stages), gpus_per_node, options=options, traces=traces
            )
        frame = _samples(written, "not totals")
        only_totals = frame.empty and not _samples(written).empty
    if only_totals:
        raise InputError(
            f"{path}: holds totals of energy without samples; expected a recording with samples "
            "(scalewatt.energy reads totals)"
        )
    frame.attrs.update(_summary(found))
    return frame


def energy(
    path: PathOrText,
    stages: PathOrText | None = None,
    *,
    run: str | None = None,
    round: str | None = None,
    gpus_per_node: int | None = None,
    cluster: PathOrText | None = None,
    node: str | None = None,
    time_zone: str | None = None,
    columns: PathOrText | None = None,
) -> pd.DataFrame:
    """Return the energy of one recording by segment, stage, node, device kind and device.

    `stages` is a file of stage events; a run folder has its own. Without stages all rows are
    `unattributed`. Columns: `segment`, `stage`, `node`, `device_kind`, `device_index`, `sensor`, `uuid`,
    `duration_s` and `covered_s` (s), `samples`, `energy_j`, `energy_low_j`, `energy_high_j`, `recorded_j`
    (J), `mean_power_w` (W), `energy_origin`, `in_scope`, `short`, `copy_of`, `flag_codes` (with commas).
    An energy that is not known is null, so add up with `sum(skipna=False)`, and rows with `in_scope` only:
    whole nodes and unused GPUs have rows too, and are in no total. `attrs` has what
    `scalewatt energy --json` says of the whole recording, such as `energy_kwh` and `flags`.

    The options are those of `scalewatt energy`; `cluster`, a cluster file, has the rated powers to
    estimate from, if not those that a run was made with. Raises InputError.
    """
    _check_gpus(gpus_per_node)
    found = accounts_of(
        Path(path),
        run,
        round,
        _path(stages),
        gpus_per_node,
        None if cluster is None else _rated(Path(cluster)),
        Options(node, time_zone, _path(columns)),
    )
    frame = _frame(device_rows(found))
    frame.attrs.update(_summary(found))
    return frame


@dataclass(frozen=True, eq=False)
class CampaignResults:
    """The tables of one campaign; docs/tables.md has every column."""

    folder: Path
    runs: pd.DataFrame
    """tables/runs.parquet: one row per run."""
    configurations: pd.DataFrame | None
    """Mean, spread and interval over repeats; as the next ones None where the campaign did not make it."""
    scaling: pd.DataFrame | None
    """Speed-up and efficiency."""
    comparisons: pd.DataFrame | None
    """Ratios between configurations, with tests."""
    cross_checks: pd.DataFrame | None
    """The energies of runs by other sources."""
    claims: pd.DataFrame | None
    """The verdicts on the paper's claims."""
    stages: pd.DataFrame
    """energy/*/*.parquet of all runs: one row per segment, node, device kind and stage."""
    devices: pd.DataFrame
    """energy/*/*.devices.parquet: one row per segment, device and stage."""
    epochs: pd.DataFrame
    """energy/*/*.epochs.parquet: one row per epoch, stage and device kind."""
    flags: pd.DataFrame
    """energy/*/*.flags.parquet: one row per quality flag."""
    tables: Mapping[str, pd.DataFrame]
    """All of tables/*.parquet by their names, such as `figure4`."""

    def samples(self, configuration: str, repeat: int) -> pd.DataFrame:
        """Return the traces of one run, as `read_recording` has them. Raises InputError."""
        return _samples(self.folder / "traces" / configuration / f"{repeat}.parquet")


def load_campaign_results(folder: PathOrText) -> CampaignResults:
    """Return the tables of a campaign from its folder, results/<campaign>.

    Each DataFrame has the table's metadata as `attrs`. Of the runs' own tables those in `runs` are read.
    Raises InputError for a folder without tables, and for a table that cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; expected results/<campaign>")
    paths = sorted((folder / "tables").glob("*.parquet"))
    if not any(path.stem == "runs" for path in paths):
        raise InputError(
            f"{folder}: holds no tables/runs.parquet; expected the results of a campaign, whose target "
            "`all` makes the tables"
        )
    tables = {path.stem: _read(path, _RUN if path.stem == "runs" else ()) for path in paths}
    runs = tables["runs"]
    own = [
        folder / "energy" / str(run["configuration"]) / f"{run['repeat']}.parquet"
        for run in runs[list(_RUN)].to_dict("records")
    ]
    own = [path for path in own if path.exists()]
    parts = {name: _joined(path.with_suffix(f".{name}.parquet") for path in own) for name in _PARTS}
    return CampaignResults(
        folder=folder,
        runs=runs,
        configurations=tables.get("configurations"),
        scaling=tables.get("scaling"),
        comparisons=tables.get("comparisons"),
        cross_checks=tables.get("cross_checks"),
        claims=tables.get("claims"),
        stages=_joined(own),
        tables=tables,
        **parts,
    )


def _check_gpus(gpus_per_node: int | None) -> None:
    whole = isinstance(gpus_per_node, int) and not isinstance(gpus_per_node, bool)
    if gpus_per_node is not None and not (whole and gpus_per_node >= 1):
        raise InputError(f"gpus_per_node: {gpus_per_node!r}; allowed: a whole number from 1")


def _path(given: PathOrText | None) -> Path | None:
    return None if given is None else Path(given)


def _rated(cluster: Path) -> Powers:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.cluster import powers as rated_powers

    return lambda device, run: rated_powers(cluster_of_run(str(cluster), device, run)[1])


def _summary(found: AccountsOfPath) -> dict[str, Any]:
    """Return what is said of a whole recording, but for the parts that are rows."""
    parts = {"devices", "stages", "epochs"}
    return {name: value for name, value in description(found).items() if name not in parts}


def _samples(traces: Path, where: str = "block >= 0") -> pd.DataFrame:
    """Return a row for each sensor and time of a file of traces; `where`: a query of its devices."""
    with opened_parquet(traces, TRACES_SCHEMA.names) as file:
        parts = [pa.Table.from_pandas(one, SAMPLES_SCHEMA) for one in read_samples(file, where)]
        frame = _frame(pa.concat_tables([SAMPLES_SCHEMA.empty_table(), *parts]))
        run = metadata(file.schema_arrow.empty_table())
        frame.attrs.update({name: run[name] for name in _RUN if name in run})
    return frame


def _frame(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame; dictionary-encoded words become categories."""
    frame: pd.DataFrame = table.to_pandas(
        types_mapper=lambda kind: None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)
    )
    frame.attrs.update(metadata(table))
    return frame


def _read_table(path: Path, needed: Sequence[str] = ()) -> pa.Table:
    with opened_parquet(path, needed) as file:
        return file.read()


def _read(path: Path, needed: Sequence[str] = ()) -> pd.DataFrame:
    return _frame(_read_table(path, needed))


def _joined(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the rows of all tables that exist, as one; columns of other versions are null."""
    tables = [_read_table(path).replace_schema_metadata() for path in paths if path.exists()]
    if not tables:
        return pd.DataFrame()
    return _frame(pa.concat_tables(tables, promote_options="default"))
