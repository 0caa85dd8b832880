"""How often the verdicts on claims are wrong: campaigns simulated from a truth that is known.

    python benchmarks/claims_coverage.py [--campaigns 10000] [--whole 500] [--seed 19] [--processes 2]
        [--json FILE] [CLAIM …]

A truth has the paper's numbers where they are published, else the scaling model's; campaigns draw runs
from it with the published spreads (claims_worlds.py). The truth of a claim is the verdict of a campaign
without scatter. Whole campaigns (`--whole`) go through all checks at that truth. Then each claim is moved
onto its bounds, where a wrong verdict is most probable, and 5, 10 and 15 % beyond (claims_bounds.py): of
each class of checks so many campaigns in all (`--campaigns`) on the bounds and a tenth at each distance,
of the models that the claim is about. Printed are shares of wrong verdicts with their 95 % intervals
(Clopper and Pearson). CLAIM: the bounds of these claims alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from claims_bounds import (
    Bound,
    bounds_of,
    claims_on_results,
    class_of,
    concerned,
    judged,
)
from claims_intervals import Covered, covered_in, simulated_intervals
from claims_numbers import (
    FAMILY,
    OFF,
    cases,
    failing,
    families,
    supported_when_off,
    verdicts,
)
from claims_worlds import Study, paper_world

from scalewatt.claims.reference_tables import CONTRADICTED, SUPPORTED, UNDECIDED
from scalewatt.claims.verdicts import verdict_of

STATED = 0.025
"""Of a verdict, on each side of a bound."""
BEYOND = (0.0, 0.05, 0.10, 0.15)
FARTHER = 10
"""Beyond the bounds this part of the campaigns is enough."""
CHUNK, OF_NUMBERS = 100, 1000


@dataclass
class Tally:
    """Verdicts by what they are on."""

    verdicts: dict[Any, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, what: Any, verdict: str, times: int = 1) -> None:
        self.verdicts[what][verdict] += times

    def merge(self, other: Tally) -> None:
        for what, counts in other.verdicts.items():
            self.verdicts[what].update(counts)


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    hits: int
    trials: int

    def __str__(self) -> str:
        if not self.trials:
            return "–"
        low, high = interval(self.hits, self.trials)
        return f"{100 * self.hits / self.trials:.2f} % ({100 * low:.2f} to {100 * high:.2f})"


def interval(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a probability by Clopper and Pearson."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if not hits else float(betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, 1 - tail))
    return low, high


def is_more_than(hits: int, trials: int, stated: float, level: float = 1e-4) -> bool:
    """Return True if so many hits have a smaller probability than `level`, were the stated one right."""
    from scipy.special import bdtrc

    return hits > 0 and float(bdtrc(hits - 1, trials, stated)) < level


# --- what is simulated --------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """Some whole campaigns at the paper's truth."""

    seed: int
    count: int


@dataclass(frozen=True)
class AtBound:
    """Some campaigns in which one claim lies on its bound, or beyond."""

    bound: Bound
    beyond: float
    seed: int
    count: int


@dataclass(frozen=True)
class Numbers:
    """Some numbers of each kind, held against bounds one by one."""

    seed: int
    count: int


@dataclass
class NumberFound:
    """What became of one kind of number."""

    on_bound: Counter[str] = field(default_factory=Counter)
    off: dict[float, Counter[str]] = field(default_factory=dict)

    def merge(self, other: NumberFound) -> None:
        self.on_bound.update(other.on_bound)
        for off, counts in other.off.items():
            self.off.setdefault(off, Counter()).update(counts)


@dataclass
class Found:
    """What a process comes back with."""

    claims: Tally = field(default_factory=Tally)
    bounds: Tally = field(default_factory=Tally)
    covered: dict[str, Covered] = field(default_factory=dict)
    families: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, NumberFound] = field(default_factory=dict)
    worst_families: dict[str, Covered] = field(default_factory=dict)
    failing: dict[str, Covered] = field(default_factory=dict)

    def merge(self, other: Found) -> None:
        self.claims.merge(other.claims)
        self.bounds.merge(other.bounds)
        self.families.update(other.families)
        for name, numbers in other.numbers.items():
            self.numbers.setdefault(name, NumberFound()).merge(numbers)
        for name, one in other.worst_families.items():
            self.worst_families[name] = self.worst_families.get(name, Covered()) + one
        for name, one in other.covered.items():
            self.covered[name] = self.covered.get(name, Covered()) + one


