"""Rules on what runs recorded: their work, parts of the energy, sockets, spread and metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.claims.evidence import PAPER_DEVICES, Evidence
from scalewatt.claims.outcomes import Outcome, all_of, attempt, exactly
from scalewatt.claims.reference_tables import Check, NotTestable
from scalewatt.claims.settings import all_say, specs_of
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.published import SOCKETS_PER_NODE as SOCKETS

WORK = (
    *("configuration", "updates", "gpus", "gpus_per_replica", "local_batch_size"),
    *("global_batch_size", "epochs", "dataset_samples", "protocol"),
)


def _floats(runs: pd.DataFrame, *names: str) -> list[pd.Series]:
    """Return columns as floats, null as NaN."""
    return [runs[name].astype("float64") for name in names]


def _furthest(off: pd.Series) -> int:
    """Return the place of the number that is furthest from 0, the last of several."""
    return len(off) - 1 - int(off.abs().to_numpy(float)[::-1].argmax())


def _origins(runs: pd.DataFrame) -> list[str]:
    return [str(origin) for origin in runs["energy_origin"].dropna().unique()]


# --- work and sums --------------------------------------------------------------------------------


def _work(evidence: Evidence, check: Check) -> Outcome:
    """Check whether updates · replicas · LBS are the samples of all epochs, up to one batch an epoch.

    A replica is one GPU, or the GPUs that share one copy of a model (`gpus_per_replica`). A run that stops
    at a target has the samples that it trained on, whatever its dataset has.
    """
    runs = evidence.runs.dropna(subset=["dataset_samples", "updates"])
    if is_planned := runs.empty:
        planned = [
            {name: getattr(spec, name, None) for name in WORK} for spec in specs_of(evidence)
        ]
        runs = pd.DataFrame(planned)
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
    at = _furthest(batches)
    most, where = float(batches.iloc[at]), runs.loc[batches.index[at], "configuration"]
    source = "as planned by the specs" if is_planned else "of finished runs"
    return exactly(
        most < check.high,
        most,
        f"Updates · replicas · LBS, {source}, differs from each run's samples by at most {most:.3f} "
        f"batches an epoch ({where}; compared: {len(batches)}), expected less than {check.high:g}.",
    )


def _counts(runs: pd.DataFrame) -> pd.DataFrame:
    """Return for each device kind which runs have it in their total energy."""
    scopes = "+" + runs["energy_scope"].astype("string").fillna("") + "+"
    return pd.DataFrame(
        {kind: scopes.str.contains(f"+{kind}+", regex=False).astype(bool) for kind in DEVICE_KINDS}
    )


def _sum_of(parts: pd.DataFrame, counts: pd.DataFrame) -> pd.Series:
    """Return the sum of the parts that count, in float64; null if one of these is."""
    return parts.astype("float64").where(counts, 0.0).sum(axis=1, skipna=False)


def _kilowatt_hours(runs: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({kind: runs[f"{kind}_energy_kwh"] for kind in DEVICE_KINDS})


def _sum_of_parts(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the total is the sum of the parts in scope: GPU and CPU, and with a sensor RAM."""
    runs = evidence.runs if len(evidence.runs) else _means(evidence)
    runs = runs.dropna(subset=["energy_kwh", "energy_scope"])
    counts = _counts(runs)
    sums = _sum_of(_kilowatt_hours(runs), counts)
    known = counts["gpu"] & counts["cpu"] & sums.notna() & (runs["energy_kwh"] != 0)
    if not known.any():
        scopes = ", ".join(sorted(set(runs["energy_scope"]))) or "unknown"
        raise NotTestable(
            f"No run has its total energy and that of GPU and CPU; their scope is {scopes}."
        )
    runs, (total,) = runs[known], _floats(runs[known], "energy_kwh")
    off = (sums[known] / total - 1).abs()
    at = _furthest(off)
    most = float(off.iloc[at])
    return exactly(
        most <= check.high,
        most,
        f"The parts in scope differ from the total by at most {most:.1e} of it "
        f"({runs['configuration'].iloc[at]}; runs: {len(runs)}), expected {check.high:.0e}.",
        _origins(runs),
    )


def _means(evidence: Evidence) -> pd.DataFrame:
    """Return points as rows of runs."""
    names = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
    columns = ("configuration", "energy_scope", "energy_origin")
    rows = [
        {name: point.row[name] for name in columns} | {name: point.mean(name) for name in names}
        for point in evidence.points
    ]
    return pd.DataFrame(rows, columns=[*columns, *names])


