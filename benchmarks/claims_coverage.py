"""How often the verdicts on claims are wrong: campaigns simulated from a truth that is known.

    python benchmarks/claims_coverage.py [--campaigns 30000] [--whole 0] [--seed 19]

A truth has the paper's numbers where they are published, else the scaling model's; campaigns draw runs
from it with the published spreads (claims_worlds.py). Claims of each class of checks (`CASES`) are moved
onto their bounds, where a wrong verdict is most probable, and 5, 10 and 15 % beyond: one quantity of the
claim is multiplied until the exact numbers lie on a bound. All campaigns of a bound are decided at once, by
the contrasts that the checks decide by; tests/unit/test_claims_coverage.py holds them against `verdict_of`.
`--whole`: so many campaigns go through all checks, 1 s each. Printed are shares in percent with their 95 %
intervals (Clopper and Pearson); the exit status is 1 where verdicts are wrong more often than stated.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from claims_contrasts import RULES, Campaigns, Held, gpus_of, held, number, together
from claims_worlds import (
    EXACT_STUDY,
    Runs,
    Study,
    World,
    campaign,
    claims_on_results,
    paper_world,
    quantities,
)
from scipy import stats

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.claims.check_claims import with_holm
from scalewatt.claims.reference_tables import CONTRADICTED, SUPPORTED, Check, read_checks
from scalewatt.claims.verdicts import verdict_of
from scalewatt.recordings.terms import Floats
from scalewatt.statistics import LEVEL, Numbers, Source, holm

BEYOND = (0.0, 0.05, 0.10, 0.15)
MOST_BOUNDS = 4
"""How many bounds of one claim are studied, half of them upwards."""
REPEATS = 5
FAMILY = 30
"""Claims that are tested at once."""


# --- claims -----------------------------------------------------------------------------------------


def ids_of(series: str, *gpus: int) -> list[str]:
    """Configurations of a series: these, else all of whole nodes."""
    points = campaign().series[series].points
    return [points[n] for n in gpus or [n for n in sorted(points) if n >= 4]]


def _where(**wanted: object) -> list[str]:
    known = campaign().configurations
    return [k for k in known if all(getattr(known[k], n) == v for n, v in wanted.items())]


FULL, SMALL, LARGE = (f"resnet50-full-{name}" for name in ("lbs256", "gbs256", "gbs8192"))
GROWN, GROWN_S, GROWN_L = (f"resnet50-scaled-{n}" for n in ("lbs256", "gbs256", "gbs8192"))
PRE = "fourcastnet-pretrain-lbs1"
FINE = ids_of("fourcastnet-finetune-lbs1")
(PROBE,) = ids_of("fourcastnet-probe")
ON_H100 = "fourcastnet-pretrain-gbs16-h100", "fourcastnet-pretrain-gbs32-h100"
PAIRED = [
    *(*ids_of(ON_H100[0], 4, 16), *ids_of(ON_H100[1], 32)),
    *(*ids_of("fourcastnet-pretrain-gbs16"), *ids_of(PRE, 16, 32)),
]
"""Pre-trainings on H100, and then the same on A100."""


@dataclass(frozen=True)
class Case:
    """A claim: its class, and for each row of its checks the configurations of every series."""

    kind: str
    id: str
    rows: tuple[Sequence[Sequence[str]], ...]

    @property
    def checks(self) -> Sequence[Check]:
        return read_checks()[self.id]

    def ids(self) -> list[str]:
        """All configurations, and the probe, which tells how single runs scatter."""
        ids = dict.fromkeys(id_ for row in self.rows for part in row for id_ in part)
        return list(ids if "resnet" in next(iter(ids)) else {**ids, PROBE: None})

    def decide(self, c: Campaigns) -> Held:
        rows = zip(self.checks, self.rows, strict=True)
        return together([RULES[check.rule](c, check, ids) for check, row in rows for ids in row])


CASES = [
    Case("a value", "D08", ([ids_of(FULL, 1)],)),
    Case("a value", "F06", ([ids_of(GROWN)],)),
    Case("a value", "T1", ([ids_of(ON_H100[0], 4)],) * 3),
    Case("a ratio within bounds", "F12", ([ids_of(GROWN_S, 2, 1)], [ids_of(GROWN_S, 16, 4)])),
    Case("a ratio within bounds", "E05", ([ids_of(SMALL, 1, 2) + ids_of(SMALL), ids_of(LARGE)],)),
    Case("a ratio within bounds", "H11", ([ids_of(PRE) + FINE],)),
    Case("an inequality, a sign", "D03", ([ids_of(FULL, 1) * 5 + ids_of(FULL, 2, 4, 8, 16, 32)],)),
    Case("an inequality, a sign", "H03", ([ids_of(PRE, 4, 16)],)),
    Case("an inequality, a sign", "K10", ([ids_of("fourcastnet-pretrain-gbs64")],)),
    Case("constant", "F03", ([ids_of(GROWN, 1, 2) + ids_of(GROWN)],)),
    Case("constant", "F13", ([ids_of(GROWN_L)],)),
    Case("proportional, an exponent", "F05", ([ids_of(GROWN)],)),
    Case("proportional, an exponent", "F07", ([ids_of(GROWN)],)),
    Case("a straight line", "D16", ([ids_of(FULL)],)),
    Case("a straight line", "F19", ([ids_of(GROWN_S), ids_of(GROWN_L)],)),
    Case("an order", "K15", ([ids_of(GROWN_L)],) * 3),
    Case("all of several within", "K02", ([_where(model="fourcastnet", device="h100")],)),
    Case(
        "all of several within",
        "K03",
        ([[i for i in _where(model="resnet50") if gpus_of([i]) >= 4]],),
    ),
    Case("pairs of devices", "T7", ([PAIRED],)),
    Case("pairs of devices", "T8", ([PAIRED],)),
]
PATTERNS: Mapping[str, Callable[[Configuration], float]] = {
    "all": lambda configuration: 1.0,
    "with n": lambda configuration: math.log2(configuration.gpus) / 6,
    "up and down": lambda configuration: float(round(math.log2(configuration.gpus)) % 2),
    "bent": lambda configuration: ((math.log2(configuration.gpus) - 4) / 4) ** 2,
    "the largest n": lambda configuration: float(
        configuration.gpus >= 256 or configuration.gpus == 16
    ),
    "four GPUs": lambda configuration: float(configuration.gpus == 4),
    "few samples": lambda configuration: math.log2((configuration.dataset_samples or 1) / 5004) / 8,
    "h100": lambda configuration: float(configuration.device == "h100"),
    "fine-tuning": lambda configuration: float(configuration.phase == "finetune"),
}
"""By how much of a move's logarithm each configuration is moved."""
LEVERS = {"cpu_": "cpu", "mean_gpu": "gpu", "energy": "energy", "p_gpuh": "energy", "": "hours"}


