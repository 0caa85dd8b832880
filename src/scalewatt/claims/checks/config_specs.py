"""Claims on how trainings are set up: exact values in the specs of a campaign's configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from scalewatt.claims.evidence.claim_types import NOT_REPRODUCED, REPRODUCED, NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Row
from scalewatt.claims.rules.spec_checks import begun, has_mode, setting, specs_of, training_samples

Read = Callable[[Row], Any]
ALL_COUNTS = [2**k for k in range(9)]


@dataclass(frozen=True)
class Wanted:
    """What specs of a kind must say."""

    what: str
    value: Any
    read: Read
    model: str | None = None
    phase: str | None = None
    mode: str | None = None
    device: str | None = None


def _setting(*names: str) -> Read:
    """One setting, or a tuple of several; null where a spec lacks it."""

    def read(spec: Row) -> Any:
        found = tuple(spec["settings"].get(name) for name in names)
        return found[0] if len(names) == 1 else found

    return read


def _key(name: str) -> Read:
    return lambda spec: spec.get(name)


def _data(*names: str) -> Read:
    def read(spec: Row) -> Any:
        found = tuple(spec["dataset"].get(name) for name in names)
        return found[0] if len(names) == 1 else found

    return read


def _years(spec: Row) -> Any:
    found = [spec["dataset"].get(f"{part}_years") for part in ("train", "validation", "test")]
    return None if None in found else tuple(tuple(years) for years in found)


def _degrees(spec: Row) -> Any:
    """Degrees between grid points."""
    grid = spec["dataset"].get("grid")
    return None if not grid else (360 / grid[1], 180 / grid[0])


def _validation(spec: Row) -> Any:
    """Samples of the validation set over the part of the dataset that is used, rounded."""
    samples = spec["validation_samples"]
    whole = spec["dataset"].get("validation_samples")
    if samples is None or whole is None:
        return None
    fits = samples == int(whole * Fraction(spec["dataset_fraction"]))
    return whole if fits else f"{samples} of {whole}"


def _per_gpu(spec: Row) -> Any:
    """5004 where a GPU's samples are within one of it, and the LBS."""
    samples = spec["dataset_samples"]
    if samples is None:
        return None
    each = samples / spec["gpus"]
    return (5004 if abs(each - 5004) <= 1 else round(each, 1), spec["local_batch_size"])


def _parent(spec: Row) -> Any:
    """LBS, and whether the weights are those of the same GPUs' pre-training."""
    start = spec.get("initial_weights")
    name = str(start["configuration"]) if start else ""
    same = f"-n{spec['gpus']:03d}-lbs{spec['local_batch_size']:04d}-" in name
    return (spec["local_batch_size"], same and "pretrain" in name)


def _batch(spec: Row) -> Any:
    fits = spec["local_batch_size"] * spec["gpus"] == spec["global_batch_size"]
    return spec["global_batch_size"] if fits else None


