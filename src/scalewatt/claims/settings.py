"""Rules on how trainings are set up: values in the specs of a campaign's configurations, in provenance.

Only configurations in series that have a finished run count; of the paper's own numbers, all do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

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


def specs_of(evidence: Evidence, *description: Any) -> list[RunSpec]:
    """Specs of the configurations in series of this description, each once; commands have none.

    NotTestable if the campaign defines none, or no run of these has finished.
    """
    lines = [line for line in evidence.lines if line.is_of(*description)]
    described = " ".join(filter(None, description)) or "a known model"
    if not _specs(evidence, lines):
        raise NotTestable(f"The campaign defines no configuration of {described}.")
    specs = _specs(evidence, _begun(lines))
    if not specs:
        raise NotTestable(f"No finished run of {described}.")
    return specs


def _specs(evidence: Evidence, lines: Sequence[Line]) -> list[RunSpec]:
    ids = dict.fromkeys(id_ for line in lines for id_ in line.ids.values())
    specs = [evidence.specs[id_] for id_ in ids if id_ in evidence.specs]
    return [spec for spec in specs if spec.dataset.get("format") != "command"]


def _begun(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if len(line.points) or line.is_published]


def unless_departing(outcome: Outcome, evidence: Evidence, model: str) -> Outcome:
    """Make a contradiction not testable if no training is the paper's: the campaign departs by choice."""
    is_of_paper = any(
        spec.device in PAPER_DEVICES
        and spec.protocol == "paper"
        and _training_samples(spec) == FULL_SAMPLES.get(spec.model, -1)
        for spec in _specs(evidence, _begun([ln for ln in evidence.lines if ln.is_of(model)]))
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
def values(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the specs together have these values of a path, or of several."""
    specs = specs_of(evidence, *check.series, check.mode)
    paths = check.quantity.split(";")
    sets = [tuple(sorted({_read(evidence, each, path) for each in specs})) for path in paths]
    return _stated(check, sets if len(paths) > 1 else sets[0], len(specs))


@rule_in(SPEC_RULES)
def largest(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the largest value of a path is this one."""
    specs = specs_of(evidence, *check.series, check.mode)
    return _stated(check, (max(getattr(spec, check.quantity) for spec in specs),), len(specs))


@rule_in(SPEC_RULES)
def constant_gbs(evidence: Evidence, check: Check) -> Outcome:
    """Check whether series at constant GBS have these; Table 1's single points are no series."""
    lines = _begun([line for line in evidence.lines if line.is_of(*check.series, check.mode)])
    sizes = {line.constant for line in lines if len(line.ids) > 1 and line.constant is not None}
    if not sizes:
        raise NotTestable(
            f"No finished pre-training in a series at constant GBS on {check.device}."
        )
    return _stated(check, tuple(sorted(sizes)), len(lines))


def _stated(check: Check, stated: Any, count: int) -> Outcome:
    """Compare values with those that are claimed, in the words of the check's text."""
    wanted = check.exact_value
    parts = stated if isinstance(stated, list) else [stated]
    value, claimed = (
        check.text.format(*map(_text, each)) if "{" in check.text else _text(each[0])
        for each in (parts, wanted if isinstance(stated, list) else [wanted])
    )
    holds = tuple(parts) == wanted if isinstance(stated, list) else stated == wanted
    what = "" if "{" in check.text else f"{check.text[:1].upper()}{check.text[1:]}: "
    return exactly(holds, value, f"{what}{value} (of {count}); claimed: {claimed}.")


@rule_in(SPEC_RULES)
def sampling_period(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the specs say this period, and it is that between the samples of figure 5 within 5 %."""

    def check_trace(trace: Trace) -> Outcome:
        times = trace.powers.index.to_series().dropna()
        period = float(times.diff().median())
        sentence = f"Median between samples of {trace.row['configuration']} is {period:.3f} s."
        return exactly(abs(period - check.exact_value) <= check.most, period, sentence)

    sampled = [] if averaged_s(evidence) else [t for t in evidence.traces if len(t.powers) > 2]
    parts = [attempt(trace.row["configuration"], check_trace, trace) for trace in sampled]
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
    runs = _recorded(evidence, check)
    parts = []
    for name, wanted in zip(check.quantity.split(";"), check.exact_value, strict=True):
        stated = [(run, recorded.get(name)) for run, _, recorded in runs]
        parts.append(attempt("", all_say, name, wanted, stated, "runs"))
    return all_of(parts)


@rule_in(SPEC_RULES)
def versions(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every run's provenance has these versions of software; of some each model has its own."""
    runs = _recorded(evidence, check)
    parts = []
    for name, wanted in check.exact_value.items():
        claimed = " or ".join(wanted.values()) if isinstance(wanted, dict) else wanted
        stated = []
        for run, model, recorded in runs:
            number = wanted.get(model, "") if isinstance(wanted, dict) else wanted
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
