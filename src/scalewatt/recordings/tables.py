"""Tables of samples of any tool, read by a description: a preset of the package, or the user's own YAML.

Presets (`presets/*.yaml`, chosen by the file's heading) and users' files have one form, schema `columns`;
docs/recordings.md explains it. A preset with the key `totals` is read by `recordings.totals`.

Steps: the file's lines, in parts below headings; cells as texts, and values in W, J or as a share; the times
of rows; the rows of each node and device, which are Blocks.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, one_of, schema, shown
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings import times
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.terms import LATEST_S, Flag, Floats, flag, gpu_quantity
from scalewatt.recordings.times import as_numbers

Preset = Mapping[str, Any]
"""A description of a table: the content of a preset, or of the user's YAML (then its `name` is DESCRIBED)."""
DESCRIBED = "csv"

_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
_POWERS, _ENERGIES = ("W", "Watt", "Watts"), ("J", "Joule", "Joules")
UNITS: dict[str, tuple[str, float]] = {"%": ("utilisation", 0.01), "1": ("utilisation", 1.0)}
"""Natural quantity of a unit, and its factor to W, J or a share."""
for _prefix, _factor in _PREFIXES.items():
    UNITS |= {_prefix + unit: ("power", _factor) for unit in _POWERS}
    UNITS |= {_prefix + unit: ("counter", _factor) for unit in _ENERGIES}
    UNITS[f"{_prefix}Wh"] = ("counter", 3600.0 * _factor)
QUANTITIES = {"power": ("power", "mean_power"), "counter": ("counter", "energy")}
"""Quantities that a natural one may be said to be."""
NO_NAME = r"(?i)^(?:n/?a|nan|null|none|\[.*)?$"
"""Cells that stand for nothing."""
LABELS = ("node_column", "index_column", "uuid_column", "device_column", "limit_column")
_CELL = r"^(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-zµ%]*)$"
_WITH_UNIT = re.compile(r"(.*?)\s*[\[(]([^\[\]()]*)[\])]\s*")
PRESETS = Path(__file__).parent / "presets"
_HEAD_LINES = 60
_LABEL = re.compile(
    r"(?i)host(?:_?name)?|node(?:_?name)?|server|machine|(?:gpu|device)_(?:id|index)|(?:gpu_)?uuid"
)
NEVER_WRAPS_J = 2.0**64 / 1e3
"""Range of NVML's counters, 64 bits of mJ: they are reset, but never wrap."""
_MOST_DEVICES = 4096
_MOST_CONTRADICTING = 0.1
_TELL_APART = "name index_column, node_column or where in the YAML file"
# Of rows of one GPU at a time no quarter of the steps is below a fifth of the long ones.
_SHORT, _MOST_SHORT = 0.2, 0.25
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EXCEL_1970 = 25569.0  # days of spreadsheets count from the end of 1899
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""


@dataclass(frozen=True)
class Options:
    """What a file does not say of itself, and its user may."""

    node: str | None = None
    """Name of the node, where the file names none; else the file's name without its suffixes."""
    time_zone: str | None = None
    """Zone of local times that name none: an IANA name such as Europe/Berlin, or UTC."""
    columns: Path | None = None
    """YAML file that describes the table's columns."""
    run: str | None = None
    """Which run, window or row of a file that holds several; None: what the format's reader says."""


NO_OPTIONS = Options()


def node_of(path: Path, options: Options) -> str:
    """Name of the node that a file without one is of: the user's, or the file's up to its first point."""
    return options.node or path.name.split(".")[0] or str(path)


# --- descriptions ---------------------------------------------------------------------------------


@cache
def presets() -> tuple[Preset, ...]:
    """All presets of the package, each with its `name` (the file's stem), in order of names."""
    files = sorted(PRESETS.glob("*.yaml"))
    return tuple({**read_yaml(path), "name": path.stem} for path in files)


def described(options: Options) -> dict[str, Any]:
    """Content of the user's YAML; empty without one. Raises InputError where its schema does not allow it."""
    if options.columns is None:
        return {}
    content, rules = read_yaml(options.columns), schema("columns")
    check(content, rules, str(options.columns), rules)
    return content


def find_preset(head: str, options: Options = NO_OPTIONS) -> Preset | None:
    """Choose the description of a table from its decoded beginning; None if no preset fits.

    A user's YAML (`options.columns`) with `sensors` describes the table whatever it looks like; one without
    adds to the preset that fits (`header` of a file without a heading, `time.period_s`), or to that of its
    key `preset`. Raises InputError for a YAML that the schema does not allow.
    """
    stated = described(options)
    if "sensors" in stated:
        return {**stated, "name": DESCRIBED}
    names = [preset["name"] for preset in presets()]
    wanted = stated.pop("preset", None)
    if wanted is not None and wanted not in names:
        raise InputError(f"{options.columns}: preset: {shown(wanted)}; {one_of(wanted, names)}")
    heading = ",".join(stated.get("header", ()))
    lines = [heading, *filter(str.strip, head.splitlines()[:_HEAD_LINES])]
    for preset in presets():
        if preset["name"] == wanted or (not wanted and fits(preset, lines)):
            time = {**preset.get("time", {}), **stated.get("time", {})}
            return {**preset, **stated, "time": time}
    return None


