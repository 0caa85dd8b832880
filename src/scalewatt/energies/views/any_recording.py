"""The accounts of any recording: a perun file, a journal, another tool's file, or the folder of a run."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.rated_powers import check_rated_powers
from scalewatt.energies.accounting.account import account, account_segment
from scalewatt.energies.accounting.energy_schema import Accounts
from scalewatt.energies.accounting.rows import EnergyRows
from scalewatt.energies.accounting.run_inputs import PlannedRun, Run, read_planned_run
from scalewatt.energies.accounting.segment_recordings import Segment, segment_numbers
from scalewatt.energies.stages import segment_events
from scalewatt.energies.traces import Traces
from scalewatt.recordings.detect import (
    files_in,
    find_format,
    is_table,
    read_foreign,
    read_together,
    unknown_format,
)
from scalewatt.recordings.journal import TELEMETRY, beside, is_journal, read_journal
from scalewatt.recordings.perun_file import list_runs, open_perun_file
from scalewatt.recordings.series import Recording
from scalewatt.recordings.stages import read_stages
from scalewatt.recordings.tables import NO_OPTIONS, Options
from scalewatt.recordings.telemetry import read_telemetry, telemetry_series
from scalewatt.recordings.transition import recording_to_old

Powers = Callable[[str, str], dict[str, Any]]
"""The rated powers of a device, by its name and that of the run, which messages name."""

_NUMBER = re.compile(r"segment-(\d+)")
_MOST_NAMED = 10


@dataclass(frozen=True, eq=False)
class AccountsOfPath:
    """What was accounted for of one path."""

    accounts: Accounts
    with_stages: bool
    """True if its stages were given, or are the run's own."""
    which: dict[str, Any]
    """What was read: `path`, and `run` and `round`, or `segments`."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else there is: `format` and `windows`, or the other `runs` of the file."""


def accounts_of(
    path: Path | str,
    run_id: str | None = None,
    round_id: str | None = None,
    stages: Path | None = None,
    gpus_per_node: int | None = None,
    powers: Powers | None = None,
    options: Options = NO_OPTIONS,
    traces: Traces | None = None,
) -> AccountsOfPath:
    """Account for one recording, as `describe` says of its arguments; `traces` gets its samples.

    Raises InputError.
    """
    path = Path(path)
    events = read_stages(stages) if stages else None
    named = run_id is not None or round_id is not None
    _check_exists(path)
    if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        raise InputError(
            f"{path}: is no plain file; expected a perun file, a journal or a run folder"
        )
    if path.is_dir() and (files := _foreign_in(path, options)):
        _refuse_run(path, named, "a folder")
        record = read_together(files)
        return _of_record(path, record, events, gpus_per_node, traces)
    path = _only_perun_file(path) if path.is_dir() else path
    if path.is_dir():
        _refuse_run(path, named, "a folder")
        return _of_folder(path, events, gpus_per_node, powers, traces)
    found = find_format(path, options) if path.is_file() and not is_journal(path) else None
    if is_journal(path):
        _refuse_run(path, named, "a journal")
    elif found is not None:
        if round_id is not None:
            raise InputError(f"{path}: only perun's files hold rounds; expected no name of a round")
        record = read_foreign(path, replace(options, run=run_id or options.run))
        return _of_record(path, record, events, gpus_per_node, traces)
    elif path.is_file() and (is_table(path) or not _may_be_perun(path)):
        raise InputError(unknown_format(path))
    with _opened(path, run_id, round_id) as segment:
        accounts = _of_segment(path, segment, events, gpus_per_node, traces)
    return replace(accounts, more=_others(path))


def _check_exists(path: Path) -> None:
    """Raise InputError if there is nothing at a path, or no file can have its name."""
    try:
        path.stat()
    except FileNotFoundError as error:
        if glob.has_magic(str(path)):  # a shell hands on a pattern that matches nothing
            raise InputError(
                f"{path}: nothing matches; expected recordings, run folders or folders of recordings"
            ) from error
        raise InputError(
            f"{path}: does not exist; expected a recording, a run folder or a folder of recordings"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason})") from error


def _of_record(
    path: Path,
    record: Recording,
    events: pa.Table | None,
    gpus_per_node: int | None,
    traces: Traces | None,
) -> AccountsOfPath:
    """Account for what another tool recorded."""
    segment = Segment(0, record, None, flags=record.problems, alone=True)
    found = _of_segment(path, segment, events, gpus_per_node, traces)
    windows = {"windows": list(record.windows)} if record.windows else {}
    return replace(found, more={"format": record.format, **windows})


