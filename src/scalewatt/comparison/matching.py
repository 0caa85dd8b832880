"""Match the configurations of two campaigns by what they are, not by their names; list what differs.

Two configurations are the same where KEY agrees. Where a campaign has several of one KEY, as of variants or
devices, what they differ in has to agree too; of those that remain, a single one of each campaign that
differ in nothing but the device are compared.
"""

from __future__ import annotations

import pandas as pd

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.comparison.compared_source import SETTINGS, Source

KEY = (
    *("model", "phase", "gpus", "gpus_per_replica", "gradient_accumulation_steps"),
    *("local_batch_size", "global_batch_size", "dataset_fraction", "precision"),
    *LEVERS,
)
"""What two configurations must share."""
_OF_MACHINE = ("nodes", "ranks_per_node")
"""What follows from the machine and n."""
_MOST_VALUES = 4


def match(a: Source, b: Source) -> pd.DataFrame:
    """Pairs of the same training: columns configuration_a and configuration_b."""
    sides = [_trainings(source) for source in (a, b)]
    keys = pd.concat([side[list(KEY)] for side in sides]).drop_duplicates()
    pairs: list[tuple[str, str]] = []
    for key in keys.itertuples(index=False, name=None):
        left, right = (side[(side[list(KEY)] == list(key)).all(axis=1)] for side in sides)
        settings = [
            source.settings.loc[side["configuration"]].drop(columns=list(_OF_MACHINE))
            for source, side in ((a, left), (b, right))
        ]
        varied = [
            name
            for name in dict.fromkeys(str(name) for side in settings for name in side)
            if any(name in side and side[name].nunique(dropna=False) > 1 for side in settings)
        ]
        for by in (varied, [name for name in varied if name != "device"]):
            pairs += _agreeing(settings[0], settings[1], by)
            settings = [
                side.drop(index=[pair[at] for pair in pairs], errors="ignore")
                for at, side in enumerate(settings)
            ]
    return pd.DataFrame(pairs, columns=["configuration_a", "configuration_b"])


def _trainings(source: Source) -> pd.DataFrame:
    """Configuration and KEY of each training; empty text for what it lacks."""
    first = source.runs.drop_duplicates("configuration")[["configuration", *KEY]]
    ordered = first.sort_values([*KEY, "configuration"])
    return ordered.astype(object).where(ordered.notna(), "")


def _agreeing(a: pd.DataFrame, b: pd.DataFrame, by: list[str]) -> list[tuple[str, str]]:
    """Pairs that agree in the settings `by`, where each campaign has a single such training."""
    sides = []
    for side in (a, b):
        values = side.reindex(columns=by).fillna("").agg(tuple, axis=1) if by else None
        place = (
            values if values is not None and len(side) else pd.Series([()] * len(side), side.index)
        )
        sides.append(place[~place.duplicated(keep=False)])
    there = {value: name for name, value in sides[1].items()}
    return [(str(name), str(there[value])) for name, value in sides[0].items() if value in there]


def differences(a: Source, b: Source, pairs: pd.DataFrame) -> pd.DataFrame:
    """All that differs: columns section, name, a, b and how many pairs differ so; null: not recorded."""
    columns = ["section", "name", "a", "b"]
    settings = _unlike_settings(a, b, pairs)
    recorded = [
        source.recorded.groupby(["section", "name"])["value"].agg(_listed) for source in (a, b)
    ]
    both = pd.concat(recorded, axis=1, keys=["a", "b"]).reset_index()
    unlike = both[both["a"].fillna("") != both["b"].fillna("")]
    counted = settings.groupby(columns, sort=False, dropna=False).size().reset_index(name="pairs")
    return pd.concat([counted, unlike], ignore_index=True).reindex(columns=[*columns, "pairs"])


def _unlike_settings(a: Source, b: Source, pairs: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for one, other in pairs.itertuples(index=False, name=None):
        both = pd.DataFrame({"a": a.settings.loc[one], "b": b.settings.loc[other]})
        unlike = both[both["a"].fillna("") != both["b"].fillna("")]
        rows += [(SETTINGS, name, *values) for name, *values in unlike.itertuples(name=None)]
        rows += _unlike_seeds(a.runs, b.runs, one, other)
    return pd.DataFrame(rows, columns=["section", "name", "a", "b"], dtype=object)


def _unlike_seeds(
    a: pd.DataFrame, b: pd.DataFrame, one: str, other: str
) -> list[tuple[str, str, str, str]]:
    """Seeds of a pair, if repeats that both have differ in theirs, or if it has none in common."""
    seeds = [
        runs[runs["configuration"] == id_].set_index("repeat")["seed"]
        for runs, id_ in ((a, one), (b, other))
    ]
    common = seeds[0].index.intersection(seeds[1].index)
    if len(common):
        differ = any(seeds[0][repeat] != seeds[1][repeat] for repeat in common)
    else:
        differ = set(seeds[0]) != set(seeds[1])
    return [(SETTINGS, "seed", _listed(seeds[0]), _listed(seeds[1]))] if differ else []


def _listed(values: pd.Series) -> str:
    """Distinct values in order, with commas; of many the first and how many more."""
    texts = sorted(map(str, values.unique()))
    more = f" and {len(texts) - _MOST_VALUES} more" if len(texts) > _MOST_VALUES else ""
    return ", ".join(texts[:_MOST_VALUES]) + more
