"""Read a file of carbon intensity: a CSV file with the columns `time` and `g_per_kwh`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.campaign.cluster import Cluster, carbon_file
from scalewatt.common.errors import InputError
from scalewatt.common.tabular_files import csv_rows
from scalewatt.recordings.terms import Floats
from scalewatt.recordings.times import UNIX, as_numbers, parse_times, unread
from scalewatt.results.carbon.file_checks import check_intensities, check_times
from scalewatt.results.carbon.intensity import CarbonIntensity, of_times

TIME, VALUE = "time", "g_per_kwh"


def intensity_of(cluster: Cluster) -> CarbonIntensity | None:
    """Return what a cluster's file of carbon intensity says, in g CO₂e/kWh; None without a file.

    InputError as `read_intensity`.
    """
    file = carbon_file(cluster)
    return None if file is None else read_intensity(file)


def read_intensity(path: Path) -> CarbonIntensity:
    """Return the carbon intensity in g CO₂e/kWh that a file has.

    InputError, with the line, if it cannot be read or lacks a column, a row has more or fewer cells than
    there are columns, a time has no zone or is not later than the one before, or a value is no number or
    beyond what a cluster file's value may be; and if all look like kg/kWh.
    """
    table = _texts(path)
    time_s, g_per_kwh = _times(path, table[TIME]), as_numbers(table[VALUE])
    check_intensities(path, table[VALUE], g_per_kwh)
    check_times(path, time_s, table.index)
    intensity = of_times(time_s, g_per_kwh, path.name)
    known = np.flatnonzero(np.isfinite(intensity.g_per_kwh))
    if not known.size:
        raise InputError(f"{path}: has no value; expected g CO2e per kWh against time")
    first, last = known[0], known[-1] + 1
    edges_s, values = intensity.edges_s[first : last + 1], intensity.g_per_kwh[first:last]
    return replace(intensity, edges_s=edges_s, g_per_kwh=values)


def _texts(path: Path) -> pd.DataFrame:
    """Return the cells of both columns; the index is the line of each row in the file."""
    table = pd.DataFrame.from_dict(csv_rows(path), orient="index", dtype=str)
    if len(table) < 2:
        raise InputError(f"{path}: rows: {len(table)}; expected two or more, in order of time")
    if not {TIME, VALUE} <= set(table):
        raise InputError(
            f"{path}: has the columns {', '.join(map(str, table))[:120]}; "
            f"expected a CSV file with the columns {TIME} and {VALUE}"
        )
    return table[[TIME, VALUE]]


def _times(path: Path, texts: pd.Series) -> Floats:
    """Return unix times in s, (n,)."""
    stamps = parse_times(texts, UTC)
    if stamps is None or stamps.clock != UNIX:
        raise InputError(
            f"{path}: line {texts.index[0]}: time '{texts.iloc[0][:40]}'; allowed: unix seconds, or dates "
            "with a zone such as 2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
        )
    if not np.isfinite(stamps.seconds).all():
        line = texts.index[np.flatnonzero(~np.isfinite(stamps.seconds))[0]]
        raise InputError(
            f"{path}: line {line}: a time cannot be read{unread(texts, stamps.seconds)}; expected all in "
            "the form of the first, with a zone"
        )
    return stamps.seconds
