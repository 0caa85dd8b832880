"""report.html: the whole campaign on one page that needs nothing but itself."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt import __version__
from scalewatt.errors import InputError
from scalewatt.figures.points import gpu_word, metadata
from scalewatt.figures.words import metric_label, origin_sentence
from scalewatt.files import read_json, write_text
from scalewatt.report.captions import TITLES, caption, title, variants_caption
from scalewatt.report.numbers import MISSING, flags, number, with_interval

Row = dict[str, Any]

# Column of the tables, heading on the page.
CONFIGURATION_QUANTITIES = (
    ("runtime_h", "run time (h)"),
    ("gpu_hours", "{hours} (h)"),
    ("energy_kwh", "energy (kWh)"),
    ("p_gpuh_kw", "P_GPUh (kW)"),
    ("metric_last", "metric"),
)
RUN_COLUMNS = (
    ("configuration", "configuration"),
    ("repeat", "repeat"),
    ("gpus", "n"),
    ("local_batch_size", "LBS"),
    ("global_batch_size", "GBS"),
    ("dataset_samples", "samples"),
    ("updates", "updates"),
    ("runtime_h", "run time (h)"),
    ("gpu_hours", "{hours} (h)"),
    ("energy_kwh", "energy (kWh)"),
    ("energy_origin", "origin"),
    ("energy_scope", "scope"),
    ("coverage", "coverage"),
    ("metric_last", "metric"),
    ("segments", "segments"),
)
TABLE1_COLUMNS = (
    ("device", "device"),
    ("gpus", "n"),
    ("local_batch_size", "LBS"),
    ("global_batch_size", "GBS"),
    ("energy_kwh", "energy (kWh)"),
    ("energy_per_node_kwh", "energy per node (kWh)"),
    ("runtime_h", "run time (h)"),
    ("gpu_hours", "{hours} (h)"),
    ("metric_last", "metric"),
    ("n_repeats", "runs"),
    ("energy_origin", "origin"),
)
VARIANT_QUANTITIES = (
    ("runtime_h", "run time (h)"),
    ("energy_kwh", "energy (kWh)"),
    ("energy_per_sample_j", "J per sample"),
    ("mean_gpu_power_w", "GPU power (W)"),
    ("mean_cpu_socket_power_w", "CPU socket power (W)"),
    ("step_data_share", "share of a step waiting for data"),
    ("metric_last", "metric"),
)
VARIANT_RATIOS = (
    ("runtime_ratio", "time ÷ baseline"),
    ("energy_ratio", "energy ÷ baseline"),
)


@dataclass(frozen=True)
class Grid:
    """A table for the page: headings and rows of ready texts."""

    headings: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class FigureEntry:
    """One figure on the page; `image` is a data URI, or None when its file is missing."""

    number: int
    title: str
    caption: str
    image: str | None


@dataclass(frozen=True)
class Variants:
    """The part on variants; `image` is a data URI, or None when its file is missing."""

    caption: str
    image: str | None
    grid: Grid


def write_report(
    tables_dir: Path,
    figures_dir: Path,
    out: Path,
    campaign_name: str,
    provenance_path: Path | None = None,
    profile: str = "profiles/local",
    campaign_file: Path | None = None,
    basis: Sequence[str] = (),
) -> None:
    """Write the campaign's report to `out`, one HTML file without any reference outside itself.

    Tables and figures that do not exist are named as missing on the page. `provenance_path`:
    provenance.json of one run, for the packages; `profile` and `campaign_file` (None: the
    profile's own): for the commands shown; `basis`: sentences on what the cluster file put into
    the numbers.
    InputError: a table that exists cannot be read.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    tables_dir, figures_dir = Path(tables_dir), Path(figures_dir)
    runs = _rows(tables_dir / "runs.parquet")
    configurations = _rows(tables_dir / "configurations.parquet")
    word = _gpu_word(tables_dir)
    hours = "process hours" if word == "processes" else "GPU hours"
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2").render(
        campaign=campaign_name,
        origin=origin_sentence(runs) if runs else "",
        facts=_facts(runs or [], hours),
        devices=_devices(runs or []),
        basis=basis,
        figures=[_figure(number_, tables_dir, figures_dir) for number_ in TITLES],
        variants=_variants(tables_dir, figures_dir),
        table1=_table1_grid(_table(tables_dir / "table1.parquet"), hours),
        configurations=_configuration_grid(configurations, hours),
        runs=_run_grid(runs, hours),
        learning=_learning_grid(runs),
        specs=_spec_grid(runs),
        packages=_packages(provenance_path),
        packages_of=_whose_packages(provenance_path),
        counts=f"n counts {word}.",
        command=f"snakemake --profile {profile}",
        choice=f" --config campaign={campaign_file}" if campaign_file else "",
        version=__version__,
    )
    write_text(out, page)


