"""The energy of recordings as human-readable text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scalewatt.energies.accounting.node_energy import UNUSED_GPU
from scalewatt.recordings.series import ALL_KINDS, DEVICE_KINDS, NODE

_LABELS = {
    "gpu": "GPU",
    "cpu": "CPU",
    "ram": "memory",
    UNUSED_GPU: "GPUs not held",
    NODE: "whole node",
}
MOST_DEVICES = 40
"""More devices than this are not listed; --json has them all."""


def energy_text(summary: dict[str, Any]) -> str:
    """Return what `describe` returned as lines of text. Unknown numbers are dashes."""
    epochs = summary["epochs"] if len(summary["epochs"]) <= MOST_DEVICES else []
    parts = [
        [_title(summary), *(f"  {line}" for line in _facts(summary))],
        _indented(_kinds(summary)),
        _indented(_devices(summary)),
        _indented(_windows(summary.get("windows", []))),
        _indented(_parts(summary["stages"], "stage")),
        _indented(_parts(epochs, "epoch")),
        [
            f"  {one['code']}: {one['device'] + ': ' if one['device'] else ''}{one['detail']}"
            for one in summary["flags"]
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _title(summary: dict[str, Any]) -> str:
    title = str(summary["path"])
    if summary.get("run"):
        title += f", run {summary['run']}"
        title += f", round {summary['round']}" if summary["round"] is not None else ""
    if summary.get("segments"):
        count = len(summary["segments"])
        title += f", {count} segment{'s' if count > 1 else ''}"
    return title


def _facts(summary: dict[str, Any]) -> list[str]:
    energy, gpus = "unknown", "-" if summary["gpus"] is None else summary["gpus"]
    if summary["energy_kwh"] is not None:
        energy = f"{summary['energy_kwh']:.6f} kWh = {summary['energy_j']:.1f} J"
    if summary["energy_scope"]:
        origin = f"{summary['origin']}, " if summary["origin"] else ""
        energy += f" ({origin}{summary['energy_scope']})"
    lines = [
        f"energy    {energy}",
        f"run time  {_number(summary['runtime_s'], 3)} s",
        f"hosts     {', '.join(summary['hosts']) or '-'}; GPUs {gpus}",
        f"coverage  {_percent(summary['coverage'])}",
    ]
    ends = [_number(summary[f"energy_{end}_kwh"], 6) for end in ("low", "high")]
    if ends[0] != ends[1]:
        lies = f"{' to '.join(ends)} kWh: the true value may lie anywhere between (docs/energy.md)"
        lines.insert(1, f"          {lies}")
    if summary["energy_kwh"] is None and summary["recorded_energy_kwh"]:
        recorded = _number(summary["recorded_energy_kwh"], 6)
        lines.insert(
            1, f"          {recorded} kWh were recorded; the flags say why that is not all"
        )
    if summary.get("runs"):
        names = ", ".join(run["run"] for run in summary["runs"])
        lines.append(f"runs      {names} (--run NAME for another)")
    if summary.get("windows"):
        lines.append(f"windows   {len(summary['windows'])} (--run NAME for those of one name)")
    return lines


def _kinds(summary: dict[str, Any]) -> list[list[str]]:
    rows = [["kind", "kWh", "J", "mean W of a device"]]
    for kind in (*ALL_KINDS, UNUSED_GPU):
        if kind not in DEVICE_KINDS and not any(
            d["device_kind"] == kind for d in summary["devices"]
        ):
            continue
        energies = summary[f"{kind}_energy_kwh"], summary[f"{kind}_energy_j"]
        power = summary.get(f"{kind}_mean_power_w")
        rows.append(
            [_LABELS[kind], _number(energies[0], 6), _number(energies[1], 1), _number(power, 1)]
        )
    return rows


def _devices(summary: dict[str, Any]) -> list[list[str]]:
    devices = summary["devices"]
    if len(devices) > MOST_DEVICES:
        return [[f"{len(devices)} devices (--json lists them)"]]
    rows = [["host", "device", "kWh", "J", "mean W", "coverage", "samples"]]
    for one in devices:
        rows.append(
            [
                one["node"],
                one["device"],
                _number(one["energy_kwh"], 6),
                _number(one["energy_j"], 1),
                _number(one["mean_power_w"], 1),
                _percent(one["coverage"]),
                str(one["samples"]),
            ]
        )
    return rows if len(rows) > 1 else []


def _windows(windows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each window; one that lies within another says so."""
    if len(windows) > MOST_DEVICES:
        return [[f"{len(windows)} windows (--json lists them)"]]
    gpus = list(windows[0]["gpus_j"]) if windows and len(windows[0]["gpus_j"]) > 1 else []
    rows = [["window", *(f"GPU {gpu} J" for gpu in gpus), "s", "J"]]
    for one in windows:
        name = one["window"] + ("" if one["counted"] else " (within another)")
        energies = (_number(one["gpus_j"][gpu], 1) for gpu in gpus)
        rows.append([name, *energies, _number(one["duration_s"], 3), _number(one["energy_j"], 1)])
    return rows if windows else []


def _parts(rows: Sequence[dict[str, Any]], name: str) -> list[list[str]]:
    kinds = [kind for kind in ALL_KINDS if any(f"{kind}_energy_j" in row for row in rows)]
    lines = [[name, "J", *(f"{_LABELS[kind]} J" for kind in kinds)]]
    for row in rows:
        values = [row["energy_j"], *(row.get(f"{kind}_energy_j") for kind in kinds)]
        lines.append([str(row[name]), *(_number(value, 1) for value in values)])
    return lines if rows else []


def _indented(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as columns: text to the left, numbers to the right."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    words = [not _is_number(rows[-1][i]) for i in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, words, strict=True)
        ).rstrip()
        for row in rows
    ]


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.rstrip(" %").replace(".", "").replace(" ", "").isdigit()


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
