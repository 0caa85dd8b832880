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
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, one_of, schema, shown
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.block import Block, Recording, select, sensor_frame
from scalewatt.recordings.terms import Flag, Floats, flag, gpu_quantity
from scalewatt.recordings.times import RowTimes, as_numbers, read_times

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

_CELL = r"^(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-zµ%]*)$"
_WITH_UNIT = re.compile(r"(.*?)\s*[\[(]([^\[\]()]*)[\])]\s*")
_HEAD_LINES = 60
_LABEL = re.compile(
    r"(?i)host(?:_?name)?|node(?:_?name)?|server|machine|(?:gpu|device)_(?:id|index)|(?:gpu_)?uuid"
)
_MOST_CONTRADICTING = 0.1
_MOST_FALLS = 0.05
_DURATION = "name a column of them (time: duration)"
_TELL_APART = "name index_column, node_column or where in the YAML file"
# Of rows of one GPU at a time no quarter of the steps is below a fifth of the long ones.
_SHORT, _MOST_SHORT = 0.2, 0.25
TOUCHING_S = 1e-3
"""Intervals that are apart, or overlap, by less follow each other."""


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


def find_preset(head: str, options: Options = NO_OPTIONS) -> Preset | None:
    """Choose the description of a table from its decoded beginning; None if no preset fits.

    A user's YAML (`options.columns`) with `sensors` describes the table whatever it looks like; one without
    adds to the preset that fits: `header` of a file without a heading, `time.period_s`. Raises InputError for
    a YAML that the schema does not allow.
    """
    stated: dict[str, Any] = {}
    if options.columns is not None:
        stated, rules = read_yaml(options.columns), schema("columns")
        check(stated, rules, str(options.columns), rules)
    if "sensors" in stated:
        return {**stated, "name": DESCRIBED}
    heading = ",".join(stated.get("header", ()))
    lines = [heading, *filter(str.strip, head.splitlines()[:_HEAD_LINES])]
    for preset in presets():
        if fits(preset, lines):
            time = {**preset.get("time", {}), **stated.get("time", {})}
            return {**preset, **stated, "time": time}
    return None


def fits(preset: Preset, lines: Sequence[str]) -> bool:
    """True if a line has the form of the preset's rows, or is its heading."""
    if "line" in preset and any(re.fullmatch(preset["line"], line) for line in lines):
        return True
    heads = [_cells_of(line, preset) for line in _edited(lines, preset) if len(line) < 1 << 16]
    return "heading" in preset and any(_is_heading(cells, preset["heading"]) for cells in heads)


def _is_heading(cells: Sequence[str], patterns: Sequence[str]) -> bool:
    return all(any(re.fullmatch(p, cell, re.IGNORECASE) for cell in cells) for p in patterns)


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


# --- lines ----------------------------------------------------------------------------------------


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

    The only row of a table is kept without one. Raises InputError for a file without a line.
    """
    try:
        text = decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    *lines, end = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    whole = [line for line in lines[skip:] if line and not line.isspace()]
    if len(whole) == 1 and end.strip():
        return [*whole, end], False
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


_Part = tuple[list[str], str, list[str]]


def _parts(path: Path, lines: Sequence[str], rules: Preset) -> tuple[list[_Part], int]:
    """Cells of each heading, the delimiter and the lines below; and the number of rows above the first.

    The same heading again begins no new part. Raises InputError where a column or any heading is missing.
    """
    header, parts, above = rules.get("header"), list[_Part](), list[str]()
    names = _text_names(rules) + [listed(r["column"]) for r in rules["sensors"] if "column" in r]
    needed = {n[0]: rf"(?:{'|'.join(map(re.escape, n))})(?:\s*[\[(].*)?" for n in names}
    needed |= {r["pattern"]: r["pattern"] for r in rules["sensors"] if "pattern" in r}
    heading = rules.get("heading", list(needed.values()))
    if header:
        heading, parts = [re.escape(n) for n in header], [(header, _delimiter(lines[0], rules), [])]
    mark = re.compile(heading[0], re.IGNORECASE)
    for line in lines:
        if mark.search(line) and _is_heading(cells := _cells_of(line, rules), heading):
            if not parts or (parts[-1][0] != cells and not header):
                parts.append((cells, _delimiter(line, rules), []))
        else:
            (parts[-1][2] if parts else above).append(line)
    cells = parts[0][0] if parts else _cells_of(lines[0], rules)
    if cells[0][:1] in ("{", "["):
        raise InputError(f"{path}: is JSON; expected a table")
    missing = [name for name, pattern in needed.items() if not _is_heading(cells, [pattern])]
    if rules["name"] == DESCRIBED and missing:
        hint = one_of(missing[0], cells[:30])[:500]
        raise InputError(f"{path}: has no column {shown(missing[0])}; {hint}")
    if not parts:
        example = "header: [timestamp, index, power.draw]"
        raise InputError(f"{path}: has no heading; name its columns in a YAML file ({example})")
    rows = [line for line in above if re.search(r"\d", line)]
    return parts, sum(len(_cells_of(line, rules)) == len(cells) for line in rows)


# --- columns of cells and values ------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of values."""

    rule: Mapping[str, Any]
    """As described, with what the pattern's groups tell: index, node, unit, uuid, device."""
    header: str
    key: str
    """Its name in the frame of rows."""
    quantity: str = ""
    """As written: power, mean_power, counter, energy or utilisation."""