@dataclass(frozen=True)
class Bound:
    """A move of the paper's world that takes a claim onto a bound, and the sign of moves beyond it."""

    case: int
    lever: str
    pattern: str
    at: float
    out: int

    def world(self, by: npt.ArrayLike) -> World:
        """The world moved by these logarithms: one, or as many worlds."""
        moved = {}
        for id_ in CASES[self.case].ids():
            part = PATTERNS[self.pattern](campaign().configurations[id_])
            moved[id_] = paper_world()[id_].times(self.lever, np.exp(np.asarray(by) * part))
        return moved

    def verdicts(self, beyond: float, count: int, seed: int) -> Held:
        """What so many campaigns find where the claim is on its bound, or so far beyond."""
        world = self.world(self.at + self.out * math.log1p(beyond))
        random = np.random.default_rng(zlib.crc32(repr((self, beyond, seed)).encode()))
        return CASES[self.case].decide(Campaigns(Study().quantities(world, count, random)))


def exact(world: World, shape: tuple[int, ...]) -> Campaigns:
    """Campaigns that know the truth."""

    def of(values: npt.ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(values, float), shape)

    runs = {
        id_: Runs(of(truth.hours), {k: of(kwh) for k, kwh in truth.kwh.items()}, of(truth.error))
        for id_, truth in world.items()
    }
    return Campaigns(quantities(runs), are_exact=True)


