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
    ("metric_last", "", ".4g"),
)
_METRIC_HEADS = {
    None: "Z500 RMSE (m²/s²)",  # no run: the paper's
    "z500_rmse_m2_s2": "Z500 RMSE (m²/s²)",
    "top1_error_percent": "Top-1 error (%)",
    "several": "Metric",
}


def _heads(metric_name: str | None) -> list[str]:
    known = _METRIC_HEADS.get(metric_name, metric_name) or ""
    return [head or known for _, head, _ in _COLUMNS]


def _cells(table: pa.Table) -> list[list[str]]:
    return [[_cell(row[name], form) for name, _, form in _COLUMNS] for row in table.to_pylist()]


def _cell(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


UNEQUAL_SCOPES = "Totals of unequal scope are not comparable."


def origin_sentence(table: pa.Table) -> str:
    """In words, where the energies come from and what they contain."""
    pairs = {(r["energy_origin"], r["energy_scope"]) for r in table.to_pylist()}
    words = [
        f"{origin or 'unknown'} ({scope or 'no sensor'})"
        for origin, scope in sorted(pairs, key=str)
    ]
    if not words:
        return "No finished run."
    unequal = len({scope for _, scope in pairs if scope}) > 1
    return f"Energy: {'; '.join(words)}.{f' {UNEQUAL_SCOPES}' if unequal else ''}"


def markdown(table: pa.Table, metric_name: str | None = None) -> str:
    """A Markdown table, with the energies' origin under it."""
    heads = _heads(metric_name)
    rules = ["---" if not form else "--:" for _, _, form in _COLUMNS]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *_cells(table))]
    return "\n".join([*lines, "", origin_sentence(table), ""])


def latex(table: pa.Table, metric_name: str | None = None) -> str:
    """A booktabs table."""
    special = str.maketrans({"–": "--", "²": "\\textsuperscript{2}", "_": "\\_", "%": "\\%"})
    align = "".join("l" if not form else "r" for _, _, form in _COLUMNS)
    body = [
        " & ".join(cells).translate(special) + r" \\"
        for cells in (_heads(metric_name), *_cells(table))
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
