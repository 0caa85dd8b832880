"""Tables of samples of any tool, read by a description: a preset of the package, or the user's own YAML.

Presets (`presets/*.yaml`, chosen by the file's heading) and users' files have one form, schema `columns`;
docs/recordings.md explains it. A preset with the key `totals` is read by `recordings.totals`.

The steps: lines of the file; a part for each heading; cells as texts and values in W, J or as a share; rows of
each node and device; a Block for each of these, with its times.
"""

from __future__ import annotations

import codecs
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
import pyarrow.csv

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, one_of, schema, shown
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings import times
from scalewatt.recordings.block import Block, Flag, Floats, Recording, sensor_frame
from scalewatt.recordings.series import LATEST_S, flag, gpu_quantity

Preset = Mapping[str, Any]
"""A description of a table: the content of a preset, or of the user's YAML (then its `name` is DESCRIBED)."""
DESCRIBED = "csv"
PRESETS = Path(__file__).parent / "presets"

NEVER_WRAPS_J = 2.0**64 / 1e3
"""Range of NVML's counters, 64 bits of mJ: they are reset, but never wrap."""
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
UNITS: dict[str, tuple[str, float]] = {
    **{f"{p}{unit}": ("power", f) for p, f in _PREFIXES.items() for unit in ("W", "Watt", "Watts")},
    **{
        f"{p}{unit}": ("counter", f)
        for p, f in _PREFIXES.items()
        for unit in ("J", "Joule", "Joules")
    },
    **{f"{p}Wh": ("counter", 3600.0 * factor) for p, factor in _PREFIXES.items()},
    "%": ("utilisation", 0.01),
    "1": ("utilisation", 1.0),
}
"""Natural quantity of a unit, and its factor to W, J or a share."""
_QUANTITIES = {
    "power": ("power", "mean_power"),
    "counter": ("counter", "energy"),
    "utilisation": ("utilisation",),
}
_DELIMITERS = (",", ";", "\t")
_NAMED = {"tab": "\t", "space": "\t"}
_CELL = r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ%]*)$"
_HEAD_UNIT = re.compile(r"(.*?)\s*[\[(]([^\[\]()]*)[\])]\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EXCEL_1970 = 25569.0  # days of spreadsheets count from the end of 1899
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""
_NO_NAMES = r"(?i)^(?:n/?a|nan|null|none|\[.*)?$"
_HEAD_LINES = 60
_MOST_DEVICES = 4096
_MOST_CONTRADICTING = 0.1
# Of rows of one GPU at a time no quarter of the steps is below a fifth of the long ones.
_SHORT, _MOST_SHORT = 0.2, 0.25


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


# --- descriptions ---------------------------------------------------------------------------------


@cache
def presets() -> tuple[Preset, ...]:
    """All presets of the package, each with its `name` (the file's stem), in order of names."""
    return tuple({**read_yaml(path), "name": path.stem} for path in sorted(PRESETS.glob("*.yaml")))


def described(options: Options) -> dict[str, Any]:
    """Content of the user's YAML; empty without one. Raises InputError where its schema does not allow it."""
    if options.columns is None:
        return {}
    content = read_yaml(options.columns)
    rules = schema("columns")
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
    lines = [line for line in head.splitlines()[:_HEAD_LINES] if line.strip()]
    heading = ",".join(stated.get("header", ()))
    for preset in presets():
        if preset["name"] == wanted or (not wanted and _fits(preset, [heading, *lines])):
            return {
                **preset,
                **stated,
                "time": {**preset.get("time", {}), **stated.get("time", {})},
            }
    return None


def _fits(preset: Preset, lines: Sequence[str]) -> bool:
    """True if a line is the preset's heading, or has the form of its rows."""
    form = preset.get("line")
    if form and any(re.fullmatch(form, line) for line in lines):
        return True
    edited = _edited(lines, preset) if preset.get("edits") else lines
    return bool(preset.get("heading")) and any(
        _is_heading(_cells_of(line, preset), preset["heading"])
        for line in edited
        if len(line) < 1 << 16
    )


def _is_heading(cells: Sequence[str], patterns: Sequence[str]) -> bool:
    return all(any(re.fullmatch(p, cell, re.IGNORECASE) for cell in cells) for p in patterns)


# --- lines and cells ------------------------------------------------------------------------------


def decoded(content: bytes) -> str:
    """Text of UTF-8, of UTF-16 with a byte order mark, else of Latin-1."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Cut off within a letter, as the beginning of a file may be.
        cut = error.start >= len(content) - 4 and error.reason == "unexpected end of data"
        return content[: error.start].decode("utf-8-sig") if cut else content.decode("latin-1")


def damage_flags(path: Path, rows: int, torn: bool) -> list[Flag]:
    """Flag rows that are left out because they cannot be read, and a last line without an end."""
    flags = []
    if rows:
        detail = f"{path.name}: {rows} lines hold no sample that can be read, and are left out"
        flags.append(flag("damaged", None, detail))
    if torn:
        flags.append(flag("damaged", None, f"{path.name}: ends within a line, which is left out"))
    return flags


def read_lines(path: Path, skip: int = 0) -> tuple[list[str], bool]:
    """Lines below the first `skip` that are not empty, and True if the last one has no end (it is left out).

    Raises InputError if the file cannot be read or has no line.
    """
    try:
        lines = decoded(path.read_bytes()).split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    torn = bool(lines.pop().strip())
    whole = [line.rstrip("\r") for line in lines[skip:] if line and not line.isspace()]
    if not whole:
        reason = f"holds no row below its line {skip}" if skip else "is empty"
        raise InputError(f"{path}: {reason}; expected a recording")
    if whole[0].lstrip()[:1] in ("{", "["):
        raise InputError(f"{path}: is JSON; expected a table of samples")
    return whole, torn


def _edited(lines: Sequence[str], rules: Preset) -> list[str]:
    """Lines without those to skip, after the edits that make cells of them."""
    skip = re.compile(rules["skip"]) if "skip" in rules else None
    kept = [line for line in lines if not (skip and skip.fullmatch(line))]
    for edit in rules.get("edits", ()):
        find = re.compile(edit["find"])
        kept = [find.sub(edit["put"], line) for line in kept]
    if "extract" in rules:
        cells = [re.compile(pattern) for pattern in rules["extract"].values()]
        kept = [
            "\t".join(m[1] if (m := cell.search(line)) else "" for cell in cells) for line in kept
        ]
    return kept


def _delimiter(first: str, rules: Preset) -> str:
    if "delimiter" in rules:
        return str(_NAMED.get(rules["delimiter"], rules["delimiter"]))
    most = max(_DELIMITERS, key=first.count)
    return most if most in first else ","


def _cells_of(line: str, rules: Preset, delimiter: str | None = None) -> list[str]:
    """Cells of a line, without blanks and quotes around."""
    if rules.get("delimiter") == "space":
        return line.split()
    delimiter = delimiter or _delimiter(line, rules)
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    parts = re.split(rf'{re.escape(delimiter)}(?=(?:[^"]*"[^"]*")*[^"]*$)', line)
    return [
        cell.strip().removeprefix('"').removesuffix('"').replace('""', '"').strip()
        for cell in parts
    ]


def _parse(lines: Sequence[str], cells: int, wanted: Sequence[int], delimiter: str) -> pd.DataFrame:
    """Wanted cells of the lines that have `cells` cells, as texts without blanks around, (n, wanted)."""
    whole = [line for line in lines if "\0" not in line and line.count('"') % 2 == 0]
    names = [str(i) for i in range(cells)]
    kept = [names[i] for i in wanted]
    if not whole:
        return pd.DataFrame(columns=list(wanted), dtype="str")
    table = pyarrow.csv.read_csv(
        io.BytesIO("\n".join([*whole, ""]).encode()),
        pyarrow.csv.ReadOptions(column_names=names, block_size=1 << 24),
        pyarrow.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda row: "skip"),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(kept, pa.string()), include_columns=kept, check_utf8=False
        ),
    )
    frame = table.to_pandas().set_axis(list(wanted), axis=1).astype("str")
    return frame.apply(lambda column: column.str.strip())


# --- parts below headings, and values -------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of values: the rule that names it, and what its heading and the pattern tell."""

    rule: Mapping[str, Any]
    header: str
    key: str
    """Its name in the frame of rows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    quantity: str = "power"
    """As written: power, mean_power, counter, energy or utilisation."""


def _listed(names: Any) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _position(cells: Sequence[str], names: Iterable[str]) -> int | None:
    """Position of the first of the names that stands in a heading, with or without its unit."""
    bare = [m[1] if (m := _HEAD_UNIT.fullmatch(cell)) else cell for cell in cells]
    low = [cell.lower() for cell in bare]
    for name in names:
        for heading, wanted in ((cells, name), (bare, name), (low, name.lower())):
            if wanted in heading:
                return list(heading).index(wanted)
    return None


_LABELS = ("node_column", "index_column", "uuid_column", "device_column", "limit_column")


def _needed(rules: Preset) -> list[str]:
    """Names of the columns that a user's description says, which the table must have."""
    names = [*_listed(rules.get("time", {}).get("column")), *_listed(rules["time"].get("duration"))]
    for rule in (*rules["sensors"], rules):
        names += _listed(rule.get("column"))[:1] + list(rule.get("where", ()))
        names += [name for key in _LABELS for name in _listed(rule.get(key))[:1]]
    return list(dict.fromkeys(names))


def _parts(path: Path, lines: list[str], rules: Preset) -> list[tuple[list[str], list[str]]]:
    """Cells of each heading with the lines below it; the same heading again begins no new part."""
    if header := rules.get("header"):
        delimiter = _delimiter(lines[0], rules)
        again = [name.lower() for name in header]
        return [
            (
                header,
                [
                    ln
                    for ln in lines
                    if [c.lower() for c in _cells_of(ln, rules, delimiter)] != again
                ],
            )
            if any(again[0] == ln[: len(again[0])].lower() for ln in lines)
            else (header, lines)
        ]
    patterns = rules.get("heading") or [re.escape(name) for name in _needed(rules)]
    patterns = [rf"{p}(?:\s*[\[(].*)?" for p in patterns]
    mark = re.compile(patterns[0].removesuffix(r"(?:\s*[\[(].*)?") or ".", re.IGNORECASE)
    parts: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if mark.search(line) and _is_heading(cells := _cells_of(line, rules), patterns):
            if not parts or parts[-1][0] != cells:
                parts.append((cells, []))
        elif parts:
            parts[-1][1].append(line)
    if not parts and rules["name"] == DESCRIBED:
        cells = _cells_of(lines[0], rules)
        name = next(n for n in _needed(rules) if _position(cells, [n]) is None)
        raise InputError(f"{path}: has no column {shown(name)}; {one_of(name, cells[:30])[:500]}")
    if not parts:
        raise InputError(
            f"{path}: has no heading; name the columns in the YAML file "
            f"(header: {rules.get('example', '[time, power]')})"
        )
    return parts


def _frame(path: Path, lines: list[str], rules: Preset) -> tuple[pd.DataFrame, list[_Column], int]:
    """Rows of all parts: texts by column, values of sensors in W, J or as a share; and how many lines are none."""
    frames: list[pd.DataFrame] = []
    columns: dict[str, _Column] = {}
    lost = 0
    for cells, below in _parts(path, lines, rules):
        matched = list(_columns(path, cells, rules))
        delimiter = _delimiter(cells[0] if rules.get("header") else ",".join(cells), rules)
        delimiter = _delimiter(below[0], rules) if below and "delimiter" not in rules else delimiter
        if rules.get("delimiter") == "space":
            below = ["\t".join(line.split()) for line in below]
        places = _text_places(cells, rules)
        wanted = sorted({*places.values(), *(place for _, place in matched)})
        texts = _parse(below, len(cells), wanted, delimiter)
        lost += len(below) - len(texts)
        frame = pd.DataFrame({name: texts[place] for name, place in places.items()}, dtype="str")
        for column, place in matched:
            known = columns.setdefault(column.key, column)
            rows = _where(frame, column.rule)
            values, quantity = _in_si(
                path, texts[place][rows], cells[place], column, rules, frame[rows]
            )
            frame[column.key] = pd.Series(values, index=texts.index[rows], dtype=np.float64)
            columns[column.key] = replace(known, quantity=quantity)
        frames.append(frame)
    if not columns:
        fields = ", ".join(n for rule in rules["sensors"] for n in _listed(rule.get("column"))[:1])
        raise InputError(f"{path}: has no field that is read; expected one of {fields}")
    whole = pd.concat(frames, ignore_index=True)
    names = [name for name in whole if name not in columns]
    whole[names] = whole[names].fillna("")
    return whole, list(columns.values()), lost


def _columns(path: Path, cells: Sequence[str], rules: Preset) -> Iterator[tuple[_Column, int]]:
    """Columns of values in a heading, with their positions."""
    top = {key: rules[key] for key in (*_LABELS, "where") if key in rules}
    for number, rule in enumerate(rules["sensors"]):
        merged = {**top, **rule}
        if "pattern" in rule:
            matches = [
                (i, m) for i, c in enumerate(cells) if (m := re.fullmatch(rule["pattern"], c))
            ]
            for turn, (place, match) in enumerate(matches):
                labels = {"index": str(rule.get("index", 0) + turn), **match.groupdict()}
                labels = {key: text for key, text in labels.items() if text is not None}
                yield (
                    _Column(merged, cells[place], f"{number}:{cells[place]}:{turn}", labels),
                    place,
                )
            continue
        names = _listed(rule["column"])
        place = _position(cells, names)
        if place is not None:
            if rules["name"] == DESCRIBED and (many := list(cells).count(cells[place])) > 1:
                raise InputError(f"{path}: has {many} columns {shown(cells[place])}; use `pattern`")
            yield _Column(merged, names[0], f"{number}:{names[0]}"), place


def _text_places(cells: Sequence[str], rules: Preset) -> dict[str, int]:
    """Positions of the columns that are kept as texts, by the first of the names they may have."""
    time = rules.get("time", {})
    wanted = [[name] for name in (*_listed(time.get("column")), *_listed(time.get("duration")))]
    for rule in (rules, *rules["sensors"]):
        wanted += [_listed(rule[key]) for key in (*_LABELS, "unit_column") if key in rule]
        wanted += [[name] for name in rule.get("where", ())]
    found = {names[0]: _position(cells, names) for names in wanted}
    return {name: place for name, place in found.items() if place is not None}


def _where(frame: pd.DataFrame, rule: Mapping[str, Any]) -> np.ndarray:
    rows = np.ones(len(frame), dtype=np.bool_)
    for name, texts in rule.get("where", {}).items():
        if name in frame:
            allowed = [str(text) for text in (texts if isinstance(texts, list) else [texts])]
            rows &= frame[name].isin(allowed).to_numpy()
    return rows


def _in_si(
    path: Path, texts: pd.Series, heading: str, column: _Column, rules: Preset, frame: pd.DataFrame
) -> tuple[Floats, str]:
    """Values in W, J or as a share, (n,), NaN where there is none, with their quantity.

    The unit of a cell counts before that of its row's `unit_column`, that before the heading's, and that before
    the description's. Raises InputError without a unit, and for one that does not fit.
    """
    rule, where = column.rule, f"{path}: column {shown(column.header)}"
    if rules.get("decimal", ".") != ".":
        texts = texts.str.replace(rules["decimal"], ".", regex=False)
    if "missing" in rules:
        texts = texts.mask(texts.str.fullmatch(rules["missing"]), "")
    numbers, units = times.as_numbers(texts), pd.Series("", index=texts.index)
    if len(texts) and not np.isfinite(numbers).all():
        split = texts.str.extract(_CELL)
        numbers, units = times.as_numbers(split[0]), split[1].fillna("")
    if "unit_column" in rule and rule["unit_column"] in frame:
        units = units.mask(units == "", frame[rule["unit_column"]])
    head = match[2] if (match := _HEAD_UNIT.fullmatch(heading)) and match[2] in UNITS else None
    stated = column.labels.get("unit") or rule.get("unit")
    first = next(
        (unit for unit, n in zip(units, numbers, strict=True) if unit and np.isfinite(n)), None
    )
    default = head or stated
    if rules["name"] == DESCRIBED and head and stated and UNITS[head] != UNITS[stated]:
        raise InputError(f"{where} is headed {head} and described in {stated}; expected one unit")
    if (basis := stated or head or first) not in UNITS:
        hint = (
            "state it with `unit`" if basis is None else f"allowed: {', '.join(list(UNITS)[::3])}"
        )
        raise InputError(
            f"{where} has {f'the unit {shown(basis)}' if basis else 'no unit'}; {hint}"
        )
    natural = UNITS[basis][0]
    factors = {name: factor for name, (what, factor) in UNITS.items() if what == natural}
    wrong = next((u for u in (head, first) if u is not None and u not in factors), None)
    if wrong is not None:
        raise InputError(f"{where} has the unit {shown(wrong)}; allowed: {', '.join(factors)}")
    factors[""] = factors.get(default or "", np.nan)
    valued = texts[~texts.str.contains(_NO_NAMES)]
    if rules["name"] == DESCRIBED and len(valued) and not np.isfinite(numbers).any():
        raise InputError(f"{where} has no number, but {shown(valued.iloc[0])}; see `decimal`")
    quantity = rule.get("quantity", natural)
    if quantity not in _QUANTITIES[natural]:
        allowed = ", ".join(_QUANTITIES[natural])
        raise InputError(f"{where} is in {basis}, and no {quantity}; allowed: {allowed}")
    return numbers * units.map(factors).to_numpy(np.float64), quantity


# --- times ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Clock:
    """Times of a table's rows, as the description says."""

    path: Path
    options: Options
    rules: Preset
    frame: pd.DataFrame
    unsure: bool = False
    assumed: bool = False

    def __post_init__(self) -> None:
        time = self.time = self.rules.get("time", {})
        self.names = [name for name in _listed(time.get("column")) if name in self.frame]
        self.texts = self.frame[self.names].agg(" ".join, axis=1) if self.names else None
        if self.texts is not None and not self.texts.str.strip().any():
            self.texts = None
        self.where = f"{self.options.columns or self.path}: time"
        self.zone_name = time.get("zone") or self.options.time_zone
        self.zone = times.zone_named(self.zone_name, f"{self.where}.zone")
        self.since = time.get("since", "unix" if self.texts is not None else "begin")
        if self.texts is None and "period_s" not in time:
            hint = time.get("hint", "record them, or state the period (time: {period_s: 1.0})")
            raise InputError(f"{self.path}: its rows have no times; {hint}")
        self.stamps = None if self.texts is None else self._stamps(self.texts)
        if self.stamps is not None and self.stamps.clock == times.DAY and self.since == "unix":
            self.since = "begin"
        self.known = self.since != "begin"
        self.from_s = 0.0 if self.since in ("begin", "unix") else self._begin_s(self.since)

    @property
    def seconds(self) -> Floats | None:
        return None if self.stamps is None else self.stamps.seconds

    def unread(self) -> str:
        """First text that is no time, for a message."""
        return "" if self.stamps is None else times.unread(self.texts, self.stamps.seconds)

    def of(self, rows: np.ndarray) -> Floats:
        """Times of the rows of one device in their order; unix seconds where `known`."""
        if self.stamps is None:
            return self.from_s + self.time["period_s"] * np.arange(rows.size)
        seconds = self.stamps.seconds[rows]
        if self.stamps.clock != times.LOCAL:
            return seconds + (self.from_s if self.stamps.clock == times.DAY else 0.0)
        unix, unsure = times.unix_seconds(seconds, self.zone)
        self.unsure |= unsure
        return unix

    def flags(self) -> list[Flag]:
        """What is to be known of the times."""
        details = []
        if self.stamps is None:
            period_s = self.time["period_s"]
            details.append(f"its rows have no times; they are taken to be {period_s:g} s apart")
        if self.assumed or (
            self.stamps and self.stamps.clock == times.LOCAL and not self.zone_name
        ):
            details.append("its local times name no zone; they are read as this machine's")
        if self.unsure:
            details.append(
                "all its times lie in the hour that comes twice when clocks are set back; the first is taken"
            )
        return [flag("time_assumed", None, f"{self.path.name}: {detail}") for detail in details]

    def _begin_s(self, since: str) -> float:
        stamps = times.parse_times(pd.Series([since]))
        if stamps is None or stamps.clock == times.DAY or not np.isfinite(stamps.seconds[0]):
            raise InputError(
                f"{self.where}.since: {shown(since)} is no time; allowed: begin, or a time such as "
                '"2024-05-31 10:39:13"'
            )
        if stamps.clock == times.UNIX:
            return float(stamps.seconds[0])
        self.assumed = self.zone_name is None
        return float(times.unix_seconds(stamps.seconds, self.zone)[0][0])

    def _stamps(self, texts: pd.Series) -> times.Stamps:
        unit, where = self.time.get("unit"), f"{self.path}: column {shown(' '.join(self.names))}"
        if form := self.time.get("format"):
            try:
                zoned = "%z" in form
                return times.Stamps(
                    times.dates(texts, form, zoned), times.UNIX if zoned else times.LOCAL
                )
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(
                    f"{self.where}.format: {shown(form)} is no form of a date"
                ) from error
        if unit in (None, "iso"):
            stamps = times.parse_times(texts)
            if stamps is None or (unit == "iso" and not texts.head(100).str.contains("[-/]").any()):
                expected = "unix times, or dates with a time of day" if unit is None else "dates"
                such = times.unread(texts[:1], [np.nan])
                raise InputError(f"{where} has no {expected}{such}; state its unit or format")
            return stamps
        if self.rules.get("decimal", ".") != ".":
            texts = texts.str.replace(self.rules["decimal"], ".", regex=False)
        numbers = times.as_numbers(texts)
        if unit == "excel":
            return times.Stamps(times.within((numbers - _EXCEL_1970) * _SECONDS["d"]), times.LOCAL)
        from_s = 0.0 if self.since in ("unix", "begin") else self._begin_s(self.since)
        seconds = numbers * _SECONDS[unit] + from_s
        if self.since == "unix" and np.nanmax(seconds, initial=0.0) < _EARLIEST_S:
            raise InputError(
                f"{where} has no unix times in {unit}; say what it counts from (time: since: begin, or a time)"
            )
        return times.Stamps(np.where(np.abs(seconds) < LATEST_S, seconds, np.nan), times.UNIX)


# --- rows of nodes and devices, and their blocks --------------------------------------------------


def read_table(path: Path, preset: Preset, options: Options = NO_OPTIONS) -> Recording:
    """Read a table by its description (not one with `totals`). Raises InputError if it does not fit."""
    if not preset.get("sensors") or not preset.get("time"):
        raise InputError(
            f"{options.columns or path}: expected a YAML file with 'time' and 'sensors' that names the "
            "table's columns"
        )
    rules = {**preset, "header": list(preset["extract"])} if "extract" in preset else preset
    lines, torn = read_lines(path, rules.get("skip_lines", 0))
    if not (lines := _edited(lines, rules)):
        raise InputError(f"{path}: holds no row below its heading")
    frame, columns, lost = _frame(path, lines, rules)
    clock = _Clock(path, options, rules, frame)
    if "gpus" in rules:
        frame, columns = _in_turn(path, frame, columns, rules["gpus"], clock)
    reader = _Reader(path, options, rules, frame, columns, clock)
    nodes = reader.nodes()
    return Recording(
        nodes=nodes,
        clock_known=clock.known,
        period_s=None,
        source=str(path),
        flags=(
            *clock.flags(),
            *reader.flags,
            *damage_flags(path, lost + int(reader.lost.sum()), torn),
        ),
        format=rules["name"],
    )


def _in_turn(
    path: Path, frame: pd.DataFrame, columns: list[_Column], gpus: int, clock: _Clock
) -> tuple[pd.DataFrame, list[_Column]]:
    """Number rows that are of `gpus` GPUs in turn, in the column `gpus`; refuse where a row is missing."""
    sets, rest = divmod(len(frame), gpus)
    seconds = clock.seconds
    if seconds is not None and sets > 1:
        begins = seconds[: sets * gpus].reshape(sets, gpus)
        apart = np.median(np.diff(begins[:, 0]))
        is_whole = bool((begins.max(axis=1) - begins.min(axis=1) < 0.5 * apart).all())
    else:
        is_whole = not rest
    if not is_whole:
        raise InputError(
            f"{path}: its {len(frame)} rows do not come {gpus} at a time (gpus: {gpus}): one is missing, and "
            "nothing tells whose; record the index"
        )
    frame["gpus"] = pd.Series(np.arange(len(frame)) % gpus).astype("str")
    return frame, [replace(c, rule={"index_column": "gpus", **c.rule}) for c in columns]


@dataclass(eq=False)
class _Reader:
    """The rows of a table, from which each node and device takes its own."""

    path: Path
    options: Options
    rules: Preset
    frame: pd.DataFrame
    columns: list[_Column]
    clock: _Clock

    def __post_init__(self) -> None:
        self.flags: list[Flag] = []
        seconds = self.clock.seconds
        self.timed = np.ones(len(self.frame), np.bool_) if seconds is None else np.isfinite(seconds)
        self.lost = ~self.timed
        """Rows without a time, or without a name of their device or node."""
        self.order = np.arange(len(self.frame))
        steps = np.diff(seconds[self.timed]) if seconds is not None else np.zeros(0)
        if (steps < 0).sum() > (steps > 0).sum():
            self.order = self.order[::-1]  # the newest row stands first
        self.repeats = self.contradicting = 0

    def nodes(self) -> dict[str, list[Block]]:
        """Blocks of each node, in the order of names."""
        if not self.timed.any():
            raise InputError(
                f"{self.path}: holds no row with a time that can be read{self.clock.unread()}"
            )
        blocks = [block for group in self._groups() for block in self._blocks(*group)]
        if not blocks:
            raise InputError(f"{self.path}: holds no row of a device that is named")
        if self.rules.get("second_dies"):
            blocks = self._without_second_dies(blocks)
        if self.rules["name"] == DESCRIBED:
            self._refuse_doubles(blocks)
        self._flag_repeats()
        names = sorted({block.node for block in blocks})
        return {name: [block for block in blocks if block.node == name] for name in names}

    def _groups(self) -> Iterator[tuple[str, int | None, np.ndarray, list[_Column]]]:
        """Node, device (None if the columns tell it), rows and columns of each table of samples."""
        kinds: dict[tuple[Any, ...], list[_Column]] = {}
        for column in self.columns:
            labels = [self._label(column, key) for key in ("node_column", "index_column")]
            where = repr(column.rule.get("where"))
            node = column.labels.get("node", column.rule.get("node"))
            kinds.setdefault((where, *labels, node), []).append(column)
        for (_, node_column, index_column, stated), columns in kinds.items():
            rule = columns[0].rule
            named = _where(self.frame, rule)
            if not named.any():
                raise InputError(f"{self.path}: no row has {shown(rule['where'])}")
            for label in (node_column, index_column):
                if label is not None:
                    unnamed = self.frame[label].str.contains(_NO_NAMES).to_numpy()
                    self.lost |= named & unnamed
                    named &= ~unnamed
            self._check_devices(rule, index_column)
            rows = self.order[(named & self.timed)[self.order]]
            for node, of_node in self._split(rows, node_column):
                name = node or stated or self._node()
                if index_column is None:
                    yield name, None, of_node, columns
                    continue
                for index, of_device in self._by_device(of_node, index_column):
                    yield name, index, of_device, columns

    def _label(self, column: _Column, key: str) -> str | None:
        """Name in the frame of a column of labels; None without it."""
        names = _listed(column.rule.get(key))
        return names[0] if names and names[0] in self.frame else None

    def _node(self) -> str:
        return self.options.node or self.path.name.split(".")[0] or str(self.path)

    def _split(self, rows: np.ndarray, label: str | None) -> Iterator[tuple[str, np.ndarray]]:
        if label is None:
            yield "", rows
            return
        names, texts = pd.factorize(self.frame[label].to_numpy()[rows])
        for number, text in enumerate(texts):
            yield str(text), rows[names == number]

    def _by_device(self, rows: np.ndarray, label: str) -> Iterator[tuple[int, np.ndarray]]:
        """Rows of each device of a node, by its number."""
        numbers = _device_numbers(self.frame[label].iloc[rows])
        known = (numbers >= 0) & (numbers < _MOST_DEVICES)
        self.lost[rows[~known]] = True
        if np.unique(numbers[known]).size > _MOST_DEVICES - 1:
            raise InputError(
                f"{self.path}: column {shown(label)} names {_MOST_DEVICES} devices or more"
            )
        for number in np.unique(numbers[known]):
            yield int(number), rows[numbers == number]

    def _check_devices(self, rule: Mapping[str, Any], label: str | None) -> None:
        """Where a preset's table could name the GPU of a row and does not: it is one GPU's, or refused."""
        if label is not None or "index_column" not in rule:
            return
        if self.clock.seconds is not None:
            steps = np.diff(self.clock.seconds[self.order][self.timed[self.order]])
            steps = steps[steps >= 0]
            usual = float(np.quantile(steps, 0.9)) if steps.size else 0.0
            if steps.size and float(np.mean(steps < _SHORT * usual)) > _MOST_SHORT:
                raise InputError(
                    f"{self.path}: holds rows of several GPUs, and nothing tells whose; record it with the "
                    "field 'index', or say how many come in turn (gpus: 8)"
                )
        detail = f"{self.path.name}: its rows name no GPU and are taken as those of one; record the index"
        self.flags.append(flag("assumed", None, detail))

    # --- a block ----------------------------------------------------------------------------------

    def _blocks(
        self, node: str, index: int | None, rows: np.ndarray, columns: list[_Column]
    ) -> Iterator[Block]:
        """Blocks of the samples and of the energies of intervals in some rows."""
        labels = {
            name: self._first(rows, columns[0], f"{name}_column") for name in ("uuid", "device")
        }
        self._refuse_several(rows, columns[0], index)
        sensors = sensor_frame([self._sensor(column, index, rows, labels) for column in columns])
        values = self.frame[[column.key for column in columns]].to_numpy(np.float64)[rows]
        used = np.array([column.quantity == "energy" for column in columns])
        for mine in (~used, used):
            if not mine.any():
                continue
            part = sensors[mine].reset_index(drop=True)
            time_s, numbers = (
                self._energies(rows, values[:, mine], part)
                if mine is used
                else (self._samples(rows, values[:, mine], part))
            )
            kept = _with_values(part, numbers)
            yield Block(
                node,
                time_s,
                np.asfortranarray(numbers[:, kept]),
                part.iloc[kept].reset_index(drop=True),
            )

    def _sensor(
        self, column: _Column, index: int | None, rows: np.ndarray, labels: Mapping[str, str]
    ) -> dict[str, Any]:
        rule, header = column.rule, column.header
        if index is None:
            text = column.labels.get("index", "")
            index = int(text) if text.isdigit() else rule.get("index", 0)
            name = rule.get("name", header)
        else:
            name = rule.get("name", f"{header}:{{index}}")
        is_gpu_power = column.quantity == "power" and rule["kind"] == "gpu"
        return {
            "name": name.replace("{index}", str(index)).replace("{column}", header),
            "kind": rule["kind"],
            "index": index,
            "quantity": "counter" if column.quantity == "energy" else column.quantity,
            "range_j": _range_j(column),
            "limit_w": self._limit_w(rows, column),
            "uuid": labels["uuid"],
            "device": labels["device"],
            "origin": rule.get("origin", "measured"),
            "samples": rule.get("samples")
            or (is_gpu_power and gpu_quantity(labels["device"]))
            or "",
        }

    def _first(self, rows: np.ndarray, column: _Column, key: str) -> str:
        """First text of a column of labels in some rows; empty without one."""
        if (label := self._label(column, key)) is None:
            return ""
        texts = self.frame[label].iloc[rows]
        texts = texts[~texts.str.contains(_NO_NAMES)]
        return str(texts.iloc[0]) if len(texts) else ""

    def _limit_w(self, rows: np.ndarray, column: _Column) -> float:
        if "limit_w" in column.rule:
            return float(column.rule["limit_w"])
        if (label := self._label(column, "limit_column")) is None:
            return np.nan
        watts = times.as_numbers(self.frame[label].iloc[rows].str.removesuffix("W").str.strip())
        highest = np.nanmax(watts, initial=0.0)
        return float(highest) if highest > 0 else np.nan

    def _refuse_several(self, rows: np.ndarray, column: _Column, index: int | None) -> None:
        """Refuse rows of several nodes, in which one index is several GPUs."""
        label = self._label(column, "uuid_column")
        if label is None or index is None or label == self._label(column, "index_column"):
            return
        texts = self.frame[label].iloc[rows]
        counts = texts[~texts.str.contains(_NO_NAMES)].value_counts()
        several = sorted(counts[counts > 1].index)  # of a damaged text there is one row
        if len(several) > 1:
            raise InputError(
                f"{self.path}: index {index} is {len(several)} GPUs ({', '.join(several[:2])[:90]}): rows of "
                "several nodes; expected a column that tells them (hostname), or one file for each node"
            )

    def _samples(
        self, rows: np.ndarray, values: Floats, sensors: pd.DataFrame
    ) -> tuple[Floats, Floats]:
        """Times and values of rows, (n,) and (n, k): of several at one time the first counts."""
        time_s = self.clock.of(rows)
        if self.rules["time"].get("spread"):
            return _spread(time_s), values
        for column, name in enumerate(sensors["name"]):
            if _contradicts(time_s, values[:, column]):
                raise InputError(
                    f"{self.path}: column {shown(name)} has several values at one time; name index_column, "
                    "node_column or where in the YAML file (or time: {spread: true} if the tool stamps whole "
                    "seconds)"
                )
        turn = np.cumsum(np.diff(time_s, prepend=np.nan) != 0) - 1
        if turn.size == 0 or turn[-1] == turn.size - 1:
            return time_s, values
        at_once = pd.DataFrame(values).groupby(turn)
        differ = int((at_once.nunique() > 1).any(axis=1).sum())
        self.contradicting += differ
        self.repeats += turn.size - int(turn[-1]) - 1 - differ
        begins = np.flatnonzero(np.diff(turn, prepend=-1))
        return time_s[begins], at_once.first().to_numpy(np.float64)

    def _energies(
        self, rows: np.ndarray, used_j: Floats, sensors: pd.DataFrame
    ) -> tuple[Floats, Floats]:
        """Times and counters, (m,) and (m, k), of the energies of intervals; flags an end that is not known."""
        time, time_s = self.rules["time"], self.clock.of(rows)
        durations = None
        if (label := time.get("duration")) is not None:
            durations = times.as_numbers(self.frame[label].iloc[rows])
        begin_s = None
        if time.get("stamp") == "begin":
            if durations is not None:
                begin_s, time_s = time_s[0], time_s + durations
            else:
                time_s, used_j = time_s, np.vstack([np.zeros_like(used_j[:1]), used_j[:-1]])
        elif durations is not None:
            begin_s = time_s[0] - durations[0]
        elif "period_s" in time and self.clock.stamps is None:
            begin_s = time_s[0] - time["period_s"]
        elif self.clock.since not in ("unix",) and self.clock.stamps.clock == times.UNIX:
            begin_s = self.clock.from_s
        if begin_s is None:
            which = "last" if time.get("stamp") == "begin" else "first"
            detail = (
                f"{sensors['name'].iloc[0]}: the energy of the {which} interval is not counted, as nothing "
                "tells how long it is; name a column of durations (time: {duration: ...})"
            )
            self.flags.append(flag("missing_samples", str(sensors["name"].iloc[0]), detail))
        else:
            time_s = np.concatenate(([begin_s], time_s))
            used_j = np.vstack([np.zeros_like(used_j[:1]), used_j])
        return time_s, np.column_stack(
            [_added_up(time_s, used_j[:, i]) for i in range(used_j.shape[1])]
        )

    # --- what is said of all blocks -----------------------------------------------------------------

    def _flag_repeats(self) -> None:
        name = self.path.name
        if self.repeats:
            detail = f"{name}: {self.repeats} samples repeat one with the same time and value"
            self.flags.append(flag("duplicate", None, detail))
        if self.contradicting:
            detail = f"{name}: times with two values that contradict: {self.contradicting}; the first counts"
            self.flags.append(flag("duplicate", None, detail))

    def _without_second_dies(self, blocks: list[Block]) -> list[Block]:
        """Leave out GPUs without any power, each behind one with power: its package's is the first die's."""
        dead = {
            (b.node, int(b.sensors["index"][0])): not (np.nan_to_num(b.values) > 0).any()
            for b in blocks
        }
        odd = [is_dead for (_, index), is_dead in dead.items() if index % 2]
        even = [is_dead for (_, index), is_dead in dead.items() if not index % 2]
        if not odd or not all(odd) or any(even):
            return blocks
        detail = f"{self.path.name}: GPUs of odd numbers are second dies: the power of both is the first's"
        self.flags.append(flag("assumed", None, detail))
        return [block for block in blocks if not int(block.sensors["index"][0]) % 2]

    def _refuse_doubles(self, blocks: list[Block]) -> None:
        """Refuse two columns that say the same of one device: one of them has a wrong index or node."""
        seen: dict[tuple[Any, ...], str] = {}
        for block in blocks:
            for row in block.sensors.to_dict("records"):
                key = (block.node, row["kind"], row["index"], row["quantity"])
                if key in seen:
                    raise InputError(
                        f"{self.options.columns}: {shown(seen[key])} and {shown(row['name'])} are both "
                        f"{row['quantity']} of {row['kind']} {row['index']} of {block.node}; give each its "
                        "index or node"
                    )
                seen[key] = row["name"]


def _device_numbers(names: pd.Series) -> np.ndarray:
    """Numbers of devices, (n,), -1 where a name is damaged: those written, else by the order of the names."""
    plain = names.str.fullmatch(r"\d{1,9}").to_numpy()
    if plain.mean() > 0.9:
        return np.where(plain, pd.to_numeric(names, errors="coerce").fillna(-1), -1).astype(
            np.int64
        )
    split = names.str.extract(r"^(\D*)(\d{1,4})$")
    if split[1].notna().all() and split[0].nunique() == 1:  # card0, GPU 1
        return split[1].astype(np.int64).to_numpy()
    return pd.factorize(names.to_numpy(), sort=True)[0]


def _with_values(sensors: pd.DataFrame, values: Floats) -> list[int]:
    """Positions of the sensors to keep: of a device that has values, those that have some.

    Of one without, the first of its power and energy stays, so that it is known to be without values.
    """
    said = np.isfinite(values).any(axis=0)
    kept: list[int] = []
    for _, rows in sensors.groupby(["kind", "index"], sort=False).groups.items():
        mine = [row for row in rows if said[row]]
        energetic = [row for row in rows if sensors["quantity"][row] != "utilisation"]
        if energetic and not set(energetic) & set(mine):
            mine.append(energetic[0])
        kept += mine or list(rows)[:1]
    return sorted(kept)


def _range_j(column: _Column) -> float:
    """Where a counter begins anew. Only those of CPUs and memories are known to, early."""
    rule = column.rule
    if "valid_max" in rule:
        return float(rule["valid_max"] * UNITS[rule.get("unit", "J")][1])
    if column.quantity == "energy":
        return NEVER_WRAPS_J
    is_counter = column.quantity == "counter" and rule["kind"] not in ("cpu", "ram")
    return NEVER_WRAPS_J if is_counter else np.nan


def _spread(time_s: Floats) -> Floats:
    """Times of samples that carry whole seconds, several each: evenly within their second."""
    begins = np.flatnonzero(np.diff(time_s, prepend=np.nan) != 0)
    counts = np.diff(begins, append=time_s.size)
    place = np.arange(time_s.size) - np.repeat(begins, counts)
    return time_s + place / np.repeat(counts, counts)


def _contradicts(time_s: Floats, values: Floats) -> bool:
    """True if over a tenth of the values share their time with another one."""
    valued = np.isfinite(values)
    pairs = np.unique(np.column_stack((time_s[valued], values[valued])), axis=0)
    counts = np.unique(pairs[:, 0], return_counts=True)[1]
    return bool(counts[counts > 1].sum() > _MOST_CONTRADICTING * np.count_nonzero(valued))


def _added_up(time_s: Floats, used_j: Floats) -> Floats:
    """Counter in J, (n,), of energies used since the row before, in the order of the rows.

    The first is not counted, nor is one that repeats the one before, at the same time. Where one is unknown the
    counter begins anew, lower, so that it is told from no energy.
    """
    unknown = ~(used_j >= 0)
    unknown[:1] = False
    steps = np.where(unknown, 0.0, used_j)
    steps[:1] = 0.0
    steps[1:][(used_j[1:] == used_j[:-1]) & (time_s[1:] == time_s[:-1])] = 0.0
    total, begun = np.cumsum(steps), np.cumsum(unknown)
    begins = np.concatenate(([0.0], total[unknown]))
    return total - begins[begun] + 1.0 + np.count_nonzero(unknown) - begun
