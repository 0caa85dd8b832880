"""Rules on how trainings are set up, by specs and provenance, and on what runs recorded.

Only configurations in series that have a finished run count; of the paper's own numbers, all do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pandas as pd

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.claims.evidence import PAPER_DEVICES, Evidence, Line, Row, Trace
from scalewatt.claims.outcomes import Outcome, Rule, all_of, attempt, exactly, rule_in
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    NOT_TESTABLE,
    Check,
    NotTestable,
)
from scalewatt.claims.traces import sampled
from scalewatt.results.tables.published import FULL_SAMPLES, SOCKETS_PER_NODE

SPEC_RULES: dict[str, Rule] = {}
RUN_RULES: dict[str, Rule] = {}
"""The rules by the name that the table calls them."""
SAMPLES_PER_GPU = 5004
"""The paper's, where its dataset grows with n; one more or less is rounding."""
Stated = Sequence[tuple[str, Any]]
"""Configurations or runs, and what each states."""


def specs_of(evidence: Evidence, *description: Any) -> list[RunSpec]:
    """Specs of the configurations in series of this description, each once; commands have none.

    NotTestable if no run of these has finished.
    """
    specs = _specs(evidence, _begun(evidence, *description))
    if not specs:
        described = " ".join(filter(None, description)) or "a known model"
        raise NotTestable(f"No finished run of {described}.")
    return specs


def _specs(evidence: Evidence, lines: Sequence[Line]) -> list[RunSpec]:
    ids = dict.fromkeys(id_ for line in lines for id_ in line.ids.values())
    specs = [evidence.specs[id_] for id_ in ids if id_ in evidence.specs]
    return [spec for spec in specs if spec.dataset.get("format") != "command"]


def _begun(evidence: Evidence, *description: Any) -> list[Line]:
    lines = [line for line in evidence.lines if line.is_of(*description)]
    return [line for line in lines if len(line.points) or line.is_published]


def unless_departing(outcome: Outcome, evidence: Evidence, model: str) -> Outcome:
    """Make a contradiction not testable if no training is the paper's: the campaign departs by choice."""
    is_of_paper = any(
        spec.device in PAPER_DEVICES
        and spec.protocol == "paper"
        and _training_samples(spec) == FULL_SAMPLES.get(spec.model, -1)
        for spec in _specs(evidence, _begun(evidence, model))
    )
    if outcome.verdict != CONTRADICTED or is_of_paper:
        return outcome
    more = "The campaign is none of the paper's: it departs, and contradicts nothing."
    return Outcome(NOT_TESTABLE, None, f"{outcome.detail} {more}")


# --- values in specs ----------------------------------------------------------------------------


def _training_samples(spec: RunSpec) -> Any:
    """Samples of the whole dataset."""
    is_whole = spec.dataset_fraction == "1"
    return spec.dataset_samples if is_whole else spec.dataset.get("train_samples")


def _validation_samples(spec: RunSpec) -> Any:
    """Samples of the validation set over the part of the dataset that is used, rounded."""
    samples, whole = spec.validation_samples, spec.dataset.get("validation_samples")
    if samples is None or whole is None:
        return None
    fits = samples == int(whole * Fraction(spec.dataset_fraction))
    return whole if fits else f"{samples} of {whole}"


def _samples_per_gpu(spec: RunSpec) -> Any:
    """SAMPLES_PER_GPU if a GPU's samples are within one of it."""
    if spec.dataset_samples is None:
        return None
    each = spec.dataset_samples / spec.gpus
    return SAMPLES_PER_GPU if abs(each - SAMPLES_PER_GPU) <= 1 else round(each, 1)


def _grid_degrees(spec: RunSpec) -> Any:
    """Degrees between grid points."""
    grid = spec.dataset.get("grid")
    return None if not grid else (360 / grid[1], 180 / grid[0])


def _starts_from_pretraining(spec: RunSpec) -> bool:
    """Whether the weights are those of the same GPUs' pre-training."""
    name = spec.initial_weights.configuration if spec.initial_weights else ""
    same = f"-n{spec.gpus:03d}-lbs{spec.local_batch_size:04d}-" in name
    return same and "pretrain" in name


