"""What recording costs: processor time of the sampler, bytes a sample, and the training's step time.

    python benchmarks/recording.py [--seconds 120] [--pairs 20] [--period 1] [--nvml-ms 0.1]
                                   [--json FILE]

A small network is trained on one core under perun and the journal, with stand-in sensors of 4 GPUs,
2 CPUs and their memories that perun's own backends read (needs root, for a mount namespace of its
own; --real-sensors takes this machine's). A driver's answers cost time, a stand-in's do not: so each
NVML call, perun's and ours, takes --nvml-ms of processor time, which is assumed, not measured.

First the sampler's processor time is measured, perun's own work included: the kernel's figure over
--seconds. Then the training goes on in blocks of 4 s, in pairs with the sampler at work and with it
frozen, in changing order: the ratio of a pair's median step times, as the median over all pairs with
its 95 % interval. Other programs on the machine disturb the wall times, much less the processor
times. Ends with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scalewatt.recordings.telemetry import GROUP_VARIABLE

STAND_INS = Path(__file__).parents[1] / "tests" / "workflow"
TARGET_CPU, TARGET_BYTES = 0.005, 200
TARGET_STEP = 1 + TARGET_CPU
"""The lower end of the step ratio's interval: what is above was surely slowed."""
FEWEST_PAIRS = 6
"""With fewer there is no interval of 95 %, and the step time is not judged."""
SETTLE_S, BLOCK_S = 3.0, 4.0


def processor_s(pid: int) -> float:
    """Processor seconds of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) * 1e-9


class Training:
    """A small network on one core."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
        )
        self.images, self.labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
        self.network(self.images)
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=0.01)
        self.loss = torch.nn.functional.cross_entropy

    def step_times(self, seconds: float) -> tuple[list[float], list[float]]:
        """Train for some time; each step's wall time and its own processor time in s."""
        walls, processors, end = [], [], time.monotonic() + seconds
        while (started := time.monotonic()) < end:
            used = time.thread_time()
            self.optimiser.zero_grad()
            self.loss(self.network(self.images), self.labels).backward()
            self.optimiser.step()
            walls.append(time.monotonic() - started)
            processors.append(time.thread_time() - used)
        return walls, processors


def sampled_training(seconds: float, pairs: int) -> dict[str, Any]:
    """What perun monitors: train, and watch what the sampler uses and costs meanwhile."""
    (sampler,) = multiprocessing.active_children()
    assert sampler.pid is not None
    training = Training()
    training.step_times(SETTLE_S)
    used, started = processor_s(sampler.pid), time.monotonic()
    training.step_times(seconds)
    share = (processor_s(sampler.pid) - used) / (time.monotonic() - started)
    ratios: dict[str, list[float]] = {"wall": [], "processor": []}
    for pair in range(pairs):
        settings = {}
        for at_work in (pair % 2 == 0, pair % 2 == 1):
            os.kill(sampler.pid, signal.SIGCONT if at_work else signal.SIGSTOP)
            settings[at_work] = training.step_times(BLOCK_S)
        os.kill(sampler.pid, signal.SIGCONT)
        for ratio, with_, without in zip(
            ratios.values(), settings[True], settings[False], strict=True
        ):
            ratio.append(statistics.median(with_) / statistics.median(without))
    return {"sampler_share": share, "step_ratios": ratios}


