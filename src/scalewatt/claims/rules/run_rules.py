"""Rules on what runs recorded: their work, parts of the energy, sockets, spread and metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import CONTRADICTED, SUPPORTED, NotTestable, Outcome
from scalewatt.claims.evidence.evidence import PAPER_DEVICES, Evidence, look_at
from scalewatt.claims.numbers.decisions import all_of, attempt, decided
from scalewatt.claims.rules.spec_rules import exactly, specs_of
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.published import SOCKETS_PER_NODE as SOCKETS

WORK = (
    *("configuration", "updates", "gpus", "gpus_per_replica", "local_batch_size"),
    *("global_batch_size", "epochs", "dataset_samples", "protocol"),
)


def _work(evidence: Evidence, check: Check) -> Outcome:
    """Check whether updates · replicas · LBS are the samples of all epochs, up to one batch an epoch.

    A replica is one GPU, or the GPUs that share one copy of a model (`gpus_per_replica`). A run that stops
    at a target has the samples that it trained on, whatever its dataset has.
    """
    runs = evidence.runs.dropna(subset=["dataset_samples", "updates"])
    is_planned = runs.empty
    if is_planned:
        runs = pd.DataFrame(
            [{name: getattr(spec, name, None) for name in WORK} for spec in specs_of(evidence)]
        )
        names = runs["configuration"]
    else:
        names = runs["configuration"] + "/" + runs["repeat"].astype("string")
    per_replica = _gpus_per_replica(runs)
    replicas = runs["gpus"] / per_replica
    samples = runs["epochs"] * runs["dataset_samples"]
    stops = (runs["protocol"] == TARGET_PROTOCOL).fillna(False).astype(bool)
    if "samples" in runs:
        samples = samples.where(~stops, runs["samples"])
    elif stops.any():
        raise NotTestable("How many samples a training takes to its target is not planned.")
    done = runs["updates"] * replicas * runs["local_batch_size"]
    off = (done - samples).abs().astype("float64")
    share = (off / (runs["epochs"] * runs["global_batch_size"]).astype("float64")).dropna()
    if share.empty:
        raise NotTestable("No finished run says how many samples it trained on.")
    place = _worst(share)
    source = "as planned by the specs" if is_planned else "of finished runs"
    has_replicas = bool((per_replica > 1).any())
    n = "replicas" if has_replicas else "n"
    of_all = "each run's samples" if stops.any() else "the samples of all epochs"
    return decided(
        share[place] < check.high,
        float(share[place]),
        f"Updates · {n} · LBS, {source}, differs from {of_all} by at most "
        f"{share[place]:.3f} batches an epoch ({names[place]}; {len(share)} compared), expected less "
        f"than {check.high:g}.",
    )


def _gpus_per_replica(runs: pd.DataFrame) -> pd.Series:
    return runs["gpus_per_replica"].astype("Float64").fillna(1)


def _worst(off: pd.Series) -> Any:
    """Return the label of the largest value, the last of several."""
    return off.iloc[::-1].idxmax()


def _look_at(runs: pd.DataFrame) -> None:
    for origin in runs["energy_origin"].dropna().unique():
        look_at(origin)


def _has(runs: pd.DataFrame) -> dict[str, pd.Series]:
    """Return for each device kind which runs have it in their total energy."""
    scopes = "+" + runs["energy_scope"].astype("string").fillna("") + "+"
    return {
        kind: scopes.str.contains(f"+{kind}+", regex=False).astype(bool) for kind in DEVICE_KINDS
    }


def _sum_of_parts(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the total is the sum of the parts in scope: GPU and CPU, and with a sensor RAM."""
    runs = evidence.runs if len(evidence.runs) else _means(evidence)
    runs = runs.dropna(subset=["energy_kwh", "energy_scope"])
    has = _has(runs)
    is_summed = has["gpu"] & has["cpu"]
    parts = pd.DataFrame(
        {kind: runs[f"{kind}_energy_kwh"].where(has[kind], 0.0) for kind in DEVICE_KINDS}
    )
    known = runs[is_summed & parts.notna().all(axis=1) & (runs["energy_kwh"] != 0)]
    if known.empty:
        scopes = sorted(set(runs.loc[~is_summed, "energy_scope"]))
        other = f" Its scope is {', '.join(scopes)}." if scopes else ""
        raise NotTestable(f"No run has its total energy and that of GPU and CPU.{other}")
    _look_at(known)
    sums = [math.fsum(row) for row in parts.loc[known.index].itertuples(index=False)]
    off = (pd.Series(sums, known.index) / known["energy_kwh"].astype("float64") - 1).abs()
    place = _worst(off)
    return decided(
        off[place] <= check.high,
        float(off[place]),
        f"The parts in scope differ from the total by at most {off[place]:.1e} of it "
        f"({known['configuration'][place]}; {len(known)} runs), expected {check.high:.0e}.",
    )