def _sum_of_powers(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy per GPU hour is the sum of the mean powers, each by its devices per GPU.

    How many sockets a node has is known of the paper's devices alone: elsewhere CPUs are left out of both.
    """
    runs = evidence.runs.dropna(subset=["nodes"])
    counts = _counts(runs)
    is_whole = ~counts["cpu"] | runs["device"].isin(PAPER_DEVICES)
    compared = counts.assign(cpu=counts["cpu"] & is_whole)
    nodes, gpus, hours, power, gpu_w, socket_w, ram_w = _floats(
        runs,
        *("nodes", "gpus", "gpu_hours", "p_gpuh_kw"),
        *("mean_gpu_power_w", "mean_cpu_socket_power_w", "mean_ram_power_w"),
    )
    watts = {"gpu": gpu_w, "cpu": socket_w * SOCKETS * nodes / gpus, "ram": ram_w * nodes / gpus}
    total = _sum_of(pd.DataFrame({kind: watts[kind] for kind in DEVICE_KINDS}), compared)
    energy = _sum_of(_kilowatt_hours(runs), compared)
    recorded = 1000 * power.where(is_whole, energy / hours.where(hours != 0))
    ready = recorded.notna() & total.notna() & (recorded != 0) & (total != 0)
    if not ready.any():
        raise NotTestable(
            "No run has energy per GPU hour and mean powers of all its device kinds (CPUs count on a100 "
            "and h100, whose sockets are known)."
        )
    runs, off = runs[ready], total[ready] / recorded[ready] - 1
    at = _furthest(off)
    most, where = float(off.iloc[at]), runs.iloc[at]
    without = int((~is_whole[ready]).sum())
    left = f" CPUs are left out, as their sockets are not known, in {without}." if without else ""
    return exactly(
        abs(most) <= check.high,
        most,
        f"The mean powers of a GPU and its part of CPU and RAM add up to P within {most:+.2%} at most "
        f"({where['configuration']}/{where['repeat']}; runs: {len(runs)}), expected "
        f"{100 * check.high:g} %.{left}",
        _origins(runs),
    )


# --- sockets ------------------------------------------------------------------------------------


def _nodes(evidence: Evidence, check: Check) -> Outcome:
    """Check whether A100 and H100 nodes have 4 GPUs by the specs, 2 sockets by the CPU energy of runs."""
    specs = [spec for spec in specs_of(evidence) if spec.device in PAPER_DEVICES]
    if not specs:
        raise NotTestable("The campaign has no configuration on a100 or h100.")
    gpus, sockets = check.exact_value
    full = [(s.configuration, s.ranks_per_node) for s in specs if s.gpus >= gpus]
    runs = evidence.runs[evidence.runs["device"].isin(PAPER_DEVICES)]
    return all_of(
        [
            attempt("gpus", all_say, "GPUs of a node", gpus, full),
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
    whole = runs[runs["gpus"] >= evidence.gpus_per_node(device)]
    return max((sockets for _, sockets in _counted_sockets(whole)), default=1)


def _sockets(runs: pd.DataFrame, wanted: int) -> Outcome:
    if wanted == 1:
        raise NotTestable("A node has one CPU socket, as far as its runs tell.")
    known = _counted_sockets(runs)
    if not known:
        raise NotTestable("Sockets a node: no finished run has CPU energy.")
    outcome = all_say("sockets in the CPU energy of a node", wanted, known, "runs")
    return replace(outcome, origins=frozenset(_origins(runs)))


def _counted_sockets(runs: pd.DataFrame) -> list[tuple[str, int]]:
    """Return the CPU sockets in the CPU energy of runs, per node, of those that tell it.

    That energy over the mean power of a socket and the run time.
    """
    names = ["cpu_energy_kwh", "mean_cpu_socket_power_w", "runtime_h", "nodes"]
    known = runs[(runs[names].fillna(0) != 0).all(axis=1)]
    energy, power, hours, nodes = _floats(known, *names)
    sockets = (1000 * energy / (power * hours * nodes)).round().clip(lower=1).astype(int)
    return list(zip(known["configuration"], sockets, strict=True))


# --- spread and metric --------------------------------------------------------------------------


def _population_spread(evidence: Evidence, check: Check) -> Outcome:
    """Check whether `population_sd` is the root mean square deviation of repeats: the text's RMSE."""
    runs = evidence.runs.dropna(subset=["energy_kwh"])
    repeats = runs["energy_kwh"].astype("float64").groupby(runs["configuration"])
    spreads = pd.DataFrame(
        {"sd": repeats.std(ddof=0), "mean": repeats.mean(), "n": repeats.size()}
    ).join(
        pd.Series({p.id: p.row["energy_kwh_population_sd"] for p in evidence.points}, name="stated")
    )
    spreads = spreads[(spreads["n"] > 1) & (spreads["mean"] != 0)].dropna(subset=["stated"])
    if spreads.empty:
        raise NotTestable("No configuration has two runs: a spread needs their values one by one.")
    most = float(
        ((spreads["sd"] - spreads["stated"].astype("float64")).abs() / spreads["mean"]).max()
    )
    return exactly(
        most <= check.high,
        most,
        "The root mean square deviation of repeats is the population standard deviation of "
        f"configurations ({len(spreads)}), within {most:.1e} of the mean.",
        _origins(runs),
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
    return all_say(check.text, check.exact_value, [(p.id, p.row[check.quantity]) for p in known])


def _no_ram(evidence: Evidence, check: Check) -> Outcome:
    """Check whether RAM energy is missing on a device, not 0, and the scope of the total says so."""
    known = [p for p in evidence.points if p.device == check.device and p.scope is not None]
    if not known:
        raise NotTestable(f"No finished run on {check.device}.")
    with_ram = [
        p.id for p in known if p.mean(check.quantity) is not None or "ram" in p.scope.split("+")
    ]
    if with_ram:
        return exactly(False, with_ram[0], f"{with_ram[0]} on {check.device} has energy of RAM.")
    sentence = f"Energy of RAM is null and outside of the scope on {check.device} ({len(known)})."
    return exactly(True, None, sentence)


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
