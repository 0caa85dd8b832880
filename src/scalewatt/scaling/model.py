"""Kinds of training, their loads, and the terms of their time and energy.

Run time of a training, in s::

    T = startup + epochs · (epoch + first_batch · LBS + straggler · log2 n)
        + updates · (update + sample · LBS + synchronisation · log2 n)

`epoch` is what an epoch costs whatever its size (validation, checkpoint, barriers). `first_batch`: at
the start of an epoch one loader worker makes the first batch alone, so the ranks wait in proportion
to LBS. Where gradients are accumulated, LBS here means the samples of one pass, and each pass costs an
`update`.

Energy, in J::

    E = node · node hours + gpu · GPU hours + sample · samples + pass · passes

A value y is the sum of its terms, x · b with b ≥ 0, times 1 + e: its error is relative. The errors
are normal with an unknown standard deviation, whose prior is worth `PRIOR_POINTS` points with the
spread `PRIOR_SPREAD`; b has a flat prior where it is not negative. A Gibbs sampler draws from it, each
draw by a chain of its own, so draws are independent: terms that the points cannot separate stay
uncertain, and what they determine together stays narrow.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator

from scalewatt.campaign.campaign_types import PASS_KEYS, epoch_work
from scalewatt.campaign.model_registry import MODELS, defaults_of, model_key
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError

Array = npt.NDArray[np.float64]

LEARNING = frozenset(
    {
        *("base_learning_rate", "learning_rate", "warmup_epochs", "warmup_start", "momentum"),
        *("weight_decay", "plateau_factor", "plateau_patience", "horizontal_flip", "crop_scale"),
        *("sparsity_threshold", "initial_conditions", "initial_condition_spacing"),
    }
)
"""Settings that change what is learnt, but hardly time and energy."""
_OF_DATA = ("format", "source", "grid")
"""What matters of a dataset; its size belongs to the load."""


# --- kinds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of training, with costs of its own: one model in one setting on one device."""

    key: str
    """The model, with its phase where it has several: fourcastnet.pretrain."""
    device: str
    protocol: str
    settings: str
    """All other relevant settings, as canonical JSON."""

    @property
    def name(self) -> str:
        """Name for people."""
        changed = [f"{name}={value}" for name, value in self.changed().items()]
        protocol = [] if self.protocol == "paper" else [self.protocol]
        return ", ".join([f"{self.key} on {self.device}", *protocol, *changed])

    def changed(self) -> dict[str, Any]:
        """Settings that are not the model's defaults."""
        usual = defaults_of(self.key) | dict.fromkeys(LEVERS)
        settings = json.loads(self.settings)
        return {name: value for name, value in settings.items() if usual.get(name, value) != value}


def kind_of_spec(spec: RunSpec) -> Kind:
    """Kind of a run's spec."""
    settings = {**spec.settings, **(spec.operating_point or {})}
    key = model_key(spec.model, spec.phase)
    return _kind(key, spec.device, spec.protocol, settings, spec.dataset)


def kind_of_published(row: Mapping[str, Any]) -> Kind:
    """Kind of a published row: missing settings are the model's defaults, the data is the official one."""
    key = model_key(row["model"], row["phase"])
    settings = dict(defaults_of(key))
    settings |= {n: row[n] for n in (*settings, *LEVERS) if row.get(n) is not None}
    dataset: dict[str, Any] = {"source": "data_root", "format": MODELS[key].data_format}
    if row["model"] == "fourcastnet":
        dataset["grid"] = [720, 1440]
    return _kind(key, row["device"], row["protocol"], settings, dataset)


def _kind(
    key: str, device: str, protocol: str, settings: Mapping[str, Any], dataset: Mapping[str, Any]
) -> Kind:
    kept = {n: settings[n] for n in settings if n not in {*LEARNING, "epochs", *PASS_KEYS}}
    kept |= {f"data_{name}": dataset[name] for name in _OF_DATA if name in dataset}
    # 4 and 4.0 are one value
    text = json.dumps(json.loads(json.dumps(kept), parse_int=float), sort_keys=True)
    return Kind(key, device, protocol, text)


