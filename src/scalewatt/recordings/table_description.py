"""The description of a table of samples: the form of presets and of users' files."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from scalewatt.common.settings import STRICT, Bounds, matching

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
