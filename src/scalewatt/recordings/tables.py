"""Tables of samples of any tool, read by a description: a preset of the package, or the user's own YAML.

Presets (`presets/*.yaml`, chosen by the file's heading) and users' files have one form, `TableDescription`;
docs/guide/formats.md explains it. A preset with the key `totals` is read by `recordings.totals`.

Steps: the lines below the heading; their cells as texts, by position; the times of rows; the values of each
sensor in W, J or as a share; its rows of each node and device.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from scalewatt.common.errors import InputError, one_of, shown
from scalewatt.common.settings import STRICT, Bounds, matching, validated
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.block import SENSOR, Recording, make_blocks
from scalewatt.recordings.terms import Flag, Floats, flag
from scalewatt.recordings.times import BEGIN, LOCAL, UNIX, as_numbers, read_times

Preset = Mapping[str, Any]
"""A description of a table: the content of a preset, or of the user's YAML (then its `name` is DESCRIBED)."""
DESCRIBED = "csv"
PRESETS = Path(__file__).parent / "presets"

_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
_BASES = dict.fromkeys(("W", "Watt", "Watts"), ("power", 1.0))
_BASES |= dict.fromkeys(("J", "Joule", "Joules"), ("counter", 1.0)) | {"Wh": ("counter", 3600.0)}
UNITS: dict[str, tuple[str, float]] = {"%": ("utilisation", 0.01), "1": ("utilisation", 1.0)}
"""Natural quantity of a unit, and its factor to W, J or a share."""
UNITS |= {p + b: (what, f * g) for p, f in _PREFIXES.items() for b, (what, g) in _BASES.items()}
QUANTITIES = {"power": ("power", "mean_power"), "counter": ("counter", "energy")}
"""Quantities that a natural one may be stated to be."""
NO_NAME = r"(?i)^(?:n/?a|nan|null|none|\[.*)?$"
"""Cells that stand for nothing."""
LABELS = ("node_column", "index_column", "uuid_column", "device_column", "limit_column")
NEVER_WRAPS_J = 2.0**64 / 1e3
"""Range of NVML's counters, 64 bits of mJ: they are reset, but never wrap."""
TOUCHING_S = 1e-3
"""Intervals that are apart, or overlap, by less follow each other."""

_CELL = r"^(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-zµ%]*)$"
_WITH_UNIT = re.compile(r"(.*?)\s*[\[(]([^\[\]()]*)[\])]\s*")
_HEAD_LINES = 60
_LABEL = re.compile(
    r"(?i)host(?:_?name)?|node(?:_?name)?|server|machine|(?:gpu|device)_(?:id|index)|(?:gpu_)?uuid"
)
_MOST_CONTRADICTING = _MOST_UNREAD = 0.1
_TELL_APART = "name index_column, node_column or where in the YAML file"
# Of rows of one GPU at a time no quarter of the steps is below a fifth of the long ones.
_SHORT, _MOST_SHORT = 0.2, 0.25


@dataclass(frozen=True, kw_only=True)
class Options:
    """Facts that a file does not state, and its user may."""

    node: str | Mapping[str, str] | None = None
    """Node of a file that names none, or nodes by the names of files; else the file's name up to its first
    point."""
    time_zone: str | None = None
    """Zone of local times that name none: an IANA name such as Europe/Berlin, or UTC."""
    columns: str | PathLike[str] | None = None
    """YAML file that describes the table's columns."""
    run: str | None = None
    """Run or window of a file that holds several; None: the last run, or the outermost windows."""

    def node_of(self, file: Path) -> str | None:
        """Name that the user gives to the node of a file; None without any."""
        return self.node.get(file.name) if isinstance(self.node, Mapping) else self.node


NO_OPTIONS = Options()


def name_node(path: Path, options: Options) -> str:
    """Name the node of a file that names none: as the user does, or as the file up to its first point."""
    return options.node_of(path) or path.name.split(".")[0] or str(path)


# --- the form of a description --------------------------------------------------------------------

Text = Annotated[str, Field(min_length=1)]
Names = Text | Annotated[list[Text], Field(min_length=1)]
Pattern = str
"""A regular expression."""
Unit = Annotated[
    str,
    matching("([num]|k|M)?(W|J|Wh)|%|1", "W, J or Wh, with n, u, m, k or M before it, % or 1"),
]
Delimiter = Annotated[str, matching(r"[^\w\s\".+-]|\t|space|tab", "a character, space or tab")]
Positive = Annotated[float, Bounds(gt=0)]
Documentation = Annotated[
    dict[Literal["tool", "record", "gives", "lacks"], str], Field(min_length=4)
]
Edit = Annotated[dict[Literal["find", "put"], str], Field(min_length=2)]
Where = dict[str, str | int | list[Any]]