def _of_segment(
    path: Path,
    segment: Segment,
    events: pa.Table | None,
    gpus_per_node: int | None,
    traces: Traces | None,
) -> AccountsOfPath:
    rows = EnergyRows()
    spec = PlannedRun(nodes=len(segment.hosts))
    run = Run(path.parent, spec, {}, {}, events, gpus_per_node)
    account_segment(run, segment, _events_of(events, path), rows, traces)
    record = segment.record
    which = {"run": record.run_id, "round": record.round_id} if record and record.run_id else {}
    return AccountsOfPath(rows.tables(spec), events is not None, {"path": str(path), **which})


def _foreign_in(folder: Path, options: Options) -> list[tuple[Path, Options]]:
    """List the files of other tools in a folder that is none of ours, by name."""
    ours = folder / "perun" if (folder / "perun").is_dir() else folder
    is_run = segment_numbers(ours) or (folder / "spec.json").exists()
    return [] if is_run else files_in(folder, options, {})


def _only_perun_file(folder: Path) -> Path:
    """Return the perun file of a folder that perun wrote to, or the folder where it has none.

    Several are no segments of one run by their names: InputError, which names them.
    """
    if (folder / "perun").is_dir() or (folder / "spec.json").exists() or segment_numbers(folder):
        return folder
    files = sorted(p for p in folder.glob("*.hdf5") if not p.name.startswith((".", "failed_")))
    found = [path for path in files if path.is_file() and list_runs(path)]
    if len(found) > 1:
        named = shlex.join(map(str, found[:_MOST_NAMED]))
        rest = f" … ({len(found)} in all)" if len(found) > _MOST_NAMED else ""
        raise InputError(
            f"{folder}: holds {len(found)} perun files, not said to be of one run; "
            f"expected them by name: scalewatt energy {named}{rest}"
        )
    return found[0] if found else folder


def _refuse_run(path: Path, named: bool, what: str) -> None:
    if named:
        raise InputError(f"{path}: {what} holds one run; expected no name of a run or a round")


def _may_be_perun(path: Path) -> bool:
    """Return True for a file that is named like HDF5, or is HDF5, also behind a user's block."""
    return path.suffix in (".hdf5", ".h5") or h5py.is_hdf5(path)


@contextmanager
def _opened(path: Path, run_id: str | None, round_id: str | None) -> Iterator[Segment]:
    """Open a file as the only segment of a run."""
    if is_journal(path):
        journal = recording_to_old(read_journal(path))
        blocks, damaged = read_telemetry([p for p in [beside(path, TELEMETRY)] if p.exists()])
        flags, telemetry = (*journal.problems, *damaged), tuple(telemetry_series(blocks))
        yield Segment(0, None, journal, telemetry, flags=flags, alone=True)
        return
    with open_perun_file(path, run_id, round_id) as opened:
        record = recording_to_old(opened)
        yield Segment(0, record, None, flags=record.problems, alone=True)


def _events_of(events: pa.Table | None, path: Path) -> list[dict[str, Any]]:
    """Return the events of a file's segment, by its name; all, where it names none."""
    found = _NUMBER.search(path.name)
    if events is not None and found is None:
        nothing = pa.nulls(len(events), pa.int32())
        return segment_events(events.set_column(0, "segment", nothing), 0)
    return segment_events(events, int(found.group(1)) if found else 0)


def _of_folder(
    folder: Path,
    events: pa.Table | None,
    gpus_per_node: int | None,
    powers: Powers | None,
    traces: Traces | None,
) -> AccountsOfPath:
    """Account for all segments of a run folder, or of a folder with a segment's files in it."""
    path = folder / "spec.json"
    spec = read_planned_run(path) if path.exists() else PlannedRun()
    run = Run.of(folder, spec, {})
    rated = run.provenance.get("rated_powers") or {}
    if powers and spec.device:
        rated = powers(spec.device, str(spec.configuration))
    else:
        check_rated_powers(rated, f"{folder / 'provenance.json'}: rated_powers")
    run = replace(run, powers=rated)
    if not segment_numbers(run.recordings):
        raise InputError(
            f"{folder}: holds no recording of a run; expected perun/segment-000.hdf5, "
            "perun/segment-000.<host>.csv or a file of perun (.hdf5) or other tools'"
        )
    run = replace(run, gpus_per_node=gpus_per_node)
    if events is not None:
        run = replace(run, events=events)
    accounts = account(run, traces)
    segments = sorted(set(accounts.energy["segment"].to_pylist()))
    which = {"path": str(folder), "segments": segments}
    return AccountsOfPath(accounts, run.events is not None, which)


def _others(path: Path) -> dict[str, Any]:
    """Return the runs of a file that holds several, so that one of them can be asked for."""
    runs = [] if is_journal(path) else list_runs(path)
    if len(runs) < 2 and all(len(one.round_ids) < 2 for one in runs):
        return {}
    return {
        "runs": [
            {"run": one.run_id, "rounds": list(one.round_ids), "started": one.execution_dt}
            for one in runs
        ]
    }
