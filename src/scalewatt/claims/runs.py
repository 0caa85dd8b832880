"""Rules on what runs recorded: their work, sockets, metric and memory."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.claims.evidence import PAPER_DEVICES, Evidence
from scalewatt.claims.outcomes import Outcome, Rule, all_of, attempt, exactly, rule_in
from scalewatt.claims.reference_tables import BY_CONSTRUCTION, Check, NotTestable
from scalewatt.claims.settings import all_say, specs_of
from scalewatt.results.tables.published import SOCKETS_PER_NODE

RUN_RULES: dict[str, Rule] = {}
"""The rules by the name that the table calls them."""
WORK = (
    *("configuration", "updates", "gpus", "gpus_per_replica", "local_batch_size"),
    *("global_batch_size", "epochs", "dataset_samples", "protocol"),
)


def _origins(runs: pd.DataFrame) -> frozenset[str]:
    return frozenset(map(str, runs["energy_origin"].dropna().unique()))


@rule_in(RUN_RULES)
def work(evidence: Evidence, check: Check) -> Outcome:
    """Check whether updates · replicas · LBS are the samples of all epochs, up to one batch an epoch.

    A replica is one GPU, or the GPUs that share one copy of a model (`gpus_per_replica`). A run that stops
    at a target has the samples that it trained on, whatever its dataset has.
    """
    runs = evidence.runs.dropna(subset=["dataset_samples", "updates"])
    if is_planned := runs.empty:
        specs = specs_of(evidence)
        runs = pd.DataFrame([{name: getattr(spec, name) for name in WORK} for spec in specs])
    stops = (runs["protocol"] == TARGET_PROTOCOL).fillna(False).astype(bool)
    if is_planned and stops.any():
        raise NotTestable("How many samples a training takes to its target is not planned.")
    replicas = runs["gpus"] / runs["gpus_per_replica"].astype("Float64").fillna(1)
    samples = runs["epochs"] * runs["dataset_samples"]
    if not is_planned:
        samples = samples.where(~stops, runs["samples"])
    off = (runs["updates"] * replicas * runs["local_batch_size"] - samples).astype("float64")
    batches = (off / (runs["epochs"] * runs["global_batch_size"]).astype("float64")).dropna().abs()
    if batches.empty:
        raise NotTestable("No finished run says how many samples it trained on.")
    most, where = max(zip(batches.astype(float), runs["configuration"][batches.index], strict=True))
    source = "as planned by the specs" if is_planned else "of finished runs"
    return exactly(
        most < check.bounds[1],
        most,
        f"Updates · replicas · LBS, {source}, differs from each run's samples by at most {most:.3f} "
        f"batches an epoch ({where}; compared: {len(batches)}), expected less than {check.bounds[1]:g}.",
    )


@rule_in(RUN_RULES)
def by_construction(evidence: Evidence, check: Check) -> Outcome:
    """Check whether numbers are there of which one is made of the others: that they agree is no test.

    `quantity` names the columns of runs, `least` how many runs of a configuration it takes.
    """
    names, least = check.quantity.split(";"), int(check.least or 1)
    runs = evidence.runs.dropna(subset=names)
    runs = runs[runs.groupby("configuration")["repeat"].transform("size") >= least]
    if runs.empty:
        columns = " and ".join(names)
        raise NotTestable(f"No configuration has {least} finished runs with {columns}.")
    return Outcome(BY_CONSTRUCTION, None, f"{check.text}.", origins=_origins(runs))


@rule_in(RUN_RULES)
def nodes(evidence: Evidence, check: Check) -> Outcome:
    """Check whether A100 and H100 nodes have 4 GPUs by the specs, 2 sockets by the CPU energy of runs."""
    specs = [spec for spec in specs_of(evidence) if spec.device in PAPER_DEVICES]
    if not specs:
        raise NotTestable("The campaign has no configuration on a100 or h100.")
    gpus, sockets = check.exact_value
    full = [(s.configuration, s.ranks_per_node) for s in specs if s.gpus >= gpus]
    runs = evidence.runs[evidence.runs["device"].isin(PAPER_DEVICES)]
    return all_of(
        [
            attempt("", all_say, "GPUs of a node", gpus, full),
            attempt("", _sockets, runs, sockets),
        ]
    )


@rule_in(RUN_RULES)
def whole_node(evidence: Evidence, check: Check) -> Outcome:
    """Check whether runs on a part of a node count all its sockets: as many as runs that hold the whole."""
    every = evidence.runs
    held = evidence.node_sizes(every)
    runs = every[(every["model"] == check.model) & (every["gpus"] < held)]
    if runs.empty:
        raise NotTestable("No finished run of ResNet50 on fewer GPUs than a node has.")
    parts = []
    for device, on_device in runs.groupby("device"):
        whole = _counted_sockets(every[(every["device"] == device) & (every["gpus"] >= held)])
        sockets = max((count for _, count in whole), default=1)
        wanted = SOCKETS_PER_NODE if device in PAPER_DEVICES else sockets
        parts.append(attempt(str(device), _sockets, on_device, wanted))
    return all_of(parts)


def _sockets(runs: pd.DataFrame, wanted: int) -> Outcome:
    if wanted == 1:
        raise NotTestable("A node has one CPU socket, as far as its runs tell.")
    known = _counted_sockets(runs)
    if not known:
        raise NotTestable("Sockets a node: no finished run has CPU energy.")
    outcome = all_say("sockets in the CPU energy of a node", wanted, known, "runs")
    return replace(outcome, origins=_origins(runs))


def _counted_sockets(runs: pd.DataFrame) -> list[tuple[str, int]]:
    """CPU sockets per node of runs that tell it: CPU energy over mean power of a socket and run time."""
    names = ["cpu_energy_kwh", "mean_cpu_socket_power_w", "runtime_h", "nodes"]
    known = runs[(runs[names].fillna(0) != 0).all(axis=1)]
    energy, power, hours, nodes = (known[name].astype("float64") for name in names)
    sockets = (1000 * energy / (power * hours * nodes)).round().clip(lower=1).astype(int)
    return list(zip(known["configuration"], sockets, strict=True))


@rule_in(RUN_RULES)
def metric(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the metric of a model's points is this one."""
    points = evidence.points
    known = points[(points["model"] == check.model) & points["metric_last_mean"].notna()]
    if known.empty:
        raise NotTestable("No finished run of ResNet50 has a metric.")
    return all_say(check.text, check.exact_value, list(known[check.quantity].items()))


@rule_in(RUN_RULES)
def no_ram(evidence: Evidence, check: Check) -> Outcome:
    """Check whether RAM energy is missing on a device, not 0, and the scope of the total says so."""
    points = evidence.points
    known = points[(points["device"] == check.device) & points["energy_scope"].notna()]
    if known.empty:
        raise NotTestable(f"No finished run on {check.device}.")
    has_ram = known[f"{check.quantity}_mean"].notna()
    has_ram |= known["energy_scope"].map(lambda scope: "ram" in scope.split("+")).astype(bool)
    for id_ in known.index[has_ram]:
        return exactly(False, id_, f"{id_} on {check.device} has energy of RAM.")
    sentence = f"Energy of RAM is null and outside of the scope on {check.device} ({len(known)})."
    return exactly(True, None, sentence)
