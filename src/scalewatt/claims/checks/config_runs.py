"""Claims on what runs recorded: parts of the energy, sockets, versions, spread, traces."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from scalewatt.claims.checks.config_specs import exactly, sampling_period
from scalewatt.claims.checks.power_factors import SOCKETS, counted_sockets
from scalewatt.claims.evidence.claim_types import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    NotTestable,
    Outcome,
    check,
)
from scalewatt.claims.evidence.evidence import (
    PAPER_DEVICES,
    PAPER_GPUS_PER_NODE,
    Evidence,
    Row,
    Trace,
)
from scalewatt.claims.evidence.origin_tracking import look_at
from scalewatt.claims.rules.spec_checks import setting, specs_of
from scalewatt.claims.rules.tolerance import all_of, attempt, decided
from scalewatt.recordings.series import DEVICE_KINDS

PERIOD = 0.05
"""Relative room of the median sampling period (claim B01)."""
SUM = 1e-6
SUMMED = ("gpu", "cpu")
"""Device kinds that a total must have (claim B02)."""
WINDOW_S = 300.0
VERSIONS = {
    "python": "3.11",
    "torch": "2.7.0",
    "torchvision": "0.22.0",
    "mpi4py": "4.0.3",
}
CUDA = {"resnet50": "12.2", "fourcastnet": "12.6"}
OPEN_MPI = "4.1"


@check("A05")
def work(evidence: Evidence) -> Outcome:
    """Updates · n · LBS are the samples of all epochs, up to one batch an epoch."""
    rows = [
        (f"{row['configuration']}/{row['repeat']}", row)
        for row in evidence.runs
        if row["dataset_samples"] is not None and row["updates"] is not None
    ]
    planned = not rows
    if planned:
        rows = [(spec["configuration"], spec) for spec in specs_of(evidence)]
    worst, where = 0.0, ""
    for name, row in rows:
        done = row["updates"] * row["gpus"] * row["local_batch_size"]
        off = abs(done - row["epochs"] * row["dataset_samples"])
        share = off / (row["epochs"] * row["global_batch_size"])
        if share >= worst:
            worst, where = share, name
    source = "as planned by the specs" if planned else "of finished runs"
    detail = (
        f"Updates · n · LBS, {source}, differs from the samples of all epochs by at most {worst:.3f} "
        f"batches an epoch ({where}; {len(rows)} compared), expected less than 1."
    )
    return decided(worst < 1, worst, detail)


@setting("B01")
def period(evidence: Evidence) -> Outcome:
    """1 s in the specs, and within 5 % between the samples of figure 5."""
    windowed = (evidence.trace_metadata.get("options") or {}).get("power_window_s")
    traces = [] if windowed else [trace for trace in evidence.traces if len(trace.time_s) > 2]
    return all_of(
        [("specs", sampling_period(evidence))]
        + [attempt(trace.row["configuration"], _sampled, trace) for trace in traces]
    )


def _sampled(trace: Trace) -> Outcome:
    times = [seconds for seconds in trace.time_s if seconds is not None]
    found = median(b - a for a, b in pairwise(times))
    said = f"Median between samples of {trace.row['configuration']} is {found:.3f} s."
    return decided(abs(found - 1) <= PERIOD, found, said)


@check("B02")
def sum_of_parts(evidence: Evidence) -> Outcome:
    """The total is the sum of the parts in scope: GPU and CPU, and where it has a sensor RAM."""
    worst, where, counted, scopes = 0.0, "", 0, set()
    for row in evidence.runs or tuple(_means(evidence)):
        if row["energy_kwh"] is None or row["energy_scope"] is None:
            continue
        kinds = [kind for kind in DEVICE_KINDS if kind in row["energy_scope"].split("+")]
        if not set(SUMMED) <= set(kinds):
            scopes.add(row["energy_scope"])
            continue
        parts = [row[f"{kind}_energy_kwh"] for kind in kinds]
        if None not in parts and row["energy_kwh"]:
            look_at(row["energy_origin"])
            off = abs(math.fsum(parts) / row["energy_kwh"] - 1)
            counted += 1
            if off >= worst:
                worst, where = off, row["configuration"]
    if not counted:
        other = f" Its scope is {', '.join(sorted(scopes))}." if scopes else ""
        raise NotTestable(f"No run has its total energy and that of GPU and CPU.{other}")
    detail = (
        f"The parts in scope differ from the total by at most {worst:.1e} of it ({where}; {counted} "
        "runs), expected 1e-06."
    )
    return decided(worst <= SUM, worst, detail)


def _means(evidence: Evidence) -> list[Row]:
    """Points as rows of runs."""
    names = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
    return [
        {
            "configuration": point.id,
            "energy_scope": point.scope,
            "energy_origin": point.origin,
            **{name: point.mean(name) for name in names},
        }
        for point in evidence.points
    ]


@check("B04")
def nodes(evidence: Evidence) -> Outcome:
    """4 GPUs a node in the specs of A100 and H100; 2 sockets a node in the CPU energy of their runs."""
    specs = [spec for spec in specs_of(evidence) if spec["device"] in PAPER_DEVICES]
    if not specs:
        raise NotTestable("The campaign has no configuration on a100 or h100.")
    full = [
        (s["configuration"], s["ranks_per_node"]) for s in specs if s["gpus"] >= PAPER_GPUS_PER_NODE
    ]
    runs = [run for run in evidence.runs if run["device"] in PAPER_DEVICES]
    return all_of(
        [
            attempt("gpus", exactly, "GPUs of a node", PAPER_GPUS_PER_NODE, full),
            attempt("sockets", _sockets, runs, SOCKETS),
        ]
    )


@check("C12")
def whole_node(evidence: Evidence) -> Outcome:
    """Runs on a part of a node count all its sockets: as many as runs that hold the whole."""
    runs = [
        run
        for run in evidence.runs
        if run["model"] == "resnet50" and run["gpus"] < evidence.gpus_per_node(run["device"])
    ]
    if not runs:
        raise NotTestable("No finished run of ResNet50 on fewer GPUs than a node has.")
    parts = []
    for device in sorted({run["device"] for run in runs}):
        own = [run for run in runs if run["device"] == device]
        parts.append(attempt(device, _whole_sockets, own, _all_sockets(evidence, device)))
    return all_of(parts)


def _whole_sockets(runs: Sequence[Row], wanted: int) -> Outcome:
    if wanted == 1:
        raise NotTestable("A node has one CPU socket, as far as its runs tell.")
    return _sockets(runs, wanted)


def _all_sockets(evidence: Evidence, device: str) -> int:
    """Sockets of a node: the paper's, elsewhere those of runs that hold all GPUs of a node."""
    if device in PAPER_DEVICES:
        return SOCKETS
    held = evidence.gpus_per_node(device)
    found = [
        counted_sockets(run)
        for run in evidence.runs
        if run["device"] == device and run["gpus"] >= held
    ]
    return max((one for one in found if one is not None), default=1)


