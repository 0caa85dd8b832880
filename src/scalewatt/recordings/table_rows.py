"""Rows of a table in text, as its description says: lines, cells, and values in W, J or as a share."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of, shown
from scalewatt.recordings.block import Flag, Floats
from scalewatt.recordings.series import flag
from scalewatt.recordings.times import as_numbers

Preset = Mapping[str, Any]
"""A description of a table: the content of a preset, or of the user's YAML (then its `name` is DESCRIBED)."""
DESCRIBED = "csv"

_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
_NAMES = {
    "W Watt Watts": ("power", 1.0),
    "J Joule Joules": ("counter", 1.0),
    "Wh": ("counter", 3600.0),
}
UNITS: dict[str, tuple[str, float]] = {
    f"{prefix}{unit}": (quantity, factor * scale)
    for units, (quantity, factor) in _NAMES.items()
    for unit in units.split()
    for prefix, scale in _PREFIXES.items()
}
UNITS |= {"%": ("utilisation", 0.01), "1": ("utilisation", 1.0)}
"""Natural quantity of a unit, and its factor to W, J or a share."""
QUANTITIES = {"power": ("power", "mean_power"), "counter": ("counter", "energy")}
"""Quantities that a natural one may be said to be."""
NO_NAME = r"(?i)^(?:n/?a|nan|null|none|\[.*)?$"
"""Cells that stand for nothing."""
LABELS = ("node_column", "index_column", "uuid_column", "device_column", "limit_column")
_CELL = r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ%]*)$"
_WITH_UNIT = re.compile(r"(.*?)\s*[\[(]([^\[\]()]*)[\])]\s*")


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
        lines = decoded(path.read_bytes()).split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    torn = bool(lines.pop().strip())
    whole = [line.rstrip("\r") for line in lines[skip:] if line and not line.isspace()]
    if not whole:
        reason = f"holds no row below its line {skip}" if skip else "is empty"
        raise InputError(f"{path}: {reason}; expected a recording")
    return whole, torn


def edited(lines: Sequence[str], rules: Preset) -> list[str]:
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
    row = csv.reader([line], delimiter=_delimiter(line, rules), skipinitialspace=True)
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
    heads = [_cells_of(line, preset) for line in edited(lines, preset) if len(line) < 1 << 16]
    return "heading" in preset and any(_is_heading(cells, preset["heading"]) for cells in heads)


def _is_heading(cells: Sequence[str], patterns: Sequence[str]) -> bool:
    return all(any(re.fullmatch(p, cell, re.IGNORECASE) for cell in cells) for p in patterns)


# --- parts below headings, and values -------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of values: the rule that names it, and what its heading and the pattern tell."""

    rule: Mapping[str, Any]
    header: str
    key: str
    """Its name in the frame of rows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Groups of the pattern that matched the heading: index, node, unit."""
    quantity: str = ""
    """As written: power, mean_power, counter, energy or utilisation."""


def read_frame(
    path: Path, lines: Sequence[str], rules: Preset
) -> tuple[pd.DataFrame, list[Column], int]:
    """Read rows: columns of texts by name, of values in W, J or as a share by key; and count lost lines.

    Raises InputError without a heading or without a column that is read.
    """
    frames: list[pd.DataFrame] = []
    columns: dict[str, Column] = {}
    lost = 0
    for cells, delimiter, below in _parts(path, lines, rules):
        matched = list(_columns(path, cells, rules))
        options = {several[0]: _position(cells, several) for several in _text_names(rules)}
        places = {name: place for name, place in options.items() if place is not None}

        wanted = sorted({*places.values(), *(place for _, place in matched)})
        texts = _parse(below, len(cells), wanted, delimiter)
        lost += len(below) - len(texts)
        frame = texts[list(places.values())].set_axis(list(places), axis=1)
        for column, place in matched:
            if "extract" in rules and (texts[place] == "").all():
                continue  # as if it were no column
            rows = where(frame, column.rule)
            values, quantity = _in_si(
                path, texts[place][rows], cells[place], column, rules, frame[rows]
            )
            frame[column.key] = pd.Series(values, index=texts.index[rows], dtype=np.float64)
            columns.setdefault(column.key, replace(column, quantity=quantity))
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True)
    if not columns or whole.empty:
        fields = [str(rule.get("column", rule.get("pattern"))) for rule in rules["sensors"]]
        lack = (
            "row below its heading"
            if columns
            else f"field that is read; expected {' or '.join(fields)}"
        )
        raise InputError(f"{path}: has no {lack}")
    empty = {name: "" for name in whole if name not in columns}
    return whole.fillna(empty), list(columns.values()), lost


