"""Make of a submission to MLPerf Training with power logs what `scalewatt register --table` reads.

    python examples/mlperf/convert.py training_results_v4.0/smc-dc-power converted
    scalewatt register mlperf-v4 --table converted/runs.csv

Writes a row a run (`runs.csv`), each node's power and each run's stages as CSV, and beside them what
MLCommons' own rule makes of the power logs (`mlcommons.csv`). What is left out is printed with the reason.

    <submission>/systems/<system>.json
    <submission>/results/<system>/<benchmark>/result_<X>.txt
    <submission>/results/<system>/<benchmark>/power/result_<X>/node_<i>.txt, sw_<i>.txt

Lines of a log hold `:::MLLOG` and a JSON object (github.com/mlcommons/logging); times are unix ms. What
a power reading stands for is not said: it is taken as the power at its time.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MARK = ":::MLLOG"
READING, SWITCHES = "power_reading", "interconnect_power_est"
COLUMNS = {
    "time": {"column": "time_s", "unit": "s"},
    "sensors": [{"column": READING, "unit": "W", "kind": "node"}],
}


class Benchmark(NamedTuple):
    """What is known of a benchmark and not in its logs, by the rules of MLPerf Training v4.0.

    Dataset of ssd: OpenImages-MLPerf, where the log has the batches of an epoch under `train_samples`;
    of bert: Wikipedia (the reference implementation), where it has the samples trained on.
    """

    metric_name: str
    metric_goal: str
    epochs_counted: bool
    """True if an evaluation states epochs, not samples."""
    dataset_samples: int | None = None
    splits_model: bool = False


BENCHMARKS = {
    "resnet": Benchmark("top1_accuracy", "max", True),
    "ssd": Benchmark("mean_average_precision", "max", True, 1_170_301),
    "bert": Benchmark("masked_lm_accuracy", "max", False, 156_725_653),
    "unet3d": Benchmark("mean_dice", "max", True, splits_model=True),
    "llama2_70b_lora": Benchmark("eval_loss", "min", False, splits_model=True),
    "gpt3": Benchmark("log_perplexity", "min", False, splits_model=True),
    "dlrm_dcnv2": Benchmark("auc", "max", True, splits_model=True),
}
GPUS_PER_REPLICA = {
    ("Sustainable Metal Cloud", "llama2_70b_lora", 1): 4,
    ("Sustainable Metal Cloud", "llama2_70b_lora", 8): 8,
    ("Sustainable Metal Cloud", "llama2_70b_lora", 64): 8,
}
"""Tensor × context parallel GPUs, by submitter, benchmark and nodes: the submitter's configurations."""


class Unusable(Exception):
    """A run that cannot be registered; the message says why."""


class Event(NamedTuple):
    """One line of a log."""

    time_s: float
    key: str
    value: Any
    metadata: dict[str, Any]


def read_log(path: Path) -> list[Event]:
    """Read the events of a log; damaged lines, such as a torn last one, are counted and left out."""
    events, damaged = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        _, mark, body = line.partition(MARK)
        if not mark:
            continue
        try:
            content = json.loads(body)
            time_s = float(content["time_ms"]) / 1e3
            events.append(
                Event(time_s, content["key"], content["value"], content["metadata"] or {})
            )
        except (ValueError, KeyError, TypeError):
            damaged += 1
    if damaged:
        print(f"note: {path}: damaged lines: {damaged}")
    return events


def first(events: list[Event], key: str) -> Event | None:
    """Return the first event of a key, which each rank may log."""
    return next((event for event in events if event.key == key), None)


def value(events: list[Event], key: str) -> Any:
    """Return the value of a key; None without it."""
    event = first(events, key)
    return event.value if event else None


def power_csv(log: Path, target: Path) -> list[Event]:
    """Write a power log as CSV, for the columns in COLUMNS; return its events."""
    events = read_log(log)
    readings = [event for event in events if event.key == READING]
    if not readings:
        raise Unusable(f"{log}: holds no {READING}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", READING])
        writer.writerows((event.time_s, watts(event)) for event in readings)
    stop = first(events, "power_measurement_stop")
    if stop and stop.time_s < max(event.time_s for event in readings):
        print(f"note: {log}: power_measurement_stop is before the last reading, which counts")
    return events


def watts(event: Event) -> float | None:
    """Return a reading in W; None where it is no number."""
    known = isinstance(event.value, (int, float)) and not isinstance(event.value, bool)
    return float(event.value) if known and math.isfinite(event.value) else None


def rule_w(events: list[Event]) -> float:
    """Return a log's mean power in W by MLCommons' result_summarizer: each reading since the one before."""
    readings = [event for event in events if event.key == READING]
    start = first(events, "power_measurement_start") or readings[0]
    ends = [start.time_s, *(event.time_s for event in readings)]
    total_j = sum((watts(e) or 0.0) * (e.time_s - t) for e, t in zip(readings, ends, strict=False))
    return total_j / (ends[-1] - ends[0]) if ends[-1] > ends[0] else 0.0


