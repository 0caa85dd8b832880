"""Rules on how trainings are set up: values in the specs of a campaign's configurations, in provenance.

Only configurations in series that have a finished run count; of the paper's own numbers, all do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import Any

from scalewatt.campaign.campaign_types import VARIED
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.claims.evidence import PAPER_DEVICES, Evidence, Line, Row, Trace
from scalewatt.claims.outcomes import Outcome, Rule, all_of, attempt, exactly, rule_in
from scalewatt.claims.reference_tables import CONTRADICTED, NOT_TESTABLE, Check, NotTestable
from scalewatt.claims.traces import averaged_s
from scalewatt.results.tables.published import FULL_SAMPLES

SPEC_RULES: dict[str, Rule] = {}
"""The rules by the name that the table calls them."""
SAMPLES_PER_GPU = 5004
"""The paper's, where its dataset grows with n; one more or less is rounding."""


def specs_of(
    evidence: Evidence, model: str = "", phase: str = "", device: str = "", mode: str = ""
) -> list[RunSpec]:
    """Specs of the configurations in series of this description, each once; commands have none.

    NotTestable if the campaign defines none, or no run of these has finished.
    """
    lines = [line for line in evidence.lines if line.is_of(model, phase, device, mode)]
    described = " ".join(filter(None, (model, phase, mode, device))) or "a known model"
    if not _specs(evidence, lines):
        raise NotTestable(f"The campaign defines no configuration of {described}.")
    specs = _specs(evidence, _begun(evidence, lines))
    if not specs:
        raise NotTestable(f"No finished run of {described}.")
    return specs


def _specs(evidence: Evidence, lines: Iterable[Line]) -> list[RunSpec]:
    series = {} if evidence.campaign is None else evidence.campaign.series
    ids = dict.fromkeys(
        id_ for line in lines if line.name in series for id_ in series[line.name].points.values()
    )
    specs = [evidence.specs[id_] for id_ in ids if id_ in evidence.specs]
    return [spec for spec in specs if spec.dataset.get("format") != "command"]


def _begun(evidence: Evidence, lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line.points or evidence.published]