def _read_frame(
    path: Path, lines: Sequence[str], rules: Preset
) -> tuple[pd.DataFrame, list[_Column], int]:
    """Read rows: columns of texts by name, of values in W, J or as a share by key; and count lost lines.

    Raises InputError without a column that is read, or a row.
    """
    parts, lost = _parts(path, lines, rules)
    frames, columns = [], dict[str, _Column]()
    for cells, delimiter, below in parts:
        positions = {names[0]: _position(cells, names) for names in _text_names(rules)}
        wanted = {name: at for name, at in positions.items() if at is not None}
        spare = _spare_labels(cells, rules, wanted.values())
        matched = list(_columns(path, cells, rules))
        wanted |= spare | {column.key: at for column, at in matched}
        texts = _parse(below, len(cells), wanted, delimiter)
        for name in spare:
            if (count := texts.pop(name).nunique()) > 1:
                what = f"column {shown(name)} has {count} values and is not used"
                raise InputError(f"{path}: {what}; {_TELL_APART}")
        frames.append(texts.assign(**{f"{c.key} unit": _unit_in(cells[at]) for c, at in matched}))
        columns |= {column.key: column for column, _ in matched}
        lost += len(below) - len(texts)
    frame = pd.concat(frames, ignore_index=True).fillna("")
    if frame.empty:
        raise InputError(f"{path}: holds no row below its heading")
    # A device may be without values; but a header of a preset names more columns than most files fill.
    is_form = rules["name"] != DESCRIBED and "header" in rules
    kept = [c for c in columns.values() if not is_form or (frame[c.key] != "").any()]
    if not kept:
        fields = [str(rule.get("column", rule.get("pattern"))) for rule in rules["sensors"]]
        raise InputError(f"{path}: has no field that is read; expected {' or '.join(fields)}")
    return frame, [_with_values_in_si(path, frame, column, rules) for column in kept], lost


def _parse(
    lines: Sequence[str], count: int, wanted: Mapping[str, int], delimiter: str
) -> pd.DataFrame:
    """Wanted cells of the lines that have `count` cells, as texts without blanks around, by name."""
    whole = [line for line in lines if "\0" not in line and line.count('"') % 2 == 0]
    if not whole:
        return pd.DataFrame(columns=list(wanted), dtype="str")
    kept = sorted({str(i) for i in wanted.values()})
    table = pyarrow.csv.read_csv(
        io.BytesIO("\n".join([*whole, ""]).encode()),
        pyarrow.csv.ReadOptions(column_names=[str(i) for i in range(count)], block_size=1 << 24),
        pyarrow.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda row: "skip"),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(kept, pa.string()), include_columns=kept
        ),
    )
    frame = table.to_pandas().astype("str")
    return pd.DataFrame({name: frame[str(i)].str.strip() for name, i in wanted.items()})


