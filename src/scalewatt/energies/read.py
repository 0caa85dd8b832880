"""Energy of any recording: a perun file, a journal, files of other tools, or the folder of a run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.energies.account import (
    Run,
    Segment,
    account,
    account_segment,
    find_recordings,
    segment_numbers,
)
from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.stages import STAGES, UNATTRIBUTED, segment_events
from scalewatt.energies.tables import ALL, BOUNDS, Accounts, EnergyTotals, records
from scalewatt.energies.traces import Traces
from scalewatt.recordings import detect
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.journal import TELEMETRY, beside, is_journal, read_journal
from scalewatt.recordings.perun_file import read_perun_file
from scalewatt.recordings.stages import read_stages
from scalewatt.recordings.tables import Options
from scalewatt.recordings.telemetry import read_telemetry
from scalewatt.recordings.terms import ALL_KINDS, DEVICE_KINDS, J_PER_KWH, NODE, PERUN, Flag

_NOTHING = Recording({}, True, None, "")
_NUMBER = re.compile(r"segment-(\d+)")


@dataclass(frozen=True, kw_only=True)
class Reading(Options):
    """Choice of a part of a recording, and facts that it does not state.

    Of a perun file with several runs or rounds, `run` and `round` must name one.
    """

    round: str | None = None
    """Round of a run in a perun file that holds several."""
    stages: str | PathLike[str] | None = None
    """File of stage events; a run folder has stages itself."""


@dataclass(frozen=True, eq=False)
class Account:
    """Energy of a recording, by frames in J and s. Null is not known, and never 0."""

    path: str
    run: str | None
    round: str | None
    segments: list[int]
    """Starts of a run, by number; of a file one, 0."""
    format: str
    hosts: list[str]
    runtime_s: float
    """Time of the longest node, summed over segments."""
    scope: str | None
    """Device kinds that are counted, joined by +."""
    coverage: float | None
    """Share of device seconds with a known power, of the kind that has the least."""
    gpus: int | None
    """Null if whole nodes alone were measured."""
    origin: str | None
    """measured, estimated, simulated, or mixed."""
    totals: pd.DataFrame
    """A row a device kind, and one of `all` in scope.

    `energy_j` with its interval, `recorded_j` whether or not that is enough to be stated, `discarded_j` of
    lost work, `perun_j` (perun's own total), `mean_power_w` of a device, `devices`, `energy_origin`,
    `coverage`, `in_scope`."""
    devices: pd.DataFrame
    """A row a segment, device and stage, as in the table of devices of a run."""
    stages: pd.DataFrame
    """A row a segment, node, device kind and stage, as in the energy table of a run."""
    epochs: pd.DataFrame
    """A row an epoch, stage and device kind, as in the table of epochs of a run."""
    flags: pd.DataFrame
    """A row a quality flag, as in the table of flags of a run."""

    def joules(self, kind: str = ALL, column: str = "energy_j") -> float | None:
        """Total of a device kind in J; None if it is not known. ValueError for a kind that there is not."""
        if kind not in (kinds := (*ALL_KINDS, UNUSED_GPU, ALL)):
            raise ValueError(f"kind: {kind!r}; allowed: {', '.join(kinds)}")
        joules = self.totals.set_index("device_kind")[column].get(kind)
        return None if joules is None or pd.isna(joules) else float(joules)

    def to_dict(self) -> dict[str, Any]:
        """Facts, and frames as lists of rows, ready for JSON: null is None."""
        return {k: records(v) if isinstance(v, pd.DataFrame) else v for k, v in vars(self).items()}


def read_account(
    path: Path | str, reading: Reading | None = None, traces: Traces | None = None
) -> Account:
    """Account for one recording; `traces` gets its samples.

    All segments of a run folder count, with the run's own stages and rated powers. A folder of other tools'
    files is one run. Raises InputError.
    """
    path, reading = Path(path), reading or Reading()
    if not (path.is_file() or path.is_dir()):
        expected = "expected a recording or a folder of one run"
        raise InputError(f"{path}: no such file or folder; {expected}")
    events = read_stages(Path(reading.stages)) if reading.stages else None
    files: list[Path] = []
    if path.is_dir() and not _is_run(path):
        named = reading.node if isinstance(reading.node, Mapping) else {}
        if unknown := sorted(name for name in named if not (path / name).is_file()):
            raise InputError(f"{path}: holds no file {', '.join(unknown)}, as --node names it")
        if not (files := detect.files_in(path, reading, reading.stages)):
            perun = [p for p in path.glob("[!.]*.hdf5") if not p.name.startswith("failed_")]
            if len(perun) > 1:
                raise InputError(
                    f"{path}: holds {len(perun)} perun files; expected one by its name"
                )
            path = perun[0] if perun else path
    if path.is_dir() and not files:
        return _account_for_run(path, reading, events, traces)

    number = _NUMBER.search(path.name)
    if events is not None and number is None:  # stages of any segment are this file's
        events = events.set_column(0, "segment", pa.nulls(len(events), pa.int32()))
    stages = segment_events(events, int(number[1]) if number else 0)
    segment = read_only_segment(path, files, reading)
    recording = segment.recordings[0]
    run = Run(path.parent, {"nodes": len(segment.hosts)}, {}, {}, events)
    accounts = account_segment(run, segment, stages, traces)
    return _account(path, accounts, events is not None, recording)


def _refuse_choice(path: Path, reading: Reading, recording: Recording) -> None:
    """Raise InputError if a run or a round is asked of what holds none."""
    for name in ("run", "round"):
        if getattr(reading, name) is not None and getattr(recording, name) is None:
            raise InputError(f"{path}: holds no {name}s to choose from; leave out {name}")


def _is_run(folder: Path) -> bool:
    """Whether a folder is that of a run: it has recordings of segments, or a spec."""
    return bool(segment_numbers(find_recordings(folder))) or (folder / "spec.json").exists()


def _account_for_run(
    path: Path, reading: Reading, events: pa.Table | None, traces: Traces | None
) -> Account:
    """Account for all segments of a run folder, or of a folder with a segment's files in it."""
    _refuse_choice(path, reading, _NOTHING)
    run = Run.of(path, {})
    if not segment_numbers(run.recordings):
        if (path / "runs").is_dir():
            raise InputError(f"{path}: is a campaign; expected {path}/runs/CONFIGURATION/REPEAT")
        raise InputError(
            f"{path}: holds no recording of a run; expected perun/segment-000.hdf5, "
            "perun/segment-000.<host>.csv, one file of perun or other tools' files"
        )
    powers = run.provenance.get("rated_powers") or {}
    run = replace(run, powers=powers, events=run.events if events is None else events)
    return _account(path, account(run, traces), run.events is not None)


def read_only_segment(path: Path, files: list[Path], reading: Reading) -> Segment:
    """Read a file, or other tools' `files` in a folder, as the only segment of a run."""
    telemetry: list[Block] = []
    flags: list[Flag] = []
    if files:
        stages = [Path(reading.stages)] if reading.stages else []
        recording = detect.join_recordings([detect.read_foreign(file, reading) for file in files])
        flags = detect.flag_unread(path, [*files, *stages])
    elif is_journal(path):
        recording = read_journal([path])
        recorded = beside(path, TELEMETRY)
        telemetry, flags = read_telemetry([recorded] if recorded.exists() else [])
    elif reading.columns or not (path.suffix in (".hdf5", ".h5") or h5py.is_hdf5(path)):
        recording = detect.read_foreign(path, reading)
    else:
        recording = read_perun_file(path, reading.run, reading.round, reading.time_zone)
    _refuse_choice(path, reading, recording)
    flags = [*recording.flags, *flags]
    return Segment(0, [recording], telemetry, flags=tuple(flags), alone=True)


# --- frames ---------------------------------------------------------------------------------------


def _account(
    path: Path, accounts: Accounts, with_stages: bool, recording: Recording = _NOTHING
) -> Account:
    """Account of the tables of a run, or of those of one recording."""
    sums = EnergyTotals(accounts.energy, with_staging=True)
    frames = {
        name: frame.drop(columns=["configuration", "repeat"], errors="ignore")
        for name, frame in vars(accounts).items()
    }
    stages, checks = frames["energy"], frames["cross_checks"]

    # Totals, with those of perun
    perun_j = checks[checks["source"] == PERUN].groupby("device_kind")["energy_j"].sum(skipna=False)
    perun_j[ALL] = perun_j.reindex(sums.scope).sum(skipna=False, min_count=1)
    totals = sums.kinds.assign(
        perun_j=perun_j,
        mean_power_w=sums.kinds["energy_j"] / sums.kinds["device_s"].replace(0.0, np.nan),
        in_scope=sums.kinds.index.isin([*sums.scope, ALL]),
    )
    totals.loc[ALL, ["mean_power_w", "devices"]] = np.nan
    kinds = [kind for kind in (*ALL_KINDS, UNUSED_GPU, ALL) if kind in totals.index]
    totals = totals.loc[kinds].reset_index(names="device_kind").astype({"devices": "Int64"})

    # Flags that say more than the scope does, and only with stages those that matter for these
    flags = frames["flags"]
    hidden = flags["code"] == "absent"
    if not with_stages:  # it does not matter when a node was recorded
        of_clock = (flags["code"] == "time_assumed") & flags["node"].notna()
        hidden |= of_clock | (flags["code"] == "no_events")
    flags = flags[~hidden].reset_index(drop=True)
    if not sums.scope:
        detail = "no sensor of power or energy was recorded, and there are no rated powers to estimate from"
        flags.loc[len(flags), ["code", "detail"]] = ["not_recorded", detail]
    return Account(
        path=str(path),
        run=recording.run,
        round=recording.round,
        segments=sorted(map(int, stages["segment"].unique())),
        format=recording.format,
        hosts=sorted(stages["node"].unique()),
        runtime_s=sums.runtime_s,
        scope=sums.scope_name,
        coverage=sums.coverage,
        gpus=None if sums.scope == [NODE] else int(sums.kinds["devices"].get("gpu", 0)),
        origin=sums.origin,
        totals=totals[_TOTALS],
        devices=frames["devices"],
        stages=stages,
        epochs=frames["epochs"],
        flags=flags,
    )


_TOTALS = [
    *("device_kind", "energy_j", *BOUNDS, "recorded_j", "discarded_j", "perun_j", "mean_power_w"),
    *("devices", "energy_origin", "coverage", "in_scope"),
]


# --- text -----------------------------------------------------------------------------------------

_LABELS = {
    **{"gpu": "GPU", "cpu": "CPU", "ram": "memory"},
    **{UNUSED_GPU: "GPUs not held", NODE: "whole node"},
}
LEAST_INTERVAL_J = 3.6
"""Width of the last digit of kWh."""
MOST_ROWS = 40
"""Longer tables are not printed; --json has them all."""


def account_text(account: Account) -> str:
    """Print an account as lines of text, in which unknown numbers are dashes."""
    flags = account.flags[["code", "sensor", "detail"]].drop_duplicates()
    sentences = (": ".join(filter(pd.notna, row)) for row in flags.itertuples(index=False))
    parts = ["\n  ".join(_facts(account))]
    for name, frame in _printed(account):
        text = f"{len(frame)} {name} (--json lists them)"
        if 0 < len(frame) <= MOST_ROWS:
            forms = {"kWh": "{:.6f}".format, "coverage": "{:.1f} %".format}
            tenths = "{:.1f}".format
            text = frame.to_string(index=False, na_rep="-", float_format=tenths, formatters=forms)
        parts.append(textwrap.indent(text, "  ") if len(frame) else "")
    parts.append("\n".join(f"  {sentence}" for sentence in sentences))
    lines = "\n\n".join(part for part in parts if part).split("\n")
    return "\n".join(line.rstrip() for line in lines)


def _facts(account: Account) -> Iterator[str]:
    """Yield what is known of the whole recording."""
    named = {"run": account.run, "round": account.round}
    part = [f"{what} {name}" for what, name in named.items() if name]
    part += [f"segments: {len(account.segments)}"] if len(account.segments) > 1 else []
    yield ", ".join([account.path, *part])
    whole = account.totals.set_index("device_kind").loc[ALL].to_dict()
    joules, low, high = (whole[name] for name in ("energy_j", *BOUNDS))
    energy = "unknown" if pd.isna(joules) else f"{_kwh(joules)} = {joules:.1f} J"
    words = ", ".join(filter(None, (account.origin, account.scope)))
    yield f"energy    {energy}" + (f" ({words})" if words else "")
    if pd.isna(joules) and whole["recorded_j"] > 0:
        recorded = _kwh(whole["recorded_j"])
        yield f"          {recorded} were recorded; the flags say why that is not all"
    if high - low >= LEAST_INTERVAL_J:
        bounds = f"{low / J_PER_KWH:.6f} to {_kwh(high)}"
        yield f"          {bounds}: the true value may lie anywhere between (docs/guide/energy.md)"
    yield f"run time  {account.runtime_s:.3f} s"
    hosts = ", ".join(account.hosts) or "-"
    yield f"hosts     {hosts}; GPUs {'-' if account.gpus is None else account.gpus}"
    yield f"coverage  {'-' if account.coverage is None else f'{100 * account.coverage:.1f} %'}"


def _kwh(joules: float) -> str:
    return f"{joules / J_PER_KWH:.6f} kWh"


def _printed(account: Account) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables that are printed, each with what its rows are."""
    # Device kinds that nodes have, with perun's totals if there are any
    kinds = account.totals[account.totals["device_kind"] != ALL]
    kinds = kinds[(kinds["devices"] > 0) | kinds["device_kind"].isin(DEVICE_KINDS)]
    table = {
        "kind": kinds["device_kind"].map(_LABELS),
        "kWh": kinds["energy_j"] / J_PER_KWH,
        "J": kinds["energy_j"],
        "mean W/device": kinds["mean_power_w"],
    }
    if kinds["perun_j"].any():
        table["perun's J"] = kinds["perun_j"]
    yield "device kinds", pd.DataFrame(table)

    # Devices, summed over segments and stages
    keys = ["node", "device_kind", "device_index", "sensor"]
    order = pd.Categorical(account.devices["device_kind"], [*_LABELS])
    groups = account.devices.assign(device_kind=order).groupby(keys, observed=True)
    rows = groups[["recorded_j", "covered_s", "duration_s", "samples"]].sum().reset_index()
    joules = groups["energy_j"].sum(skipna=False).array
    table = {
        "host": rows["node"],
        "device": rows["sensor"],
        "kWh": joules / J_PER_KWH,
        "J": joules,
        "mean W": rows["recorded_j"] / rows["covered_s"].where(rows["covered_s"] > 0),
        "coverage": 100 * (rows["covered_s"] / rows["duration_s"]).fillna(0.0).clip(upper=1.0),
        "samples": rows["samples"],
    }
    yield "devices", pd.DataFrame(table)
    yield "stages", _energies_by(account, account.stages, "stage")
    yield "epochs", _energies_by(account, account.epochs, "epoch")


def _energies_by(account: Account, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Table of the energies in scope by stage or epoch; unknown if too short for its samples."""
    totals = account.totals.set_index("device_kind")["in_scope"]
    scope = [str(kind) for kind in totals[totals].index if kind != ALL]
    rows = frame[frame["device_kind"].isin(scope) & frame[name].notna()]
    if set(rows[name]) <= {UNATTRIBUTED}:
        return rows[:0]
    # Both ends of an epoch are as uncertain as a stage's: it is longer than its stages.
    short = rows.groupby(name)["short"].transform("all") if name == "epoch" else rows["short"]
    known = rows.assign(energy_j=rows["energy_j"].mask(short.astype(bool)))
    joules = known.groupby([name, "device_kind"])["energy_j"].sum(skipna=False).unstack()
    order = sorted(joules.index, key=STAGES.index if name == "stage" else None)
    joules = joules.loc[order, scope].rename(columns=lambda kind: f"{_LABELS[kind]} J")
    joules.insert(0, "J", joules.sum(axis="columns", skipna=False))
    return joules.reset_index()