def _sockets(runs: Sequence[Row], wanted: int) -> Outcome:
    found = [(run["configuration"], counted_sockets(run)) for run in runs]
    known = [(name, sockets) for name, sockets in found if sockets is not None]
    if not known:
        raise NotTestable("Sockets a node: no finished run has CPU energy.")
    return exactly("sockets in the CPU energy of a node", wanted, known, "run")


@setting("B05")
def versions(evidence: Evidence) -> Outcome:
    """The paper's versions in every run's provenance; deviations are named."""
    if not evidence.provenance:
        raise NotTestable("No finished run says which software it was made with.")
    said: dict[str, dict[str, set[str | None]]] = {}
    for (id_, _), provenance in evidence.provenance.items():
        of_model = said.setdefault(str(evidence.specs.get(id_, {}).get("model", "")), {})
        for name, version in _software(provenance).items():
            of_model.setdefault(name, set()).add(version)
    deviating, unknown = [], []
    for model, software in said.items():
        wanted = {**VERSIONS, "Open MPI": OPEN_MPI, "CUDA": CUDA.get(model, "")}
        for name, version in wanted.items():
            if None in software[name]:
                unknown.append(name)
            for own in sorted(one for one in software[name] if one is not None):
                if version and not _is_version(own, version):
                    is_it = own[:1].isdigit()  # the version of that, not of another MPI
                    told = f"{name} {own} in place of" if is_it else f"{own} in place of {name}"
                    deviating.append(f"{told} {version}")
    if deviating:
        detail = f"Recorded deviations: {', '.join(dict.fromkeys(deviating))}."
        return Outcome(NOT_REPRODUCED, ", ".join(dict.fromkeys(deviating)), detail)
    if unknown:
        names = ", ".join(dict.fromkeys(unknown))
        return Outcome(NOT_TESTABLE, None, f"Not every provenance says the version of {names}.")
    runs = len(evidence.provenance)
    return Outcome(REPRODUCED, None, f"All versions are the paper's in {runs} runs.")


def _software(provenance: Row) -> dict[str, str | None]:
    """Versions by name; MPI's and CUDA's as the program saw them."""
    packages: Mapping[str, str | None] = provenance.get("packages") or {}
    mpi = provenance.get("mpi")
    open_mpi = None if mpi is None else re.sub(r"^Open MPI v?", "", mpi.split(",")[0])
    return {
        **{name: packages.get(name) for name in VERSIONS},
        "Open MPI": open_mpi,
        "CUDA": provenance.get("cuda"),
    }


