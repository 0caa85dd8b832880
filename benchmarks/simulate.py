"""How long a large run takes to simulate and to account for, and what it needs of memory and disk.

    python benchmarks/simulate.py [--nodes 64] [--hours 24] [--period 1] [--json FILE]

FourCastNet's pre-training with LBS 1 on A100 nodes, with as many epochs as fill the hours. Each step is a
process of its own, as in the workflow. Ends with 1 where a target is missed: five minutes for 64
nodes x 24 h at 1 s, simulated; 4 GiB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import load_cluster, powers
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.run_sample import draw_run

PROJECT = Path(__file__).parents[1]
MODEL = PROJECT / "reference" / "scaling_model.json"
TARGET_S, TARGET_BYTES = 300.0, 4 << 30


def spec_of(nodes: int, hours: float) -> RunSpec:
    """A spec whose run takes about so long."""
    cluster = load_cluster(PROJECT / "profiles" / "simulate" / "cluster.yaml")
    campaign = load_campaign(PROJECT / "config.yaml", cluster)
    spec = run_spec(campaign, "fourcastnet.pretrain-a100-n256-lbs0001-full", 1)
    gpus = 4 * nodes
    spec = replace(spec, gpus=gpus, nodes=nodes, global_batch_size=gpus)
    model = read_model(MODEL).of(kind_of_spec(spec))
    trial = replace(spec, epochs=100)
    drawn = draw_run(trial, model, cluster.devices["a100"])
    epochs = max(round(100 * hours * 3600 / drawn.runtime_s), 1)
    return replace(spec, epochs=epochs)


def measured(arguments: list[str]) -> dict[str, float]:
    """Wall and processor seconds and the largest memory of a command."""
    begin = time.perf_counter()
    child = os.spawnv(
        os.P_NOWAIT, sys.executable, [sys.executable, "-m", "scalewatt.cli", *arguments]
    )
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"{arguments[0]}: ended with {status}")
    return {
        "wall_s": time.perf_counter() - begin,
        "processor_s": used.ru_utime + used.ru_stime,
        "memory_bytes": used.ru_maxrss * 1024,
    }


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cluster = load_cluster(PROJECT / "profiles" / "simulate" / "cluster.yaml")
    device = replace(cluster.devices["a100"], max_gpus=None)
    content = {
        "cluster": "benchmark",
        "mode": "simulate",
        "scaling_model": str(MODEL),
        "simulate": {"sampling_period_s": given.period},
        "launcher": "false",
        "devices": {
            "a100": {
                key: value
                for key, value in asdict(device).items()
                if key not in ("name", "memory_mb") and value not in (None, {}, "")
            }
        },
    }
    with tempfile.TemporaryDirectory(prefix="simulate-") as folder:
        run = Path(folder) / "run"
        run.mkdir()
        spec = run / "spec.json"
        spec.write_text(spec_of(given.nodes, given.hours).text + "\n", encoding="utf-8")
        where = ["--cluster", json.dumps(content), "--model", str(MODEL), "--out", str(run)]
        found: dict[str, Any] = {"simulate": measured(["simulate", str(spec), *where])}
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        out = [f"{folder}/traces.parquet", "--energy", f"{folder}/energy.parquet"]
        rated = ["--powers", json.dumps(powers(device)), "--traces", *out]
        found["account"] = measured(["account", str(run), *rated])
        truth = json.loads((run / "truth.json").read_text(encoding="utf-8"))
    hours = truth["runtime_s"] / 3600
    print(f"{given.nodes} nodes, {hours:.1f} h at {given.period:g} s: {size / 1e9:.2f} GB")
    for step, one in found.items():
        print(
            f"{step:<10}{one['wall_s']:>8.1f} s{one['processor_s']:>8.1f} s of processor"
            f"{one['memory_bytes'] / 2**30:>8.2f} GiB"
        )
    if given.json:
        facts = {"nodes": given.nodes, "hours": hours, "period_s": given.period, "bytes": size}
        given.json.write_text(json.dumps({**facts, **found}, indent=1), encoding="utf-8")
    slow = found["simulate"]["wall_s"] > TARGET_S
    large = max(one["memory_bytes"] for one in found.values()) > TARGET_BYTES
    return int(slow or large)


if __name__ == "__main__":
    sys.exit(main())