def switches_w(folder: Path) -> float:
    """Return the submitter's constant estimate of all switches in W; 0 without any."""
    powers_w: dict[tuple[str, Any], float] = {}
    for path in folder.glob("sw_*.txt"):
        for event in read_log(path):
            if event.key == SWITCHES:
                powers_w.setdefault(
                    (path.name, event.metadata.get("switch_id")), watts(event) or 0.0
                )
    return sum(powers_w.values())


def stages(
    log: list[Event], start_s: float, stop_s: float
) -> Iterator[tuple[str, Any, float, float]]:
    """Yield stage, epoch, begin and end: startup, and training with its evaluations between."""
    begun = [event.time_s for event in log if event.key == "init_start" and event.time_s < start_s]
    if begun:
        yield "startup", None, min(begun), start_s
    at_s, epoch = start_s, 0
    for begin, end in evaluations(log, start_s, stop_s):
        if begin > at_s:
            yield "train", epoch, at_s, begin
        yield "validate", epoch, begin, end
        at_s, epoch = end, epoch + 1
    if stop_s > at_s:
        yield "train", epoch, at_s, stop_s


def evaluations(log: list[Event], start_s: float, stop_s: float) -> Iterator[tuple[float, float]]:
    """Yield begin and end of the evaluations within the run; those that overlap are one."""
    depth, begin = 0, start_s
    for event in sorted(log, key=lambda event: (event.time_s, event.key == "eval_stop")):
        if event.key == "eval_start":
            begin = begin if depth else max(event.time_s, start_s)
            depth += 1
        elif event.key == "eval_stop" and depth:
            depth -= 1
            if not depth and (end := min(event.time_s, stop_s)) > begin:
                yield begin, end
    if depth and begin < stop_s:
        yield begin, stop_s


