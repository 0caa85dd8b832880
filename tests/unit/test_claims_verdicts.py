"""Every claim on studies in which it holds, does not, or is open, on the published rows, in special cases.

No number here was measured: the studies are made up, the published rows are the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from campaign_files import DEMO, PAPER
from claims_cases import (
    CASES,
    IDS,
    NARROW,
    PRE,
    VIOLATED,
    WIDE,
    in_parts,
    like_a100,
    on_a100,
    on_h100,
    sizes_of,
    traced,
    with_columns,
)
from claims_expected import IDENTITIES, NO, OPEN, UNTESTED, YES, agree, expected
from claims_made import CHECKED_KINDS, changed, evidence, line, row, runs_of, stat
from claims_resnet_made import (
    Change,
    at,
    becoming,
    both,
    dropping,
    noisy,
    resnet_world,
    times,
)
from claims_setting_cases import (
    MADE,
    PACKAGES,
    SETTING_CASES,
    F,
    R,
    finished,
    paper,
    provenance,
    run,
    specified,
    with_runs,
)
from claims_study import (
    Case,
    Numbers,
    fourcastnet,
    judged,
    short,
    study,
    trace,
)

from scalewatt.campaign.campaign_types import VARIED
from scalewatt.campaign.load import load_campaign
from scalewatt.claims.evidence import Evidence, Point, Trace
from scalewatt.claims.load_evidence import published_evidence, with_points
from scalewatt.claims.reference_tables import SPECIFIED_KINDS, read_claims

ALL = {**CASES, **SETTING_CASES}
NEVER_OPEN = {"F02", *SETTING_CASES}
"""Claims on exact numbers."""


@pytest.fixture(scope="module")
def published() -> Evidence:
    return published_evidence()


def check(id_: str, given: Evidence, verdict: str, *texts: str) -> None:
    decided = judged(id_, given)
    agree(decided, expected(id_, verdict))
    assert decided.detail.endswith((".", ".)")) and "None" not in decided.detail
    for text in texts:
        assert text in decided.detail


# --- each claim ---------------------------------------------------------------------------------


def test_every_claim_has_its_cases() -> None:
    kinds = (*CHECKED_KINDS, "hypothesis", *SPECIFIED_KINDS)
    ids = {claim.id for claim in read_claims() if claim.kind in kinds}
    assert set(ALL) | IDENTITIES == ids
    assert {id_ for id_, cases in ALL.items() if cases.unresolved is None} == NEVER_OPEN


@pytest.mark.parametrize(
    ("id_", "verdict", "case"),
    [(id_, verdict, case) for id_, cases in ALL.items() for verdict, case in cases.all()],
)
def test_a_study_gets_the_verdict_it_was_made_for(id_: str, verdict: str, case: Case) -> None:
    check(id_, case(), verdict)


def test_what_is_made_of_the_same_numbers_is_no_test() -> None:
    for id_ in IDENTITIES:
        check(id_, with_runs(*(run(repeat=i, mean_gpu_power_w=195.0) for i in (1, 2)))(), YES)


@pytest.mark.parametrize("id_", [*ALL, *sorted(IDENTITIES)])
def test_without_results_nothing_can_be_tested(id_: str) -> None:
    for nothing in (Evidence("nothing"), finished(load_campaign(PAPER), ())):
        decided = judged(id_, nothing)
        assert decided.verdict == UNTESTED and len(decided.detail) >= 20


# --- the same study elsewhere ---------------------------------------------------------------------


def everywhere(world: Evidence, **columns: Any) -> Evidence:
    return with_columns(world, lambda _: columns)


def moved(world: Evidence, device: str, *modes: str) -> Evidence:
    """The study with its lines of A100, or those of ResNet50 in these modes, on another device."""
    lines = (
        replace(ln, device=device)
        if ln.device == "a100" and (not modes or (ln.model == R and ln.mode in modes))
        else ln
        for ln in world.lines
    )
    moved_world = replace(world, lines=tuple(lines))
    devices = {point.id: ln.device for ln in moved_world.lines for point in ln.points}
    return with_columns(moved_world, lambda p: {"device": devices[p.id]})


OF_THE_PAPERS_DEVICE = {"D08", "D09", "D11", "D12", "D13", "D14", "F06", "F14", "F15", "F16", "F17"}


@pytest.mark.parametrize("id_", VIOLATED)
def test_a_study_on_another_device_tests_what_is_portable_only(id_: str) -> None:
    expected = UNTESTED if id_ in OF_THE_PAPERS_DEVICE else YES
    check(id_, moved(resnet_world(), "b200"), expected)


@pytest.mark.parametrize(("id_", "verdict"), [("H03", YES), ("H09", YES), ("T2", UNTESTED)])
def test_a_portable_claim_of_fourcastnet_is_checked_on_other_devices(
    id_: str, verdict: str
) -> None:
    check(id_, moved(study(), "local"), verdict)


NUMBERS_OF_THE_PAPER = {
    resnet_world: ("D08", "D12", "D13", "D17", "D18", "D19", "F06", "F14", "F17"),
    study: ("G10", "T1", "H17", "H05", "H04", "H16", "K01", "K02", "K03", "L01", "L02", "L03"),
}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"epochs": 19}, "19 epochs"),
        ({"protocol": "corrected"}, "protocol corrected"),
        ({"precision": "bf16"}, "precision bf16"),
        ({"loader": "synthetic"}, "synthetic data"),
    ],
)
@pytest.mark.parametrize(
    ("world", "id_"), [(world, id_) for world, ids in NUMBERS_OF_THE_PAPER.items() for id_ in ids]
)
def test_another_training_than_the_papers_tests_no_number_of_the_papers(
    world: Case, id_: str, columns: dict[str, Any], text: str
) -> None:
    check(id_, everywhere(world(), **columns), UNTESTED, text)


FROM_RATED = {
    resnet_world: ("A01", "A02", "A03", "D10", "D15", "D16", "E08", "F07", "F19"),
    study: ("H11", "H16", "T9", "K01", "K05", "K07", "K10", "L02"),
}


@pytest.mark.parametrize(
    ("world", "id_"), [(world, id_) for world, ids in FROM_RATED.items() for id_ in ids]
)
def test_energies_from_rated_powers_decide_no_ratio_to_time(world: Case, id_: str) -> None:
    given = everywhere(world(), energy_origin="estimated")
    check(id_, given, UNTESTED, "would test the cluster file")


def mixed(world: Case, origin: str, where: Callable[[Point], bool]) -> Case:
    """The study with another origin of the energy at some points."""
    return lambda: with_columns(world(), lambda p: {"energy_origin": origin} if where(p) else {})


def is_fine(point: Point) -> bool:
    return point.phase == "finetune"


def on_h100s(point: Point) -> bool:
    return point.device == "h100"


# --- further cases --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Further:
    """A special case of some claims."""

    ids: str
    case: Case
    verdict: str
    texts: tuple[str, ...] = ()


def on_resnet(change: Change) -> Case:
    return lambda: change(resnet_world())


def two_scopes(cpu_share: float) -> Case:
    """A training on A100 with memory in its energy, and on H100 without, with 0.8 of its power."""
    kwh = {"energy_kwh": 10.0, "gpu_energy_kwh": 5.0, "cpu_energy_kwh": 10 * cpu_share}
    values = {
        "a100": {n: {"p_gpuh_kw": 0.3, **kwh} for n in (4, 8, 16)},
        "h100": {n: {"p_gpuh_kw": 0.24} for n in (4, 8, 16)},
    }
    lines = [line(R, "train", device, "fd_lbs", 256, by_n) for device, by_n in values.items()]
    return lambda: evidence(lines)


def two_devices(id_: str, *modes: str) -> Case:
    """The claim's study on one other device, and one that violates it on another."""

    def build() -> Evidence:
        first = moved(resnet_world(), "b200", *modes)
        contrary = moved(VIOLATED[id_](resnet_world()), "c300", *modes)
        return evidence([*first.find(R), *contrary.find(R, device="c300")])

    return build