def _position(cells: Sequence[str], names: Sequence[str]) -> int | None:
    """Position of the first of the names that stands in a heading, with or without its unit."""
    bare = [match[1] if (match := _WITH_UNIT.fullmatch(cell)) else cell for cell in cells]
    low = [cell.lower() for cell in bare]
    for name in names:
        for heading, text in ((list(cells), name), (bare, name), (low, name.lower())):
            if text in heading:
                return heading.index(text)
    return None


def _unit_in(heading: str) -> str:
    """Unit of power, energy or utilisation in a heading, such as `[mW]`; "" without one."""
    match = _WITH_UNIT.fullmatch(heading)
    return match[2] if match and match[2] in UNITS else ""


def _spare_labels(cells: Sequence[str], rules: Preset, used: Iterable[int]) -> dict[str, int]:
    """Columns that tell nodes or devices apart by their names, and that a user's description leaves out."""
    if rules["name"] != DESCRIBED or any("where" in rule for rule in rules["sensors"]):
        return {}
    return {c: i for i, c in enumerate(cells) if _LABEL.fullmatch(c) and i not in set(used)}


def _columns(path: Path, cells: Sequence[str], rules: Preset) -> Iterator[tuple[_Column, int]]:
    """Columns of values in a heading, with their positions."""
    top = {key: rules[key] for key in (*LABELS, "where") if key in rules}
    for number, rule in enumerate(rules["sensors"]):
        rule = {**top, **rule}
        if "pattern" in rule:
            matches = [(i, re.fullmatch(rule["pattern"], cell)) for i, cell in enumerate(cells)]
            for turn, (i, match) in enumerate((i, match) for i, match in matches if match):
                groups = {key: text for key, text in match.groupdict().items() if text}
                index = groups.get("index", "")
                number_of = int(index) if index.isdigit() else turn
                of_column = {**rule, **groups, "index": rule.get("index", 0) + number_of}
                yield _Column(of_column, cells[i], f"{number}:{cells[i]}:{turn}"), i
        elif (at := _position(cells, names := listed(rule["column"]))) is not None:
            if rules["name"] == DESCRIBED and list(cells).count(cells[at]) > 1:
                name = shown(cells[at])
                raise InputError(f"{path}: has several columns {name}; use `pattern`")
            yield _Column(rule, names[0], f"{number}:{names[0]}"), at


def _where(frame: pd.DataFrame, rule: Mapping[str, Any]) -> pd.Series:
    """Rows that have the texts of the rule's `where`, (n,); a column that is not there asks for nothing."""
    rows = pd.Series(True, frame.index)
    for name, allowed in rule.get("where", {}).items():
        if name in frame:
            rows &= frame[name].isin(map(str, allowed if isinstance(allowed, list) else [allowed]))
    return rows


def _with_values_in_si(path: Path, frame: pd.DataFrame, column: _Column, rules: Preset) -> _Column:
    """Turn the cells of a column into W, J or a share, NaN where there is no number; with its quantity.

    The unit behind a number counts before that of its row's `unit_column`, that before the heading's, and
    that before the description's. Raises InputError without a unit, and if one does not fit.
    """
    rule, place = column.rule, f"{path}: column {shown(column.header)}"
    heads, stated = frame[f"{column.key} unit"], rule.get("unit", "")
    if UNITS.get(stated, UNITS["%"])[0] != "utilisation":
        heads = heads.where(~heads.isin(["1", "%"]), "")  # a footnote, or a share of a limit
    absent = frame[column.key].str.contains(NO_NAME) | ~_where(frame, rule)
    if "missing" in rules:
        absent |= frame[column.key].str.fullmatch(rules["missing"])
    texts = frame[column.key].mask(absent, "")
    numbers, units = _numbers(texts, rules.get("decimal", "."))
    for fallback in (frame.get(rule.get("unit_column"), ""), heads, stated):
        units = units.mask(units == "", fallback)
    basis = next((u for u in (stated, *heads.unique(), *units.unique()) if u in UNITS), None)
    if basis is None:
        raise InputError(f"{place} has no unit in its heading or cells; state it with `unit`")
    natural = UNITS[basis][0]
    for head in filter(None, heads.unique()):
        is_other = rules["name"] == DESCRIBED and UNITS[head] != UNITS[basis]
        if is_other or UNITS[head][0] != natural:
            raise InputError(f"{place} has the unit {head} in its heading, and {basis} described")
    values = numbers * units.map({u: _factor(u, natural) for u in units.unique()}).to_numpy()
    unread = (texts != "") & np.isnan(values)
    if unread.any() and (
        np.isnan(values).all() or units[unread & ~np.isnan(numbers)].duplicated().any()
    ):
        example = f"cells without a number in {basis}, such as {shown(texts[unread].iloc[0])}"
        raise InputError(f"{place} has {example}; see `unit` and `decimal`")
    quantity, allowed = rule.get("quantity", natural), QUANTITIES.get(natural, (natural,))
    if quantity not in allowed:
        raise InputError(f"{place} is in {basis}, and no {quantity}; allowed: {', '.join(allowed)}")
    frame[column.key] = values
    return replace(column, quantity=quantity)