DERIVED: Mapping[str, Callable[[RunSpec], Any]] = {
    "full_training_samples": _training_samples,
    "full_validation_samples": _validation_samples,
    "samples_per_gpu": _samples_per_gpu,
    "grid_degrees": _grid_degrees,
    "starts_from_same_pretraining": _starts_from_pretraining,
}
"""What the table names besides paths into specs."""


def _read(evidence: Evidence, spec: RunSpec, path: str) -> Any:
    """Value at a path such as `settings.momentum`, or a derived one; null if absent."""
    if path in DERIVED:
        return DERIVED[path](spec)
    if evidence.campaign is not None and path == "repeats":
        return evidence.campaign.repeats.get(spec.configuration)
    if evidence.campaign is not None and path == "seeds":
        return evidence.campaign.configurations[spec.configuration].seeds
    name, *keys = path.split(".")
    value = getattr(spec, name, None)
    for key in keys:
        value = (value or {}).get(key)
    return tuple(value) if isinstance(value, list) else value


@rule_in(SPEC_RULES)
def spec(evidence: Evidence, check: Check) -> Outcome:
    """Check whether all specs say the wanted value, or values of several paths."""
    paths, stated = check.quantity.split(";"), []
    for each in specs_of(evidence, *check.series, check.mode):
        values = tuple(_read(evidence, each, path) for path in paths)
        stated.append((each.configuration, values if len(paths) > 1 else values[0]))
    return all_say(check.text, check.exact_value, stated)


