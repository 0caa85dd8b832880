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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MARK = ":::MLLOG"
READING, ESTIMATE = "power_reading", "interconnect_power_est"
HOUR_S, J_PER_KWH = 3600.0, 3.6e6
NAMES_SUPPLY = re.compile(r"(?<![a-z])(ac|dc)(?![a-z])")
"""The side of a node's power supply that a submission's folder names, such as smc-dc-power."""


def table(name: str) -> list[dict[str, str]]:
    """Read a table that lies beside this file."""
    with (Path(__file__).parent / name).open(newline="") as file:
        return list(csv.DictReader(file))


BENCHMARKS = {row["benchmark"]: row for row in table("benchmarks.csv")}
"""What is known of a benchmark and not in its logs."""
REPLICAS = {
    (row["system"], row["benchmark"]): int(row["gpus_per_replica"]) for row in table("replicas.csv")
}
"""GPUs that hold one copy of the model, by the submitters' configurations."""


class Unusable(Exception):
    """A run that cannot be registered; the message says why."""


class Options(NamedTuple):
    """What the command line says."""

    replicas: Mapping[str, int]
    """GPUs that hold one copy of the model, by benchmark."""
    variant: str | None
    as_dc: bool


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


class PowerLog(NamedTuple):
    """The power log of a node or a switch."""

    times_s: list[float]
    watts: list[float | None]
    """None where a reading is no number."""
    supply: str | None
    """Side of the power supply that is read, AC or DC; None if the log does not say."""
    efficiency: float | None
    """From AC to DC, as the submitter states it."""
    rule_w: float
    """Mean power of the whole log by MLCommons' result_summarizer: each reading since the one before."""


def power_log(path: Path, events: list[Event]) -> PowerLog:
    """Make a power log of the events in its file. Raises Unusable without readings."""
    readings = [event for event in events if event.key == READING]
    if not readings:
        raise Unusable(f"{path}: holds no {READING}")
    times_s, watts = [event.time_s for event in readings], [known_w(event) for event in readings]
    stop = first(events, "power_measurement_stop")
    if stop and stop.time_s < max(times_s):
        print(f"note: {path}: power_measurement_stop is before the last reading, which counts")
    # What the head of the log says of the meter.
    head = first(events, "conversion_eff")
    supply, efficiency = (
        (head.metadata.get("measurement_type"), head.value) if head else (None,) * 2
    )
    # The rule: each reading counts for the time since the one before.
    begin = first(events, "power_measurement_start") or readings[0]
    spans_s = [end - begin for begin, end in pairwise([begin.time_s, *times_s])]
    span_s = sum(spans_s)
    total_j = sum((w or 0.0) * span for w, span in zip(watts, spans_s, strict=True))
    rule_w = total_j / span_s * (efficiency or 1.0) if span_s > 0 else 0.0
    return PowerLog(times_s, watts, supply, efficiency, rule_w)


def on_runs_clock(log: PowerLog, path: Path, start_s: float, stop_s: float) -> PowerLog:
    """Correct a clock in another time zone. Raises Unusable if it cannot be that of the run."""
    hours = hours_behind(log.times_s, start_s, stop_s)
    if hours is None:
        raise Unusable(f"{path}: its readings are not of the run's time, nor whole hours off")
    if hours:
        print(f"note: {path}: its clock is {-hours:+d} h off, which is corrected")
    return log._replace(times_s=[time_s + hours * HOUR_S for time_s in log.times_s])


def known_w(event: Event) -> float | None:
    """Return a reading in W; None where it is no number."""
    known = isinstance(event.value, (int, float)) and not isinstance(event.value, bool)
    return float(event.value) if known and math.isfinite(event.value) else None


def hours_behind(times_s: list[float], start_s: float, stop_s: float) -> int | None:
    """Return by how many whole hours a clock is behind the run's; None if the log fits the run at no hour.

    A log fits that has at least nine tenths of the run's time; where none does, one that overlaps the run
    is taken as it is.
    """
    begin_s, end_s = min(times_s), max(times_s)

    def covered_s(hours: int) -> float:
        return min(end_s + hours * HOUR_S, stop_s) - max(begin_s + hours * HOUR_S, start_s)

    nearest = round((start_s + stop_s - begin_s - end_s) / 2 / HOUR_S)
    fitting = [h for h in (0, nearest) if covered_s(h) >= 0.9 * (stop_s - start_s)]
    if fitting:
        return fitting[0]
    return 0 if covered_s(0) > 0 else None