@with_config(STRICT)
class Time(TypedDict, total=False):
    """When a row was sampled."""

    column: Names
    """Column with the times, or the columns of date and time of day."""
    unit: Literal["ns", "us", "ms", "s", "min", "h", "d"]
    """Unit of numbers; by default they are Unix times, recognised by their digits, or dates (with - or
    /)."""
    format: Annotated[str, Field(min_length=2)]
    """The form of other dates, such as "%d.%m.%Y %H:%M:%S"."""
    zone: Text
    """Zone of local times, such as Europe/Berlin, or UTC."""
    since: Literal["unix", "begin"]
    """What numbers count from: `unix` (1970, default), or `begin`, an unknown time."""
    duration: Text
    """For energies of intervals: column with the seconds of each."""
    stamp: Literal["end", "begin"]
    """For energies of intervals: the end at which they are stamped; by default end."""
    spread: bool
    """true if several samples share a whole second, within which they are then spread evenly."""
    sort: bool
    """true to sort rows that are not in order of time."""


@with_config(STRICT)
class Labels(TypedDict, total=False):
    """Columns that tell rows apart."""

    index_column: Names
    """Column that tells the device of a row, by its number or any name; the first of several names."""
    node_column: Names
    """Column that tells the node of a row."""
    uuid_column: Names
    """Column with the device's own identity."""
    device_column: Names
    """Column with the device's name, such as NVIDIA H100 80GB HBM3."""
    limit_column: Names
    """Column with the device's power limit in W."""
    where: Where
    """Only the rows that have these texts in these columns."""


@with_config(STRICT)
class Sensor(Labels):
    """A column with values, or a pattern of such columns."""

    column: NotRequired[Names]
    """Column with the values; of several names, the first that exists."""
    pattern: NotRequired[Pattern]
    """Pattern of such columns; its groups: `index` (else the order), `node`, `uuid`, `device`, `unit`."""
    kind: Literal["gpu", "cpu", "ram", "node"]
    """gpu, cpu, ram or node (a whole node by its own meter)."""
    unit: NotRequired[Unit]
    """Unit if neither heading nor cells (`985 W`) state it: W, J, Wh with n, u, m, k or M, % or 1."""
    quantity: NotRequired[Literal["power", "mean_power", "counter", "energy", "utilisation"]]
    """power, mean_power or energy since the row before, counter of energy, or utilisation; by default power
    of W, counter of J and Wh."""
    index: NotRequired[Annotated[int, Field(ge=0, le=4095)]]
    """Number of the device on its node; by default 0."""
    node: NotRequired[Text]
    """Name of the node; by default that of the file."""
    valid_max: NotRequired[Positive]
    """Value at which a counter starts again, in its unit; by default those of gpu and node never do."""
    limit_w: NotRequired[Positive]
    """The device's own power limit in W."""
    origin: NotRequired[Literal["measured", "estimated"]]
    """measured (default) or estimated."""
    supply: NotRequired[Literal["AC", "DC"]]
    """Of a node: the side of its power supply that the meter reads; AC and DC are not one scope."""
    samples: NotRequired[Literal["instantaneous", "moving_mean"]]
    """For power: instantaneous, or moving_mean over the last second."""
    name: NotRequired[Text]
    """Name of the sensor, which may contain {index} and {column}; by default that of the column."""


def _column_or_pattern(sensor: Any) -> Any:
    if ("column" in sensor) == ("pattern" in sensor):
        raise ValueError("allowed: either column or pattern")
    return sensor


Sensors = Annotated[
    list[Annotated[Sensor, AfterValidator(_column_or_pattern)]],
    Field(min_length=1, max_length=10_000),
]