def read_table(path: Path, preset: Preset, options: Options = NO_OPTIONS) -> Recording:
    """Read a table by its description (not one with `totals`). Raises InputError if it does not fit."""
    place = str(options.columns or path)
    if not preset.get("sensors") or not preset.get("time"):
        raise InputError(f"{place}: expected 'time' and 'sensors' that name the table's columns")
    rules = {**preset, "header": list(preset["extract"])} if "extract" in preset else preset
    lines, torn = read_lines(path, rules.get("skip_lines", 0))
    frame, columns, lost = _read_frame(path, _edited(lines, rules) or lines, rules)
    row_times = _RowTimes(path, place, options.time_zone, rules, frame)
    table = _Table(path, rules, frame, columns, row_times)
    nodes = _read_blocks(table, node_of(path, options), place)
    most = _MOST_CONTRADICTING * len(frame)
    if table.repeats > most and len(set(lines)) > len(lines) - 0.5 * table.repeats:
        what = "rows repeat others in time and value, and differ in what is not read"
        raise InputError(f"{path}: {table.repeats} {what}; {_TELL_APART}")
    damaged = damage_flags(path, lost + int(table.lost.sum()), torn)
    flags = (*row_times.local.flags(path.name), *table.flags, *damaged)
    return Recording(nodes, row_times.clock_known, None, str(path), flags, format=rules["name"])


# --- lines and cells ------------------------------------------------------------------------------


def decoded(content: bytes) -> str:
    """Text of UTF-8, of UTF-16 with a byte order mark, else of Latin-1."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        cut = error.start >= len(content) - 4 and error.reason == "unexpected end of data"
        return content[: error.start].decode("utf-8-sig") if cut else content.decode("latin-1")


def damage_flags(path: Path, rows: int, torn: bool) -> list[Flag]:
    """Flag rows that are left out because they cannot be read, and a last line without an end."""
    detail = f"{rows} lines hold no sample that can be read, and are left out"
    details = [detail] * bool(rows) + ["ends within a line, which is left out"] * torn
    return [flag("damaged", None, f"{path.name}: {detail}") for detail in details]


def read_lines(path: Path, skip: int = 0) -> tuple[list[str], bool]:
    """Lines below the first `skip` that are not empty; True if the last has no end, and is left out.

    Raises InputError if the file cannot be read or has no line.
    """
    try:
        text = decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    *lines, end = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    whole = [line for line in lines[skip:] if line and not line.isspace()]
    if not whole:
        reason = f"holds no row below its line {skip}" if skip else "is empty"
        raise InputError(f"{path}: {reason}; expected a recording")
    return whole, bool(end.strip())


def _edited(lines: Sequence[str], rules: Preset) -> list[str]:
    """Lines but those to skip, after the edits that make cells of them."""
    skip = re.compile(rules.get("skip", r"(?!)"))
    kept = [line for line in lines if not skip.fullmatch(line)]
    for edit in rules.get("edits", ()):
        find = re.compile(edit["find"])
        kept = [find.sub(edit["put"], line) for line in kept]
    if "extract" in rules:
        cells = [re.compile(pattern) for pattern in rules["extract"].values()]
        kept = [
            "\t".join(m[1] if (m := cell.search(line)) else "" for cell in cells) for line in kept
        ]
    return ["\t".join(line.split()) for line in kept] if rules.get("delimiter") == "space" else kept


def _delimiter(line: str, rules: Preset) -> str:
    """What stands between two cells: as described, else the sign that a line has most of."""
    if (given := rules.get("delimiter")) is not None:
        return "\t" if given in ("tab", "space") else str(given)
    return max((",", ";", "\t"), key=line.count)


def _cells_of(line: str, rules: Preset) -> list[str]:
    """Cells of a line, without blanks and quotes around."""
    text = line.replace("\r", "")  # of a file that is not text
    row = csv.reader([text], delimiter=_delimiter(line, rules), skipinitialspace=True)
    return [cell.strip() for cell in next(row, [])]


def _parse(lines: Sequence[str], cells: int, wanted: Sequence[int], delimiter: str) -> pd.DataFrame:
    """Wanted cells of the lines that have `cells` cells, as texts without blanks around, (n, wanted)."""
    whole = [line for line in lines if "\0" not in line and line.count('"') % 2 == 0]
    if not whole:
        return pd.DataFrame(columns=list(wanted), dtype="str")
    kept = [str(i) for i in wanted]
    table = pyarrow.csv.read_csv(
        io.BytesIO("\n".join([*whole, ""]).encode()),
        pyarrow.csv.ReadOptions(column_names=[str(i) for i in range(cells)], block_size=1 << 24),
        pyarrow.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda row: "skip"),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(kept, pa.string()), include_columns=kept
        ),
    )
    frame = table.to_pandas().set_axis(list(wanted), axis=1).astype("str")
    return frame.apply(lambda column: column.str.strip())


def fits(preset: Preset, lines: Sequence[str]) -> bool:
    """True if a line has the form of the preset's rows, or is its heading."""
    if "line" in preset and any(re.fullmatch(preset["line"], line) for line in lines):
        return True
    heads = [_cells_of(line, preset) for line in _edited(lines, preset) if len(line) < 1 << 16]
    return "heading" in preset and any(_is_heading(cells, preset["heading"]) for cells in heads)