def energy_j(log: PowerLog, start_s: float, stop_s: float) -> float:
    """Return the energy between two times in J, by straight lines between the readings."""
    readings = [(t, w) for t, w in zip(log.times_s, log.watts, strict=True) if w is not None]
    total_j = 0.0
    for (t0, w0), (t1, w1) in pairwise(readings):
        begin, end = max(t0, start_s), min(t1, stop_s)
        if end > begin:
            slope = (w1 - w0) / (t1 - t0)
            total_j += (end - begin) * (w0 + slope * ((begin + end) / 2 - t0))
    return total_j


def switches(folder: Path, start_s: float, stop_s: float) -> tuple[float | None, str | None]:
    """Return the energy of all switches in a run in J, and how it is known; it is part of no total.

    Some submitters state a constant (`interconnect_power_est`), others measure.
    """
    estimates_w: dict[tuple[str, Any], float] = {}
    measured_j = []
    for path in sorted(folder.glob("sw_*.txt")):
        events = read_log(path)
        constants = [event for event in events if event.key == ESTIMATE]
        for event in constants:
            switch = path.name, event.metadata.get("switch_id")
            estimates_w.setdefault(switch, known_w(event) or 0.0)
        if not constants:
            try:
                log = on_runs_clock(power_log(path, events), path, start_s, stop_s)
                measured_j.append(energy_j(log, start_s, stop_s))
            except Unusable as error:
                print(f"note: {error}; this switch is left out")
    estimated_j = sum(estimates_w.values()) * (stop_s - start_s)
    kinds = [*["estimated"] * bool(estimates_w), *["measured"] * bool(measured_j)]
    return (estimated_j + sum(measured_j) if kinds else None), " and ".join(kinds) or None