@with_config(STRICT)
class TableDescription(Labels):
    """What a table of samples does not say about itself."""

    docs: NotRequired[Documentation]
    """For a preset: its `tool`, how to `record` with it, what a file `gives` and what it `lacks`."""
    delimiter: NotRequired[Delimiter]
    """Sign between two cells, or `space` for any blanks; by default the most frequent of , ; and tab."""
    decimal: NotRequired[Literal[".", ","]]
    """The decimal sign; by default a point."""
    skip_lines: NotRequired[Annotated[int, Field(ge=0, le=1_000_000)]]
    """Lines before the heading or, without one, before the first row; by default 0."""
    header: NotRequired[Annotated[list[Text], Field(min_length=1, max_length=10_000)]]
    """Names of the columns of a file without a heading, in their order."""
    heading: NotRequired[Annotated[list[Pattern], Field(min_length=1)]]
    """Patterns, each of which fits a cell of the heading; they identify a preset's file."""
    line: NotRequired[Pattern]
    """For a preset: pattern of a whole line that identifies a file without a heading."""
    skip: NotRequired[Pattern]
    """Pattern of lines that are neither rows nor headings: notes, units, sums."""
    edits: NotRequired[list[Edit]]
    """Patterns to `find` in each line, and what to `put` there (\\1 is a group), before cells are split."""
    missing: NotRequired[Pattern]
    """Pattern of cells that stand for a missing value."""
    time: NotRequired[Time]
    """When a row was sampled."""
    gpus: NotRequired[Annotated[int, Field(ge=1, le=4096)]]
    """Number of GPUs whose rows take turns without an index."""
    second_dies: NotRequired[bool]
    """true if a GPU of odd number without power is a second die, and the one before has the power of both."""
    sensors: NotRequired[Sensors]
    """The columns with values; in a table with a row for each device, the same column for all."""
    totals: NotRequired[Literal["runs", "windows"]]
    """For a preset: what a row of energies without samples stands for; read by code of its own."""


# --- descriptions ---------------------------------------------------------------------------------


@cache
def presets() -> tuple[Preset, ...]:
    """All presets of the package, each with its `name` (the file's stem), in order of names."""
    files = sorted(PRESETS.glob("*.yaml"))
    return tuple({**read_yaml(path), "name": path.stem} for path in files)


def find_preset(head: str, options: Options = NO_OPTIONS) -> Preset | None:
    """Choose the description of a table from its decoded beginning; None if no preset fits.

    A user's YAML (`options.columns`) with `sensors` describes the table whatever it looks like; one without
    adds to the preset that fits: `header` of a file without a heading, `gpus`. Raises InputError for a YAML
    that `TableDescription` does not allow.
    """
    stated: dict[str, Any] = {}
    if options.columns is not None:
        stated = read_yaml(Path(options.columns))
        validated(TableDescription, stated, str(options.columns))
    if "sensors" in stated:
        return {**stated, "name": DESCRIBED}
    lines = [",".join(stated.get("header", ())), *head.splitlines()[:_HEAD_LINES]]
    preset = next((preset for preset in presets() if fits(preset, lines)), None)
    time = {**(preset or {}).get("time", {}), **stated.get("time", {})}
    return None if preset is None else {**preset, **stated, "time": time}


def fits(preset: Preset, lines: Sequence[str]) -> bool:
    """True if a line has the form of the preset's rows, or is its heading."""
    if "line" in preset and any(re.fullmatch(preset["line"], line) for line in lines):
        return True
    heading = preset.get("heading", ["(?!)"])
    short = (line for line in _edited(lines, preset) if len(line) < 1 << 16)
    return any(_is_heading(_cells(line, preset), heading) for line in short)


def _is_heading(cells: Sequence[str], patterns: Iterable[str]) -> bool:
    return all(any(re.fullmatch(p, cell, re.IGNORECASE) for cell in cells) for p in patterns)


def _names(names: Any) -> list[str]:
    """Names under a key that takes one or several."""
    return [] if names is None else [names] if isinstance(names, str) else list(names)


# --- lines ----------------------------------------------------------------------------------------