def _is_version(own: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or a patch of it."""
    return re.fullmatch(rf"{re.escape(wanted)}([.+].*)?", own) is not None


@setting("B06")
def parallelism(evidence: Evidence) -> Outcome:
    """DistributedDataParallel in every run's provenance."""
    found = _provenance(evidence, None, "parallelism")
    return exactly("parallelism", "DistributedDataParallel", found, "run")


@setting("G05", model="fourcastnet")
def optimizer(evidence: Evidence) -> Outcome:
    """Adam and a cosine over the epochs in the provenance of FourCastNet's runs."""
    return all_of(
        [
            attempt(name, exactly, name, wanted, _provenance(evidence, "fourcastnet", name), "run")
            for name, wanted in (("optimizer", "Adam"), ("schedule", "CosinePerEpoch"))
        ]
    )


def _provenance(evidence: Evidence, model: str | None, name: str) -> list[tuple[str, object]]:
    """What each run's provenance says; NotTestable without runs."""
    found = [
        (f"{id_}/{repeat}", provenance.get(name))
        for (id_, repeat), provenance in evidence.provenance.items()
        if model in (None, evidence.specs.get(id_, {}).get("model"))
    ]
    if not found:
        raise NotTestable(f"No finished run{f' of {model}' if model else ''} has provenance.")
    return found


@check("C10")
def spread(evidence: Evidence) -> Outcome:
    """`population_sd` is the root mean square deviation of repeats: what the text calls RMSE."""
    repeats: dict[str, list[float]] = {}
    for run in evidence.runs:
        if run["energy_kwh"] is not None:
            look_at(run["energy_origin"])
            repeats.setdefault(run["configuration"], []).append(run["energy_kwh"])
    worst, counted = 0.0, 0
    for point in evidence.points:
        values = repeats.get(point.id, [])
        stated = point.row["energy_kwh_population_sd"]
        if len(values) > 1 and stated is not None:
            mean = math.fsum(values) / len(values)
            own = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
            worst = max(worst, abs(own - stated) / mean)
            counted += 1
    if not counted:
        raise NotTestable("No configuration has two runs: a spread needs their values one by one.")
    detail = (
        f"The root mean square deviation of repeats is the population standard deviation of "
        f"{counted} configurations, within {worst:.1e} of the mean."
    )
    return decided(worst <= SUM, worst, detail)


@check("C11")
def error(evidence: Evidence) -> Outcome:
    """The metric of ResNet50 is the top-1 error in percent."""
    known = [
        point
        for point in evidence.points
        if point.model == "resnet50" and point.mean("metric_last") is not None
    ]
    if not known:
        raise NotTestable("No finished run of ResNet50 has a metric.")
    found = [(point.id, point.row["metric_name"]) for point in known]
    return exactly("metric", "top1_error_percent", found)


@check("G13")
def no_ram(evidence: Evidence) -> Outcome:
    """RAM energy is missing on H100, not 0, and the scope of the total says so."""
    known = [p for p in evidence.points if p.device == "h100" and p.scope is not None]
    if not known:
        raise NotTestable("No finished run on h100.")
    bad = [
        p.id
        for p in known
        if p.mean("ram_energy_kwh") is not None or "ram" in (p.scope or "").split("+")
    ]
    if bad:
        return Outcome(NOT_REPRODUCED, bad[0], f"{bad[0]} on h100 has energy of RAM.")
    detail = f"Energy of RAM is null and outside of the scope in all {len(known)} on h100."
    return Outcome(REPRODUCED, None, detail)


@setting("J01", model="fourcastnet")
def profiles(evidence: Evidence) -> Outcome:
    """Figure 5 has the first 300 s of two runs on each device."""
    if not evidence.traces:
        raise NotTestable("Figure 5 has no run.")
    by_device: dict[str, int] = {}
    for trace in evidence.traces:
        device = str(trace.row["device"])
        by_device[device] = by_device.get(device, 0) + 1
    last = max((t for trace in evidence.traces for t in trace.time_s if t is not None), default=0.0)
    runs = ", ".join(f"{count} on {device}" for device, count in sorted(by_device.items()))
    if last < 0.9 * WINDOW_S:
        raise NotTestable(f"The runs of figure 5 trained for {last:.0f} s: {runs}.")
    holds = last <= WINDOW_S and set(by_device.values()) == {2}
    return Outcome(
        REPRODUCED if holds else NOT_REPRODUCED,
        f"{last:g}",
        f"Figure 5 shows {last:.0f} s of runs: {runs}; claimed are 300 s of two on each device.",
    )