def write_power(log: PowerLog, target: Path, as_dc: bool) -> None:
    """Write a node's readings as CSV, those of AC perhaps as the rule converts them."""
    factor = log.efficiency if as_dc and log.supply != "DC" and log.efficiency else 1.0
    watts = (None if w is None else w * factor for w in log.watts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", READING])
        writer.writerows(zip(log.times_s, watts, strict=True))


def columns_of(supply: str | None) -> dict[str, Any]:
    """Describe the columns of a node's CSV."""
    sensor = {"column": READING, "unit": "W", "kind": "node"}
    return {
        "time": {"column": "time_s", "unit": "s"},
        "sensors": [sensor | ({"supply": supply} if supply else {})],
    }


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
    log: list[Event], row: dict[str, Any], known: int | None, chosen: int | None
) -> dict[str, int]:
    """Return the GPUs of one copy of the model, as chosen, known or logged, and its batch size."""
    gpus, batch = row["gpus"], row["global_batch_size"]
    logged = value(log, "local_batch_size") or value(log, "d_batch_size")
    if known is None and logged:
        samples = logged * row.get("gradient_accumulation_steps", 1)
        known = gpus * samples // batch if gpus * samples % batch == 0 else None
    count = chosen or known
    if count is None:
        option = f"--gpus-per-replica {row['model']}=N"
        raise Unusable(f"how many GPUs hold a copy of the model is not known; {option} says it")
    if gpus % count or batch % (gpus // count):
        raise Unusable(
            f"global batch {batch} on {gpus} GPUs, {count} to a replica, does not divide"
        )
    return {"gpus_per_replica": count, "local_batch_size": batch * count // gpus}


def outcome(log: list[Event], benchmark: Mapping[str, str], dataset: int) -> dict[str, Any]:
    """Return the metric at its last evaluation and the samples until then, as far as they are known."""
    if not benchmark:
        return {}
    name = benchmark["metric_name"]
    evaluated = [event for event in log if event.key == "eval_accuracy"]
    of_metric = [event for event in evaluated if event.metadata.get("metric", name) == name]
    if not of_metric:
        return {}
    last = of_metric[-1]
    counted = last.metadata.get("samples_count", last.metadata.get("epoch_num"))
    samples = counted and round(counted * (dataset if benchmark["counted"] == "epochs" else 1))
    goal = {"metric_name": name.lower(), "metric_goal": benchmark["metric_goal"]}
    return {"metric": last.value, **goal, **({"samples": samples} if samples else {})}


def converted(submission: Path, result: Path, out: Path, options: Options) -> dict[str, Any]:
    """Write a run's power and stages; return its row. Raises Unusable for one that is left out."""
    # What is said of the run.
    system_name = result.parents[1].name
    system = json.loads((submission / "systems" / f"{system_name}.json").read_text())
    log = read_log(result)
    start, stop = first(log, "run_start"), first(log, "run_stop")
    name, batch = value(log, "submission_benchmark"), value(log, "global_batch_size")
    benchmark = BENCHMARKS.get(name, {})
    dataset = int(benchmark.get("dataset_samples") or value(log, "train_samples") or 0)
    if not (name and start and stop and batch and dataset):
        raise Unusable(
            "states no benchmark, run_start, run_stop, global_batch_size or train_samples"
        )
    if stop.metadata.get("status") != "success":
        raise Unusable("its run_stop does not say `success`")
    device, nodes = system["accelerator_model_name"], int(system["number_of_nodes"])
    model = benchmark.get("model", name.lower())
    row = {
        "model": model,
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
    known = 1 if benchmark.get("splits_model") == "no" else REPLICAS.get((system_name, name))
    chosen = options.replicas.get(name, options.replicas.get(model))
    row |= replicated(log, row, known, chosen) | outcome(log, benchmark, dataset)
    # Each node's power and the stages, as files.
    where = result.with_suffix("").relative_to(submission / "results")
    power = result.parent / "power" / result.stem
    files = sorted(power.glob("node_*.txt"))
    if not files:
        raise Unusable(f"{power}: holds no power log of a node")
    logs = [
        on_runs_clock(power_log(file, read_log(file)), file, start.time_s, stop.time_s)
        for file in files
    ]
    supply, efficiency = supply_of(logs, submission, options.as_dc)
    for file, node in zip(files, logs, strict=True):
        write_power(node, out / where / f"{file.stem}.csv", options.as_dc)
    with (out / f"{where}.stages.csv").open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["stage", "epoch", "start_s", "end_s"])
        writer.writerows(stages(log, start.time_s, stop.time_s))
    columns = f"columns-{supply.lower()}.yaml" if supply else "columns.yaml"
    row |= {"path": str(where), "columns": columns, "events": f"{where}.stages.csv"}
    # What MLCommons' rule makes of it.
    switches_j, known_by = switches(power, start.time_s, stop.time_s)
    rule_j = (stop.time_s - start.time_s) * sum(node.rule_w for node in logs)
    by_rule = {
        "run": row["path"],
        "model": model,
        "gpus": row["gpus"],
        "supply": supply,
        "conversion_efficiency": efficiency,
        "rule_kwh": rule_j / J_PER_KWH,
        "switches_kwh": None if switches_j is None else switches_j / J_PER_KWH,
        "switches": known_by,
    }
    return {**row, "mlcommons": by_rule}


def supply_of(
    logs: list[PowerLog], submission: Path, as_dc: bool
) -> tuple[str | None, float | None]:
    """Return the side of the power supply that the nodes' energy is of, and the stated efficiency."""
    stated = {(log.supply, log.efficiency) for log in logs}
    if len(stated) > 1:
        raise Unusable("its nodes' logs state unlike measurement types or efficiencies")
    ((supply, efficiency),) = stated
    named = NAMES_SUPPLY.search(submission.resolve().name.lower())
    supply = supply or (named[1].upper() if named else None)
    if as_dc and supply != "DC":
        if efficiency is None:
            raise Unusable("no conversion_eff is stated, so --as-dc has no rule")
        supply = "DC"
    return supply, efficiency


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


def convert(submission: Path, out: Path, options: Options) -> None:
    """Write all that `register` needs to the folder `out`."""
    rows = []
    for result in sorted(submission.glob("results/*/*/result_*.txt")):
        try:
            row = converted(submission, result, out, options)
        except Unusable as error:
            left_out(result, error)
            continue
        rows.append(row | ({"variant": options.variant} if options.variant else {}))
    rows = list(once(rows, out))
    if not rows:
        raise SystemExit(f"{submission}: no run is converted; the lines above say why")
    put_on_lines(rows)
    by_rule = [row.pop("mlcommons") for row in rows]
    for columns, supply in {
        (row["columns"], rule["supply"]) for row, rule in zip(rows, by_rule, strict=True)
    }:
        (out / columns).write_text(yaml.safe_dump(columns_of(supply)))
    write_table(out / "mlcommons.csv", by_rule)
    for row in rows:
        del row["seed"]
    write_table(out / "runs.csv", rows)
    print(f"runs: {len(rows)}; now: scalewatt register NAME --table {out / 'runs.csv'}")


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as CSV; what a cell cannot hold is JSON."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*dict.fromkeys(k for row in rows for k in row)], restval="")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()}
            )


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
    parser.add_argument(
        "--as-dc",
        action="store_true",
        help="multiply AC readings by the efficiency that their log states, as MLCommons' rule does",
    )
    given = parser.parse_args()
    replicas = {benchmark: int(count) for benchmark, count in given.gpus_per_replica}
    convert(given.submission, given.out, Options(replicas, given.variant, given.as_dc))


if __name__ == "__main__":
    main()