@cache
def bounds_of(case: int) -> tuple[Bound, ...]:
    """The nearest bounds of a claim, upwards and downwards."""
    names = [check.quantity or "p_gpuh_kw" for check in CASES[case].checks]
    levers = dict.fromkeys(next(v for k, v in LEVERS.items() if k in name) for name in names)
    moves = [Bound(case, lever, pattern, 0.0, 0) for lever in levers for pattern in PATTERNS]
    bounds = sorted((b for move in moves for b in _along(move)), key=lambda b: abs(b.at))
    sides = ({round(b.at, 6): b for b in bounds[::-1] if (b.at > 0) == up} for up in (True, False))
    return tuple(b for side in sides for b in [*side.values()][: -MOST_BOUNDS // 2 - 1 : -1])


def _along(move: Bound) -> Iterator[Bound]:
    """Yield the first bounds that a move comes to, upwards and downwards."""
    for sign in (1, -1):
        low, high = 0.0, 1.0
        for _ in range(3):
            by = np.linspace(low, high, 101)
            exactly = exact(move.world(sign * by[:, None]), (len(by), 1))
            with np.errstate(invalid="ignore"):  # a slope below 0 has no logarithm
                holds = CASES[move.case].decide(exactly).room >= 0
            turns = np.flatnonzero(holds[1:] != holds[:-1])
            if not len(turns):
                break
            low, high = by[turns[0]], by[turns[0] + 1]
            out = sign if holds[turns[0]] else -sign
        else:
            yield Bound(move.case, move.lever, move.pattern, sign * (low + high) / 2, out)


# --- intervals --------------------------------------------------------------------------------------

RIVALS = {
    "FourCastNet, single runs": [ids_of(PRE, 16)[0], ids_of(ON_H100[0], 16)[0]],
    "ResNet50, means of five": [ids_of(FULL, 16)[0], ids_of(FULL, 4)[0]],
}
Draw = Callable[[tuple[int, ...]], Floats]


def own_intervals(count: int, random: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Yield whether the claims' intervals of numbers and of their ratio hold the truth."""
    for what, ids in RIVALS.items():
        world = {id_: paper_world()[id_] for id_ in (*ids, PROBE)}
        drawn, truth = Campaigns(Study().quantities(world, count, random)), exact(world, (1, 1))
        for name in ("energy_kwh", "runtime_h", "p_gpuh_kw"):
            numbers, right = (c.numbers(ids, name) for c in (drawn, truth))
            yield f"{what}: {name}", hold(numbers[[0]], right.values[:, :1])
            ratio, true = (n.logarithms().contrast([1, -1]) for n in (numbers, right))
            yield f"{what}: ratio of {name}", hold(ratio, true.values)


def hold(numbers: Numbers, truth: Floats | float) -> Floats:
    return np.ravel(np.abs(numbers.values - truth) <= numbers.halves)


def of_draws(draw: Draw, count: int, runs: int) -> Floats:
    """Whether t intervals hold a mean of 0: of a single run by three others, or of a mean of runs."""
    values = draw((count, max(runs, 4)))
    others = values[:, 1:] if runs == 1 else values
    mean = values[:, :1] if runs == 1 else values.mean(axis=1, keepdims=True)
    square = others.var(axis=1, ddof=1, keepdims=True) / runs
    return hold(number(mean, Source("runs"), square, others.shape[1] - 1), 0.0)


def failing(count: int, random: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Yield whether intervals hold the truth where what they assume is wrong."""
    normal = random.standard_normal
    draws: Mapping[str, Draw] = {
        "normal": normal,
        "heavy tails (t of 3)": lambda shape: random.standard_t(3, shape),
        "one run in ten 3 deviations slower": lambda shape: (
            normal(shape) + 3.0 * (random.random(shape) < 0.1) - 0.3
        ),
        "exponential": lambda shape: random.exponential(1.0, shape) - 1,
    }
    for name, draw in draws.items():
        yield f"single run by a probe of three, {name}", of_draws(draw, count, 1)
        yield f"mean of five, {name}", of_draws(draw, count, 5)
    for part in (0.5, 1.0):
        batch = part * normal((count, 1))
        hits = of_draws(lambda shape, off=batch: normal(shape) + off, count, 5)  # type: ignore[misc]
        yield f"mean of five, all on nodes that are {part:g} deviations off", hits


def families(count: int, random: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Yield which of so many families of true claims, each on its bound, have a wrong contradiction."""
    runs = random.standard_normal((count * FAMILY, REPEATS))
    square = runs.var(axis=1, ddof=1, keepdims=True) / REPEATS
    mean = number(runs.mean(axis=1, keepdims=True), Source("runs"), square, REPEATS - 1)
    p = held(mean, 0.0, None).p.reshape(count, FAMILY)
    yield f"{FAMILY} claims on their bounds: a contradiction is wrong", (p <= LEVEL).any(1)
    stands = np.array([any(holm(of_family)) for of_family in p.tolist()])
    yield f"{FAMILY} claims on their bounds: one that stands by Holm is wrong", stands


# --- what is printed --------------------------------------------------------------------------------


def share(hits: npt.ArrayLike) -> str:
    """A share in percent with its interval."""
    hits = np.asarray(hits)
    ends = stats.binomtest(int(hits.sum()), len(hits)).proportion_ci(method="exact")
    return f"{100 * hits.mean():.1f} % ({100 * ends.low:.1f} to {100 * ends.high:.1f})"


def is_more_than(hits: npt.ArrayLike, stated: float) -> bool:
    """True if so many hits have a probability below 1e-4, were the stated one right."""
    hits = np.asarray(hits)
    test = stats.binomtest(int(hits.sum()), len(hits), stated, alternative="greater")
    return bool(test.pvalue < 1e-4)


def of_class(kind: str, campaigns: int, seed: int) -> tuple[list[str], list[str]]:
    """A row of the table of classes, and the bounds on which verdicts are wrong more often than stated."""
    bounds = [b for at, case in enumerate(CASES) if case.kind == kind for b in bounds_of(at)]
    row, worse = [kind, str(len(bounds))], []
    for beyond in BEYOND:
        each = -(-campaigns // len(bounds) // (10 if beyond else 1))
        verdicts = [bound.verdicts(beyond, each, seed) for bound in bounds]
        for bound, of_bound in zip(bounds, verdicts, strict=True):
            wrong = [of_bound.supported] + [of_bound.contradicted] * (not beyond)
            if any(is_more_than(hits, LEVEL) for hits in wrong):
                worse.append(f"{CASES[bound.case].id} {beyond:.0%} beyond: {bound}")
        row += [share(np.concatenate([f.supported for f in verdicts]))]
        row += [share(np.concatenate([f.contradicted for f in verdicts]))]
    return row, worse


def whole(count: int, seed: int) -> Iterator[tuple[str, Floats]]:
    """Yield which whole campaigns at the paper's truth have a wrong verdict or more, of all checks."""
    claims, rows = claims_on_results(), []
    (exactly,) = EXACT_STUDY.campaigns(paper_world(), 1, seed)
    truth = {id_: verdict_of(claim, exactly).verdict for id_, claim in claims.items()}
    for evidence in Study().campaigns(paper_world(), count, seed):
        verdicts = with_holm([verdict_of(claim, evidence) for claim in claims.values()])
        sides = {SUPPORTED, CONTRADICTED}
        wrong = [verdict for verdict in verdicts if {verdict.verdict, truth[verdict.id]} == sides]
        classes = {verdict.verdict for verdict in wrong}
        rows.append(
            (
                SUPPORTED in classes,
                CONTRADICTED in classes,
                any(verdict.stands for verdict in wrong),
            )
        )
    names = ("support", "contradiction", "contradiction that stands")
    for name, hits in zip(names, np.array(rows).T, strict=True):
        yield f"{count} campaigns at the paper's truth: a wrong {name}", hits


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for line in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(line)} |")


def main() -> int:
    """Simulate, print, and return 1 where verdicts are wrong more often than stated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=30_000)
    parser.add_argument("--whole", type=int, default=0)
    parser.add_argument("--seed", type=int, default=19)
    given = parser.parse_args()
    begin = time.perf_counter()
    intervals, assumed, family = np.random.default_rng(given.seed).spawn(3)
    classes = dict.fromkeys(case.kind for case in CASES)
    results = [of_class(kind, given.campaigns, given.seed) for kind in classes]
    words = [f"{word} {far:.0%} beyond" for far in BEYOND for word in ("supported", "contradicted")]
    table(["class", "bounds", *words], (row for row, _ in results))
    rows = [*own_intervals(given.campaigns, intervals), *failing(given.campaigns, assumed)]
    table(["95 % interval", "holds the truth"], ([name, share(hits)] for name, hits in rows))
    rows = [*families(given.campaigns, family)]
    rows += whole(given.whole, given.seed) if given.whole else []
    table(["families of claims", "share"], ([name, share(hits)] for name, hits in rows))
    worse = [bound for _, of_bounds in results for bound in of_bounds]
    seconds = time.perf_counter() - begin
    print(f"{seconds:.0f} s. More often wrong than stated:", *(worse or ["none"]))
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