RESNET = {"model": "resnet50"}
NET = {"model": "fourcastnet"}
WANTED: dict[str, Wanted] = {
    "B01": Wanted("sampling period in s", 1, _key("sampling_period_s")),
    "C01": Wanted("training samples of the full dataset", 1281167, training_samples, **RESNET),
    "C02": Wanted("validation samples (scaled alike)", 50000, _validation, **RESNET),
    "C03": Wanted("classes", 1000, _data("classes"), **RESNET),
    "C04": Wanted("epochs", 100, _key("epochs"), **RESNET),
    "C05": Wanted("warm-up epochs", 5, _setting("warmup_epochs"), **RESNET),
    "C06": Wanted(
        "plateau's factor and patience",
        (0.5, 5),
        _setting("plateau_factor", "plateau_patience"),
        **RESNET,
    ),
    "C07": Wanted(
        "weight decay and momentum", (1e-4, 0.9), _setting("weight_decay", "momentum"), **RESNET
    ),
    "C08": Wanted("loader workers a rank", 4, _setting("loader_workers"), **RESNET),
    "D01": Wanted("LBS", 256, _key("local_batch_size"), mode="fd_lbs", **RESNET),
    "F01": Wanted("samples a GPU and LBS", (5004, 256), _per_gpu, mode="sd_lbs", **RESNET),
    "G01": Wanted(
        "years of training, validation and test",
        ((1979, 2015), (2016, 2017), (2019, 2019)),
        _years,
        **NET,
    ),
    "G02": Wanted(
        "degrees of the grid (of 20 variables, by its code)", (0.25, 0.25), _degrees, **NET
    ),
    "G03": Wanted(
        "epochs and learning rate",
        (80, 5e-4),
        lambda spec: (spec["epochs"], spec["settings"].get("learning_rate")),
        phase="pretrain",
        mode="fd",
        **NET,
    ),
    "G04": Wanted(
        "epochs and learning rate",
        (50, 1e-4),
        lambda spec: (spec["epochs"], spec["settings"].get("learning_rate")),
        phase="finetune",
        mode="fd",
        **NET,
    ),
    "G06": Wanted("forecasts in the error", 36, _setting("initial_conditions"), **NET),
    "H02": Wanted(
        "LBS, and weights of the matching pre-training",
        (1, True),
        _parent,
        phase="finetune",
        mode="fd_lbs",
        **NET,
    ),
}
COUNTS: dict[str, tuple[str, str, str, int, list[int]]] = {
    "D02": ("resnet50", "train", "fd_lbs", 256, ALL_COUNTS),
    "E01": ("resnet50", "train", "fd_gbs_s", 256, ALL_COUNTS[:5]),
    "E02": ("resnet50", "train", "fd_gbs_l", 8192, ALL_COUNTS[5:]),
    "F08": ("resnet50", "train", "sd_gbs_s", 256, ALL_COUNTS[:5]),
    "F09": ("resnet50", "train", "sd_gbs_l", 8192, ALL_COUNTS[5:]),
    "H01": ("fourcastnet", "pretrain", "fd_lbs", 1, ALL_COUNTS[2:]),
}
"""Model, phase and mode of a series, its constant batch size, and its GPU counts."""