def replicated(
    log: list[Event], row: dict[str, Any], submitter: str, replicas: Mapping[str, int]
) -> dict[str, int]:
    """Return the GPUs of one copy of the model, as told, as known of it or as logged, and its batch size."""
    model, gpus, batch = row["model"], row["gpus"], row["global_batch_size"]
    benchmark = BENCHMARKS.get(model)
    known = GPUS_PER_REPLICA.get((submitter, model, row["nodes"]))
    logged = value(log, "local_batch_size") or value(log, "d_batch_size")
    if benchmark and not benchmark.splits_model:
        known = 1
    elif logged:
        samples = logged * row.get("gradient_accumulation_steps", 1)
        known = gpus * samples // batch if gpus * samples % batch == 0 else known
    count = replicas.get(model, known)
    if count is None:
        option = f"--gpus-per-replica {model}=N"
        raise Unusable(f"how many GPUs hold a copy of the model is not known; {option} says it")
    if gpus % count or batch % (gpus // count):
        raise Unusable(
            f"global batch {batch} on {gpus} GPUs, {count} to a replica, does not divide"
        )
    return {"gpus_per_replica": count, "local_batch_size": batch * count // gpus}


def outcome(log: list[Event], row: dict[str, Any]) -> dict[str, Any]:
    """Return the metric at the last evaluation and the samples until then, as far as they are known."""
    benchmark = BENCHMARKS.get(row["model"])
    last = next((event for event in reversed(log) if event.key == "eval_accuracy"), None)
    if benchmark is None or last is None:
        return {}
    counted = last.metadata.get("samples_count", last.metadata.get("epoch_num"))
    samples = counted and round(
        counted * (row["dataset_samples"] if benchmark.epochs_counted else 1)
    )
    goal = {"metric_name": benchmark.metric_name, "metric_goal": benchmark.metric_goal}
    return {"metric": last.value, **goal, **({"samples": samples} if samples else {})}


def converted(
    submission: Path, result: Path, out: Path, replicas: Mapping[str, int]
) -> dict[str, Any]:
    """Write a run's power and stages; return its row. Raises Unusable for one that is left out."""
    system = json.loads((submission / "systems" / f"{result.parents[1].name}.json").read_text())
    log = read_log(result)
    start, stop = first(log, "run_start"), first(log, "run_stop")
    name, batch = value(log, "submission_benchmark"), value(log, "global_batch_size")
    benchmark = BENCHMARKS.get(name)
    dataset = (benchmark and benchmark.dataset_samples) or value(log, "train_samples")
    if not (name and start and stop and batch and dataset):
        raise Unusable(
            "states no benchmark, run_start, run_stop, global_batch_size or train_samples"
        )
    if stop.metadata.get("status") != "success":
        raise Unusable("its run_stop does not say `success`")
    device, nodes = system["accelerator_model_name"], int(system["number_of_nodes"])
    row = {
        "model": name.lower(),
        "device": re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia")).strip("-"),
        "device_name": device,
        "gpus": nodes * int(system["accelerators_per_node"]),
        "nodes": nodes,
        "global_batch_size": batch,
        "gradient_accumulation_steps": value(log, "gradient_accumulation_steps") or 1,
        "dataset_samples": dataset,
        "protocol": "target",
        "seed": value(log, "seed"),
        "window": {"start_s": start.time_s, "end_s": stop.time_s},
    }
    row |= replicated(log, row, system["submitter"], replicas) | outcome(log, row)
    where = result.with_suffix("").relative_to(submission / "results")
    power = result.parent / "power" / result.stem
    files = sorted(power.glob("node_*.txt"))
    if not files:
        raise Unusable(f"{power}: holds no power log of a node")
    logs = [power_csv(file, out / where / f"{file.stem}.csv") for file in files]
    with (out / f"{where}.stages.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["stage", "epoch", "start_s", "end_s"])
        writer.writerows(stages(log, start.time_s, stop.time_s))
    run_s = stop.time_s - start.time_s
    energies = {"rule_j": run_s * sum(map(rule_w, logs)), "switches_j": run_s * switches_w(power)}
    read = {"path": str(where), "columns": "columns.yaml", "events": f"{where}.stages.csv"}
    return {**row, **read, **energies}


# --- the runs together: which are repeats, and on which lines they lie ----------------------------


def once(rows: list[dict[str, Any]], out: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs of different power logs: submitters put some twice, as logged and as edited."""
    known: dict[tuple[str, ...], str] = {}
    for row in rows:
        logs = tuple(path.read_text() for path in sorted((out / row["path"]).glob("*.csv")))
        if known.setdefault(logs, row["path"]) == row["path"]:
            yield row
        else:
            left_out(row["path"], f"its power logs are those of {known[logs]}")


def put_on_lines(rows: list[dict[str, Any]]) -> None:
    """Put each run on its line at one global batch size, and on one at one local batch size that grows."""
    for name, line in lines(rows, "global_batch_size", "GBS"):
        seeds = [(row["gpus"], row["seed"]) for row in line]
        varied = None not in dict(seeds).values() and len(set(seeds)) == len(seeds)
        for row in line:
            row |= {"series": name[0], "label": name[1]} | ({"seeds": "varied"} if varied else {})
    for name, line in lines(rows, "local_batch_size", "LBS"):
        batches = {row["global_batch_size"] for row in line}
        if len({row["gpus"] for row in line}) > 1 and len(batches) > 1:
            label = f"{name[1]} (GBS {min(batches)} to {max(batches)})"
            for row in line:
                row["lines"] = {name[0]: label}


def lines(
    rows: list[dict[str, Any]], key: str, short: str
) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """Return name and label of each line with its runs: one training at one batch size."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        variant = [row["variant"]] if "variant" in row else []
        name = "-".join([row["model"], row["device"], f"{short.lower()}{row[key]:04d}", *variant])
        label = ", ".join([row["model"], f"{short} {row[key]}", *variant])
        runs.setdefault((name, label), []).append(row)
    return list(runs.items())


def left_out(path: str | Path, reason: object) -> None:
    """Say which run is no row, and why."""
    print(f"left out: {path}: {reason}")


def convert(submission: Path, out: Path, replicas: Mapping[str, int], variant: str | None) -> None:
    """Write all that `register` needs to the folder `out`.

    `told`: GPUs that hold one copy of the model, by benchmark; `variant` sets these runs apart.
    """
    rows = []
    for result in sorted(submission.glob("results/*/*/result_*.txt")):
        try:
            row = converted(submission, result, out, replicas)
        except Unusable as error:
            left_out(result, error)
            continue
        rows.append(row | ({"variant": variant} if variant else {}))
    rows = list(once(rows, out))
    if not rows:
        raise SystemExit(f"{submission}: no run is converted; the lines above say why")
    put_on_lines(rows)
    (out / "columns.yaml").write_text(yaml.safe_dump(COLUMNS))
    with (out / "mlcommons.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "model", "gpus", "rule_kwh", "switches_kwh"])
        for row in rows:
            energies = (row.pop(key) / 3.6e6 for key in ("rule_j", "switches_j"))
            writer.writerow([row["path"], row["model"], row["gpus"], *energies])
            del row["seed"]
    with (out / "runs.csv").open("w", newline="") as file:
        names = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(file, [*names], restval="")
        writer.writeheader()
        for row in rows:
            cells = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()}
            writer.writerow(cells)
    print(f"runs: {len(rows)}; now: scalewatt register NAME --table {out / 'runs.csv'}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("submission", type=Path, help="folder with systems/ and results/")
    parser.add_argument("out", type=Path, help="new folder for what is written")
    parser.add_argument(
        "--gpus-per-replica",
        type=lambda text: text.split("="),
        action="append",
        default=[],
        metavar="BENCHMARK=N",
        help="GPUs that hold one copy of the model, where nothing in the submission says it",
    )
    parser.add_argument("--variant", help="sets these runs apart from another submission's")
    given = parser.parse_args()
    replicas = {benchmark: int(count) for benchmark, count in given.gpus_per_replica}
    convert(given.submission, given.out, replicas, given.variant)


if __name__ == "__main__":
    main()
