"""Small submissions to MLPerf Training, in exactly the form of the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

START_S = 1_715_000_000.0
Power = Callable[[float], float]


def line(time_s: float, key: str, value: Any = None, rank: str = "", **metadata: Any) -> str:
    """Return one line of MLPerf's log."""
    event = {"namespace": "", "time_ms": round(time_s * 1000), "event_type": "POINT_IN_TIME"}
    return f"{rank}:::MLLOG {json.dumps({**event, 'key': key, 'value': value, 'metadata': metadata})}\n"


def power_log(
    power: Power,
    start_s: float,
    end_s: float,
    side: str | None = None,
    efficiency: float | None = None,
) -> str:
    """Return a node's log with a reading every 2 s; `side` (AC, DC) and efficiency stand at its head."""
    times = [start_s + 2.0 * i for i in range(round((end_s - start_s) / 2.0) + 1)]
    readings = [line(t, "power_reading", power(t - START_S)) for t in times]
    marks = line(start_s, "power_measurement_start"), line(end_s, "power_measurement_stop")
    head = line(start_s, "conversion_eff", efficiency, measurement_type=side) if side else ""
    return "".join([marks[0], head, *readings, marks[1]])


def result_log(
    benchmark: str = "resnet",
    batch: int = 3200,
    samples: int = 1_281_167,
    status: str = "success",
    facts: Mapping[str, Any] | None = None,
    **counted: Any,
) -> str:
    """Return a result log whose run of 200 s begins at START_S; `counted` says how far it was trained.

    `facts` are further values, or others than usual, by their keys.
    """
    rank = "0: "
    trained = counted or {"epoch_num": 35}
    usual = {"global_batch_size": batch, "train_samples": samples, "seed": 7}
    known = {**usual, **(facts or {})}
    lines = [
        line(START_S - 40, "init_start", rank=rank),
        line(START_S - 40, "submission_benchmark", benchmark, rank=rank),
        *(line(START_S - 40, key, value, rank=rank) for key, value in known.items()),
        "a line of something else\n",
        line(START_S, "run_start", rank=rank),
        line(START_S + 100, "eval_start", rank=rank),
        line(START_S + 120, "eval_accuracy", 0.76, rank=rank, **trained),
        line(START_S + 120, "eval_stop", rank=rank),
        line(START_S + 200, "run_stop", rank=rank, status=status),
    ]
    return "".join(lines)


def write_system(submitter: Path, name: str, nodes: int) -> None:
    """Write what a system is."""
    content = {
        "submitter": "A Submitter",
        "number_of_nodes": str(nodes),
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
    }
    folder = submitter / "systems"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(content))


def write_run(
    submitter: Path,
    system: str,
    name: str,
    nodes: dict[str, str],
    result: str | None = None,
    switch_w: float | None = None,
) -> Path:
    """Write one run with the logs of its nodes; return its result log."""
    folder = submitter / "results" / system / "resnet"
    power = folder / "power" / f"result_{name}"
    power.mkdir(parents=True)
    for node, text in nodes.items():
        (power / f"{node}.txt").write_text(text)
    if switch_w is not None:
        made = line(1_650_000_000, "interconnect_power_est", switch_w, switch_id="sw_01")
        (power / "sw_0.txt").write_text(made)
    path = folder / f"result_{name}.txt"
    path.write_text(result if result is not None else result_log())
    return path