def _is_heading(cells: Sequence[str], patterns: Sequence[str]) -> bool:
    return all(any(re.fullmatch(p, cell, re.IGNORECASE) for cell in cells) for p in patterns)


# --- parts below headings, and values -------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of values: the rule that names it, and what its heading and the pattern tell."""

    rule: Mapping[str, Any]
    header: str
    key: str
    """Its name in the frame of rows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Groups of the pattern that matched the heading: index, node, unit."""
    quantity: str = ""
    """As written: power, mean_power, counter, energy or utilisation."""


def _read_frame(
    path: Path, lines: Sequence[str], rules: Preset
) -> tuple[pd.DataFrame, list[_Column], int]:
    """Read rows: columns of texts by name, of values in W, J or as a share by key; and count lost lines.

    Raises InputError without a heading or without a column that is read.
    """
    frames: list[pd.DataFrame] = []
    columns: dict[str, _Column] = {}
    lost = 0
    for cells, delimiter, below in _parts(path, lines, rules):
        matched = list(_columns(path, cells, rules))
        options = {several[0]: _position(cells, several) for several in _text_names(rules)}
        places = {name: place for name, place in options.items() if place is not None}
        unused = _unused_labels(cells, rules, places.values())
        wanted = sorted({*places.values(), *unused, *(place for _, place in matched)})
        texts = _parse(below, len(cells), wanted, delimiter)
        for place in unused:
            if (count := texts[place].nunique()) > 1:
                raise InputError(
                    f"{path}: column {shown(cells[place])} has {count} values and is not used; {_TELL_APART}"
                )
        lost += len(below) - len(texts)
        frame = texts[list(places.values())].set_axis(list(places), axis=1)
        for column, place in matched:
            if "extract" in rules and (texts[place] == "").all():
                continue  # as if it were no column
            rows = _where(frame, column.rule)
            values, quantity = _in_si(
                path, texts[place][rows], cells[place], column, rules, frame[rows]
            )
            frame[column.key] = pd.Series(values, index=texts.index[rows], dtype=np.float64)
            columns.setdefault(column.key, replace(column, quantity=quantity))
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True)
    if not columns:
        fields = [str(rule.get("column", rule.get("pattern"))) for rule in rules["sensors"]]
        raise InputError(f"{path}: has no field that is read; expected {' or '.join(fields)}")
    if whole.empty:
        raise InputError(f"{path}: holds no row below its heading")
    empty = {name: "" for name in whole if name not in columns}
    return whole.fillna(empty), list(columns.values()), lost


def _unused_labels(cells: Sequence[str], rules: Preset, used: Iterable[int]) -> list[int]:
    """Columns that tell nodes or devices apart by their names, and that a user's description leaves out."""
    if rules["name"] != DESCRIBED or any("where" in rule for rule in rules["sensors"]):
        return []
    named = [place for place, cell in enumerate(cells) if _LABEL.fullmatch(cell.strip())]
    return sorted(set(named) - set(used))


_Part = tuple[list[str], str, list[str]]


def _parts(path: Path, lines: Sequence[str], rules: Preset) -> list[_Part]:
    """Cells of each heading, the delimiter, and the lines below; one heading again begins no new part."""
    header, names = rules.get("header"), _text_names(rules)
    names += [listed(rule["column"]) for rule in rules["sensors"] if "column" in rule]
    patterns = [f"(?:{'|'.join(map(re.escape, several))})" for several in names]
    patterns = [rf"{pattern}(?:\s*[\[(].*)?" for pattern in patterns]
    patterns += [rule["pattern"] for rule in rules["sensors"] if "pattern" in rule]
    wanted = [re.escape(n) for n in header] if header else rules.get("heading", patterns)
    mark = re.compile(wanted[0], re.IGNORECASE)
    parts: list[_Part] = [(header, _delimiter(lines[0], rules), [])] if header else []
    for line in lines:
        if mark.search(line) and _is_heading(cells := _cells_of(line, rules), wanted):
            if not parts or (parts[-1][0] != cells and not header):
                parts.append((cells, _delimiter(line, rules), []))
        elif parts:
            parts[-1][2].append(line)
    cells = parts[0][0] if parts else _cells_of(lines[0], rules)
    if cells[0][:1] in ("{", "["):
        raise InputError(f"{path}: is JSON; expected a table")
    if rules["name"] == DESCRIBED:
        for pattern, name in zip(
            patterns, [n[0] for n in names] + patterns[len(names) :], strict=True
        ):
            if not _is_heading(cells, [pattern]):
                hint = one_of(name, cells[:30])[:500]
                raise InputError(f"{path}: has no column {shown(name)}; {hint}")
    if not parts:
        header = rules.get("example", "[time, power]")
        raise InputError(
            f"{path}: has no heading; describe its columns in a YAML file (header: {header})"
        )
    return parts


def listed(names: Any) -> list[str]:
    """Names under a key that takes one or several."""
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _text_names(rules: Preset) -> list[list[str]]:
    """Names that each column may have that is kept as texts."""
    names = [[name] for key in ("column", "duration") for name in listed(rules["time"].get(key))]
    for rule in (rules, *rules["sensors"]):
        names += [listed(rule[key]) for key in (*LABELS, "unit_column") if key in rule]
        names += [[name] for name in rule.get("where", ())]
    return names


