"""Table 1 as Markdown and LaTeX."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_COLUMNS = (
    ("device", "Device", ""),
    ("gpus", "GPUs", "d"),
    ("local_batch_size", "LBS", "d"),
    ("global_batch_size", "GBS", "d"),
    ("energy_kwh", "Energy (kWh)", ".4g"),
    ("energy_per_node_kwh", "Energy per node (kWh)", ".4g"),
    ("runtime_h", "Run time (h)", ".4g"),
    ("gpu_hours", "GPUh (h)", ".4g"),
    ("metric_last", "Z500 RMSE (m²/s²)", ".4g"),
)


def _cells(table: pa.Table) -> list[list[str]]:
    return [[_cell(row[name], form) for name, _, form in _COLUMNS] for row in table.to_pylist()]


def _cell(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def origin_sentence(table: pa.Table) -> str:
    """In words, where the energies come from and what they contain."""
    pairs = {(r["energy_origin"], r["energy_scope"]) for r in table.to_pylist()}
    words = [
        f"{origin or 'unknown'} ({scope or 'no sensor'})"
        for origin, scope in sorted(pairs, key=str)
    ]
    return f"Energy: {'; '.join(words)}." if words else "No finished run."


def markdown(table: pa.Table) -> str:
    """A Markdown table, with the energies' origin under it."""
    heads = [head for _, head, _ in _COLUMNS]
    rules = ["---" if not form else "--:" for _, _, form in _COLUMNS]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *_cells(table))]
    return "\n".join([*lines, "", origin_sentence(table), ""])


def latex(table: pa.Table) -> str:
    """A booktabs table."""
    special = str.maketrans({"–": "--", "²": "\\textsuperscript{2}", "_": "\\_", "%": "\\%"})
    align = "".join("l" if not form else "r" for _, _, form in _COLUMNS)
    body = [
        " & ".join(cells).translate(special) + r" \\"
        for cells in ([head for _, head, _ in _COLUMNS], *_cells(table))
    ]
    return "\n".join(
        [
            f"\\begin{{tabular}}{{{align}}}",
            "\\toprule",
            body[0],
            "\\midrule",
            *body[1:],
            "\\bottomrule",
            f"\\multicolumn{{{len(_COLUMNS)}}}{{l}}{{{origin_sentence(table)}}} \\\\",
            "\\end{tabular}",
            "",
        ]
    )