AGAINST: Numbers = {
    16: (800, 160, 150, 740),
    32: (700, 150, 160, 900),
    64: (600, 140, 170, 1100),
}


def with_line(mode: str, constant: int, **columns: Any) -> Case:
    """The study and a series in which nothing holds that holds in the others."""
    other = fourcastnet(mode, constant, AGAINST)
    points = tuple(
        replace(p, row={**p.row, **columns, "configuration": f"{p.id}-other"}) for p in other.points
    )
    alike = replace(other, name="other", points=points)
    return lambda: with_points(replace(study(), lines=(*study().lines, alike)))


def table1_twin(energy: float) -> Case:
    """The study with one more run of a row of Table 1, of another setting."""
    twin = next(p for p in study().points if sizes_of(p) == (4, 4, 16) and p.device == "h100")
    other = {**twin.row, "configuration": f"{twin.id}-loader_workers8"} | stat("energy_kwh", energy)
    return lambda: replace(study(), points=(*study().points, replace(twin, row=other)))


def ram_elsewhere(only: bool) -> Case:
    """A large share of memory on another machine, beside the study or alone."""
    point = next(p for p in study().points if p.gpus == 4 and p.device == "a100")
    cells = {**point.row, "configuration": "other", "device": "local"} | stat(
        "ram_energy_share", 0.2
    )
    other = replace(point, row=cells)
    return lambda: replace(study(), points=(other,) if only else (*study().points, other))