# --- loads ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """One training: its machines and its work. Counts are of the whole training, over all GPUs."""

    gpus: int
    nodes: int
    local_batch_size: int
    epochs: int
    samples: int
    updates: int
    gpus_per_replica: int = 1
    """Number of GPUs that share one copy of the model."""
    gradient_accumulation_steps: int = 1
    """Passes whose gradients a replica adds up for one update."""

    @property
    def replicas(self) -> int:
        """Number of copies of the model that train on different samples."""
        return self.gpus // self.gpus_per_replica

    @property
    def passes(self) -> int:
        """Number of passes, each forward and backward through one replica."""
        return self.updates * self.gradient_accumulation_steps * self.replicas

    @property
    def pass_size(self) -> float:
        """Samples of one pass: the local batch, or its part if gradients are accumulated."""
        return self.local_batch_size / self.gradient_accumulation_steps


def load_of(
    gpus: int,
    nodes: int,
    local_batch_size: int,
    dataset_samples: int,
    epochs: int,
    gpus_per_replica: int = 1,
    gradient_accumulation_steps: int = 1,
) -> Load:
    """Load of a training: replicas have equal shares, the last batch is partial."""
    samples, updates = epoch_work(dataset_samples, gpus // gpus_per_replica, local_batch_size)
    return Load(
        *(gpus, nodes, local_batch_size, epochs, samples * epochs, updates * epochs),
        *(gpus_per_replica, gradient_accumulation_steps),
    )


def load_of_spec(spec: RunSpec) -> Load:
    """Load of a run's spec; InputError if its samples are not known (of a command)."""
    if spec.dataset_samples is None:
        raise InputError(
            f"{spec.configuration}: its samples are not known; name `samples` of the command in the "
            "campaign"
        )
    return load_of(
        *(spec.gpus, spec.nodes, spec.local_batch_size, spec.dataset_samples, spec.epochs),
        *(spec.gpus_per_replica, spec.gradient_accumulation_steps),
    )


# --- terms ----------------------------------------------------------------------------------------


TIME_TERMS: dict[str, Callable[[Load], float]] = {
    "startup": lambda load: 1.0,
    "epoch": lambda load: load.epochs,
    "first_batch": lambda load: load.epochs * load.pass_size,
    "straggler": lambda load: load.epochs * math.log2(load.gpus),
    "sample": lambda load: load.samples / load.gpus,
    "update": lambda load: load.updates * load.gradient_accumulation_steps,
    "synchronisation": lambda load: load.updates * math.log2(load.gpus),
}
"""By what the costs of a run time's terms are multiplied, all ≥ 0."""
ENERGY_TERMS = ("node", "gpu", "sample", "pass")


def time_columns(loads: Sequence[Load], names: Sequence[str]) -> Array:
    """Columns (loads, terms) of the named terms."""
    return np.array([[TIME_TERMS[name](load) for name in names] for load in loads], dtype=float)


def energy_columns(loads: Sequence[Load], runtimes_s: Array) -> Array:
    """Columns (…, loads, terms) of ENERGY_TERMS for run times (…, loads)."""
    counts = [(load.nodes, load.gpus, load.samples, load.passes) for load in loads]
    nodes, gpus, samples, passes = np.array(counts, dtype=float).T
    hours = np.asarray(runtimes_s, dtype=float) / 3600
    return np.stack(np.broadcast_arrays(hours * nodes, hours * gpus, samples, passes), axis=-1)


# --- calibrated models ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Means of one configuration over its repeats; energy and its facts are null if not known."""

    campaign: str
    configuration: str
    load: Load
    runtime_s: float
    energy_j: float | None
    origin: str | None
    """Of the energy, like its scope."""
    scope: str | None


def _as_lines(draws: Array) -> list[str]:
    """A line for each draw, to five digits: processors round differently."""
    return [" ".join(f"{value:.5g}" for value in row) for row in draws.reshape(len(draws), -1)]


Lines = Annotated[Array, PlainValidator(np.loadtxt), PlainSerializer(_as_lines)]
"""An array whose rows are lines of text in a file."""


@dataclass(frozen=True)
class Draws:
    """Draws of the posterior."""

    terms: Lines
    """(draws, terms): the cost of each term."""
    spread: Lines
    """(draws,): relative standard deviation of a point around the model."""

    def means(self, columns: Array) -> Array:
        """Values (draws, points) of columns (points, terms) or (draws, points, terms)."""
        if columns.ndim == 2:
            return self.terms @ columns.T
        return np.einsum("dt,dpt->dp", self.terms, columns)


@dataclass(frozen=True)
class KindModel:
    """Time and energy of one kind of training."""

    kind: Kind
    points: tuple[Point, ...]
    time_terms: tuple[str, ...]
    time: Draws
    """Of the costs of `time_terms`, in s."""
    energy: Draws | None
    """Of the costs of ENERGY_TERMS in J; None if no energy is known."""
    scores: tuple[dict[str, Any], ...] = ()
    """Of its validation: rows of `calibrate.score`."""
    assumed: str | None = None
    """Sentence on the assumption, if it was not calibrated itself; goes with all its predictions."""

    @property
    def energy_facts(self) -> tuple[str | None, str | None]:
        """Origin and scope of the energies that it was calibrated on; None without any."""
        known = [(p.origin, p.scope) for p in self.points if p.energy_j is not None]
        return known[0] if known and self.energy else (None, None)


# --- fit -------------------------------------------------------------------------------------------

MIN_POINTS = 3
SURE = 3
"""With fewer points beyond the number of terms, the fitted spread is too small (`_draw`)."""
BASE = ("epoch", "sample", "update")
OPTIONAL = ("startup", "first_batch", "straggler", "synchronisation")
SHORT_S = 3600.0
"""In shorter runs the start, half a minute or more, is a considerable part."""
WORTH = 0.95
"""A further term must reduce the mean leave-one-out error to this part of what it was."""


def by_kind(points: Iterable[tuple[Kind, Point]]) -> dict[Kind, list[Point]]:
    """Points of each kind, in order.

    InputError if a configuration is given twice, or a kind has energies of several origins or scopes.
    """
    kinds: dict[Kind, list[Point]] = {}
    for kind, point in points:
        of_kind = kinds.setdefault(kind, [])
        if point.configuration in {other.configuration for other in of_kind}:
            raise InputError(f"{point.configuration}: is in several sources; expected it once")
        of_kind.append(point)
    for kind, of_kind in kinds.items():
        for name in ("origin", "scope"):
            values = {str(getattr(p, name)) for p in of_kind if p.energy_j is not None}
            if len(values) > 1:
                raise InputError(
                    f"{kind.name}: energies of several {name}s: {', '.join(sorted(values))}; "
                    "calibrate on sources that agree"
                )
    return kinds


def lacking(points: Sequence[Point]) -> str | None:
    """Which points are missing for a calibration; None if there are enough.

    One LBS is enough, but then no other can be predicted (`ScalingModel.find_for`).
    """
    gpus = {point.load.gpus for point in points}
    if len(points) >= MIN_POINTS and len(gpus) > 1:
        return None
    return (
        f"too few points to calibrate: configurations {len(points)}, numbers of GPUs {len(gpus)}; expected "
        f"{MIN_POINTS} and 2 or more (scalewatt pilot CAMPAIGN makes a campaign that has them)"
    )


def calibrate(kind: Kind, points: Sequence[Point], few: bool = False) -> KindModel:
    """Model of a kind by its points; with `few`, for validation, also from fewer energies."""
    loads, times = [point.load for point in points], np.array([p.runtime_s for p in points])
    terms = choose_terms(loads, times)
    known = [point for point in points if point.energy_j is not None]
    energy = None
    if known and (few or lacking(known) is None):
        columns = energy_columns([p.load for p in known], np.array([p.runtime_s for p in known]))
        energy = _draw(columns, np.array([p.energy_j for p in known], dtype=float))
    time = _draw(time_columns(loads, terms), times)
    return KindModel(kind, tuple(points), terms, time, energy)


def choose_terms(loads: Sequence[Load], values: Array) -> tuple[str, ...]:
    """Select the fewest terms that predict left-out points well.

    Of all sets of one size, the one with the smallest mean leave-one-out error is considered; a larger
    size is chosen if it reduces the error to WORTH of it. A set beyond the minimal one has at least two
    terms less than points; the minimal one, what is required and a considerable start-up, is always
    allowed.
    """

    def error_of(terms: Sequence[str]) -> float:
        return float(np.abs(_left_out_errors(time_columns(loads, terms), values, best)).mean())

    # Short runs have a start-up, which would otherwise be attributed to epochs; it cannot be told from
    # them if all runs have as many.
    vary = len({load.epochs for load in loads}) > 1
    short = values.min() < SHORT_S and vary and len(loads) > len(BASE)
    chosen = minimal = ("startup", *BASE) if short else BASE
    optional = [name for name in OPTIONAL if name not in minimal and (vary or name != "startup")]
    error = error_of(chosen)
    for size in range(1, min(len(optional) + 1, len(values) - len(minimal) - 1)):
        errors = {terms: error_of((*minimal, *terms)) for terms in combinations(optional, size)}
        extra = min(errors, key=lambda terms: errors[terms])
        if errors[extra] <= WORTH * error:
            error, chosen = errors[extra], (*minimal, *extra)
    return chosen


def _left_out_errors(columns: Array, values: Array, fit: Callable[[Array, Array], Array]) -> Array:
    """Relative errors of values (points,), each predicted by the costs that `fit` finds for the others."""
    errors = []
    for point, value in enumerate(values):
        others = np.arange(len(values)) != point
        predicted = fit(columns[others], values[others]) @ columns[point]
        errors.append(float(np.median(predicted)) / value - 1)
    return np.array(errors)


# --- the posterior --------------------------------------------------------------------------------

PRIOR_SPREAD = 0.03
"""Relative; the paper's repeats of one training vary by 0.2 to 3.4 % in time, 0.2 to 1.4 % in energy at
5 repeats (reference/published_results.csv)."""
PRIOR_POINTS = 2.0
MOST_SPREAD = 0.5
"""Without it the spread would be unbounded where there are as many terms as points."""
MOST_UNSURE = 0.3
"""Relative standard deviation that `widened` gives at most: its nominal 90 % interval is ± 50 %."""
LEAST_FACTOR = 0.1
"""Lower bound of a normal deviation from a cost or a model: otherwise some runs would take no time at all."""
DRAWS = 500
SWEEPS = 100
"""Updates of everything in a chain, of which the last is the draw; after 50 nothing changes any more, even
where points hardly separate terms."""
SEED = 1
_FACTORS_SEED = 3
_LEAST_PRECISION, _RIDGE = 1e-9, 1e-6
"""For directions of costs, scaled to 1, on which no value depends."""


def best(columns: Array, values: Array) -> Array:
    """Non-negative costs with the smallest relative errors (least squares)."""
    from scipy.optimize import nnls

    relative, scale = _relative(columns, values)
    return nnls(relative, np.ones(len(values)))[0] / scale


def _relative(columns: Array, values: Array) -> tuple[Array, Array]:
    """Columns over values, scaled to 1 each, and the scale."""
    relative = columns / values[:, None]
    largest = relative.max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    return relative / scale, scale


def draw(columns: Array, values: Array) -> Draws:
    """Draw costs for columns (points, terms) and measured values (points,).

    Draws for other values use another random stream, because sums of several models pair them.
    """
    digits = " ".join(
        f"{value:.9g}" for value in values
    )  # the same wherever sums are rounded otherwise
    random = np.random.default_rng(SEED + zlib.crc32(digits.encode()) % 2**31)
    relative, scale = _relative(columns, values)
    gram, sums = relative.T @ relative, relative.sum(axis=0)
    costs = np.tile(best(columns, values) * scale, (DRAWS, 1))
    spread = np.full(DRAWS, PRIOR_SPREAD)
    directions = [(way, gram @ way, float(sums @ way)) for way in _directions(gram)]
    for _ in range(SWEEPS):
        for way, change, aim in directions:
            # Along a direction the squares are a parabola, so the density of the step is normal.
            precision = max(float(way @ change), _LEAST_PRECISION)
            middle = (aim - costs @ change) / precision
            deviation = spread / math.sqrt(precision)
            steps = _normal_within(*_step_limits(costs, way), middle, deviation, random)
            costs = np.maximum(costs + np.outer(steps, way), 0.0)
        squares = ((costs @ relative.T - 1) ** 2).sum(axis=1) + PRIOR_POINTS * PRIOR_SPREAD**2
        spread = _spread(squares, len(values) + PRIOR_POINTS, random)
    return Draws(costs / scale, spread)


def _directions(gram: Array) -> list[Array]:
    """Directions in which costs are moved: each alone, and each with those before it.

    In the latter these move so that the values change as little as possible (conjugate directions). Where
    points hardly separate terms, or not at all like GPU and node hours, single costs would move by tiny
    steps.
    """
    factor = np.linalg.cholesky(gram + _RIDGE * np.eye(len(gram)))
    together = np.linalg.inv(factor)[1:]
    together /= np.abs(together).max(axis=1, keepdims=True)
    return [*np.eye(len(gram)), *together]


def _step_limits(costs: Array, way: Array) -> tuple[Array, Array]:
    """How far each row of costs can go back and forth along a direction until one of them is 0."""
    up, down = way > _LEAST_PRECISION, way < -_LEAST_PRECISION
    back = (-costs[:, up] / way[up]).max(axis=1, initial=-np.inf)
    return back, (-costs[:, down] / way[down]).min(axis=1, initial=np.inf)


def _normal_within(
    low: Array, high: Array, middle: Array, deviation: Array, random: np.random.Generator
) -> Array:
    """Draw from normal distributions that are cut off below `low` and above `high`."""
    from scipy.special import ndtr, ndtri

    first, last = (low - middle) / deviation, (high - middle) / deviation
    upper = first > 0  # mirrored: probabilities near 0 are exact, those near 1 are not
    first, last = np.where(upper, -last, first), np.where(upper, -first, last)
    below = ndtr(first)
    part = below + (ndtr(last) - below) * random.random(len(low))
    drawn = ndtri(np.clip(part, 1e-300, 1 - 1e-16))
    return np.clip(middle + deviation * np.where(upper, -drawn, drawn), low, high)


def _spread(squares: Array, weight: float, random: np.random.Generator) -> Array:
    """Draw standard deviations, at most MOST_SPREAD, of `weight` errors with these sums of squares."""
    from scipy.special import gammaincc, gammainccinv

    half, least = weight / 2, squares / 2 / MOST_SPREAD**2
    precisions = random.gamma(half, size=len(squares))
    parts = random.random(len(squares))  # drawn for all, so that no rounding shifts what follows
    outside = precisions < least
    allowed = gammaincc(half, least[outside])
    precisions[outside] = gammainccinv(half, parts[outside] * allowed)
    return np.sqrt(squares / 2 / precisions)


# --- few points -----------------------------------------------------------------------------------


def _draw(columns: Array, values: Array) -> Draws:
    """Draw costs; if the points are few, their spread is at least the leave-one-out error.

    With hardly more points than terms any costs fit, and residuals are meaningless. Then the
    standard deviation of all predictions is at least the root mean square of the leave-one-out errors,
    times (points - 1) / points, because each fit lacks one of the points.
    """
    points, terms = columns.shape
    draws = draw(columns, values)
    if points - terms >= SURE:
        return draws
    errors = _left_out_errors(columns, values, lambda x, y: draw(x, y).terms)
    return widened(draws, float(np.sqrt(np.mean(np.square(errors)))) * (points - 1) / points)


def widened(draws: Draws, least: float) -> Draws:
    """Multiply draws by a factor each, so that a point's standard deviation is `least` (at most MOST_UNSURE).

    All predictions of a draw share its factor, so their errors are fully correlated. Every other draw is
    used twice, with factors as far above 1 as below, so that medians stay.
    """
    least = min(least, MOST_UNSURE)
    spread = float(np.median(draws.spread))
    if least <= spread:
        return draws
    kept = np.arange(0, 2 * (len(draws.spread) // 2), 2)
    above = factors_around_one(len(kept), math.sqrt(least**2 - spread**2))
    factors = np.concatenate([above, 2 - above])
    twice = np.concatenate([kept, kept])
    return Draws(draws.terms[twice] * factors[:, None], draws.spread[twice])


def factors_around_one(count: int, deviation: float) -> Array:
    """Factors (count,), at least LEAST_FACTOR: shuffled quantiles of a normal distribution around 1."""
    normal = NormalDist(1.0, deviation)
    quantiles = np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
    return np.random.default_rng(_FACTORS_SEED).permutation(np.maximum(quantiles, LEAST_FACTOR))


# --- fine-tuning that was not calibrated ----------------------------------------------------------
#
# Huber et al. (2025) publish no time and no energy of a fine-tuning. It makes two forecast steps for each
# sample, forward and backward (`scalewatt.models.fourcastnet`), so costs per sample, update or
# pass are doubled. What an epoch costs whatever its size (validation, checkpoint) stays the same.

HALF_WIDTH = 0.3
"""Relative half width of the nominal 90 % interval of the assumption."""
SENTENCE = (
    "fine-tuning is assumed to cost twice the pre-training for each sample, update and pass (two "
    f"forecast steps), ± {100 * HALF_WIDTH:.0f} %: it was not calibrated on any fine-tuning"
)
_DOUBLED = ("sample", "update", "synchronisation", "pass")


def pretraining_of(kind: Kind) -> Kind | None:
    """The kind of pre-training that a fine-tuning follows; None if it is no fine-tuning."""
    model, _, phase = kind.key.partition(".")
    return replace(kind, key=f"{model}.pretrain") if phase == "finetune" else None


def assumed_finetuning(kind: Kind, pretraining: KindModel) -> KindModel:
    """Derive the model of a fine-tuning that was not calibrated from that of the pre-training.

    Each draw has one unknown factor, common to its time and to the energy of samples and passes. The
    energy's terms of hours need none: the time already has it.
    """
    deviation = HALF_WIDTH / NormalDist().inv_cdf(0.95)
    unknown = factors_around_one(len(pretraining.time.spread), deviation)[:, None]
    in_time, in_energy = (
        np.array([2.0 if name in _DOUBLED else 1.0 for name in names])
        for names in (pretraining.time_terms, ENERGY_TERMS)
    )
    time, energy = pretraining.time, pretraining.energy
    time = replace(time, terms=time.terms * in_time * unknown)
    if energy:
        factors = np.where(in_energy > 1, in_energy * unknown, 1.0)
        energy = replace(energy, terms=energy.terms * factors)
    return replace(pretraining, kind=kind, time=time, energy=energy, assumed=SENTENCE)