def decoded(content: bytes) -> str:
    """Text of UTF-8, of UTF-16 with a byte order mark, else of Latin-1."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def read_lines(path: Path, skip: int = 0) -> tuple[list[str], bool]:
    """Lines below the first `skip` that are not empty; True if the last has no end, and is left out.

    The only row of a table is kept without one. Raises InputError for a file without a line.
    """
    text = decoded(path.read_bytes())
    *lines, end = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    whole = [line for line in lines[skip:] if line and not line.isspace()]
    if len(whole) == 1 and end.strip():
        return [*whole, end], False
    if not whole:
        raise InputError("holds no row; expected a recording")
    return whole, bool(end.strip())


def damage_flags(rows: int, torn: bool) -> list[Flag]:
    """Flag rows that are left out because they cannot be read, and a last line without an end."""
    lost = flag("damaged", None, f"{rows} lines hold no sample that can be read, and are left out")
    end = flag("damaged", None, "ends within a line, which is left out")
    return [lost] * bool(rows) + [end] * torn


def _edited(lines: Iterable[str], rules: Preset) -> list[str]:
    """Lines but those to skip, after the edits that make cells of them."""
    skip = re.compile(rules.get("skip", r"(?!)"))
    kept = [line for line in lines if not skip.fullmatch(line)]
    for edit in rules.get("edits", ()):
        find = re.compile(edit["find"])
        kept = [find.sub(edit["put"], line) for line in kept]
    return ["\t".join(line.split()) for line in kept] if rules.get("delimiter") == "space" else kept


def _delimiter(line: str, rules: Preset) -> str:
    """Delimiter of cells: as described, else the sign that a line has most of."""
    given = rules.get("delimiter") or max((",", ";", "\t"), key=line.count)
    return "\t" if given in ("tab", "space") else str(given)


def _cells(line: str, rules: Preset) -> list[str]:
    """Cells of a line, without blanks and quotes around."""
    text = line.replace("\r", "")  # of a file that is not text
    row = csv.reader([text], delimiter=_delimiter(line, rules), skipinitialspace=True)
    return [cell.strip() for cell in next(row, [])]


def find_heading(lines: list[str], rules: Preset) -> tuple[list[str], str, list[str]]:
    """Find the cells of the heading, what stands between cells, and the rows below; it may come again.

    Raises InputError where it is missing, changes, or lacks a column that is described.
    """
    named = _named_columns(rules)
    needed = rules.get("heading") or [*named]
    if header := rules.get("header"):
        lines = [_delimiter(lines[0], rules).join(header), *lines]
        needed = [*map(re.escape, header)]
    mark = re.compile(needed[0], re.IGNORECASE)
    marked = {i: _cells(line, rules) for i, line in enumerate(lines) if mark.search(line)}
    heads = {i: cells for i, cells in marked.items() if _is_heading(cells, needed)}
    if rules["name"] == DESCRIBED:
        cells = next(iter((heads or marked).values()), _cells(lines[0], rules))
        for name in (name for pattern, name in named.items() if not _is_heading(cells, [pattern])):
            raise InputError(f"has no column {shown(name)}; {one_of(name, cells[:30])[:500]}")
    if not heads:
        example = "header: [timestamp, index, power.draw]"
        raise InputError(f"has no heading; name its columns in a YAML file ({example})")
    first, cells = next(iter(heads.items()))
    if any(other != cells for other in heads.values()):
        raise InputError("has two headings that differ; expected a file for each")
    below = [line for i, line in enumerate(lines) if i > first and i not in heads]
    return cells, _delimiter(lines[first], rules), below


def _named_columns(rules: Preset) -> dict[str, str]:
    """Patterns of the columns that a description names, with or without a unit, and their names."""
    named = [name for key in ("column", "duration") for name in _names(rules["time"].get(key))]
    sensors = rules.get("sensors", ())
    for rule in sensors:
        named += [rule[key] for key in ("column", *LABELS) if key in rule]
        named += rule.get("where", ())
    patterns = {rule["pattern"]: rule["pattern"] for rule in sensors if "pattern" in rule}
    return {_name_pattern(names): _names(names)[0] for names in named} | patterns


def _name_pattern(names: Any) -> str:
    """Pattern of a heading's cell with one of some names, with or without a unit."""
    return rf"(?:{'|'.join(map(re.escape, _names(names)))})(?:\s*[\[(].*)?"


def _position(cells: Sequence[str], names: Any) -> int | None:
    """Position of the first of the names that stands in a heading, with or without its unit."""
    for name in _names(names):
        form = re.compile(_name_pattern(name), re.IGNORECASE)
        positions = [i for i, cell in enumerate(cells) if form.fullmatch(cell)]
        if positions:  # if only their case tells columns apart, the one as it is named
            return min(positions, key=lambda i: not cells[i].startswith(name))
    return None


Column = dict[str, Any]
"""The rule of a sensor for the column at a position, `at`: its `cell` of the heading, and its name there or
in the rule, `header`. Columns of labels are positions, None where a named one is missing."""


def _find_columns(heading: Sequence[str], rules: Preset) -> Iterator[Column]:
    """Columns of a heading that hold the values of a sensor."""
    for rule in rules["sensors"]:
        rule = rule | {key: _position(heading, rule[key]) for key in LABELS if key in rule}
        where = {_position(heading, name): texts for name, texts in rule.get("where", {}).items()}
        rule["where"] = {at: texts for at, texts in where.items() if at is not None}
        if (at := _position(heading, rule.get("column"))) is not None:
            yield {**rule, "at": at, "cell": heading[at], "header": _names(rule["column"])[0]}
        forms = [re.fullmatch(rule.get("pattern", "(?!)"), cell) for cell in heading]
        for turn, match in enumerate(match for match in forms if match):
            groups = {key: text for key, text in match.groupdict().items() if text}
            number = groups.get("index", "")
            groups["index"] = rule.get("index", 0) + (int(number) if number.isdigit() else turn)
            yield {**rule, **groups, "at": forms.index(match), "cell": match[0], "header": match[0]}