def all_say(what: str, wanted: Any, stated: Stated, noun: str = "configurations") -> Outcome:
    """Check whether all configurations (or runs) say the wanted value; NotTestable if some say none."""
    what = what[:1].upper() + what[1:]
    silent = [
        id_ for id_, value in stated if None in (value if isinstance(value, tuple) else [value])
    ]
    others = [(id_, value) for id_, value in stated if value != wanted and id_ not in silent]
    if others:
        id_, value = others[0]
        sentence = (
            f"{what}: {_text(value)} in {id_}, expected {_text(wanted)} ({noun} with another value: "
            f"{len(others)} of {len(stated)})."
        )
        return exactly(False, _text(value), sentence)
    if silent:
        raise NotTestable(f"{what}: {len(silent)} of {len(stated)} do not say it.")
    return exactly(True, _text(wanted), f"{what}: {_text(wanted)} ({noun}: {len(stated)}).")


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@rule_in(SPEC_RULES)
def values(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the specs together have these values of a path, or of several."""
    specs, paths = specs_of(evidence, *check.series, check.mode), check.quantity.split(";")
    sets = [tuple(sorted({_read(evidence, each, path) for each in specs})) for path in paths]
    return _compare(check, sets, len(specs))


@rule_in(SPEC_RULES)
def largest(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the largest value of a path is this one."""
    specs = specs_of(evidence, *check.series, check.mode)
    return _compare(check, [(max(getattr(spec, check.quantity) for spec in specs),)], len(specs))


@rule_in(SPEC_RULES)
def constant_gbs(evidence: Evidence, check: Check) -> Outcome:
    """Check whether series at constant GBS have these; Table 1's single points are no series."""
    lines = _begun(evidence, *check.series, check.mode)
    sizes = {line.constant for line in lines if len(line.ids) > 1 and line.constant is not None}
    if not sizes:
        raise NotTestable(
            f"No finished pre-training in a series at constant GBS on {check.device}."
        )
    return _compare(check, [tuple(sorted(sizes))], len(lines))


def _compare(check: Check, sets: list[tuple[Any, ...]], count: int) -> Outcome:
    """Compare sets of values with those that are claimed, in the words of the check's text."""
    wanted = list(check.exact_value if len(sets) > 1 else [check.exact_value])
    form, what = check.text, ""
    if "{" not in form:
        form, what = "{}", f"{check.text[:1].upper()}{check.text[1:]}: "
    value, claimed = (form.format(*map(_text, each)) for each in (sets, wanted))
    return exactly(sets == wanted, value, f"{what}{value} (of {count}); claimed: {claimed}.")


@rule_in(SPEC_RULES)
def sampling_period(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the specs say this period, and it is that between the samples of figure 5 within 5 %."""

    def check_trace(trace: Trace) -> Outcome:
        times = trace.powers.index.to_series().dropna()
        period = float(times.diff().median())
        sentence = f"Median between samples of {trace.row['configuration']} is {period:.3f} s."
        return exactly(abs(period - check.exact_value) <= check.most, period, sentence)

    traces = [trace for trace in sampled(evidence) if len(trace.powers) > 2]
    parts = [attempt(trace.row["configuration"], check_trace, trace) for trace in traces]
    return all_of([("", spec(evidence, check)), *parts])


# --- provenance ---------------------------------------------------------------------------------


def _recorded(evidence: Evidence, check: Check) -> list[tuple[str, str, Row]]:
    """Names, models and provenances of finished runs of the check's model; NotTestable without any."""
    specs = evidence.specs
    runs = [
        (f"{id_}/{repeat}", specs[id_].model if id_ in specs else "", recorded)
        for (id_, repeat), recorded in evidence.provenance.items()
    ]
    runs = [run for run in runs if check.model in ("", run[1])]
    if not runs:
        raise NotTestable(f"No finished run of {check.model or 'any model'} has provenance.")
    return runs


@rule_in(SPEC_RULES)
def provenance(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every run's provenance has these values."""
    runs, parts = _recorded(evidence, check), []
    for name, wanted in zip(check.quantity.split(";"), check.exact_value, strict=True):
        stated = [(run, recorded.get(name)) for run, _, recorded in runs]
        parts.append(attempt("", all_say, name, wanted, stated, "runs"))
    return all_of(parts)


@rule_in(SPEC_RULES)
def versions(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every run's provenance has these versions of software; of some each model has its own."""
    runs, parts = _recorded(evidence, check), []
    for name, wanted in check.exact_value.items():
        by_model = wanted if isinstance(wanted, dict) else {}
        claimed, stated = " or ".join(by_model.values()) or wanted, []
        for run, model, recorded in runs:
            number = by_model.get(model, "") if by_model else wanted
            version = _version(recorded, name)
            # A version may go on, as 2.7.0+cu126 does.
            fits = version and re.fullmatch(rf"{re.escape(number)}([.+].*)?", version)
            stated.append((run, claimed if fits or not number else version))
        parts.append(attempt("", all_say, name, claimed, stated, "runs"))
    return all_of(parts)


def _version(recorded: Row, name: str) -> str | None:
    """Version of a package; MPI's and CUDA's as the program saw them."""
    packages: Mapping[str, str | None] = recorded.get("packages") or {}
    cuda, mpi = recorded.get("cuda"), recorded.get("mpi")
    known = {"CUDA": cuda, "Open MPI": mpi and re.sub(r"^Open MPI v?", "", mpi.split(",")[0])}
    return known[name] if name in known else packages.get(name)


# --- what runs recorded ---------------------------------------------------------------------------

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
    gpus, sockets = check.exact_value
    full = [
        (spec.configuration, spec.ranks_per_node)
        for spec in specs_of(evidence)
        if spec.device in PAPER_DEVICES and spec.gpus >= gpus
    ]
    if not full:
        raise NotTestable("The campaign has no configuration of a whole node of a100 or h100.")
    runs = evidence.runs[evidence.runs["device"].isin(PAPER_DEVICES)]
    of_gpus = attempt("", all_say, "GPUs of a node", gpus, full)
    return all_of([of_gpus, attempt("", _sockets, runs, sockets)])


@rule_in(RUN_RULES)
def whole_node(evidence: Evidence, check: Check) -> Outcome:
    """Check whether runs on a part of a node count all its sockets: as many as runs that hold the whole."""
    every = evidence.runs
    is_part = every["gpus"] < evidence.node_sizes(every)
    runs = every[(every["model"] == check.model) & is_part]
    if runs.empty:
        raise NotTestable("No finished run of ResNet50 on fewer GPUs than a node has.")
    parts = []
    for device, on_device in runs.groupby("device"):
        whole = _counted_sockets(every[(every["device"] == device) & ~is_part])
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
