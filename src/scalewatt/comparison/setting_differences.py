"""What two campaigns differ in: settings of what both have, software, machines, facts of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scalewatt.comparison.compared_source import Row, Source
from scalewatt.comparison.matching import Pair, Training
from scalewatt.report.provenance_section import node_kind, software_of
from scalewatt.results.text.number_format import MISSING, listed, number

SECTIONS = SETTINGS, SOFTWARE, MACHINES, CLUSTER = "settings", "software", "machines", "cluster"
_MOST_VALUES = 4
_OF_CAMPAIGN = ("protocol", "sampling_period_s")
"""Keys of a spec that are the campaign's own, and no model's."""
_OF_NODES = ("CPUs of a node", "GPUs of a node", "GPU driver", "kernel")
_FACILITY = {
    "pue": "PUE",
    "carbon_g_per_kwh": "carbon intensity (g CO₂e/kWh)",
    "price_per_kwh": "price of a kWh",
}
_THE_RUN = "the run"


@dataclass(frozen=True)
class Difference:
    """One thing that differs between two campaigns."""

    section: str
    """settings, software, machines or cluster."""
    name: str
    """As a campaign or cluster file calls it, where it is a key."""
    a: str
    b: str
    """Its values; a dash where it is not recorded."""
    pairs: int | None = None
    """How many pairs differ so; None of what belongs to no pair."""


def differences(a: Source, b: Source, pairs: Sequence[Pair]) -> list[Difference]:
    """Return all that differs, by section."""
    return [
        *_settings(pairs),
        *_unlike(SOFTWARE, _software(a), _software(b)),
        *_unlike(SOFTWARE, _variables(a), _variables(b)),
        *_unlike(MACHINES, _machines(a), _machines(b)),
        *_unlike(CLUSTER, _cluster(a, b), _cluster(b, a)),
    ]


# --- settings -------------------------------------------------------------------------------------


def _settings(pairs: Sequence[Pair]) -> list[Difference]:
    """Return the settings in which pairs differ, each with how many differ so."""
    found: Counter[tuple[str, str, str]] = Counter()
    for pair in pairs:
        found.update(differing(pair))
    return [Difference(SETTINGS, *key, pairs=n) for key, n in found.items()]


def differing(pair: Pair) -> list[tuple[str, str, str]]:
    """Return each setting in which a pair differs, by its key in the campaign file, with both values."""
    a, b = pair.a.settings, pair.b.settings
    names = dict.fromkeys((*a, *b))
    found = [
        (_key(name, pair), _plain(a.get(name)), _plain(b.get(name)))
        for name in names
        if a.get(name) != b.get(name)
    ]
    return [*found, ("seed", _seeds(pair.a), _seeds(pair.b))] if _seeds_differ(pair) else found


def _seeds_differ(pair: Pair) -> bool:
    """Return True if repeats that both have differ in their seeds; without such, if the sets of seeds do."""
    a, b = pair.a.seeds, pair.b.seeds
    common = a.keys() & b.keys()
    if common:
        return any(a[repeat] != b[repeat] for repeat in common)
    return set(a.values()) != set(b.values())


def _seeds(training: Training) -> str:
    told = (MISSING if seed is None else str(seed) for seed in training.seeds.values())
    return listed(list(dict.fromkeys(told)), _MOST_VALUES)


def _key(name: str, pair: Pair) -> str:
    """Return a setting by the key of the campaign file that it follows from."""
    spec = pair.a.spec
    model = spec.model if spec.phase == "train" else f"{spec.model}.{spec.phase}"
    if name.startswith("dataset."):
        own = name.removeprefix("dataset.")
        return (
            f"models.{model}.dataset" if own == "name" else f"datasets.{spec.dataset['name']}.{own}"
        )
    if name in ("dataset_samples", "validation_samples"):
        return f"{name.replace('_', ' ')} of {model}"
    if name in ("device", "nodes", "ranks_per_node"):
        return name.replace("_", " ")
    if name in _OF_CAMPAIGN:
        return name
    return f"models.{model}.{name.removeprefix('settings.')}"


def _plain(value: str | None) -> str:
    """Return a setting's JSON as people write it; a dash for none."""
    if value is None or value == "null":
        return MISSING
    return value.replace('"', "")


# --- what runs recorded ---------------------------------------------------------------------------


def _unlike(
    section: str, a: Mapping[str, Sequence[str]], b: Mapping[str, Sequence[str]]
) -> list[Difference]:
    """Return what has other values in `b` than in `a`."""
    return [
        Difference(section, name, _values(a.get(name, ())), _values(b.get(name, ())))
        for name in dict.fromkeys((*a, *b))
        if set(a.get(name, ())) != set(b.get(name, ()))
    ]


def _values(found: Sequence[str]) -> str:
    return listed(sorted(found), _MOST_VALUES) or MISSING


def _gathered(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the different values of each name, by name."""
    values: dict[str, dict[str, None]] = {}
    for name, value in found:
        values.setdefault(name, {})[value] = None
    return {name: list(own) for name, own in sorted(values.items())}


def _software(source: Source) -> dict[str, list[str]]:
    return _gathered(
        (name, value if whose == _THE_RUN else f"{value} ({whose})")
        for one in source.provenance.values()
        for whose, name, value in software_of(one)
    )


def _variables(source: Source) -> dict[str, list[str]]:
    return _gathered(
        (f"variable {name}", "not set" if value is None else str(value))
        for one in source.provenance.values()
        for name, value in (one.get("environment_variables") or {}).items()
    )


def _machines(source: Source) -> dict[str, list[str]]:
    return _gathered(
        [
            *(("devices", f"{row['device']}: {row['device_name']}") for row in source.runs),
            *(
                (name, value)
                for one in source.provenance.values()
                for node in one.get("nodes") or ()
                for name, value in zip(_OF_NODES, node_kind(node), strict=True)
            ),
            *(
                ("names of nodes", str(host))
                for one in source.provenance.values()
                for host in one.get("hostnames") or ()
            ),
        ]
    )


def _cluster(source: Source, other: Source) -> dict[str, list[str]]:
    """Return the cluster's facts; its name only where both campaigns know theirs, as archives do."""
    found = {
        words: [number(source.facility[name])]
        for name, words in _FACILITY.items()
        if name in source.facility
    }
    if source.cluster and other.cluster:
        found["cluster"] = [source.cluster]
    return found


def summary(source: Source) -> Row:
    """Return a source in a few facts."""
    origins = Counter(row["energy_origin"] or "unknown" for row in source.runs)
    scopes = sorted({row["energy_scope"] for row in source.runs if row["energy_scope"]})
    return {
        "place": source.place,
        "campaign": source.campaign,
        "runs": len(source.runs),
        "excluded": source.excluded,
        "unlisted": source.unlisted,
        "configurations": len({row["configuration"] for row in source.runs}),
        "devices": sorted({row["device"] for row in source.runs}),
        "protocols": sorted({row["protocol"] for row in source.runs}),
        "energy_origins": dict(sorted(origins.items())),
        "energy_scopes": scopes,
    }


def as_json(found: Sequence[Difference]) -> list[Row]:
    """Return differences as JSON-ready values; null where a value is not recorded."""
    return [
        {
            "section": one.section,
            "name": one.name,
            "a": None if one.a == MISSING else one.a,
            "b": None if one.b == MISSING else one.b,
            "pairs": one.pairs,
        }
        for one in found
    ]