def _numbers(texts: pd.Series, decimal: str) -> tuple[Floats, pd.Series]:
    """Numbers of cells, (n,), NaN for none, and the units behind them, empty without."""
    texts = texts.str.replace(decimal, ".", regex=False)
    numbers = as_numbers(texts)
    if np.isfinite(numbers).all():
        return numbers, pd.Series("", index=texts.index)
    cells = pc.extract_regex(pa.array(texts, pa.string()), _CELL)
    number, unit = (pc.struct_field(cells, name).to_pandas() for name in ("number", "unit"))
    return as_numbers(number), unit.fillna("")


def _factor(unit: str, natural: str) -> float:
    """Factor of a unit to W, J or a share; NaN if that is not what it is of.

    Letters of the wrong case are read where only one unit has them: KW, not Mw.
    """
    alike = {UNITS[u] for u in UNITS if u.lower() == unit.lower()}
    what, factor = UNITS.get(unit) or (alike.pop() if len(alike) == 1 else ("", np.nan))
    return factor if what == natural else np.nan


# --- the table and its blocks ---------------------------------------------------------------------


@dataclass(eq=False)
class _Table:
    """The rows of a table, from which the blocks of each node and device are read."""

    path: Path
    rules: Preset
    frame: pd.DataFrame
    columns: Sequence[_Column]
    times: RowTimes
    flags: list[Flag] = field(default_factory=list)
    repeats: int = 0
    contradicting: int = 0

    def __post_init__(self) -> None:
        self.lost = np.isnan(self.times.seconds)
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


def read_table(path: Path, preset: Preset, options: Options = NO_OPTIONS) -> Recording:
    """Read a table by its description (not one with `totals`). Raises InputError if it does not fit."""
    place = str(options.columns or path)
    if not preset.get("sensors") or not preset.get("time"):
        raise InputError(f"{place}: expected 'time' and 'sensors' that name the table's columns")
    lines, torn = read_lines(path, preset.get("skip_lines", 0))
    frame, columns, lost = _read_frame(path, _edited(lines, preset) or lines, preset)
    times = read_times(path, f"{place}: time", preset, frame, options.time_zone)
    table = _Table(path, preset, frame, columns, times)
    blocks = _read_blocks(table, node_of(path, options), place)
    readable = len(frame) - int(table.lost.sum())
    lost += len(frame) - readable
    if lost > readable:
        raise InputError(
            f"{path}: {lost} of {lost + readable} lines hold no sample that can be read; "
            "describe those that are no rows (skip)"
        )
    differ = len(set(lines)) > len(lines) - 0.5 * table.repeats and not preset["time"].get("sort")
    if differ and table.repeats > _MOST_CONTRADICTING * len(frame):
        what = "rows repeat others in time and value, and differ in what is not read"
        raise InputError(f"{path}: {table.repeats} {what}; {_TELL_APART}")
    flags = (*times.flags, *table.flags, *damage_flags(path, lost, torn))
    names = sorted({block.node for block in blocks})
    nodes = {name: [block for block in blocks if block.node == name] for name in names}
    return Recording(nodes, times.clock_known, None, str(path), flags, format=preset["name"])


def _read_blocks(table: _Table, node: str, place: str) -> list[Block]:
    """Blocks of all nodes; `node` is that of rows that name none, `place` that of the description.

    Raises InputError if no row can be read, or nothing tells them apart.
    """
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
    return blocks


