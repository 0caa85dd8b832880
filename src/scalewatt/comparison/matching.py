"""Match the configurations of two campaigns by what they are, not by their names; list what differs.

Two configurations are the same where KEY agrees. Where a campaign has several of one KEY, as of variants or
devices, what they differ in has to agree too; of those that remain, a single one of each campaign that
differ in nothing but the device are compared.
"""

from __future__ import annotations

import pandas as pd

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.comparison.sources import Source

KEY = (
    *("model", "phase", "gpus", "gpus_per_replica", "gradient_accumulation_steps"),
    *("local_batch_size", "global_batch_size", "dataset_fraction", "precision"),
    *LEVERS,
)
"""What two configurations must share."""
_BY_MACHINE = ["nodes", "ranks_per_node"]
"""What follows from the machine and n."""
_MOST_VALUES = 4


def match(a: Source, b: Source) -> pd.DataFrame:
    """Pairs of the same training: columns configuration_a and configuration_b."""
    trainings = [_trainings(source) for source in (a, b)]
    keys = pd.concat(trainings).drop_duplicates()
    pairs: list[tuple[str, str]] = []
    for key in keys.itertuples(index=False, name=None):
        sides = []
        for source, rows in zip((a, b), trainings, strict=True):
            ids = rows.index[(rows == list(key)).all(axis=1)]
            sides.append(source.settings.loc[ids].drop(columns=_BY_MACHINE))
        names = dict.fromkeys(str(name) for side in sides for name in side)
        varied = [
            name
            for name in names
            if any(name in side and side[name].nunique(dropna=False) > 1 for side in sides)
        ]
        for by in (varied, [name for name in varied if name != "device"]):
            agreeing = _agreeing(sides[0], sides[1], by)
            pairs += agreeing
            sides = [
                side.drop(index=[pair[at] for pair in agreeing]) for at, side in enumerate(sides)
            ]
    return pd.DataFrame(pairs, columns=["configuration_a", "configuration_b"])


def _trainings(source: Source) -> pd.DataFrame:
    """KEY of each training, by configuration; empty text for what it lacks."""
    first = source.runs.drop_duplicates("configuration").set_index("configuration")[list(KEY)]
    ordered = first.sort_index().sort_values(list(KEY), kind="stable")
    return ordered.astype(object).where(ordered.notna(), "")


def _agreeing(a: pd.DataFrame, b: pd.DataFrame, by: list[str]) -> list[tuple[str, str]]:
    """Pairs that agree in the settings `by`, where each campaign has a single such training."""
    sides = []
    for side in (a, b):
        rows = side.reindex(columns=by).fillna("").itertuples(index=False, name=None)
        values = pd.Series(list(rows) if by else [()] * len(side), side.index, dtype=object)
        sides.append(values[~values.duplicated(keep=False)])
    ids = {value: id_ for id_, value in sides[1].items()}
    return [(str(id_), str(ids[value])) for id_, value in sides[0].items() if value in ids]


def differences(a: Source, b: Source, pairs: pd.DataFrame) -> pd.DataFrame:
    """All that differs: columns section, name, a, b and how many pairs differ so; null: not recorded."""
    columns = ["section", "name", "a", "b"]
    tables = [
        pd.DataFrame({"a": a.settings.loc[ours], "b": b.settings.loc[theirs]}).rename_axis("name")
        for ours, theirs in pairs.itertuples(index=False, name=None)
    ]
    settings = pd.concat(
        [pd.DataFrame(columns=["name", "a", "b"]), *(t.reset_index() for t in tables)]
    )
    settings = _unlike(settings.assign(section="settings"))
    counted = settings.groupby(columns, sort=False, dropna=False).size().reset_index(name="pairs")
    recorded = [
        source.recorded.groupby(["section", "name"])["value"].agg(_listed) for source in (a, b)
    ]
    both = pd.concat(recorded, axis=1, keys=["a", "b"]).reset_index()
    return pd.concat([counted, _unlike(both)], ignore_index=True).reindex(
        columns=[*columns, "pairs"]
    )


def _unlike(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["a"].fillna("") != rows["b"].fillna("")]


def _listed(values: pd.Series) -> str:
    """Distinct values in order, with commas; of many the first and how many more."""
    texts = sorted(map(str, values.unique()))
    more = f" and {len(texts) - _MOST_VALUES} more" if len(texts) > _MOST_VALUES else ""
    return ", ".join(texts[:_MOST_VALUES]) + more