def unless_departing(outcome: Outcome, evidence: Evidence, model: str) -> Outcome:
    """Make a contradiction not testable if no training is the paper's: the campaign departs by choice."""
    lines = _begun(evidence, (line for line in evidence.lines if line.is_of(model)))
    is_of_paper = any(
        spec.device in PAPER_DEVICES
        and spec.protocol == "paper"
        and _training_samples(spec) == FULL_SAMPLES.get(spec.model, -1)
        for spec in _specs(evidence, lines)
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
"""What the table names beside paths into specs."""


def _read(evidence: Evidence, spec: RunSpec, path: str) -> Any:
    """Value at a path such as `settings.momentum`, or a derived one; null if absent."""
    if path in DERIVED:
        return DERIVED[path](spec)
    if path == "repeats":
        campaign = evidence.campaign
        return None if campaign is None else campaign.repeats.get(spec.configuration)
    name, *keys = path.split(".")
    value = getattr(spec, name, None)
    for key in keys:
        value = (value or {}).get(key)
    return tuple(value) if isinstance(value, list) else value


@rule_in(SPEC_RULES)
def spec(evidence: Evidence, check: Check) -> Outcome:
    """Check whether all specs say the wanted value, or values of several paths."""
    paths = check.quantity.split(";")
    stated = []
    for each in specs_of(evidence, *check.series, check.mode):
        values = tuple(_read(evidence, each, path) for path in paths)
        stated.append((each.configuration, values if len(paths) > 1 else values[0]))
    return all_say(check.text, check.exact_value, stated)


def all_say(
    what: str, wanted: Any, stated: Sequence[tuple[str, Any]], noun: str = "configurations"
) -> Outcome:
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
def all_gpu_counts(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the GPU counts of the whole campaign are these."""
    counts = tuple(sorted({spec.gpus for spec in specs_of(evidence)}))
    sentence = f"The campaign has n = {_text(counts)}; claimed are {_text(check.exact_value)}."
    return exactly(counts == check.exact_value, _text(counts), sentence)


@rule_in(SPEC_RULES)
def gpu_counts(evidence: Evidence, check: Check) -> Outcome:
    """Check whether series have this constant batch size and these GPU counts."""
    specs = specs_of(evidence, *check.series, check.mode)
    size = "LBS" if check.mode.endswith("lbs") else "GBS"
    sizes = {spec.local_batch_size if size == "LBS" else _gbs(spec) for spec in specs}
    counts = tuple(sorted({spec.gpus for spec in specs}))
    value = f"{size} {_text(sorted(map(str, sizes)))}, n = {_text(counts)}"
    sentence = f"{value}; claimed are {size} {check.batch}, n = {_text(check.exact_value)}."
    return exactly(sizes == {int(check.batch)} and counts == check.exact_value, value, sentence)


def _gbs(spec: RunSpec) -> Any:
    """The GBS; null if it is not that of all GPUs."""
    fits = spec.local_batch_size * spec.gpus == spec.global_batch_size
    return spec.global_batch_size if fits else None


@rule_in(SPEC_RULES)
def constant_gbs(evidence: Evidence, check: Check) -> Outcome:
    """Check whether series at constant GBS have these; Table 1's single points are no series."""
    lines = [line for line in evidence.lines if line.is_of(*check.series, check.mode)]
    sizes = {line.constant for line in _begun(evidence, lines) if len(line.planned) > 1}
    if not sizes:
        raise NotTestable(
            f"No finished pre-training in a series at constant GBS on {check.device}."
        )
    value = _text(tuple(sorted(size for size in sizes if size is not None)))
    claimed = check.exact_value
    sentence = f"Series at constant GBS on {check.device}: {value}; claimed: {_text(claimed)}."
    return exactly(sizes == set(claimed), value, sentence)


@rule_in(SPEC_RULES)
def largest_setting(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the largest value of a path is this one."""
    specs = specs_of(evidence, *check.series, check.mode)
    largest = max(getattr(spec, check.quantity) for spec in specs)
    claimed = check.exact_value
    sentence = f"The largest {check.text} is {largest} (configurations: {len(specs)}); claimed is {claimed}."
    return exactly(largest == claimed, str(largest), sentence)


@rule_in(SPEC_RULES)
def repeats_of_one_seed(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every configuration is repeated so often, all with one seed."""
    specs = specs_of(evidence, *check.series, check.mode)
    seeds = {spec.seed for spec in specs}
    if None in seeds:
        raise NotTestable("Repeats with one seed: the seed is not known of all configurations.")
    configurations = {} if evidence.campaign is None else evidence.campaign.configurations
    if any(configurations[spec.configuration].seeds == VARIED for spec in specs):
        return exactly(False, VARIED, "Repeats have seeds of their own; one is claimed.")
    if len(seeds) > 1:
        named = _text(sorted(map(str, seeds)))
        return exactly(False, named, f"Seeds are {named}; one is claimed.")
    return spec(evidence, check)


@rule_in(SPEC_RULES)
def sampling_period(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the specs say this period, and it is that between the samples of figure 5 within 5 %."""
    traces = [] if averaged_s(evidence) else [t for t in evidence.traces if len(t.time_s) > 2]

    def check_trace(trace: Trace) -> Outcome:
        times = [seconds for seconds in trace.time_s if seconds is not None]
        period = median(b - a for a, b in pairwise(times))
        sentence = f"Median between samples of {trace.row['configuration']} is {period:.3f} s."
        return exactly(abs(period - check.exact_value) <= check.most, period, sentence)

    parts = [attempt(trace.row["configuration"], check_trace, trace) for trace in traces]
    return all_of([("specs", spec(evidence, check)), *parts])


# --- provenance ---------------------------------------------------------------------------------


def _model(evidence: Evidence, configuration: str) -> str:
    spec = evidence.specs.get(configuration)
    return "" if spec is None else spec.model


@rule_in(SPEC_RULES)
def provenance(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every run's provenance has these values."""
    runs = {
        f"{id_}/{repeat}": recorded
        for (id_, repeat), recorded in evidence.provenance.items()
        if check.model in ("", _model(evidence, id_))
    }
    if not runs:
        raise NotTestable(f"No finished run of {check.model or 'any model'} has provenance.")
    parts = []
    for name, wanted in zip(check.quantity.split(";"), check.exact_value, strict=True):
        stated = [(run, recorded.get(name)) for run, recorded in runs.items()]
        parts.append(attempt(name, all_say, name, wanted, stated, "runs"))
    return all_of(parts)


@rule_in(SPEC_RULES)
def versions(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every run's provenance has these versions of software; deviations are named."""
    runs = evidence.provenance
    if not runs:
        raise NotTestable("No finished run says which software it was made with.")
    deviating, unknown = dict[str, None](), dict[str, None]()
    for (id_, _), recorded in runs.items():
        for name, wanted in check.exact_value.items():
            if isinstance(wanted, dict):
                wanted = wanted.get(_model(evidence, id_), "")
            version = _version(recorded, name)
            if version is None:
                unknown[name] = None
            elif wanted and not re.fullmatch(rf"{re.escape(wanted)}([.+].*)?", version):
                # The version of another MPI begins with that one's name.
                is_number = version[:1].isdigit()
                other = f"{name} {version}" if is_number else f"{version}"
                deviating[f"{other} in place of {wanted if is_number else f'{name} {wanted}'}"] = (
                    None
                )
    if deviating:
        named = ", ".join(deviating)
        return exactly(False, named, f"Recorded deviations: {named}.")
    if unknown:
        raise NotTestable(f"Not every provenance says the version of {', '.join(unknown)}.")
    return exactly(True, None, f"All versions are the paper's (runs: {len(runs)}).")


def _version(recorded: Row, name: str) -> str | None:
    """Version of a package; MPI's and CUDA's as the program saw them."""
    if name == "CUDA":
        cuda: str | None = recorded.get("cuda")
        return cuda
    if name == "Open MPI":
        mpi = recorded.get("mpi")
        return None if mpi is None else re.sub(r"^Open MPI v?", "", mpi.split(",")[0])
    packages: Mapping[str, str | None] = recorded.get("packages") or {}
    return packages.get(name)