@cache
def truths() -> Mapping[str, str]:
    """Return the true verdict on each claim at the paper's truth."""
    return {id_: judged(one, paper_world()) for id_, one in claims_on_results().items()}


def done(task: Whole | AtBound | Numbers) -> Found:
    """Simulate some campaigns, or numbers."""
    if isinstance(task, Numbers):
        return _numbers(task)
    return _whole(task) if isinstance(task, Whole) else _at_bound(task)


def _numbers(task: Numbers) -> Found:
    found = Found(worst_families=families(max(1, task.count // FARTHER), task.seed))
    for case in cases():
        own = found.numbers[case.name] = NumberFound()
        for side in case.bounds:
            own.on_bound.update(verdicts(case, side, task.count // 2, task.seed))
        for off in OFF:
            own.off[off] = supported_when_off(case, off, task.count // FARTHER, task.seed)
    return found


def _whole(task: Whole) -> Found:
    found = Found()
    for evidence in Study().campaigns(paper_world(), task.count, task.seed):
        verdicts = {
            id_: verdict_of(one, evidence).verdict for id_, one in claims_on_results().items()
        }
        for id_, verdict in verdicts.items():
            found.claims.add(id_, verdict)
        wrong = sum(
            verdict == CONTRADICTED and truths()[id_] == SUPPORTED
            for id_, verdict in verdicts.items()
        )
        found.families["campaigns"] += 1
        found.families["with a wrong contradiction"] += wrong > 0
        for name, one in covered_in(evidence, paper_world()).items():
            found.covered[name] = found.covered.get(name, Covered()) + one
    return found


def _at_bound(task: AtBound) -> Found:
    found = Found()
    bound = task.bound
    claim = claims_on_results()[bound.id]
    world = bound.world(task.beyond)
    for evidence in Study().campaigns(world, task.count, task.seed, concerned(bound.id)):
        found.bounds.add((bound, task.beyond), verdict_of(claim, evidence).verdict)
    return found


def tasks(
    whole: int, campaigns: int, seed: int, bounds: Mapping[str, Sequence[Bound]]
) -> Iterator[Whole | AtBound | Numbers]:
    """Yield what is to be simulated, with seeds of its own."""
    for number in range(0, campaigns, OF_NUMBERS):
        yield Numbers(_seed(seed, "numbers", number), min(OF_NUMBERS, campaigns - number))
    for number in range(0, whole, CHUNK):
        yield Whole(_seed(seed, number), min(CHUNK, whole - number))
    for name, there in bounds.items():
        each = -(-campaigns // len(there))
        for bound, beyond in ((one, far) for one in there for far in BEYOND):
            count = each if not beyond else max(1, each // FARTHER)
            for number in range(0, count, CHUNK):
                own = _seed(seed, name, bound, beyond, number)
                yield AtBound(bound, beyond, own, min(CHUNK, count - number))


def _seed(*what: object) -> int:
    return zlib.crc32(repr(what).encode())


def bounds_by_class(
    run: Callable[[Callable[[str], list[Bound]], Iterable[str]], Iterable[list[Bound]]],
    ids: Sequence[str],
) -> dict[str, list[Bound]]:
    """Return the bounds of all claims, by the class of their check."""
    found: dict[str, list[Bound]] = {}
    for id_, bounds in zip(ids, run(bounds_of, ids), strict=True):
        if bounds:
            found.setdefault(class_of(id_), []).extend(bounds)
    return found


# --- what is told -------------------------------------------------------------------------------


def wrong_at_bounds(found: Found) -> dict[str, dict[float, Counter[str]]]:
    """Return verdicts by class and distance beyond the bound."""
    by: dict[str, dict[float, Counter[str]]] = {}
    for (bound, beyond), counts in found.bounds.verdicts.items():
        of_class = by.setdefault(class_of(bound.id), {})
        of_class.setdefault(beyond, Counter()).update(counts)
    return by


def worst_bounds(found: Found) -> list[tuple[str, Bound, str, Share]]:
    """Return the bounds with more wrong verdicts than stated, by a binomial test at 1e-4."""
    rows = []
    for (bound, beyond), counts in found.bounds.verdicts.items():
        for verdict in (SUPPORTED, CONTRADICTED) if not beyond else (SUPPORTED,):
            if is_more_than(counts[verdict], counts.total(), STATED):
                share = Share(counts[verdict], counts.total())
                rows.append((class_of(bound.id), bound, f"{verdict} at {beyond:.0%}", share))
    return sorted(rows, key=lambda row: -row[3].hits / row[3].trials)


def at_the_papers_truth(found: Found) -> list[list[str]]:
    """Return rows by class: claims, wrong supports, wrong contradictions, undecided."""
    rows = []
    by: dict[str, list[str]] = {}
    for id_ in found.claims.verdicts:
        by.setdefault(class_of(id_), []).append(id_)
    for name, ids in sorted(by.items()):
        false = [found.claims.verdicts[id_] for id_ in ids if truths()[id_] == CONTRADICTED]
        true = [found.claims.verdicts[id_] for id_ in ids if truths()[id_] == SUPPORTED]
        every = [found.claims.verdicts[id_] for id_ in ids]
        rows.append(
            [
                name,
                f"{len(true)}, {len(false)}",
                str(_share(false, SUPPORTED)),
                str(_share(true, CONTRADICTED)),
                str(_share(every, UNDECIDED)).split(" (")[0],
            ]
        )
    return rows


def _share(counts: Sequence[Counter[str]], verdict: str) -> Share:
    return Share(sum(one[verdict] for one in counts), sum(one.total() for one in counts))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def told(found: Found, campaigns: int, seed: int) -> str:
    """Return all tables."""
    whole = found.families["campaigns"]
    parts = [
        f"{whole} whole campaigns at the paper's truth, {campaigns} for each class of checks on its "
        f"bounds; seed {seed}. Stated: at most {STATED:.1%} wrong on each side.",
        "\n## Claims exactly on their bounds\n",
        table(
            ["class", "bounds", "campaigns", "supported", "contradicted", "undecided"],
            (_bound_row(found, *one) for one in sorted(wrong_at_bounds(found).items())),
        ),
        "\n## Claims beyond their bounds: share supported\n",
        table(
            ["class", *(f"{far:.0%}" for far in BEYOND)],
            (
                [name, *(str(_share([by[far]], SUPPORTED)) for far in BEYOND)]
                for name, by in sorted(wrong_at_bounds(found).items())
            ),
        ),
        "\n## Claims beyond their bounds: share contradicted\n",
        table(
            ["class", *(f"{far:.0%}" for far in BEYOND)],
            (
                [name, *(str(_share([by[far]], CONTRADICTED)) for far in BEYOND)]
                for name, by in sorted(wrong_at_bounds(found).items())
            ),
        ),
        "\n## Bounds on which verdicts are wrong more often than stated (binomial test, 1e-4)\n",
        table(
            ["class", "claim", "moved", "at", "wrong", "share"],
            (
                [
                    *(name, bound.id, f"{bound.move.lever}, {bound.move.pattern}"),
                    *(f"{bound.at:+.3f}", what, str(share)),
                ]
                for name, bound, what, share in worst_bounds(found)
            ),
        ),
        "\n## All claims at the paper's truth\n",
        table(
            ["class", "true, false", "wrong supports", "wrong contradictions", "undecided"],
            at_the_papers_truth(found),
        ),
        "\n## Intervals of 95 %\n",
        table(
            ["interval", "holds the truth"],
            ([name, str(Share(one.hits, one.trials))] for name, one in found.covered.items()),
        ),
        "\n## Families: share of campaigns with a wrong contradiction\n",
        table(
            ["", "paper's truth", f"worst case: {FAMILY} independent claims, all on their bounds"],
            (
                [name, str(Share(found.families[name], whole)), str(Share(one.hits, one.trials))]
                for name, one in found.worst_families.items()
            ),
        ),
        "\n## Single numbers against bounds\n",
        table(
            [
                "number",
                "on the bound: supported",
                "contradicted",
                *(f"{off:.0%} off" for off in OFF),
            ],
            (_number_row(name, one) for name, one in found.numbers.items()),
        ),
        "\n## Where what intervals assume is wrong: how often those of 95 % hold the truth\n",
        table(
            ["", "holds the truth"],
            ([name, str(Share(one.hits, one.trials))] for name, one in found.failing.items()),
        ),
    ]
    return "\n".join(parts)


def _number_row(name: str, one: NumberFound) -> list[str]:
    """Return the wrong verdicts on the bound, and the share supported by how far off the truth is."""
    wrong = (Share(one.on_bound[v], one.on_bound.total()) for v in (SUPPORTED, CONTRADICTED))
    off = (str(_share([counts], SUPPORTED)) for _, counts in sorted(one.off.items()))
    return [name, *map(str, wrong), *off]


def _bound_row(found: Found, name: str, by: Mapping[float, Counter[str]]) -> list[str]:
    counts = by[0.0]
    bounds = {bound for bound, _ in found.bounds.verdicts if class_of(bound.id) == name}
    shares = (Share(counts[one], counts.total()) for one in (SUPPORTED, CONTRADICTED))
    rest = Share(counts[UNDECIDED], counts.total())
    return [
        name,
        str(len(bounds)),
        str(counts.total()),
        *map(str, shares),
        str(rest).split(" (")[0],
    ]


def as_json(found: Found, seed: int) -> dict[str, Any]:
    """Return all counts."""
    return {
        "seed": seed,
        "claims": dict(found.claims.verdicts),
        "truths": dict(truths()),
        "bounds": [
            {**asdict(bound), "class": class_of(bound.id), "beyond": beyond, "counts": counts}
            for (bound, beyond), counts in found.bounds.verdicts.items()
        ],
        "covered": {name: asdict(one) for name, one in found.covered.items()},
        "families": dict(found.families),
        "worst_families": {name: asdict(one) for name, one in found.worst_families.items()},
        "numbers": {
            name: {"on_bound": one.on_bound, "off": {str(k): v for k, v in one.off.items()}}
            for name, one in found.numbers.items()
        },
        "failing": {name: asdict(one) for name, one in found.failing.items()},
    }


def simulated(
    whole: int, campaigns: int, seed: int, processes: int, ids: Sequence[str] | None = None
) -> Found:
    """Return what so many campaigns find, of all claims on results or of these."""
    ids = sorted(claims_on_results() if ids is None else ids)
    found = Found()
    found.covered.update(simulated_intervals(campaigns, seed))
    found.failing.update(failing(campaigns, seed))
    with multiprocessing.Pool(processes) as pool:
        bounds = bounds_by_class(pool.imap, ids)
        print(f"{sum(map(len, bounds.values()))} bounds", file=sys.stderr)
        todo = list(tasks(whole, campaigns, seed, bounds))
        last = time.monotonic()
        for number, one in enumerate(pool.imap_unordered(done, todo), 1):
            found.merge(one)
            if time.monotonic() - last > 60:
                last = time.monotonic()
                print(f"{number} of {len(todo)}", file=sys.stderr)
    return found


def main() -> int:
    """Simulate, print, and end with 1 where a class is wrong more often than stated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--whole", type=int, default=500)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("claims", nargs="*", help="the bounds of these alone")
    given = parser.parse_args()
    begin = time.perf_counter()
    found = simulated(
        given.whole, given.campaigns, given.seed, given.processes, given.claims or None
    )
    print(told(found, given.campaigns, given.seed))
    print(f"\n{time.perf_counter() - begin:.0f} s")
    if given.json:
        given.json.write_text(json.dumps(as_json(found, given.seed), indent=1), encoding="utf-8")
    return int(bool(worst_bounds(found)))


if __name__ == "__main__":
    sys.exit(main())