def _parse(lines: Sequence[str], count: int, delimiter: str) -> pd.DataFrame:
    """Cells of the lines that have `count` cells, as texts without blanks around, by position."""
    whole = [line for line in lines if "\0" not in line and line.count('"') % 2 == 0]
    names = [str(i) for i in range(count)]
    table = pyarrow.csv.read_csv(
        io.BytesIO("\n".join([*whole, "", ""]).encode()),
        pyarrow.csv.ReadOptions(column_names=names, block_size=1 << 24),
        pyarrow.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda row: "skip"),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    frame = table.to_pandas().astype("str").set_axis(range(count), axis="columns")
    if frame.empty:
        raise InputError("holds no row below its heading")
    return frame.apply(lambda cells: cells.str.strip())


# --- the table ------------------------------------------------------------------------------------


def read_table(path: Path, preset: Preset, options: Options = NO_OPTIONS) -> Recording:
    """Read a table by its description (not one with `totals`). Raises InputError if it does not fit."""
    if not preset.get("sensors") or not preset.get("time"):
        raise InputError("expected 'time' and 'sensors' that name the table's columns")
    for_all = {key: preset[key] for key in (*LABELS, "where") if key in preset}
    preset = {**preset, "sensors": [{**for_all, **sensor} for sensor in preset["sensors"]]}
    lines, torn = read_lines(path, preset.get("skip_lines", 0))
    heading, delimiter, below = find_heading(_edited(lines, preset) or lines, preset)
    node = name_node(path, options)
    columns = [{"node": node, **column} for column in _find_columns(heading, preset)]
    frame = _parse(below, len(heading), delimiter)

    # The times of rows, and these in the order of time
    rule = preset["time"]
    texts = pd.Series("", frame.index, dtype="str")
    for name in _names(rule.get("column")):
        if (at := _position(heading, name)) is not None:
            texts = (texts + " " + frame[at]).str.strip()
    times = read_times(preset, texts, options.time_zone)
    frame["time_s"] = times.seconds
    if (at := _position(heading, rule.get("duration"))) is not None:
        frame["duration_s"] = as_numbers(frame[at])
    steps_s = frame["time_s"].dropna().diff()
    if (steps_s < 0).sum() > (steps_s > 0).sum():  # the newest first
        frame = frame[::-1].reset_index(drop=True)

    # The sensors; a column that tells rows apart is not left out
    if preset["name"] == DESCRIBED and not any(column["where"] for column in columns):
        used = {column.get(key) for column in columns for key in ("at", *LABELS)}
        for at, cell in enumerate(heading):
            if at not in used and _LABEL.fullmatch(cell) and (count := frame[at].nunique()) > 1:
                what = f"column {shown(cell)} has {count} values and is not used"
                raise InputError(f"{what}; {_TELL_APART}")
    elif "header" in preset and preset["name"] != DESCRIBED:  # of more columns than most files fill
        columns = [column for column in columns if (frame[column["at"]] != "").any()]
    if not columns:
        fields = [str(rule.get("column", rule.get("pattern"))) for rule in preset["sensors"]]
        raise InputError(f"has no field that is read; expected {' or '.join(fields)}")
    if gpus := preset.get("gpus"):
        # Rows are of so many GPUs in turn: where one is missing the others shift. The last set may be torn.
        whole = len(frame) // gpus * gpus
        sets_s = frame["time_s"].to_numpy()[:whole].reshape(-1, gpus)
        apart_s = np.median(np.diff(sets_s[:, 0])) if len(sets_s) > 1 else np.inf
        if not whole or not (np.ptp(sets_s, axis=1) < 0.5 * apart_s).all():
            what = f"its {len(frame)} rows do not come {gpus} at a time (gpus)"
            raise InputError(f"{what}; record the index")
        frame.loc[whole:, "time_s"] = np.nan
        frame["turn"] = pd.Series(frame.index % gpus).astype("str")
        columns = [{**column, "index_column": "turn"} for column in columns]

    frame["is_lost"], flags = frame["time_s"].isna(), [*times.flags]
    rows = [
        row for column in columns for row in _read_column(frame, column, preset, times.clock, flags)
    ]
    if not rows:
        raise InputError("holds no row of a device that is named")
    repeats = pd.DataFrame(rows, columns=["repeated", "contradicting"]).sum().astype(int)
    if preset.get("second_dies"):
        # GPUs of odd numbers are second dies if all are without power and no other is
        powers = [r for r in rows if r["kind"] == "gpu" and r["quantity"] != "utilisation"]
        dies = {(row["node"], row["index"]) for row in powers}
        first = {(node, index) for node, index in dies if index % 2 == 0}
        working = {(r["node"], r["index"]) for r in powers if (r["values"] > 0).any()}
        if working == first and set() < first < dies:
            detail = "GPUs of odd numbers are second dies: the power of both is the first's"
            flags.append(flag("assumed", None, detail))
            rows = [row for row in rows if row["kind"] != "gpu" or row["index"] % 2 == 0]

    if repeats["repeated"]:
        detail = f"samples at the time of the one before, left out: {repeats['repeated']}"
        contradicting = f"of which contradict: {repeats['contradicting']}"
        flags.append(flag("damaged", None, f"{detail}, {contradicting}"))
    readable = int((~frame["is_lost"]).sum())
    lost = len(below) - readable
    if lost > readable:
        what = f"{lost} of {len(below)} lines hold no sample that can be read"
        raise InputError(f"{what}; describe those that are no rows (skip)")
    flags += damage_flags(lost, torn)
    return Recording(
        nodes=make_blocks(rows),
        clock_known=times.clock in (UNIX, LOCAL),
        period_s=None,
        source=str(path),
        flags=tuple(each for i, each in enumerate(flags) if each not in flags[:i]),
        format=preset["name"],
    )