def inner(folder: Path, options: argparse.Namespace) -> None:
    """The monitored run, in a process of its own; prints JSON."""
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.recordings.journal import TELEMETRY, beside, journal_files, read_table

    begin = time.monotonic()
    arguments = (options.seconds, options.pairs)
    measured = monitored(sampled_training, arguments, folder, "segment-000", options.period)
    (journal,) = journal_files(folder)[0].values()
    files = (journal, beside(journal, TELEMETRY), beside(journal, ".sensors.json"))
    _, read, _ = read_table(journal)
    _, telemetry, _ = read_table(files[1])
    samples, sizes = len(read), [path.stat().st_size for path in files]
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured |= {
        "run_s": time.monotonic() - begin,
        "sampler_s": spent.ru_utime + spent.ru_stime,
        "sensors": len(read.columns) - 2,
        "samples": samples,
        "telemetry": len(telemetry),
        "bytes_a_sample": sum(sizes[:2]) / samples,
        "bytes_a_sample_with_headers": sum(sizes) / samples,
    }
    print(json.dumps(measured))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start the monitored run; what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--inner", folder, "--seconds", str(options.seconds)]
        command += ["--pairs", str(options.pairs), "--period", str(options.period)]
        environment = {**os.environ, GROUP_VARIABLE: f"{folder}/samplers"}
        if not options.real_sensors:
            command = [
                "unshare",
                "-m",
                sys.executable,
                str(STAND_INS / "stand_in_rapl.py"),
                *command,
            ]
            environment["PYTHONPATH"] = str(STAND_INS / "stand_in_nvml")
            environment["STAND_IN_NVML_MS"] = str(options.nvml_ms)
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return measured


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval, which assumes no distribution and bears outliers."""
    from scipy.stats import binom

    ordered = sorted(values)
    low = int(binom.ppf(0.025, len(ordered), 0.5))
    high = min(len(ordered) - low, len(ordered) - 1)
    return statistics.median(ordered), ordered[max(low - 1, 0)], ordered[high]


def print_table(measured: dict[str, Any], options: argparse.Namespace) -> None:
    """Print what was measured."""
    sensors = f"{measured['sensors']}, every {options.period:g} s"
    if not options.real_sensors:
        sensors += f"; stand-ins, {options.nvml_ms:g} ms a call of NVML"
    ratios = {
        name: "{:.4f}, {:.4f} to {:.4f}".format(*interval(values))
        for name, values in measured["step_ratios"].items()
    }
    blocks = f"{options.pairs} pairs of {BLOCK_S:g} s; target {TARGET_STEP:g}"
    lines = [
        ("sensors", sensors),
        ("sampler, of one core", f"{measured['sampler_share']:.3%} (target {TARGET_CPU:.1%})"),
        ("  with its start and end", f"{measured['sampler_s']:.2f} s in {measured['run_s']:.0f} s"),
        ("bytes a sample", f"{measured['bytes_a_sample']:.1f} (target {TARGET_BYTES})"),
        (
            "  with headers",
            f"{measured['bytes_a_sample_with_headers']:.1f} of {measured['samples']} samples",
        ),
        ("telemetry", f"{measured['telemetry']} readings"),
        ("step time, with/without", f"{ratios['wall']} ({blocks})"),
        ("  its processor time", ratios["processor"]),
        ("load of this machine", f"{measured['load']:.1f} on {os.cpu_count()} cores at the start"),
    ]
    for name, value in lines:
        print(f"{name:<28}{value}")


def missed(measured: dict[str, Any]) -> list[str]:
    """Names of the targets that were missed."""
    ratios = measured["step_ratios"]["wall"]
    lowest = interval(ratios)[1] if len(ratios) >= FEWEST_PAIRS else 0.0
    targets = {
        "sampler": measured["sampler_share"] <= TARGET_CPU,
        "bytes a sample": measured["bytes_a_sample"] <= TARGET_BYTES,
        "step time": lowest <= TARGET_STEP,
    }
    return [name for name, kept in targets.items() if not kept]


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="for the sampler's share")
    parser.add_argument("--pairs", type=int, default=20, help="of blocks with and without sampler")
    parser.add_argument("--period", type=float, default=1.0, help="sampling period in s")
    parser.add_argument("--nvml-ms", type=float, default=0.1, help="a stand-in's NVML call")
    parser.add_argument("--real-sensors", action="store_true", help="no stand-ins")
    parser.add_argument("--json", type=Path, help="also write all figures to a file")
    parser.add_argument("--inner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        inner(options.inner, options)
        return
    load = os.getloadavg()[0]
    measured = run(options) | {"load": load}
    print_table(measured, options)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2) + "\n")
    if names := missed(measured):
        sys.exit(f"missed: {', '.join(names)}")


if __name__ == "__main__":
    main()