def _position(cells: Sequence[str], names: Iterable[str]) -> int | None:
    """Position of the first of the names that stands in a heading, with or without its unit."""
    bare = [match[1] if (match := _WITH_UNIT.fullmatch(cell)) else cell for cell in cells]
    low = [cell.lower() for cell in bare]
    for name in names:
        for heading, text in ((list(cells), name), (bare, name), (low, name.lower())):
            if text in heading:
                return heading.index(text)
    return None


def _columns(path: Path, cells: Sequence[str], rules: Preset) -> Iterator[tuple[_Column, int]]:
    """Columns of values in a heading, with their positions."""
    top = {key: rules[key] for key in (*LABELS, "where") if key in rules}
    for number, rule in enumerate(rules["sensors"]):
        rule = {**top, **rule}
        if "pattern" in rule:
            matches = [
                (i, m) for i, cell in enumerate(cells) if (m := re.fullmatch(rule["pattern"], cell))
            ]
            for turn, (i, match) in enumerate(matches):
                labels = {"index": str(turn)} | {k: v for k, v in match.groupdict().items() if v}
                yield _Column(rule, cells[i], f"{number}:{cells[i]}:{turn}", labels), i
        elif (position := _position(cells, names := listed(rule["column"]))) is not None:
            if rules["name"] == DESCRIBED and list(cells).count(cells[position]) > 1:
                name = shown(cells[position])
                raise InputError(f"{path}: has several columns {name}; use `pattern`")
            yield _Column(rule, names[0], f"{number}:{names[0]}"), position


def _where(frame: pd.DataFrame, rule: Mapping[str, Any]) -> np.ndarray:
    """Rows that have the texts of the rule's `where`, (n,); a column that is not there asks for nothing."""
    rows = np.ones(len(frame), dtype=np.bool_)
    for name, texts in rule.get("where", {}).items():
        if name in frame:
            texts = texts if isinstance(texts, list) else [texts]
            rows &= frame[name].isin([str(text) for text in texts]).to_numpy()
    return rows


def _in_si(
    path: Path, texts: pd.Series, cell: str, column: _Column, rules: Preset, frame: pd.DataFrame
) -> tuple[Floats, str]:
    """Values in W, J or as a share, (n,), NaN where there is none, with their quantity.

    The unit behind a number counts before that of its row's `unit_column`, that before the heading's (in
    `cell`), and that before the description's. Raises InputError without a unit, and if one does not fit.
    """
    rule, place = column.rule, f"{path}: column {shown(column.header)}"
    numbers, units = _numbers(texts, rules)
    if rule.get("unit_column") in frame:
        units = units.mask(units == "", frame[rule["unit_column"]])
    head = match[2] if (match := _WITH_UNIT.fullmatch(cell)) and match[2] in UNITS else None
    stated = column.labels.get("unit") or rule.get("unit")
    basis = stated or head or next(filter(UNITS.get, units), None)
    if basis not in UNITS:
        raise InputError(f"{place} has no unit in its heading or cells; state it with `unit`")
    natural = UNITS[basis][0]
    factors = {unit: factor for unit, (what, factor) in UNITS.items() if what == natural}
    if head and (
        head not in factors or (rules["name"] == DESCRIBED and UNITS[head] != UNITS[basis])
    ):
        raise InputError(f"{place} has the unit {head} in its heading, and {basis} described")
    factors[""] = factors.get(head or stated or "", np.nan)
    values = numbers * units.map(factors).to_numpy(np.float64)
    valued = texts[~texts.str.contains(NO_NAME)]
    if len(valued) and not np.isfinite(values).any():
        example = shown(valued.iloc[0])
        raise InputError(f"{place} has no number in {basis}, but {example}; see `decimal`")
    quantity, allowed = rule.get("quantity", natural), QUANTITIES.get(natural, (natural,))
    if quantity not in allowed:
        raise InputError(f"{place} is in {basis}, and no {quantity}; allowed: {', '.join(allowed)}")
    return values, quantity


def _numbers(texts: pd.Series, rules: Preset) -> tuple[Floats, pd.Series]:
    """Numbers of cells, (n,), NaN for none, and the units behind them, empty without."""
    texts = texts.str.replace(rules.get("decimal", "."), ".", regex=False)
    texts = texts.mask(texts.str.fullmatch(rules.get("missing", "(?!)")), "")
    numbers = as_numbers(texts)
    if np.isfinite(numbers).all():
        return numbers, pd.Series("", index=texts.index)
    cells = pc.extract_regex(pa.array(texts, pa.string()), _CELL)
    number, unit = (pc.struct_field(cells, name).to_pandas() for name in ("number", "unit"))
    return as_numbers(number), unit.fillna("").set_axis(texts.index)


# --- times of rows -------------------------------------------------------------------------------