def _rows(path: Path) -> list[Row] | None:
    """The rows of a table, or None when it does not exist."""
    table = _table(path)
    return None if table is None else table.to_pylist()


def _table(path: Path) -> pa.Table | None:
    if not path.is_file():
        return None
    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"report: {path} is not a readable Parquet file") from error


def _gpu_word(tables_dir: Path) -> str:
    """What n counts in the runs."""
    table = _table(tables_dir / "runs.parquet")
    return "GPUs" if table is None else gpu_word(table)


def _facts(runs: Sequence[Row], hours: str) -> list[tuple[str, str]]:
    """The summary's numbers; a sum says when it lacks some runs."""
    facts = [
        ("runs", number(len(runs))),
        ("configurations", number(len({row["configuration"] for row in runs}))),
        ("energy", _total(runs, "energy_kwh", "kWh")),
        (hours, _total(runs, "gpu_hours", "h")),
    ]
    optional = (
        ("energy of the facility (with PUE)", "facility_energy_kwh", "kWh"),
        ("CO₂", "carbon_kg", "kg"),
        ("cost (currency of cluster.yaml)", "cost", ""),
    )
    for words, column, unit in optional:
        total = _total(runs, column, unit)
        if total != MISSING:
            facts.append((words, total))
    return facts


def _total(runs: Sequence[Row], column: str, unit: str) -> str:
    values = [row[column] for row in runs if row.get(column) is not None]
    if not values:
        return MISSING
    partial = f" ({len(values)} of {len(runs)} runs)" if len(values) < len(runs) else ""
    return f"{number(float(sum(values)))} {unit}".strip() + partial


def _devices(runs: Sequence[Row]) -> list[str]:
    """Each device with its hardware's name, its models and its most GPUs and nodes."""
    lines = []
    for device in dict.fromkeys(row["device"] for row in runs):
        own = [row for row in runs if row["device"] == device]
        names = [str(n) for n in dict.fromkeys(row["device_name"] for row in own) if n]
        models = ", ".join(dict.fromkeys(row["model"] for row in own))
        nodes = max((row["nodes"] or 1) for row in own)
        lines.append(
            f"{models} on {device}"
            + (f" ({' / '.join(names)})" if names else "")
            + f", n up to {max(row['gpus'] for row in own)}"
            + f" on up to {nodes} node{'s' * (nodes > 1)}"
        )
    return lines


def _figure(figure: int, tables_dir: Path, figures_dir: Path) -> FigureEntry:
    table = _table(tables_dir / f"figure{figure}.parquet")
    words = "This figure's table has not been made." if table is None else caption(figure, table)
    return FigureEntry(figure, title(figure, table), words, _image(figures_dir, f"figure{figure}"))


def _variants(tables_dir: Path, figures_dir: Path) -> Variants | None:
    """The part on variants, of a campaign that has them."""
    table = _table(tables_dir / "variants.parquet")
    if table is None:
        return None
    rows = table.to_pylist()
    texts = [
        [number(row[c]) for c in ("model", "differs", "precision_used", "n_repeats")]
        + [with_interval(row, column) for column, _ in VARIANT_QUANTITIES]
        + [number(row[column], 3) for column, _ in VARIANT_RATIOS]
        for row in rows
    ]
    headings = ["model", "variant", "computed in", "runs"]
    headings += [words for _, words in (*VARIANT_QUANTITIES, *VARIANT_RATIOS)]
    image = _image(figures_dir, "variants")
    return Variants(variants_caption(table), image, Grid(headings, texts))