# --- a column with values -------------------------------------------------------------------------

Row = dict[str, Any]
"""Row of the frame of sensors, with `node`, `time_s` and `values`, (n,)."""


def _read_column(
    frame: pd.DataFrame, column: Column, rules: Preset, clock: str, flags: list[Flag]
) -> Iterator[Row]:
    """Rows of the sensors in a column, one for each node and device; adds flags, marks rows that are lost.

    Raises InputError where nothing tells the rows of several devices apart.
    """
    selected = pd.Series(True, frame.index)
    for at, words in column["where"].items():
        selected &= frame[at].isin(map(str, words if isinstance(words, list) else [words]))
    if not selected.any() and rules["name"] == DESCRIBED:
        raise InputError("no row has the texts of `where`")
    cells = cast("pd.Series[str]", frame[column["at"]].where(selected, ""))
    values, quantity = _convert_to_si(cells, column, rules)
    is_energy, header = quantity == "energy", column["header"]

    # The labels of rows, null where they stand for nothing: then the row is lost
    labels = {key: frame[at] for key in LABELS if (at := column.get(key)) is not None}
    labels = {key: texts.mask(texts.str.contains(NO_NAME)) for key, texts in labels.items()}
    rows = pd.DataFrame(labels, frame.index).assign(value=values)
    rows = rows.join(frame.filter(["time_s", "duration_s"]))[selected]
    rows = rows.dropna(subset=[key for key in ("node_column", "index_column") if key in labels])
    rows["node"] = rows.get("node_column", column["node"])
    rows["device"], may_be_several = float(column.get("index", 0)), "index_column" in column
    is_uuid = column.get("index_column") == column.get("uuid_column")
    is_gpu = column["kind"] == "gpu" and "column" in column
    if "index_column" in labels:
        rows["device"] = rows.groupby("node")["index_column"].transform(_device_numbers)
        rows = rows.dropna(subset="device")
        # A name that is neither a number nor a UUID may be that of several devices
        may_be_several = not is_uuid and not rows["index_column"].str.isdigit().any()
    elif may_be_several:
        detail = "its rows name no GPU and are taken as those of one; record the index"
        flags.append(flag("assumed", None, detail))
    frame["is_lost"] |= selected & ~frame.index.isin(rows.index)

    common = {key: column[key] for key in SENSOR if key in column}
    common["quantity"] = "counter" if is_energy else quantity
    # Only the counters of CPUs and memories are known to begin anew early
    if is_energy or (quantity == "counter" and column["kind"] not in ("cpu", "ram")):
        common["range_j"] = NEVER_WRAPS_J
    if "valid_max" in column:
        common["range_j"] = float(column["valid_max"] * UNITS[column.get("unit", "J")][1])
    name = column.get("name", header + ":{index}" * ("index_column" in labels))
    for group, of_device in rows.groupby(["node", "device"]):
        node, device = cast(tuple[str, float], group)
        if may_be_several:
            _refuse_interleaved(of_device["time_s"])
        names = {key: of_device[key].dropna() for key in labels}
        # An index of several nodes' rows is several GPUs; of a damaged text there is one row
        uuid = names.get("uuid_column", pd.Series(dtype="str"))
        counts = uuid.value_counts()
        uuids = sorted(counts[counts > 1].index)
        if len(uuids) > 1 and "index_column" in labels and not is_uuid:
            what = f"index {device:.0f} is {len(uuids)} GPUs ({', '.join(uuids[:2])[:90]})"
            expected = "expected a column that tells them (hostname), or a file for each"
            raise InputError(f"{what}: rows of several nodes; {expected}")
        if len(uuids) > 1 and is_gpu and "index_column" not in labels:
            what = f"column {shown(header)} is of {len(uuids)} GPUs"
            raise InputError(f"{what}; name the column of their UUIDs as index_column, too")
        row: Row = {
            "uuid": next(iter(uuid), ""),
            "device": next(iter(names.get("device_column", ())), ""),
            **common,
            "node": node,
            "name": name.replace("{column}", header).replace("{index}", f"{device:.0f}"),
            "index": int(device),
        }
        if "limit_column" in names:
            limits_w = as_numbers(names["limit_column"].str.removesuffix("W"))
            row["limit_w"] = np.fmax.reduce(limits_w, initial=0.0) or np.nan
        if rules["time"].get("sort"):
            of_device = of_device.sort_values("time_s", kind="stable")
        if is_energy:
            yield row | _read_energies(of_device, rules["time"], clock, row["name"], flags)
        else:
            yield row | _read_samples(of_device, rules["time"], row["name"], flags)


