"""What two campaigns differ in: settings of what both have, software, machines, facts of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scalewatt.comparison.compared_source import Source
from scalewatt.comparison.matching import DEVICE, OF_CAMPAIGN, Pair, Training
from scalewatt.report.provenance_section import node_kind, software_of
from scalewatt.results.text.number_format import MISSING, listed, number

SECTIONS = SETTINGS, SOFTWARE, MACHINES, CLUSTER = "settings", "software", "machines", "cluster"
_MOST_VALUES = 4
_OF_NODES = ("CPUs of a node", "GPUs of a node", "GPU driver", "kernel")
_FACILITY = {
    "pue": "PUE",
    "carbon_g_per_kwh": "carbon intensity (g CO₂e/kWh)",
    "price_per_kwh": "price of a kWh",
}
_THE_RUN = "the run"


class Difference(NamedTuple):
    """One thing that differs between two campaigns."""

    section: str
    name: str
    """As a campaign or cluster file calls it, where it is a key."""
    a: str | None
    b: str | None
    """Its values; None where it is not recorded."""
    pairs: int | None = None
    """How many pairs differ so; None of what belongs to no pair."""


def differences(a: Source, b: Source, pairs: Sequence[Pair]) -> list[Difference]:
    """Return all that differs, by section."""
    settings = Counter(difference for pair in pairs for difference in _of_settings(pair))
    return [
        *(Difference(SETTINGS, *difference, n) for difference, n in settings.items()),
        *_of_records(SOFTWARE, _software(a), _software(b)),
        *_of_records(SOFTWARE, _variables(a), _variables(b)),
        *_of_records(MACHINES, _machines(a), _machines(b)),
        *_of_records(CLUSTER, _cluster(a, b), _cluster(b, a)),
    ]


# --- settings -------------------------------------------------------------------------------------


def _of_settings(pair: Pair) -> Iterable[tuple[str, str | None, str | None]]:
    """Yield each setting in which a pair differs, by its key in the campaign file, with both values."""
    a, b = pair.a.settings, pair.b.settings
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) != b.get(name):
            yield _key(name, pair), _plain(a.get(name)), _plain(b.get(name))
    seeds_a, seeds_b = pair.a.seeds, pair.b.seeds
    # Repeats that only one of them has tell nothing of the others.
    common = seeds_a.keys() & seeds_b.keys()
    differ = any(seeds_a[repeat] != seeds_b[repeat] for repeat in common)
    if differ or (not common and set(seeds_a.values()) != set(seeds_b.values())):
        yield "seed", _seeds(pair.a), _seeds(pair.b)


def _seeds(training: Training) -> str:
    seeds = (MISSING if seed is None else str(seed) for seed in training.seeds.values())
    return listed(list(dict.fromkeys(seeds)), _MOST_VALUES)


def _key(name: str, pair: Pair) -> str:
    """Return a setting by the key of the campaign file that it follows from."""
    spec = pair.a.spec
    model = spec.model if spec.phase == "train" else f"{spec.model}.{spec.phase}"
    if name == "dataset.name":
        return f"models.{model}.dataset"
    if name.startswith("dataset."):
        return f"datasets.{spec.dataset['name']}.{name.removeprefix('dataset.')}"
    if name in ("dataset_samples", "validation_samples"):
        return f"{name.replace('_', ' ')} of {model}"
    if name in (DEVICE, "nodes", "ranks_per_node"):
        return name.replace("_", " ")
    if name in OF_CAMPAIGN:
        return name
    return f"models.{model}.{name.removeprefix('settings.')}"


def _plain(value: str | None) -> str | None:
    """Return a setting's JSON as people write it."""
    return None if value in (None, "null") else str(value).replace('"', "")


# --- what runs recorded ---------------------------------------------------------------------------

Records = list[tuple[str, str]]
"""Names with values, each as often as runs recorded it."""


def _of_records(section: str, a: Records, b: Records) -> list[Difference]:
    """Return what has other values in `b` than in `a`."""

    names = dict.fromkeys(name for name, _ in (*sorted(a), *sorted(b)))
    unlike = []
    for name in names:
        of_a, of_b = (sorted({v for n, v in records if n == name}) for records in (a, b))
        if of_a != of_b:
            texts = [listed(values, _MOST_VALUES) or None for values in (of_a, of_b)]
            unlike.append(Difference(section, name, texts[0], texts[1]))
    return unlike


def _software(source: Source) -> Records:
    return [
        (name, value if whose == _THE_RUN else f"{value} ({whose})")
        for provenance in source.provenance.values()
        for whose, name, value in software_of(provenance)
    ]


def _variables(source: Source) -> Records:
    return [
        (f"variable {name}", "not set" if value is None else str(value))
        for provenance in source.provenance.values()
        for name, value in (provenance.get("environment_variables") or {}).items()
    ]


def _machines(source: Source) -> Records:
    records = [("devices", f"{row['device']}: {row['device_name']}") for row in source.runs]
    for provenance in source.provenance.values():
        for node in provenance.get("nodes") or ():
            records += zip(_OF_NODES, node_kind(node), strict=True)
        records += [("names of nodes", str(host)) for host in provenance.get("hostnames") or ()]
    return records


def _cluster(source: Source, other: Source) -> Records:
    """Return the cluster's facts; its name only where both campaigns know theirs, as archives do."""
    facility = source.facility
    known = [(words, number(facility[k])) for k, words in _FACILITY.items() if k in facility]
    named = source.cluster and other.cluster
    return known + ([("cluster", str(source.cluster))] if named else [])