def _image(figures_dir: Path, stem: str) -> str | None:
    """The figure as a data URI: SVG, else PNG, else None."""
    for suffix, kind in (("svg", "svg+xml"), ("png", "png")):
        path = figures_dir / f"{stem}.{suffix}"
        if path.is_file():
            return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return None


def _headings(columns: Sequence[tuple[str, str]], hours: str) -> list[str]:
    return [heading.format(hours=hours) for _, heading in columns]


def _grid(
    rows: Sequence[Row] | None, columns: Sequence[tuple[str, str]], hours: str
) -> Grid | None:
    if rows is None:
        return None
    texts = [[number(row.get(column)) for column, _ in columns] for row in rows]
    return Grid(_headings(columns, hours), texts)


def _table1_grid(table: pa.Table | None, hours: str) -> Grid | None:
    grid = _grid(None if table is None else table.to_pylist(), TABLE1_COLUMNS, hours)
    if grid is None or table is None:
        return grid
    # Without any run, the paper's.
    label = metric_label("fourcastnet", metadata(table).get("metric_name"))
    return Grid([label if h == "metric" else h for h in grid.headings], grid.rows)


def _configuration_grid(rows: Sequence[Row] | None, hours: str) -> Grid | None:
    if rows is None:
        return None
    headings = ["configuration", "n", "LBS", "GBS", "runs"]
    texts = [
        [
            number(row["configuration"]),
            *(number(row.get(c)) for c in ("gpus", "local_batch_size", "global_batch_size")),
            number(row["n_repeats"]),
            *(with_interval(row, column) for column, _ in CONFIGURATION_QUANTITIES),
        ]
        for row in rows
    ]
    return Grid(headings + _headings(CONFIGURATION_QUANTITIES, hours), texts)


def _run_grid(rows: Sequence[Row] | None, hours: str) -> Grid | None:
    grid = _grid(rows, RUN_COLUMNS, hours)
    if grid is None or rows is None:
        return None
    texts = [[*line, flags(row.get("flags"))] for line, row in zip(grid.rows, rows, strict=True)]
    return Grid([*grid.headings, "flags"], texts)


def _learning_grid(rows: Sequence[Row] | None) -> Grid | None:
    """The metric of every run beside that of persistence, where persistence has a meaning."""
    if rows is None:
        return None
    headings = ["configuration", "repeat", "metric", "last", "best", "persistence", "verdict"]
    texts = [
        [
            number(row["configuration"]),
            number(row["repeat"]),
            metric_label(None, row["metric_name"]),
            number(row["metric_last"]),
            number(row["metric_best"]),
            number(row["metric_persistence"]),
            _verdict(row),
        ]
        for row in rows
    ]
    return Grid(headings, texts)


def _verdict(row: Mapping[str, Any]) -> str:
    last, persistence = row["metric_last"], row["metric_persistence"]
    if last is None or not persistence:
        return MISSING
    share = f"{100 * last / persistence:.0f} % of persistence"
    return f"better ({share})" if last < persistence else f"not better ({share})"


def _spec_grid(rows: Sequence[Row] | None) -> Grid | None:
    columns = (("configuration", "configuration"), ("repeat", "repeat"), ("protocol", "protocol"))
    more = (("precision", "precision"), ("spec_sha256", "SHA-256 of spec.json"))
    return _grid(rows, (*columns, *more), "")


def _packages(path: Path | None) -> list[tuple[str, str]]:
    if path is None or not Path(path).is_file():
        return []
    packages = read_json(path).get("packages") or {}
    return sorted((str(name), str(version)) for name, version in packages.items())


def _whose_packages(path: Path | None) -> str:
    """A command's own packages are not known: those of its recorder are."""
    provenance = read_json(path) if path is not None and Path(path).is_file() else {}
    return " of ".join([*filter(None, [provenance.get("packages_of")]), "a run"])