def _floats(runs: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as floats, null as NaN."""
    return runs[name].astype("float64")


def _means(evidence: Evidence) -> pd.DataFrame:
    """Return points as rows of runs."""
    names = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
    columns = ("configuration", "energy_scope", "energy_origin", *names)
    rows = [
        {
            "configuration": point.id,
            "energy_scope": point.scope,
            "energy_origin": point.origin,
            **{name: point.mean(name) for name in names},
        }
        for point in evidence.points
    ]
    return pd.DataFrame(rows, columns=columns)


def _sum_of_powers(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy per GPU hour is the sum of the mean powers, each by its devices per GPU.

    How many sockets a node has is known of the paper's devices alone: elsewhere CPUs are left out of both.
    """
    runs = evidence.runs.dropna(subset=["nodes"])
    has = _has(runs)
    compared = has | {"cpu": has["cpu"] & runs["device"].isin(PAPER_DEVICES)}
    nodes_per_gpu = _floats(runs, "nodes") / _floats(runs, "gpus")
    watts = {
        "gpu": _floats(runs, "mean_gpu_power_w"),
        "cpu": _floats(runs, "mean_cpu_socket_power_w") * SOCKETS * nodes_per_gpu,
        "ram": _floats(runs, "mean_ram_power_w") * nodes_per_gpu,
    }
    joules = {kind: _floats(runs, f"{kind}_energy_kwh") for kind in DEVICE_KINDS}
    total, energy = (
        pd.DataFrame({kind: parts[kind].where(compared[kind], 0.0) for kind in DEVICE_KINDS}).sum(
            axis=1, skipna=False
        )
        for parts in (watts, joules)
    )
    is_whole = compared["cpu"] == has["cpu"]
    hours = _floats(runs, "gpu_hours")
    own = 1000 * _floats(runs, "p_gpuh_kw").where(is_whole, energy / hours.where(hours != 0))
    ready = own.notna() & total.notna() & (own != 0) & (total != 0)
    known = runs[ready]
    if known.empty:
        raise NotTestable(
            "No run has energy per GPU hour and mean powers of all its device kinds (CPUs count on a100 "
            "and h100, whose sockets are known)."
        )
    _look_at(known)
    off = total[ready] / own[ready] - 1
    place = _worst(off.abs())
    where = f"{known['configuration'][place]}/{known['repeat'][place]}"
    without = int((~is_whole[ready]).sum())
    left = f" CPUs are left out in {without}: sockets are not known." if without else ""
    return decided(
        abs(off[place]) <= check.high,
        float(off[place]),
        f"The mean powers of a GPU and its part of CPU and RAM add up to P within {off[place]:+.2%} at "
        f"most ({where}; {len(known)} runs), expected {100 * check.high:g} %.{left}",
    )


# --- sockets ------------------------------------------------------------------------------------


def _nodes(evidence: Evidence, check: Check) -> Outcome:
    """Check whether A100 and H100 nodes have 4 GPUs by the specs, 2 sockets by the CPU energy of runs."""
    specs = [spec for spec in specs_of(evidence) if spec.device in PAPER_DEVICES]
    if not specs:
        raise NotTestable("The campaign has no configuration on a100 or h100.")
    gpus, sockets = check.value
    full = [(s.configuration, s.ranks_per_node) for s in specs if s.gpus >= gpus]
    runs = evidence.runs[evidence.runs["device"].isin(PAPER_DEVICES)]
    return all_of(
        [
            attempt("gpus", exactly, "GPUs of a node", gpus, full),
            attempt("sockets", _sockets, runs, sockets),
        ]
    )


def _whole_node(evidence: Evidence, check: Check) -> Outcome:
    """Check whether runs on a part of a node count all its sockets: as many as runs that hold the whole."""
    runs = evidence.runs[evidence.runs["model"] == check.model]
    held = {device: evidence.gpus_per_node(device) for device in runs["device"].unique()}
    runs = runs[runs["gpus"] < runs["device"].map(held).astype("float64")]
    if runs.empty:
        raise NotTestable("No finished run of ResNet50 on fewer GPUs than a node has.")
    return all_of(
        attempt(device, _sockets, runs[runs["device"] == device], _all_sockets(evidence, device))
        for device in sorted(runs["device"].unique())
    )


def _all_sockets(evidence: Evidence, device: str) -> int:
    """Return the sockets of a node: the paper's, elsewhere those of runs that hold all GPUs of a node."""
    if device in PAPER_DEVICES:
        return SOCKETS
    runs = evidence.runs[evidence.runs["device"] == device]
    return max(
        (n for _, n in _counted_sockets(runs[runs["gpus"] >= evidence.gpus_per_node(device)])),
        default=1,
    )


def _sockets(runs: pd.DataFrame, wanted: int) -> Outcome:
    if wanted == 1:
        raise NotTestable("A node has one CPU socket, as far as its runs tell.")
    known = _counted_sockets(runs)
    if not known:
        raise NotTestable("Sockets a node: no finished run has CPU energy.")
    return exactly("sockets in the CPU energy of a node", wanted, known, "run")


def _counted_sockets(runs: pd.DataFrame) -> list[tuple[str, int]]:
    """Return the CPU sockets in the CPU energy of runs, per node, of those that tell it.

    That energy over the mean power of a socket and the run time.
    """
    names = ["cpu_energy_kwh", "mean_cpu_socket_power_w", "runtime_h", "nodes"]
    known = runs[(runs[names].fillna(0) != 0).all(axis=1)]
    _look_at(known)
    energy, power, hours, nodes = (known[name].astype("float64") for name in names)
    sockets = (1000 * energy / (power * hours * nodes)).round().clip(lower=1).astype(int)
    return list(zip(known["configuration"], sockets, strict=True))


# --- spread and metric --------------------------------------------------------------------------


def _population_spread(evidence: Evidence, check: Check) -> Outcome:
    """Check whether `population_sd` is the root mean square deviation of repeats: the text's RMSE."""
    runs = evidence.runs.dropna(subset=["energy_kwh"])
    _look_at(runs)
    repeats = runs.groupby("configuration")["energy_kwh"].apply(list).to_dict()
    off = []
    for point in evidence.points:
        values = repeats.get(point.id, [])
        stated = point.row["energy_kwh_population_sd"]
        if len(values) > 1 and stated is not None:
            mean = math.fsum(values) / len(values)
            own = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
            off.append(abs(own - stated) / mean)
    if not off:
        raise NotTestable("No configuration has two runs: a spread needs their values one by one.")
    return decided(
        max(off) <= check.high,
        max(off),
        f"The root mean square deviation of repeats is the population standard deviation of "
        f"{len(off)} configurations, within {max(off):.1e} of the mean.",
    )


def _metric(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the metric of a model's points is this one."""
    known = [
        point
        for point in evidence.points
        if point.model == check.model and point.mean("metric_last") is not None
    ]
    if not known:
        raise NotTestable("No finished run of ResNet50 has a metric.")
    return exactly(check.text, check.value, [(p.id, p.row[check.quantity]) for p in known])


def _no_ram(evidence: Evidence, check: Check) -> Outcome:
    """Check whether RAM energy is missing on a device, not 0, and the scope of the total says so."""
    known = [p for p in evidence.points if p.device == check.device and p.scope is not None]
    if not known:
        raise NotTestable(f"No finished run on {check.device}.")
    bad = [
        p.id
        for p in known
        if p.mean(check.quantity) is not None or "ram" in (p.scope or "").split("+")
    ]
    if bad:
        return Outcome(CONTRADICTED, bad[0], f"{bad[0]} on {check.device} has energy of RAM.")
    detail = (
        f"Energy of RAM is null and outside of the scope in all {len(known)} on {check.device}."
    )
    return Outcome(SUPPORTED, None, detail)


RUN_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "metric": _metric,
    "nodes": _nodes,
    "no_ram": _no_ram,
    "population_spread": _population_spread,
    "sum_of_parts": _sum_of_parts,
    "sum_of_powers": _sum_of_powers,
    "whole_node": _whole_node,
    "work": _work,
}
"""The rules by the name that the table calls them."""