def windowed(*traces: Trace, seconds: int = 1) -> Case:
    return traced(*traces, trace_metadata={"options": {"power_window_s": seconds}})


def changed_trace(original: Trace, **columns: Any) -> Trace:
    return replace(original, row={**original.row, **columns})


def gpu_power(watts: float | None) -> Case:
    """Traces of both devices, and another mean GPU power on H100."""

    def build() -> Evidence:
        runs = None if watts is None else 1
        where: Callable[[Point], bool] = lambda p: p.id == IDS[F, "h100"]  # noqa: E731
        given = changed(study(), where, n_repeats=runs, mean_gpu_power_w=lambda p: watts)
        return replace(given, traces=(on_a100(WIDE), on_h100(NARROW)))

    return build


def provenances(*given: dict[str, Any]) -> Case:
    """Several finished runs of FourCastNet, with these provenances."""
    id_ = next(i for i, spec in paper().specs.items() if spec.model == F)
    made = {(id_, repeat): recorded for repeat, recorded in enumerate(given, 1)}
    return lambda: replace(paper(), provenance=made)


def sockets(part_kwh: float, whole_kwh: float) -> Case:
    """CPU energies of runs on a part of a node and on all of it, of a machine that is not the paper's."""
    local = {"device": "local", "runtime_h": 1.0, "mean_cpu_socket_power_w": 100.0}
    points = tuple(
        Point(row(configuration=f"{n}", device="local", gpus=n, nodes=1)) for n in (1, 4)
    )
    runs = [run(**local, gpus=n, cpu_energy_kwh=kwh) for n, kwh in ((1, part_kwh), (4, whole_kwh))]
    return lambda: Evidence("made", runs=runs_of(runs), points=points)


def sampled(seconds: float, options: dict[str, Any] | None = None) -> Case:
    """The paper's campaign and a panel of figure 5 with samples so far apart."""
    panel = trace("one", "a100", 4, [200.0] * 20)
    panel = replace(panel, time_s=tuple(seconds * second for second in panel.time_s))
    return lambda: replace(paper(), traces=(panel,), trace_metadata={"options": options or {}})


def demo() -> Evidence:
    return finished(load_campaign(DEMO))


def some_finished() -> Evidence:
    return finished(load_campaign(PAPER), ("resnet50-full-lbs256",))