def _convert_to_si(cells: pd.Series[str], column: Column, rules: Preset) -> tuple[Floats, str]:
    """Values of cells in W, J or as a share, (n,), NaN where there is no number, and their quantity.

    The unit behind a number counts before the heading's, and that before the description's. Raises
    InputError without a unit, and if one does not fit.
    """
    what, stated = f"column {shown(column['header'])}", column.get("unit", "")
    # Numbers, and the units behind them
    absent = cells.str.contains(NO_NAME) | cells.str.fullmatch(rules.get("missing", "(?!)"))
    texts = cells.mask(absent, "").str.replace(rules.get("decimal", "."), ".", regex=False)
    numbers, units = as_numbers(texts), pd.Series("", index=texts.index)
    if not np.isfinite(numbers).all():
        parts = pc.extract_regex(pa.array(texts, pa.string()), _CELL)
        number, unit = (pc.struct_field(parts, name).to_pandas() for name in ("number", "unit"))
        numbers, units = as_numbers(number), unit.fillna("")

    # Units of cells without one
    match = _WITH_UNIT.fullmatch(column["cell"])
    head = match[2] if match and match[2] in UNITS else ""
    if head in ("1", "%") and UNITS.get(stated, UNITS["%"])[0] != "utilisation":
        head = ""  # a footnote, or a share of a limit
    units = units.mask(units == "", head or stated)
    basis = next((unit for unit in (stated, head, *units.unique()) if unit in UNITS), None)
    if basis is None:
        raise InputError(f"{what} has no unit in its heading or cells; state it with `unit`")

    natural = UNITS[basis][0]
    factors = {unit: factor for unit, (measured, factor) in UNITS.items() if measured == natural}
    values = numbers * units.map(factors).to_numpy(np.float64)
    unread = (texts != "") & np.isnan(values)
    repeated = units[unread & ~np.isnan(numbers)].duplicated()
    # Words may stand for a missing value; what has a digit is a number in another form
    is_much = (unread & texts.str.contains(r"\d")).sum() > _MOST_UNREAD * (texts != "").sum()
    if is_much or repeated.any() or (unread.any() and np.isnan(values).all()):
        example = f"cells without a number in {basis}, such as {shown(texts[unread].iloc[0])}"
        raise InputError(f"{what} has {example}; see `unit` and `decimal`")
    quantity, allowed = column.get("quantity", natural), QUANTITIES.get(natural, (natural,))
    if quantity not in allowed:
        raise InputError(f"{what} is in {basis}, not {quantity}; allowed: {', '.join(allowed)}")
    return values, quantity


def _device_numbers(names: pd.Series) -> pd.Series:
    """Numbers of devices in their names (3, gpu3), else by the order of the names; NaN for a damaged name."""
    codes, texts = pd.factorize(names, sort=True)
    parts = pd.Series(texts).str.extract(r"^([A-Za-z_]*)(\d{1,4})$")
    usual = parts[0].iloc[codes].mode()[:1]
    numbers = parts[1].where(parts[0].isin(usual)).astype(np.float64).to_numpy()[codes]
    is_numbered = np.isnan(numbers).mean() <= 0.1
    return pd.Series(numbers if is_numbered else codes.astype(np.float64), names.index)


def _refuse_interleaved(time_s: pd.Series) -> None:
    """Refuse rows of one device of which many follow another at once: they are of several."""
    steps_s = np.diff(time_s.dropna())
    steps_s = steps_s[steps_s >= 0]
    if steps_s.size and np.mean(steps_s < _SHORT * np.quantile(steps_s, 0.9)) > _MOST_SHORT:
        raise InputError(
            "holds rows of several GPUs, and nothing tells whose; record the field 'index', "
            "or say how many come in turn (gpus: 8)"
        )