_Part = tuple[list[str], str, list[str]]


def _parts(path: Path, lines: Sequence[str], rules: Preset) -> list[_Part]:
    """Cells of each heading, the delimiter, and the lines below; one heading again begins no new part."""
    header, names = rules.get("header"), [several[0] for several in _text_names(rules)]
    names = header or names + [
        listed(rule["column"])[0] for rule in rules["sensors"] if "column" in rule
    ]
    patterns = [rf"{re.escape(name)}(?:\s*[\[(].*)?" for name in names]
    patterns += [rule["pattern"] for rule in rules["sensors"] if "pattern" in rule and not header]
    patterns = patterns if header else rules.get("heading", patterns)
    mark = re.compile(patterns[0], re.IGNORECASE)
    parts: list[_Part] = [(header, _delimiter(lines[0], rules), [])] if header else []
    for line in lines:
        if mark.search(line) and _is_heading(cells := _cells_of(line, rules), patterns):
            if not parts or (parts[-1][0] != cells and not header):
                parts.append((cells, _delimiter(line, rules), []))
        elif parts:
            parts[-1][2].append(line)
    if not parts:
        raise InputError(f"{path}: {_lack(_cells_of(lines[0], rules), names, rules)}")
    return parts


def _lack(cells: Sequence[str], names: Sequence[str], rules: Preset) -> str:
    """What a table without a heading lacks, by the cells of its first line."""
    if cells[0][:1] in ("{", "["):
        return "is JSON; expected a table"
    if rules["name"] != DESCRIBED:
        example = rules.get("example", "[time, power]")
        return f"has no heading; name the columns in the YAML file (header: {example})"
    name = next((name for name in names if _position(cells, [name]) is None), "")
    return f"has no column {shown(name)}; {one_of(name, cells[:30])[:500]}"


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


def _columns(path: Path, cells: Sequence[str], rules: Preset) -> Iterator[tuple[Column, int]]:
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
                yield Column(rule, cells[i], f"{number}:{cells[i]}:{turn}", labels), i
        elif (position := _position(cells, names := listed(rule["column"]))) is not None:
            if rules["name"] == DESCRIBED and list(cells).count(cells[position]) > 1:
                raise InputError(
                    f"{path}: has several columns {shown(cells[position])}; use `pattern`"
                )
            yield Column(rule, names[0], f"{number}:{names[0]}"), position


def where(frame: pd.DataFrame, rule: Mapping[str, Any]) -> np.ndarray:
    """Rows that have the texts of the rule's `where`, (n,); a column that is not there asks for nothing."""
    rows = np.ones(len(frame), dtype=np.bool_)
    for name, texts in rule.get("where", {}).items():
        if name in frame:
            texts = texts if isinstance(texts, list) else [texts]
            rows &= frame[name].isin([str(text) for text in texts]).to_numpy()
    return rows


def _in_si(
    path: Path, texts: pd.Series, cell: str, column: Column, rules: Preset, frame: pd.DataFrame
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
        raise InputError(
            f"{place} has the unit {head} in its heading, and {basis} in its description"
        )
    factors[""] = factors.get(head or stated or "", np.nan)
    values = numbers * units.map(factors).to_numpy(np.float64)
    valued = texts[~texts.str.contains(NO_NAME)]
    if len(valued) and not np.isfinite(values).any():
        raise InputError(
            f"{place} has no number in {basis}, but {shown(valued.iloc[0])}; see `decimal`"
        )
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
    cells = texts.str.extract(_CELL)
    return as_numbers(cells[0]), cells[1].fillna("")
