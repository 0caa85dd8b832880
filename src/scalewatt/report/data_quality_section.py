"""Data quality: what is missing, left out, flagged or not comparable, by name and count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from scalewatt.figures import figure_data as data
from scalewatt.report.html_tables import Part, grid
from scalewatt.results.figures.superseded import Replaced
from scalewatt.results.text.captions import UNEQUAL_SCOPES
from scalewatt.results.text.flag_labels import FLAG_WORDS, NULL_ENERGY, absent_kinds, read_flags
from scalewatt.results.text.number_format import MISSING, listed, percent, with_unit

Flag = dict[str, Any]
_GAPS = ("gap", "missing_samples", "over_limit", "counter")
_MOST_NAMED = 8


@dataclass(frozen=True)
class Evidence:
    """What the topics are about."""

    runs: pd.DataFrame
    """Rows of the table of runs with `run` and `parsed`; `counting` are those that are not excluded."""
    counting: pd.DataFrame
    missing: pd.DataFrame
    """Configuration and repeat of planned runs without results."""
    replaced: Sequence[Replaced] = ()
    checks: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The same energies by other sources (table cross_checks)."""
    idle: pd.DataFrame = field(default_factory=pd.DataFrame)
    no_idle: Mapping[str, str] = field(default_factory=dict)
    """Why runs of a device have no idle energy although there are probes."""


def quality(evidence: Evidence, gpu_word: str = "GPUs") -> list[Part]:
    """All topics of quality.yaml, also those without a finding. Without runs, what is missing alone."""
    topics = yaml.safe_load(Path(__file__).with_name("quality.yaml").read_text(encoding="utf-8"))
    parts = []
    for topic in topics if len(evidence.runs) else topics[:1]:
        rows = _ROWS[topic["rows"]](evidence)
        sentence = topic.get("some", "").format(n=len(rows)) if len(rows) else topic.get("none", "")
        sentences = [sentence, *(_SENTENCES[topic["also"]](evidence) if "also" in topic else ())]
        headings = _HEADINGS | topic.get("headings", {})
        columns = topic.get("columns", "").split()
        table = grid(rows, columns, headings, gpu_word) if len(rows) and columns else None
        name = topic["heading"].lower().replace(" ", "-")
        parts.append(Part(name, topic["heading"], " ".join(filter(None, sentences)), table))
    return parts


_HEADINGS = {"configuration": "Configuration", "n_runs": "Runs"}


# --- flags ----------------------------------------------------------------------------------------


def flag_labels(flags: Sequence[Flag]) -> str:
    """Labels of a run's flags. A device kind without a sensor is named by the scope instead."""
    codes = dict.fromkeys(str(flag["code"]) for flag in flags if flag["code"] != "absent")
    return "; ".join(FLAG_WORDS.get(code, code) for code in codes) or MISSING


def _detail(flag: Flag) -> str:
    return " ".join(str(flag[key]) for key in ("device", "detail") if flag.get(key))


def _described(flags: Sequence[Flag], codes: Sequence[str] | None = None) -> str:
    """Flags (of some codes) with their details, each once."""
    labels: dict[str, None] = {}
    for flag in flags:
        if codes is None or flag["code"] in codes:
            text, detail = FLAG_WORDS.get(flag["code"], str(flag["code"])), _detail(flag)
            labels[f"{text} ({detail})" if detail else text] = None
    return "; ".join(labels)


def _flags(evidence: Evidence) -> pd.DataFrame:
    flags = evidence.runs[["run", "parsed"]].explode("parsed").dropna()
    flags = flags.assign(
        code=[flag["code"] for flag in flags["parsed"]],
        example=flags["run"] + ": " + flags["parsed"].map(_detail),
    )
    by_code = flags[flags["code"] != "absent"].groupby("code", sort=False)
    rows = by_code.agg(
        n_runs=("run", "nunique"), times=("run", "size"), example=("example", "first")
    )
    rows = rows.sort_values("times", ascending=False, kind="stable").reset_index()
    return rows.assign(warning=[FLAG_WORDS.get(code, code) for code in rows["code"]])


def _absent(evidence: Evidence) -> Iterable[str]:
    kinds = [found for row in data.each(evidence.runs) if (found := absent_kinds(row._asdict()))]
    if kinds:
        labels = listed(dict.fromkeys(kind for absent in kinds for kind in absent))
        yield (
            f"Device kinds without a sensor or an estimate (flag absent): {labels}; runs: {len(kinds)}."
        )


# --- rows -----------------------------------------------------------------------------------------


def _missing(evidence: Evidence) -> pd.DataFrame:
    by_configuration = evidence.missing.groupby("configuration", sort=False)["repeat"]
    return by_configuration.agg(
        missing="size", repeats=lambda repeats: listed(map(str, repeats), _MOST_NAMED)
    ).reset_index()