class _RowTimes:
    """Times of a table's rows: of a column or several, or a stated period apart."""

    def __init__(
        self, path: Path, place: str, zone: str | None, rules: Preset, frame: pd.DataFrame
    ) -> None:
        self.path, self.rules, self.time, self.place = path, rules, rules["time"], f"{place}: time"
        self.local = times.LocalClock(self.time.get("zone") or zone, f"{self.place}.zone")
        self.texts = pd.Series("", frame.index, dtype="str")
        for name in listed(self.time.get("column")):
            self.texts = (self.texts + " " + frame.get(name, "")).str.strip()
        has_times = bool((self.texts != "").any())
        since = self.time.get("since", "unix" if has_times else "begin")
        self.is_unix = since == "unix" and has_times
        self.from_s = 0.0 if self.is_unix or since == "begin" else self._since(since)
        self.stamps = self._stamps(self.texts) if has_times else None
        self.seconds = self.stamps.seconds if self.stamps else None
        self.clock = self.stamps.clock if self.stamps else None
        self.clock_known = since != "begin" and not (self.is_unix and self.clock == times.DAY)
        self.known_rows = np.ones(len(frame), np.bool_)
        """Rows with a time, (n,)."""
        self.order = np.arange(len(frame))
        """Rows in order of time, (n,)."""
        if self.seconds is not None:
            self.known_rows = np.isfinite(self.seconds)
            steps = np.diff(self.seconds[self.known_rows])
            if (steps < 0).sum() > (steps > 0).sum():  # the newest stands first
                self.order = self.order[::-1]
        elif "period_s" in self.time:
            apart = f"they are taken to be {self.time['period_s']:g} s apart"
            self.local.assumptions.add(f"its rows have no times; {apart}")
        else:
            hint = self.time.get("hint", "record them, or state the period (time: {period_s: 1.0})")
            raise InputError(f"{path}: its rows have no times; {hint}")

    @property
    def begin_s(self) -> float | None:
        """When the recording began, if its times count from then; None if that is unknown."""
        return None if self.is_unix or self.clock in (times.LOCAL, times.DAY) else self.from_s

    def of(self, rows: np.ndarray) -> Floats:
        """Times of the rows of one device in their order; unix seconds where `clock_known`."""
        if self.seconds is None:
            return self.from_s + self.time["period_s"] * np.arange(rows.size)
        if self.clock == times.LOCAL:
            return self.local.unix_seconds(self.seconds[rows])
        return self.seconds[rows] + (self.from_s if self.clock == times.DAY else 0.0)

    def _since(self, since: str) -> float:
        """Unix seconds of a time from which others count."""
        stamps = times.parse_times(pd.Series([since]))
        if stamps is None or stamps.clock == times.DAY or not np.isfinite(stamps.seconds[0]):
            allowed = 'begin, or a time such as "2024-05-31 10:39:13"'
            raise InputError(f"{self.place}.since: {shown(since)} is no time; allowed: {allowed}")
        is_local = stamps.clock == times.LOCAL
        seconds = self.local.unix_seconds(stamps.seconds) if is_local else stamps.seconds
        return float(seconds[0])

    def _stamps(self, texts: pd.Series) -> times.Stamps:
        """Parse the column; numbers count from `since`. Raises InputError if it has no times."""
        unit, form = self.time.get("unit"), self.time.get("format")
        column = f"{self.path}: column {shown(' '.join(listed(self.time['column'])))}"
        if form:
            clock = times.UNIX if "%z" in form else times.LOCAL
            try:
                return times.Stamps(times.dates(texts, form, clock == times.UNIX), clock)
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(
                    f"{self.place}.format: {shown(form)} is no form of a date"
                ) from error
        if unit in (None, "iso"):
            stamps = times.parse_times(texts)
            if stamps is None or (unit == "iso" and not texts.head(100).str.contains("[-/]").any()):
                expected = "dates" if unit else "unix times, or dates with a time of day"
                example = times.unread(texts[:1], [np.nan])
                raise InputError(f"{column} has no {expected}{example}; state its unit or format")
            return stamps
        numbers = as_numbers(texts.str.replace(self.rules.get("decimal", "."), ".", regex=False))
        if unit == "excel":
            return times.Stamps(times.within((numbers - _EXCEL_1970) * _SECONDS["d"]), times.LOCAL)
        seconds = numbers * _SECONDS[unit] + self.from_s
        if self.is_unix and np.nanmax(seconds, initial=0.0) < _EARLIEST_S:
            hint = "say what it counts from (time: since: begin, or a time)"
            raise InputError(f"{column} has no unix times in {unit}; {hint}")
        return times.Stamps(np.where(np.abs(seconds) < LATEST_S, seconds, np.nan), times.UNIX)


# --- the table and its blocks ---------------------------------------------------------------------


@dataclass(eq=False)
class _Table:
    """The rows of a table, from which each node and device takes its own."""

    path: Path
    rules: Preset
    frame: pd.DataFrame
    columns: Sequence[_Column]
    times: _RowTimes
    flags: list[Flag] = field(default_factory=list)
    repeats: int = 0
    contradicting: int = 0

    def __post_init__(self) -> None:
        self.lost = ~self.times.known_rows
        """Rows without a time, or without a name of their device or node, (n,)."""

    def flag(self, code: str, detail: str, device: str | None = None) -> None:
        self.flags.append(flag(code, device, f"{self.path.name}: {detail}"))

    def label(self, column: _Column, key: str) -> str | None:
        """Name in the frame of a column of labels; None without it."""
        names = listed(column.rule.get(key))
        return names[0] if names and names[0] in self.frame else None

    def first(self, rows: np.ndarray, column: _Column, key: str) -> str:
        """First text of a column of labels in some rows; empty without one."""
        label = self.label(column, key)
        texts = self.frame[label].iloc[rows] if label else pd.Series(dtype="str")
        return next(iter(texts[~texts.str.contains(NO_NAME)]), "")