def exactly(
    what: str, wanted: Any, found: Sequence[tuple[str, Any]], noun: str = "configuration"
) -> Outcome:
    """Whether all configurations (or runs) say the wanted value; those that say nothing leave it open."""
    unsaid = [id_ for id_, value in found if value is None or (_is_list(value) and None in value)]
    others = [(id_, value) for id_, value in found if value != wanted and id_ not in unsaid]
    if others:
        id_, value = others[0]
        return Outcome(
            NOT_REPRODUCED,
            _text(value),
            f"{_capital(what)}: {_text(value)} in {id_}, and in {len(others)} of "
            f"{_counted(len(found), noun)} another value than {_text(wanted)}.",
        )
    if unsaid:
        raise NotTestable(f"{_capital(what)}: {len(unsaid)} of {len(found)} do not say it.")
    return Outcome(
        REPRODUCED,
        _text(wanted),
        f"{_capital(what)}: {_text(wanted)} in {'all ' if found[1:] else ''}"
        f"{_counted(len(found), noun)}.",
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _text(value: Any) -> str:
    if _is_list(value):
        return ", ".join(_text(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _said(wanted: Wanted, evidence: Evidence) -> Outcome:
    specs = specs_of(evidence, wanted.model, wanted.phase, wanted.mode, wanted.device)
    found = [(spec["configuration"], wanted.read(spec)) for spec in specs]
    return exactly(wanted.what, wanted.value, found)


for _id, _wanted in WANTED.items():
    if _id != "B01":
        setting(_id, model=_wanted.model)(partial(_said, _wanted))


def sampling_period(evidence: Evidence) -> Outcome:
    """What the specs say of B01."""
    return _said(WANTED["B01"], evidence)


def _counts(id_: str, evidence: Evidence) -> Outcome:
    model, phase, mode, batch, counts = COUNTS[id_]
    specs = specs_of(evidence, model, phase, mode)
    is_local = mode.endswith("lbs")
    sizes = {spec["local_batch_size"] if is_local else _batch(spec) for spec in specs}
    found = sorted({spec["gpus"] for spec in specs})
    word = "LBS" if is_local else "GBS"
    shown = f"{word} {_text(sorted(map(str, sizes)))}, n = {_text(found)}"
    holds = sizes == {batch} and found == counts
    claimed = "" if holds else f"; claimed are {word} {batch}, n = {_text(counts)}"
    return Outcome(REPRODUCED if holds else NOT_REPRODUCED, shown, f"{shown}{claimed}.")


for _id in COUNTS:
    setting(_id, model=COUNTS[_id][0])(partial(_counts, _id))


@setting("A04")
def all_counts(evidence: Evidence) -> Outcome:
    """The GPU counts of the whole campaign are the powers of two from 1 to 256."""
    found = sorted({spec["gpus"] for spec in specs_of(evidence)})
    holds = found == ALL_COUNTS
    claimed = "" if holds else f"; claimed are {_text(ALL_COUNTS)}"
    detail = f"The campaign has n = {_text(found)}{claimed}."
    return Outcome(REPRODUCED if holds else NOT_REPRODUCED, _text(found), detail)


GBS = {"H12": ("a100", {64}), "H13": ("h100", {16, 32})}


def _constant_batches(id_: str, evidence: Evidence) -> Outcome:
    """Series at constant GBS of two counts and more; Table 1's single points are none."""
    device, wanted = GBS[id_]
    sizes = {
        line.constant
        for line in begun(evidence, evidence.lines)
        if (line.model, line.phase, line.device) == ("fourcastnet", "pretrain", device)
        and has_mode(line.mode, "fd_gbs")
        and len(line.planned) > 1
    }
    if not sizes:
        raise NotTestable(f"No finished pre-training in a series at constant GBS on {device}.")
    found = sorted(size for size in sizes if size is not None)
    detail = (
        f"Series at constant GBS on {device}: {_text(found)}; claimed: {_text(sorted(wanted))}."
    )
    return Outcome(REPRODUCED if sizes == wanted else NOT_REPRODUCED, _text(found), detail)


for _id in GBS:
    setting(_id, **NET)(partial(_constant_batches, _id))


@setting("C09", **RESNET)
def five_repeats(evidence: Evidence) -> Outcome:
    """Every configuration of ResNet50 is repeated five times with one seed."""
    specs = specs_of(evidence, **RESNET)
    found = [(s["configuration"], _repeats(evidence, s["configuration"])) for s in specs]
    seeds = {spec["seed"] for spec in specs}
    if None in seeds:
        raise NotTestable("Repeats with one seed: the seed is not known of all configurations.")
    if len(seeds) > 1:
        detail = f"Seeds are {_text(sorted(map(str, seeds)))}; one is claimed."
        return Outcome(NOT_REPRODUCED, _text(sorted(map(str, seeds))), detail)
    return exactly("repeats, all with one seed", 5, found)


@setting("G12", **NET)
def single_runs(evidence: Evidence) -> Outcome:
    """Every configuration of FourCastNet but the probe runs once."""
    specs = specs_of(evidence, mode="fd", **NET)
    found = [(s["configuration"], _repeats(evidence, s["configuration"])) for s in specs]
    return exactly("runs of each configuration but the probe's", 1, found)


@setting("G07", **NET)
def probe(evidence: Evidence) -> Outcome:
    """The probe: 64 GPUs, LBS 1, GBS 64, 20 epochs, 3 runs."""
    specs = specs_of(evidence, phase="pretrain", mode="probe", **NET)
    names = ("gpus", "local_batch_size", "global_batch_size", "epochs")
    found = [
        (
            spec["configuration"],
            (*(spec[name] for name in names), _repeats(evidence, spec["configuration"])),
        )
        for spec in specs
    ]
    return exactly("GPUs, LBS, GBS, epochs and runs", (64, 1, 64, 20, 3), found)


@setting("G11", **NET)
def largest_batch(evidence: Evidence) -> Outcome:
    """The largest LBS of FourCastNet on A100 is 4."""
    specs = specs_of(evidence, device="a100", **NET)
    largest = max(spec["local_batch_size"] for spec in specs)
    detail = f"The largest LBS on a100 is {largest} in {len(specs)} configurations; claimed is 4."
    return Outcome(REPRODUCED if largest == 4 else NOT_REPRODUCED, str(largest), detail)


def _repeats(evidence: Evidence, configuration: str) -> int | None:
    return None if evidence.campaign is None else evidence.campaign.repeats.get(configuration)