def _replaced(evidence: Evidence) -> pd.DataFrame:
    rows = pd.DataFrame(
        [asdict(run) for run in evidence.replaced], columns=list(Replaced.__annotations__)
    )
    rows = rows.rename(columns={"energy_kwh": "energy_before", "reason": "why", "date": "asked"})
    now = evidence.runs[["configuration", "repeat", "energy_kwh"]]
    rows = rows.merge(now, how="left").rename(columns={"energy_kwh": "energy_now"})
    energies = {
        name: rows[name].map(_kwh, na_action="ignore") for name in ("energy_before", "energy_now")
    }
    return rows.assign(**energies)


def _kwh(kwh: float) -> str:
    return with_unit(kwh, "kWh")


def _without_energy(evidence: Evidence) -> pd.DataFrame:
    rows = evidence.runs[evidence.runs["energy_kwh"].isna()]
    return rows.assign(why=[_why_unknown(row) for row in data.each(rows)])


def _why_unknown(run: Any) -> str:
    if not run.energy_scope:
        return "No device kind has a sensor or anything to estimate from."
    return _described(run.parsed, list(NULL_ENERGY)) or "The flags of the run give no reason."


def _uncovered(evidence: Evidence) -> pd.DataFrame:
    rows = evidence.runs[evidence.runs["coverage"] < 1].sort_values("coverage", kind="stable")
    gaps = [_described(flags, _GAPS) or MISSING for flags in rows["parsed"]]
    return rows.assign(coverage=rows["coverage"].map(percent), gaps=gaps)


def _other_sources(evidence: Evidence) -> pd.DataFrame:
    if evidence.checks.empty:
        return evidence.checks
    counted = evidence.counting[["configuration", "repeat"]]
    known = evidence.checks[evidence.checks["difference"].notna()].merge(counted)
    keys = ["configuration", "source", "device_kind", "recorded_scope"]
    groups = known.groupby(keys, sort=False, dropna=False)
    means = groups[["energy_kwh", "recorded_kwh", "difference", "extra_w"]].mean()
    rows = means.assign(n_runs=groups["repeat"].nunique()).reset_index()
    return rows.assign(difference=[f"{100 * share:+.1f} %" for share in rows["difference"]])


def _single(evidence: Evidence) -> pd.DataFrame:
    repeats = evidence.counting.groupby("configuration", sort=False).size()
    return repeats[repeats == 1].reset_index()


def _scopes(evidence: Evidence) -> pd.DataFrame:
    known = evidence.counting[evidence.counting["energy_kwh"].notna()]
    kinds = ["energy_origin", "energy_scope", "device"]
    return known[kinds].value_counts(sort=False).rename("n_runs").reset_index()


def _idle(evidence: Evidence) -> pd.DataFrame:
    if evidence.idle.empty:
        return evidence.idle
    flags = evidence.idle["flags"].map(read_flags)
    return evidence.idle.assign(why=[_described(each) or MISSING for each in flags])


def _idle_sentences(evidence: Evidence) -> Iterable[str]:
    for device, reason in evidence.no_idle.items():
        yield f"No baseline of {device}: {reason}."
    below = evidence.counting.loc[evidence.counting["net_energy_kwh"] < 0, "run"]
    if len(below):
        yield (
            "Runs that used less than idle devices would have, so that their baseline is too high: "
            f"{listed(below, _MOST_NAMED)}."
        )


def _interrupted(evidence: Evidence) -> pd.DataFrame:
    runs = evidence.counting
    return runs[(runs["segments"] > 1) | (runs["discarded_energy_kwh"] > 0)]


def _names_of_single(evidence: Evidence) -> Iterable[str]:
    single = _single(evidence)["configuration"]
    if len(single):
        yield f"Of {evidence.counting['configuration'].nunique()}: {listed(single, _MOST_NAMED)}."


def _unequal(evidence: Evidence) -> Iterable[str]:
    if _scopes(evidence)["energy_scope"].nunique() > 1:
        yield UNEQUAL_SCOPES


def _covered(evidence: Evidence) -> Iterable[str]:
    whole = int((evidence.runs["coverage"] >= 1).sum())
    yield f"Runs whose power is known for all device seconds: {whole} of {len(evidence.runs)}."


def _lost(evidence: Evidence) -> Iterable[str]:
    lost = evidence.counting["discarded_energy_kwh"].fillna(0).sum()
    if lost > 0:
        yield f"Work repeated after a kill, a failure or a stop took {_kwh(lost)} of their energy."


_ROWS = {
    "missing": _missing,
    "excluded": lambda evidence: evidence.runs[evidence.runs["excluded"].notna()],
    "replaced": _replaced,
    "without_energy": _without_energy,
    "uncovered": _uncovered,
    "flags": _flags,
    "other_sources": _other_sources,
    "single": _single,
    "scopes": _scopes,
    "idle": _idle,
    "interrupted": _interrupted,
}
_SENTENCES = {
    "covered": _covered,
    "absent": _absent,
    "names_of_single": _names_of_single,
    "unequal": _unequal,
    "idle_sentences": _idle_sentences,
    "lost": _lost,
}