# --- rows of nodes and devices --------------------------------------------------------------------


def _take_in_turn(table: _Table, gpus: int) -> None:
    """Number rows that are of `gpus` GPUs in turn; refuse where one is missing, as the others then shift."""
    count = len(table.frame)
    is_whole = count % gpus == 0
    if table.times.period_s is None and count >= 2 * gpus:
        sets = table.times.of(np.arange(count))[: count // gpus * gpus].reshape(-1, gpus)
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
    kinds: dict[str, list[_Column]] = {}
    for column in table.columns:
        keys = ("where", "node_column", "index_column", "node")
        kinds.setdefault(repr([column.rule.get(key) for key in keys]), []).append(column)
    for columns in kinds.values():
        nodes, devices = (table.label(columns[0], k) for k in ("node_column", "index_column"))
        named = _where(table.frame, columns[0].rule).to_numpy()
        if not named.any() and table.rules["name"] == DESCRIBED:
            raise InputError(f"{table.path}: no row has {shown(columns[0].rule['where'])}")
        for label in filter(None, (nodes, devices)):
            unnamed = table.frame[label].str.contains(NO_NAME).to_numpy()
            table.lost |= named & unnamed
            named = named & ~unnamed
        rows = table.times.order[named[table.times.order]]
        if devices is None and "index_column" in columns[0].rule:
            _refuse_interleaved(table, rows)
            detail = "its rows name no GPU and are taken as those of one; record the index"
            table.flag("assumed", detail)
        labels, has_names = pd.DataFrame({"node": "", "device": 0.0}, index=rows), False
        if nodes:
            labels["node"] = table.frame[nodes]
        if devices:
            names = table.frame[devices].loc[rows]
            has_names = not names.str.isdigit().any()
            labels["device"] = names.groupby(labels["node"]).transform(_device_numbers)
            table.lost[rows[labels["device"].isna()]] = True
        for key, at in labels.groupby(["node", "device"]).groups.items():
            (node, device), of_device = cast(tuple[str, float], key), at.to_numpy()
            if has_names:  # a name may be several devices'
                _refuse_interleaved(table, of_device)
            name = node or columns[0].rule.get("node", unnamed_node)
            yield name, int(device) if devices else None, of_device, columns


def _device_numbers(names: pd.Series) -> pd.Series:
    """Numbers of devices in their names (3, gpu3), else by the order of the names; NaN for a damaged name."""
    codes, texts = pd.factorize(names, sort=True)
    parts = pd.Series(texts).str.extract(r"^([A-Za-z_]*)(\d{1,4})$")
    numbers = parts[1].astype(np.float64).to_numpy()[codes]
    is_plain = (parts[0] == "").to_numpy()[codes]
    if is_plain.mean() > 0.9:  # the others are damaged
        numbers = np.where(is_plain, numbers, np.nan)
    elif np.isnan(numbers).mean() > 0.1 or parts[0].nunique() > 1:
        numbers = codes.astype(np.float64)
    return pd.Series(numbers, names.index)


def _refuse_interleaved(table: _Table, rows: np.ndarray) -> None:
    """Refuse rows of one device of which many follow another at once: they are of several."""
    seconds = table.times.seconds[rows]
    steps = np.diff(seconds[np.isfinite(seconds)])
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
    if table.rules["time"].get("sort"):
        by_time = rows[np.argsort(table.times.seconds[rows], kind="stable")]
        if (by_time != rows).any():
            table.flag("assumed", "its rows are not in order of time, and are sorted")
        rows = by_time
    for is_energy in (False, True):
        of_kind = [column for column in columns if (column.quantity == "energy") == is_energy]
        if not of_kind:
            continue
        sensors = sensor_frame([_sensor(table, column, index, rows) for column in of_kind])
        values = table.frame[[column.key for column in of_kind]].to_numpy(np.float64)[rows]
        read = _energies if is_energy else _samples
        time_s, values = read(table, rows, values, sensors)
        block = Block(node, time_s, np.asfortranarray(values), sensors)
        if table.rules["name"] == DESCRIBED:
            _refuse_falls(table, block, of_kind)
        yield select(block, _with_values(block))


def _sensor(table: _Table, column: _Column, index: int | None, rows: np.ndarray) -> dict[str, Any]:
    """Row of a sensor in the frame of a block's sensors."""
    rule, header = column.rule, column.header
    name = rule.get("name", header if index is None else f"{header}:{{index}}")
    index = rule.get("index", 0) if index is None else index
    device = rule.get("device") or table.first(rows, column, "device_column")
    is_gpu_power = column.quantity == "power" and rule["kind"] == "gpu"
    label = table.label(column, "limit_column")
    limits = table.frame[label].iloc[rows] if label else pd.Series(dtype="str")
    limit_w = np.fmax.reduce(as_numbers(limits.str.removesuffix("W")), initial=0.0)
    return {
        "name": name.replace("{index}", str(index)).replace("{column}", header),
        "kind": rule["kind"],
        "index": index,
        "quantity": "counter" if column.quantity == "energy" else column.quantity,
        "range_j": _range_j(column),
        "limit_w": float(rule.get("limit_w", limit_w)) or np.nan,
        "uuid": rule.get("uuid") or table.first(rows, column, "uuid_column"),
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


def _with_values(block: Block) -> list[int]:
    """Positions of the sensors to keep: of a device that has values, those that have some.

    Of one without, the first of its power and energy stays, so that it is known to be without values.
    """
    sensors = block.sensors
    valued = pd.Series(np.isfinite(block.values).any(axis=0))
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
    timed = np.isfinite(table.times.seconds[rows])
    time_s, values = table.times.of(rows[timed]), values[timed]
    if table.rules["time"].get("spread"):
        return _spread(time_s), values
    for name, column in zip(sensors["name"], values.T, strict=True):
        valued = pd.DataFrame({"time": time_s, "value": column}).dropna()
        contradicts = valued.drop_duplicates().duplicated("time", keep=False).sum()
        if contradicts > _MOST_CONTRADICTING * len(valued):
            raise InputError(
                f"{table.path}: column {shown(name)} has several values at one time; {_TELL_APART} (or "
                "time: {spread: true} if whole seconds are stamped)"
            )
    is_new = np.diff(time_s, prepend=np.nan) != 0
    if is_new.all():
        return time_s, values
    at_once = pd.DataFrame(values).groupby(np.cumsum(is_new))
    differ = int((at_once.nunique() > 1).any(axis=1).sum())
    table.contradicting += differ
    table.repeats += int((~is_new).sum()) - differ
    return time_s[is_new], at_once.first().to_numpy(np.float64)


def _spread(time_s: Floats) -> Floats:
    """Times of samples that carry whole seconds, several each: evenly within their second."""
    seconds = pd.Series(time_s)
    at_once = seconds.groupby((seconds.diff() != 0).cumsum())
    return (seconds + at_once.cumcount() / at_once.transform("size")).to_numpy()


def _energies(
    table: _Table, rows: np.ndarray, used_j: Floats, sensors: pd.DataFrame
) -> tuple[Floats, Floats]:
    """Times and counters in J, (m,) and (m, k), of the energies of intervals, (n, k).

    An interval ends at its stamp unless `time.stamp` says that it begins there. One whose other end nothing
    tells is not counted, and flagged; what was used between two intervals is unknown.
    """
    end_s, time = table.times.of(rows), table.rules["time"]
    at_begin, begin_s = time.get("stamp") == "begin", table.times.begin_s
    if "duration" in time:
        durations = as_numbers(table.frame[time["duration"]].iloc[rows])
        begins_s = end_s if at_begin else end_s - durations
        end_s, begin_s = begins_s + durations, begins_s[0]
        touching_s = TOUCHING_S if (begins_s % 1.0 > 0).any() else 1.0  # of whole seconds
        apart = np.flatnonzero(begins_s[1:] - end_s[:-1] > touching_s) + 1
        end_s = np.insert(end_s, apart, begins_s[apart])
        used_j = np.insert(used_j, apart, np.nan, axis=0)
    elif at_begin:
        begin_s, used_j = None, np.vstack([used_j[:1], used_j[:-1]])
    if begin_s is None:
        which = "last" if at_begin else "first"
        detail = f"the energy of the {which} interval is not counted, as its length is unknown"
        for name in map(str, sensors["name"]):
            table.flag("missing_samples", f"{name}: {detail}; {_DURATION}", name)
    else:
        end_s, used_j = np.insert(end_s, 0, begin_s), np.vstack([used_j[:1], used_j])
    timed = np.isfinite(end_s)
    return end_s[timed], _added_up(end_s, used_j)[timed]


def _added_up(time_s: Floats, used_j: Floats) -> Floats:
    """Counters in J, (n, k), of energies used since the row before, in the order of the rows.

    The first is not counted, nor is one that repeats the one before, at the same time. Where one is unknown
    the counter begins anew, lower, so that it is told from no energy.
    """
    used = pd.DataFrame(used_j)
    is_first = np.arange(len(used)) == 0
    unknown = ~(used >= 0) & ~is_first[:, None]
    is_repeated = (used.diff() == 0) & (np.diff(time_s, prepend=np.nan) == 0)[:, None]
    steps, begun = used.mask(unknown | is_repeated | is_first[:, None], 0.0), unknown.cumsum()
    counters = [steps[i].groupby(begun[i]).cumsum() + begun[i].max() - begun[i] for i in steps]
    return np.column_stack(counters) + 1.0


# --- what nothing tells is refused ----------------------------------------------------------------


def _refuse_several(table: _Table, rows: np.ndarray, column: _Column, index: int) -> None:
    """Refuse rows of several nodes, in which one index is several GPUs."""
    label = table.label(column, "uuid_column")
    if label in (None, table.label(column, "index_column")):
        return
    texts = table.frame[label].iloc[rows]
    counts = texts[~texts.str.contains(NO_NAME)].value_counts()
    several = sorted(counts[counts > 1].index)  # of a damaged text there is one row
    if len(several) > 1:
        raise InputError(
            f"{table.path}: index {index} is {len(several)} GPUs ({', '.join(several[:2])[:90]}): rows of "
            "several nodes; expected a column that tells them (hostname), or one file for each node"
        )


def _refuse_falls(table: _Table, block: Block, columns: Sequence[_Column]) -> None:
    """Refuse a described counter that often falls: energies of intervals that nobody calls so."""
    for column, values in zip(columns, block.values.T, strict=True):
        steps = np.diff(values[np.isfinite(values)])
        is_by_default = column.quantity == "counter" and "quantity" not in column.rule
        if is_by_default and (steps < 0).sum() > max(2, _MOST_FALLS * steps.size):
            raise InputError(
                f"{table.path}: column {shown(column.header)} falls too often for a counter; state "
                "`quantity: energy` if its values are of intervals, else `quantity: counter`"
            )


def _refuse_doubles(place: str, blocks: Sequence[Block]) -> None:
    """Refuse two columns that state the same of one device: one of them has a wrong index or node."""
    sensors = pd.concat([block.sensors.assign(node=block.node) for block in blocks])
    for key, names in sensors.groupby(["quantity", "kind", "index", "node"])["name"]:
        if len(names) > 1:
            both = " and ".join(map(shown, names[:2]))
            what = "{} of {} {} of {}".format(*key)
            raise InputError(f"{place}: {both} are both {what}; give each its index or node")


def _without_second_dies(table: _Table, blocks: list[Block]) -> list[Block]:
    """Leave out GPUs of odd numbers if all are without power and no other is: the first die has both's."""
    powers = [b.values[:, b.sensors["quantity"] != "utilisation"] for b in blocks]
    sensors = pd.concat([b.sensors[b.sensors["quantity"] != "utilisation"] for b in blocks])
    dead = np.concatenate([~(np.nan_to_num(power) > 0).any(axis=0) for power in powers])
    odd, is_gpu = (sensors["index"] % 2 == 1).to_numpy(), (sensors["kind"] == "gpu").to_numpy()
    if not odd[is_gpu].any() or (odd != dead)[is_gpu].any():
        return blocks
    table.flag("assumed", "GPUs of odd numbers are second dies: the power of both is the first's")
    first = [(b, (b.sensors["kind"] != "gpu") | (b.sensors["index"] % 2 == 0)) for b in blocks]
    return [select(block, kept.to_numpy()) for block, kept in first if kept.any()]