def _read_blocks(table: _Table, node: str, place: str) -> dict[str, list[Block]]:
    """Blocks of each node, in the order of names; `node` is that of rows that name none.

    Raises InputError if no row can be read, or nothing tells them apart; `place` is that of the description.
    """
    if not table.times.known_rows.any():
        example = times.unread(table.times.texts, ~table.times.known_rows * np.nan)
        raise InputError(f"{table.path}: holds no row with a time that can be read{example}")
    if "gpus" in table.rules:
        _take_in_turn(table, table.rules["gpus"])
    blocks = [block for group in _groups(table, node) for block in _blocks(table, *group)]
    if not blocks:
        raise InputError(f"{table.path}: holds no row of a device that is named")
    if table.rules.get("second_dies"):
        blocks = _without_second_dies(table, blocks)
    if table.rules["name"] == DESCRIBED:
        _refuse_doubles(place, blocks)
    if table.repeats:
        table.flag("duplicate", f"{table.repeats} samples repeat one with the same time and value")
    if table.contradicting:
        detail = f"times with two values that contradict: {table.contradicting}; the first counts"
        table.flag("duplicate", detail)
    names = sorted({block.node for block in blocks})
    return {name: [block for block in blocks if block.node == name] for name in names}


# --- rows of nodes and devices --------------------------------------------------------------------