def varied_seeds() -> Evidence:
    campaign = load_campaign(PAPER)
    id_ = next(
        i for i, configuration in campaign.configurations.items() if configuration.model == R
    )
    configuration = replace(campaign.configurations[id_], seeds=VARIED)
    changed_one = replace(campaign, configurations={**campaign.configurations, id_: configuration})
    return finished(changed_one)


FALLING = [60.0 if second % 50 < 10 else 250.0 for second in range(300)]
FEW_FALLS = [60.0 if second % 100 < 10 else 250.0 for second in range(300)]
OFF = [0.0] * 300
RANDOM = Random(1)
INSTANTS: list[float | None] = [RANDOM.choice([100.0, 400.0]) for _ in range(600)]
CALM: list[float | None] = [250.0 + 5 * (-1) ** (second // 10) for second in range(600)]

FURTHER: dict[str, Further] = {
    # Energies of several origins and scopes.
    "origins of several points": Further(
        "D05 D06 D16", mixed(resnet_world, "estimated", lambda p: p.gpus > 16), UNTESTED
    ),
    "rated powers among each other": Further(
        "D05",
        mixed(resnet_world, "estimated", lambda p: True),
        OPEN,
        ("an estimate with an interval, or a sensor, would tell", "the energy: estimated."),
    ),
    "origins of two phases": Further(
        "H11", mixed(study, "simulated", is_fine), UNTESTED, ("measured, simulated",)
    ),
    "origins of two devices, energies": Further(
        "T8 T9", mixed(study, "simulated", on_h100s), UNTESTED, ("several origins",)
    ),
    "factors by what both have": Further(
        "A02", two_scopes(0.3), NO, ("is 1 ", "(gpu+cpu of both, points: 3, 3)")
    ),
    "factors that differ by what both have": Further("A02", two_scopes(0.5), YES),
    # 0.2745/0.2157 kW is 1.27 of the totals; without a memory of 20 % of the A100's it is 1.59.
    "powers without the memory of one": Further(
        "T9", in_parts(study, 0.2), YES, ("over gpu+cpu, which all have", "1.591")
    ),
    "memory elsewhere counts alone": Further("K06", ram_elsewhere(True), NO),
    # Order, noise and missing points.
    "least within the spread": Further(
        "D07",
        on_resnet(
            both(
                noisy("fd_lbs", "energy_kwh", spread=0.05),
                becoming("fd_lbs", "energy_kwh", {2: 24.9, 8: 24.9}, spread=0.05),
            )
        ),
        OPEN,
    ),
    "a regime is missing": Further(
        "E03 E04 E05 E06 E08 E09", on_resnet(dropping("fd_gbs_l")), UNTESTED, ("fd_gbs_l",)
    ),
    "the single GPU is missing": Further("D10", on_resnet(dropping("fd_lbs", 1)), OPEN),
    "an energy of 0": Further("F20", on_resnet(times("sd_lbs", 16, energy_kwh=0.0)), UNTESTED),
    # Devices.
    "regimes of two devices": Further(
        "E04 E06", lambda: moved(resnet_world(), "b200", "fd_gbs_l"), UNTESTED
    ),
    "regimes of every other device": Further("E06", two_devices("E06", "fd_gbs_s", "fd_gbs_l"), NO),
    # Onsets and knees.
    "an onset beyond the last point": Further("H05", short(PRE, 4), OPEN, ("points at GBS 64",)),
    # Series and runs of the same sizes.
    "a series alike that is not the paper's, GBS": Further(
        "H14 H15 H16 H19 K08", in_parts(with_line("fd_gbs_l", 64, loader="synthetic")), YES
    ),
    "another setting with another energy": Further(
        "T1", table1_twin(300.0), NO, ("loader_workers8",)
    ),
    "a pair without energy": Further(
        "T9",
        lambda: changed(
            in_parts(study)(),
            lambda p: sizes_of(p) == (32, 1, 32),
            **dict.fromkeys(("energy_kwh", "gpu_energy_kwh", "cpu_energy_kwh"), lambda p: None),
        ),
        YES,
        ("is not known",),
    ),
    "other trainings are no pairs": Further(
        "T7 T8 T9",
        lambda: everywhere(study(), protocol="corrected"),
        UNTESTED,
        ("as in the paper",),
    ),
    "energies that differ by less": Further("T8", in_parts(like_a100(1.047)), OPEN),
    # Power against time.
    "falls on H100": Further(
        "J03", traced(on_a100(WIDE), on_h100(FALLING)), NO, ("expected at least 0.8",)
    ),
    "few falls on H100": Further(
        "J03", traced(on_a100(WIDE), on_h100(FEW_FALLS)), OPEN, ("is 0.24 (",)
    ),
    "power that was not measured": Further(
        "J02", traced(changed_trace(on_a100(WIDE), energy_origin="estimated")), UNTESTED
    ),
    "no falls of means": Further(
        "J02", windowed(on_a100(NARROW)), UNTESTED, ("samples are needed",)
    ),
    "the scatter of instants alone": Further(
        "J03",
        traced(on_a100(INSTANTS), on_h100(CALM)),
        OPEN,
        ("Without what instants may make it is contradicted",),
    ),
    "power of 0 on both": Further("J03", traced(on_a100(OFF), on_h100(OFF)), UNTESTED),
    "a lower mean on H100": Further("L06", gpu_power(100.0), NO),
    # What a campaign sets.
    "another campaign departs": Further(
        "C04",
        demo,
        UNTESTED,
        ("Epochs: 5 in resnet50-local", "expected 100", "none of the paper's"),
    ),
    "finished series count": Further("C04 D02", some_finished, YES),
    "series without a finished run": Further(
        "F09", some_finished, UNTESTED, ("No finished run of resnet50",)
    ),
    "a seed of its own for each repeat": Further(
        "C09", varied_seeds, NO, ("seeds of their own; one is claimed",)
    ),
    "specs that lack settings": Further(
        "C05 C06 C07 C08 C09",
        specified(lambda s: s.model == R, lambda s: replace(s, settings={}, seed=None)),
        UNTESTED,
    ),
    # What runs recorded.
    "another version in the last run": Further(
        "B05",
        provenances(MADE, MADE | {"packages": PACKAGES | {"torch": "2.8.0"}}),
        NO,
        ("torch 2.8.0 in place of 2.7.0",),
    ),
    "another CUDA": Further("B05", provenance(cuda="12.2"), NO, ("CUDA 12.2 in place of 12.6",)),
    "an unknown part of the total": Further("B02", with_runs(run(gpu_energy_kwh=None)), UNTESTED),
    "a single run": Further("C10", with_runs(run()), UNTESTED),
    "fewer sockets than the whole node": Further("C12", sockets(0.1, 0.2), NO),
    "samples too far apart": Further("B01", sampled(2.0), NO, ("2.000 s",)),
}


@pytest.mark.parametrize(
    ("name", "id_"),
    [(name, id_) for name, further in FURTHER.items() for id_ in further.ids.split()],
)
def test_a_special_case_gets_its_verdict(name: str, id_: str) -> None:
    further = FURTHER[name]
    decided = judged(id_, further.case())
    agree(decided, expected(id_, further.verdict))
    for text in further.texts:
        assert text in decided.detail


def test_a_single_run_has_the_published_spread() -> None:
    single = changed(
        resnet_world(), at("fd_lbs", 1), n_repeats=1, cpu_energy_kwh=lambda p: 18.9 * 1.045
    )
    check("D08", single, OPEN, "ResNet50's published repeats")


# --- what explains P ------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.1, 0.25])
def test_one_factor_everywhere_leaves_open_what_explains_it(factor: float) -> None:
    given = changed(resnet_world(), lambda p: True, spread=0.0, p_gpuh_kw=lambda p: factor)
    assert judged("A03", given).verdict == OPEN