def _read_samples(rows: pd.DataFrame, rule: Mapping[str, Any], name: str, flags: list[Flag]) -> Row:
    """`time_s` and `values` of a sensor's rows, (n,): of several at one time the first counts.

    Counts the others, `repeated`, and those of them that are `contradicting`; adds flags. Raises InputError
    where these are many: rows of several devices, or several samples a second.
    """
    valued = rows.loc[rows["time_s"].notna(), ["time_s", "value"]]
    at_once = (valued["time_s"].diff() != 0).cumsum()
    if rule.get("spread"):  # stamps of whole seconds
        second = valued["time_s"].groupby(at_once)
        spread = valued["time_s"] + second.cumcount() / second.transform("size")
        return {"time_s": spread.to_numpy(), "values": valued["value"].to_numpy()}
    known = valued.dropna()
    contradicts = known.drop_duplicates().duplicated("time_s", keep=False).sum()
    if contradicts > _MOST_CONTRADICTING * len(known):
        raise InputError(
            f"column {shown(name)} has several values at one time; {_TELL_APART} (or "
            "time: {spread: true} if whole seconds are stamped)"
        )
    steps_s = known["time_s"].diff().dropna()
    if alternates(steps_s):
        if alternates(known["value"]):
            what = f"column {shown(name)} has two values in turn, as of two nodes"
            raise InputError(f"{what}; expected a column that tells them, or a file for each")
        if 0 < steps_s.quantile(_MOST_SHORT) < _SHORT * steps_s.quantile(0.9):
            detail = (
                "its rows come in pairs, as of two recorders, and are taken as those of one device"
            )
            flags.append(
                flag("assumed", name, f"{detail}; rows of several nodes need a column of them")
            )
    is_again = at_once.duplicated()
    differs = valued["value"].groupby(at_once).transform("nunique") > 1
    first = valued.groupby(at_once).first()
    return {
        "time_s": first["time_s"].to_numpy(),
        "values": first["value"].to_numpy(np.float64),
        "repeated": int(is_again.sum()),
        "contradicting": int((is_again & differs).sum()),
    }


def alternates(values: pd.Series, least: float = 0.0) -> bool:
    """True if every second value is far more alike than neighbours are, as where two samplers take turns.

    Neighbours differ by more than `least`.
    """
    steps, every_second = (values.diff(n).abs().median() for n in (1, 2))
    return bool(steps > max(5 * every_second, least))


def _read_energies(
    rows: pd.DataFrame, rule: Mapping[str, Any], clock: str, name: str, flags: list[Flag]
) -> Row:
    """`time_s` and a counter in J, `values`, (m,), of the energies of intervals, (n,).

    An interval ends at its stamp unless `time.stamp` says that it begins there. One whose other end nothing
    tells is not counted, and flagged; what was used between two intervals is unknown.
    """
    end_s, used_j = rows["time_s"].to_numpy(), rows["value"].to_numpy()
    is_begin = rule.get("stamp") == "begin"
    first_s = 0.0 if clock == BEGIN else None
    if "duration_s" in rows:
        durations_s = rows["duration_s"].to_numpy()
        begin_s = end_s if is_begin else end_s - durations_s
        end_s, first_s = begin_s + durations_s, begin_s[0]
        touching_s = TOUCHING_S if (begin_s % 1.0 > 0).any() else 1.0  # of whole seconds
        apart = np.flatnonzero(begin_s[1:] - end_s[:-1] > touching_s) + 1
        end_s, used_j = np.insert(end_s, apart, begin_s[apart]), np.insert(used_j, apart, np.nan)
    elif is_begin:
        first_s, used_j = None, np.concatenate((used_j[:1], used_j[:-1]))
    if first_s is not None:
        end_s, used_j = np.insert(end_s, 0, first_s), np.insert(used_j, 0, used_j[0])
    else:
        what = f"the energy of the {'last' if is_begin else 'first'} interval is not counted"
        detail = f"{what}, as its length is unknown; name a column of them (time: duration)"
        flags.append(flag("missing_samples", name, f"{name}: {detail}"))

    # The first is not counted, nor is one that repeats the one before, at the same time. Where one is
    # unknown the counter begins anew, lower, so that it is told from no energy.
    used = pd.Series(used_j)
    is_first = used.index == 0
    unknown = ~(used >= 0) & ~is_first
    is_repeated = (used.diff() == 0) & (np.diff(end_s, prepend=np.nan) == 0)
    begun = unknown.cumsum()
    total = used.mask(unknown | is_repeated | is_first, 0.0).groupby(begun).cumsum()
    counter_j = (total + begun.max() - begun + 1.0).to_numpy()
    timed = np.isfinite(end_s)
    return {"time_s": end_s[timed], "values": counter_j[timed]}
