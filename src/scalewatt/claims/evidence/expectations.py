"""What is expected of each claim, in one line that is built from the rows of the table of checks.

So the text beside a verdict cannot differ from what decides it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from scalewatt.claims.evidence.check_table import SPLIT, Check, read_checks, tolerances
from scalewatt.claims.evidence.claim_types import Claim
from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json

OTHER_CLAIMS = "claims"
"""The rule of a claim that holds where others do: `quantity` names them."""
_SIGNS = {
    ("0..", ""): "above 0",
    ("1..", ""): "above 1",
    ("..1", ""): "below 1",
}
_DEVIATIONS = ("constant", "energy_equivalent_on_h100", "linear_everywhere", "straight")
"""Rules whose upper bound is what a number may be off, as a part unless it has a unit."""
_FACTORS = ("constant", "energy_equivalent_on_h100")
"""Those that compare by ratios where there is no unit: downwards by the same factor."""
_FILLED_IN = re.compile(r" \([^()]*\{[^()]*\)")
_PLACES = {
    "n = {first}": "the smallest n",
    "n = {last}": "the largest n",
    "n = {best}": "the least of all others",
    "n = {node}": "a whole node",
    "{first}": "the fewest",
    "{last}": f"{SPLIT}",
    "{count}": "all",
}
_WORDS = {
    "all_gpu_counts": "GPU counts of the campaign: {exact}",
    "constant": "{what}: drift along n, and each point off the {mean}, within {high}{name}",
    "constant_gbs": "constant GBS: {exact}",
    "convex": "{what}: above 0 in every step",
    "each": "every {what}: {bounds}",
    "efficiency_after_quadrupling": "efficiency from the fewest GPUs to four times as many: {bounds}",
    "efficiency_falls_beyond": (
        f"efficiency at the largest n: {{bounds}}, and below that at the last n up to {SPLIT}"
    ),
    "energy_equivalent_on_h100": "energy of h100 over a100: off 1 by {high}{name}, in every pair",
    "epoch_of_finetuning_over_pretraining": "{what}: above 1 at every common n",
    "factors_differ": "mean P_GPUh of one model or device over that of another: {bounds}",
    "factors_at_equal_n": "P_GPUh of one model or device over that of another at equal n: {bounds}",
    "falls": "{what}: falling as a whole, no step back by more than {most}",
    "finetuning_over_pretraining": "{what}: above 1 at every common n",
    "gpu_counts": "GPU counts of the series: {exact}",
    "gpu_varies_more_than_cpu": "range of mean power of GPUs less that of CPU sockets: above 0",
    "knee": "Z500 RMSE: rises with GBS, and faster from a GBS in {bounds} on",
    "large_regime_is_shorter": "longest time of the large regime over the shortest of the small: below 1",
    "large_regime_is_worse": (
        "mean top-1 error of the large regime less that of the small: above 0, {bounds}"
    ),
    "large_regime_steeper_with_data": (
        "top-1 error of the large regime: above that of the small at the smallest common dataset, falling "
        "faster with data; datasets are common within {most}"
    ),
    "largest_ram_share": "largest share of RAM in the energy: {bounds}",
    "largest_setting": "largest {what}: {exact}",
    "least_at_node": "energy at a whole node: below every other",
    "linear_everywhere": (
        "energy (kWh) against GPU hours along every series: a straight line, neither bow nor a point off it "
        "by more than {high} of the rise{name}"
    ),
    "means_within": "mean P_GPUh of every series: {bounds}",
    "metric": "{what}: {exact}",
    "no_ram": "energy of RAM: null, not 0",
    "nodes": "GPUs and CPU sockets of a node: {exact}",
    "onset": "{what}: leaves its base by more than {most} at a GBS above {low}, up to {high}{name}",
    "points_within": "P_GPUh of every training{from}: {bounds}",
    "population_spread": (
        "population_sd over the root mean square deviation of repeats: 1, off by {bounds}"
    ),
    "power_falls_back": "5 % percentile of GPU power over its median: {bounds}",
    "power_higher_on_h100": "{what}: above 1 in every pair",
    "power_narrower_and_higher_on_h100": (
        "GPU power on a100 over h100: coefficient of variation above 1, mean below 1; 5 % percentile over "
        "median on h100 {bounds}"
    ),
    "power_narrower_on_h100": (
        "coefficient of variation of GPU power on a100 over h100: above 1; 5 % percentile over median on "
        "h100 {bounds}"
    ),
    "power_narrower_with_lower_batch": (
        "coefficient of variation of GPU power at the higher LBS over the lower: above 1"
    ),
    "profiles": "figure 5: 300 s of two runs on each device",
    "provenance": "recorded {what}: {exact}",
    "ram_shares_within": "{what}{from}: {bounds}",
    "rank": "{what}: Spearman's correlation {bounds}",
    "rank_of_all_points": "{what}: Spearman's correlation {bounds}, in every group",
    "rates_explain": (
        "mean error of P_GPUh, when one point is left out: raised by dropping samples per GPUh from both "
        "rates, and by dropping passes per GPUh"
    ),
    "rises": "{what}: rising as a whole, no step back by more than {most}",
    "same_slope_in_both_phases": "{what}: {bounds}",
    "sampling_period": "{what}: {exact}; between samples off by at most {most}",
    "saved_on_h100": "{what}, as a part: {bounds}, in every pair",
    "share_of_cpu": "{what}: {bounds}; where RAM is not known, with none and with {most} of it",
    "slope": "{what}: above 0",
    "slope_changes": "{what}: above 0",
    "stagnates": (
        "top-1 error: falling in the first three doublings of the data, in the last two by less than {most} "
        "of that slope"
    ),
    "steeper_on_h100": (
        "energy against GPU hours at constant GBS: a straight line on each device, off it by at most "
        "{most} of the rise; slope of h100 over a100 above 1"
    ),
    "straight": (
        "{what}: a straight line, neither bow nor a point off it by more than {high} of the rise{name}"
    ),
    "sum_of_parts": "energy over the sum of GPU, CPU and RAM: 1, off by {bounds}",
    "sum_of_powers": "P_GPUh over the sum of mean powers of a GPU's share: 1, off by {bounds}",
    "updates_per_epoch": "updates per GPU and epoch: {exact} everywhere",
    "versions": "versions: {exact}",
    "whole_node": "runs on a part of a node: all its CPU sockets are counted",
    "without_loading": "without loading GPU power rises and energy falls",
    "work": (
        "updates times GPUs times LBS over the samples of all epochs: off by less than a batch an "
        "epoch{name}"
    ),
}
"""What the rules expect; of others it is `{what}: {bounds}`, or the exact value."""


def expected_of(claim: Claim) -> str:
    """Return what is expected for a claim to be supported; of one without a check its value."""
    checks = read_checks().get(claim.id)
    if checks is None:
        return f"{claim.quantity}: {claim.value}" if claim.value else claim.text
    return expected_by(checks)


def expected_by(checks: Sequence[Check]) -> str:
    """Return what the rows of a claim expect together, each once."""
    by_model = {
        model: _once(_phrase(check) for check in checks if check.model == model)
        for model in dict.fromkeys(check.model for check in checks)
    }
    if len({tuple(phrases) for phrases in by_model.values()}) == 1:
        built = "; ".join(next(iter(by_model.values())))
    else:
        built = "; ".join(f"{model}: {'; '.join(each)}" for model, each in by_model.items())
    own = checks[0].expected_text
    return own.replace("{built}", built) if own else built


def _once(phrases: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(phrases))


def _phrase(check: Check) -> str:
    """Return what one row expects."""
    if check.rule == OTHER_CLAIMS:
        others = check.quantity.split(";")
        return "; ".join(f"{id_}: {expected_by(read_checks()[id_])}" for id_ in others)
    low, high = _ends(check)
    words = {
        "what": _what(check),
        "bounds": _bounds(check),
        "low": low,
        "high": high,
        "name": _named(check.expects),
        "mean": "mean" if check.unit else "geometric mean",
        "most": _most(check),
        "exact": _exact(check),
        "from": f" from {check.n} GPUs on" if check.n else "",
    }
    template = _WORDS.get(check.rule)
    if template is None:
        template = "{what}: {bounds}" if words["bounds"] else "{what}: {exact}"
    return template.format(**words)


def _what(check: Check) -> str:
    """Return what the detail calls the number, with words for what it fills in."""
    text = _FILLED_IN.sub("", check.text) or check.quantity.replace(";", " and ").replace("_", " ")
    for place, words in _PLACES.items():
        text = text.replace(place, words)
    return text.replace("{n}", check.n)


def _range(check: Check) -> str:
    """Return what `expects` says, by the tolerance that it names if it names one."""
    named = tolerances().get(check.expects)
    return check.expects if named is None else named.expects


def _ends(check: Check) -> tuple[str, str]:
    """Return both bounds of a range as they are written; a largest deviation in per cent, or its unit."""
    low, _, high = _range(check).partition("..")
    if check.rule in _DEVIATIONS:
        high = _deviation(check, float(high))
    return low, high


def _deviation(check: Check, most: float) -> str:
    if check.rule in _FACTORS:
        return f"± {most:g} {check.unit}" if check.unit else by_factor(most)
    return f"{most:g} {check.unit}" if check.unit else _percent(most)


def by_factor(most: float) -> str:
    """Return in per cent what a factor of at most 1 + `most` is, down and up."""
    return f"{100 * (1 / (1 + most) - 1):.2g} to {100 * most:+g} %"


def _bounds(check: Check) -> str:
    """Return the bounds in words, with the tolerance's name; empty where there are none."""
    unit = f" {check.unit}" if check.unit else ""
    if (sign := _SIGNS.get((check.expects, check.margin))) is not None:
        return f"{sign}{unit}"
    if " +- " in check.expects:
        value, _, name = check.expects.partition(" +- ")
        return f"{value}{unit} ± {tolerances()[name].expects.removeprefix('+-')} ({name})"
    if ".." not in _range(check):
        return ""
    low, high = _ends(check)
    if not low:
        found = f"at most {high}{unit}"
    elif not high:
        found = f"at least {low}{unit}"
    else:
        found = f"{low} to {high}{unit}"
    room = f", and {_most(check)} beyond both bounds" if check.expects not in tolerances() else ""
    return f"{found}{_named(check.expects)}{room}"


def _named(name: str) -> str:
    return f" ({name})" if name in tolerances() else ""


def _most(check: Check) -> str:
    """Return what `margin` allows, with its name; empty without one."""
    named = tolerances().get(check.margin)
    if named is None:
        return ""
    if named.expects.startswith("+-"):
        return f"{named.expects.removeprefix('+-')} ({named.name})"
    most = check.most
    shown = f"{most:g} s" if check.rule == "sampling_period" else _percent(most)
    return f"{shown} ({named.name})"


def _percent(part: float) -> str:
    return f"{100 * part:g} %"


def _exact(check: Check) -> str:
    """Return an exact value in words; empty where `expects` is none."""
    if not check.expects:
        return ""
    try:
        return _in_words(parse_json(check.expects))
    except (InputError, ValueError):
        return ""


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        inner = [
            " to ".join(map(str, one)) if isinstance(one, list) else _in_words(one) for one in value
        ]
        return ", ".join(inner)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