def _take_in_turn(table: _Table, gpus: int) -> None:
    """Number rows that are of `gpus` GPUs in turn; refuse where one is missing, as the others then shift."""
    count, seconds = len(table.frame), table.times.seconds
    is_whole = count % gpus == 0
    if seconds is not None and count >= 2 * gpus:
        sets = seconds[: count // gpus * gpus].reshape(-1, gpus)
        apart = np.median(np.diff(sets[:, 0]))
        is_whole = bool((np.ptp(sets, axis=1) < 0.5 * apart).all())
    if not is_whole:
        raise InputError(
            f"{table.path}: its {count} rows do not come {gpus} at a time (gpus); record the index"
        )
    table.frame["gpus"] = pd.Series(np.arange(count) % gpus).astype("str")
    table.columns = [replace(c, rule={**c.rule, "index_column": "gpus"}) for c in table.columns]


_Group = tuple[str, int | None, np.ndarray, list[_Column]]


def _groups(table: _Table, unnamed_node: str) -> Iterator[_Group]:
    """Node, device (None if the columns tell it), rows and columns of values of each set of sensors."""
    kinds: dict[tuple[Any, ...], list[_Column]] = {}
    for column in table.columns:
        labels = (table.label(column, "node_column"), table.label(column, "index_column"))
        node = column.labels.get("node", column.rule.get("node"))
        kinds.setdefault((repr(column.rule.get("where")), *labels, node), []).append(column)
    for (_, node_label, index_label, stated), columns in kinds.items():
        named = _where(table.frame, columns[0].rule)
        if not named.any():
            raise InputError(f"{table.path}: no row has {shown(columns[0].rule['where'])}")
        for label in filter(None, (node_label, index_label)):
            unnamed = table.frame[label].str.contains(NO_NAME).to_numpy()
            table.lost |= named & unnamed
            named &= ~unnamed
        rows = table.times.order[named[table.times.order]]
        if index_label is None and "index_column" in columns[0].rule:
            _refuse_interleaved(table, rows)
            table.flag(
                "assumed", "its rows name no GPU and are taken as those of one; record the index"
            )
        nodes = table.frame[node_label].to_numpy()[rows] if node_label else np.full(rows.size, "")
        for node, positions in pd.Series(rows).groupby(nodes, sort=True).indices.items():
            name = str(node) or stated or unnamed_node
            of_node = rows[positions]
            if index_label is None:
                yield name, None, of_node, columns
                continue
            for index, of_device in _by_device(table, of_node, index_label):
                yield name, index, of_device, columns


def _by_device(table: _Table, rows: np.ndarray, label: str) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of each device of a node, by its number: the one written, else by the order of the names."""
    names = table.frame[label].iloc[rows]
    plain = names.str.fullmatch(r"\d{1,9}").to_numpy(np.bool_)
    if plain.mean() > 0.9:  # the others are damaged
        numbers = np.where(plain, as_numbers(names), -1)
    elif names.str.replace(r"\d{1,4}$", "", regex=True).nunique() == 1:  # card0, card1
        numbers = as_numbers(names.str.extract(r"(\d{1,4})$")[0])
    else:
        numbers = pd.factorize(names.to_numpy(), sort=True)[0].astype(np.float64)
    if not plain.any() and numbers.max(initial=0) >= _MOST_DEVICES:
        raise InputError(f"{table.path}: column {shown(label)} names over {_MOST_DEVICES} devices")
    known = (numbers >= 0) & (numbers < _MOST_DEVICES)
    table.lost[rows[~known]] = True
    for number in np.unique(numbers[known]):
        of_device = rows[numbers == number]
        if not plain.any():  # a name may be several devices'
            _refuse_interleaved(table, of_device)
        yield int(number), of_device


def _refuse_interleaved(table: _Table, rows: np.ndarray) -> None:
    """Refuse rows of one device of which many follow another at once: they are of several."""
    if table.times.seconds is None:
        return
    steps = np.diff(table.times.seconds[rows[table.times.known_rows[rows]]])
    steps = steps[steps >= 0]
    usual = float(np.quantile(steps, 0.9)) if steps.size else 0.0
    if steps.size and float(np.mean(steps < _SHORT * usual)) > _MOST_SHORT:
        raise InputError(
            f"{table.path}: holds rows of several GPUs, and nothing tells whose; record the field 'index', "
            "or say how many come in turn (gpus: 8)"
        )


# --- a block --------------------------------------------------------------------------------------


def _blocks(
    table: _Table, node: str, index: int | None, rows: np.ndarray, columns: list[_Column]
) -> Iterator[Block]:
    """Blocks of the samples and of the energies of intervals in some rows."""
    if index is not None:
        _refuse_several(table, rows, columns[0], index)
    for is_used in (False, True):
        mine = [column for column in columns if (column.quantity == "energy") == is_used]
        if not mine:
            continue
        sensors = sensor_frame([_sensor(table, column, index, rows) for column in mine])
        values = table.frame[[column.key for column in mine]].to_numpy(np.float64)[rows]
        read = _energies if is_used else _samples
        time_s, values = read(table, rows, values, sensors)
        kept = _with_values(sensors, values)
        yield Block(
            node,
            time_s,
            np.asfortranarray(values[:, kept]),
            sensors.iloc[kept].reset_index(drop=True),
        )


def _sensor(table: _Table, column: _Column, index: int | None, rows: np.ndarray) -> dict[str, Any]:
    """Row of a sensor in the frame of a block's sensors."""
    rule, header = column.rule, column.header
    name = rule.get("name", header if index is None else f"{header}:{{index}}")
    if index is None:
        text = column.labels.get("index", "")
        index = (int(text) if text.isdigit() else 0) + rule.get("index", 0)
    device = table.first(rows, column, "device_column")
    is_gpu_power = column.quantity == "power" and rule["kind"] == "gpu"
    limit = table.label(column, "limit_column")
    watts = table.frame[limit].iloc[rows].str.removesuffix("W") if limit else pd.Series(dtype="str")
    limit_w = rule.get("limit_w", np.nanmax(as_numbers(watts), initial=0.0))
    return {
        "name": name.replace("{index}", str(index)).replace("{column}", header),
        "kind": rule["kind"],
        "index": index,
        "quantity": "counter" if column.quantity == "energy" else column.quantity,
        "range_j": _range_j(column),
        "limit_w": float(limit_w) or np.nan,
        "uuid": table.first(rows, column, "uuid_column"),
        "device": device,
        "origin": rule.get("origin", "measured"),
        "samples": rule.get("samples") or (gpu_quantity(device) if is_gpu_power else "") or "",
    }


def _range_j(column: _Column) -> float:
    """Where a counter begins anew, in J. Only those of CPUs and memories are known to, early."""
    if "valid_max" in column.rule:
        return float(column.rule["valid_max"] * UNITS[column.rule.get("unit", "J")][1])
    may_wrap = column.quantity != "energy" and column.rule["kind"] in ("cpu", "ram")
    return NEVER_WRAPS_J if column.quantity in ("counter", "energy") and not may_wrap else np.nan


def _refuse_several(table: _Table, rows: np.ndarray, column: _Column, index: int) -> None:
    """Refuse rows of several nodes, in which one index is several GPUs."""
    label = table.label(column, "uuid_column")
    if label is None or label == table.label(column, "index_column"):
        return
    texts = table.frame[label].iloc[rows]
    counts = texts[~texts.str.contains(NO_NAME)].value_counts()
    several = sorted(counts[counts > 1].index)  # of a damaged text there is one row
    if len(several) > 1:
        raise InputError(
            f"{table.path}: index {index} is {len(several)} GPUs ({', '.join(several[:2])[:90]}): rows of "
            "several nodes; expected a column that tells them (hostname), or one file for each node"
        )


def _with_values(sensors: pd.DataFrame, values: Floats) -> list[int]:
    """Positions of the sensors to keep: of a device that has values, those that have some.

    Of one without, the first of its power and energy stays, so that it is known to be without values.
    """
    valued = pd.Series(np.isfinite(values).any(axis=0))
    energetic = sensors["quantity"] != "utilisation"
    known = (valued & energetic).groupby([sensors["kind"], sensors["index"]]).transform("any")
    first = ~sensors.assign(energetic=energetic).duplicated(["kind", "index", "energetic"])
    return list(np.flatnonzero(valued | (energetic & first & ~known))) or [0]


def _samples(
    table: _Table, rows: np.ndarray, values: Floats, sensors: pd.DataFrame
) -> tuple[Floats, Floats]:
    """Times and values of rows, (n,) and (n, k): of several at one time the first counts.

    Raises InputError where these are many: rows of several devices, or several samples a second.
    """
    timed = table.times.known_rows[rows]
    time_s, values = table.times.of(rows[timed]), values[timed]
    if table.rules["time"].get("spread"):
        return _spread(time_s), values
    turn = np.cumsum(np.diff(time_s, prepend=np.nan) != 0) - 1
    for name, column in zip(sensors["name"], values.T, strict=True):
        if _contradicts(time_s, column):
            raise InputError(
                f"{table.path}: column {shown(name)} has several values at one time; {_TELL_APART} (or "
                "time: {spread: true} if whole seconds are stamped)"
            )
    if turn.size == 0 or turn[-1] == turn.size - 1:
        return time_s, values
    at_once = pd.DataFrame(values).groupby(turn)
    differ = int((at_once.nunique() > 1).any(axis=1).sum())
    table.contradicting += differ
    table.repeats += turn.size - int(turn[-1]) - 1 - differ
    return time_s[np.diff(turn, prepend=-1) > 0], at_once.first().to_numpy(np.float64)


def _spread(time_s: Floats) -> Floats:
    """Times of samples that carry whole seconds, several each: evenly within their second."""
    seconds = pd.Series(time_s)
    at_once = seconds.groupby((seconds.diff() != 0).cumsum())
    return (seconds + at_once.cumcount() / at_once.transform("size")).to_numpy()


def _contradicts(time_s: Floats, values: Floats) -> bool:
    """True if over a tenth of the values share their time with another one."""
    valued = np.isfinite(values)
    pairs = np.unique(np.column_stack((time_s[valued], values[valued])), axis=0)
    counts = np.unique(pairs[:, 0], return_counts=True)[1]
    return bool(counts[counts > 1].sum() > _MOST_CONTRADICTING * np.count_nonzero(valued))


def _energies(
    table: _Table, rows: np.ndarray, used_j: Floats, sensors: pd.DataFrame
) -> tuple[Floats, Floats]:
    """Times and counters in J, (m,) and (m, k), of the energies of intervals, (n, k).

    An interval ends at its stamp unless `time.stamp` says that it begins there. One whose other end nothing
    tells is not counted, and flagged.
    """
    time_s, time = table.times.of(rows), table.rules["time"]
    at_begin, begin_s = time.get("stamp") == "begin", table.times.begin_s
    if "duration" in time:
        durations = as_numbers(table.frame[time["duration"]].iloc[rows])
        begin_s = time_s[0] if at_begin else time_s[0] - durations[0]
        time_s = time_s + durations if at_begin else time_s
    elif at_begin:
        begin_s, used_j = None, np.vstack([used_j[:1], used_j[:-1]])
    if begin_s is None:
        which = "last" if at_begin else "first"
        detail = f"the energy of the {which} interval is not counted, as its length is unknown"
        for name in map(str, sensors["name"]):
            hint = "name a column of them (time: duration)"
            table.flag("missing_samples", f"{name}: {detail}; {hint}", name)
    else:
        time_s, used_j = np.concatenate(([begin_s], time_s)), np.vstack([used_j[:1], used_j])
    counters = np.column_stack([_added_up(time_s, used) for used in used_j.T])
    timed = np.isfinite(time_s)
    return time_s[timed], counters[timed]


def _added_up(time_s: Floats, used_j: Floats) -> Floats:
    """Counter in J, (n,), of energies used since the row before, in the order of the rows.

    The first is not counted, nor is one that repeats the one before, at the same time. Where one is unknown
    the counter begins anew, lower, so that it is told from no energy.
    """
    unknown = ~(used_j >= 0)
    unknown[:1] = False
    steps = np.where(unknown, 0.0, used_j)
    steps[:1] = 0.0
    steps[1:][(used_j[1:] == used_j[:-1]) & (time_s[1:] == time_s[:-1])] = 0.0
    total, begun = np.cumsum(steps), np.cumsum(unknown)
    begins = np.concatenate(([0.0], total[unknown]))
    return total - begins[begun] + 1.0 + np.count_nonzero(unknown) - begun


# --- all blocks -----------------------------------------------------------------------------------


def _without_second_dies(table: _Table, blocks: list[Block]) -> list[Block]:
    """Leave out GPUs of odd numbers if all are without power and no other is: the first die has both's."""
    odd = [block.sensors["index"].iloc[0] % 2 == 1 for block in blocks]
    power = [block.values[:, block.sensors["quantity"] != "utilisation"] for block in blocks]
    dead = [not (np.nan_to_num(values) > 0).any() for values in power]
    if not any(odd) or odd != dead:
        return blocks
    table.flag("assumed", "GPUs of odd numbers are second dies: the power of both is the first's")
    return [block for block, is_second in zip(blocks, odd, strict=True) if not is_second]


def _refuse_doubles(place: str, blocks: Sequence[Block]) -> None:
    """Refuse two columns that say the same of one device: one of them has a wrong index or node."""
    sensors = pd.concat([block.sensors.assign(node=block.node) for block in blocks])
    for key, names in sensors.groupby(["quantity", "kind", "index", "node"])["name"]:
        if len(names) > 1:
            both = " and ".join(map(shown, names[:2]))
            what = "{} of {} {} of {}".format(*key)
            raise InputError(f"{place}: {both} are both {what}; give each its index or node")
