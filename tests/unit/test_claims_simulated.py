"""Claims on simulated results: what was assumed is not testable, the rest follows from the model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from campaign_files import PAPER, ROOT, workflow_in
from claims_cases import OF_FOURCASTNET, OF_POWER
from claims_expected import YES, agree, expected
from claims_made import changed, without
from claims_resnet_made import resnet_world
from claims_setting_cases import SETTING_CASES
from claims_study import Cases, ids, study
from simulated_runs import campaign, simulate, spec_of

from scalewatt.campaign.table_requests import runs_definition
from scalewatt.claims.check_claims import basis, verdicts
from scalewatt.claims.evidence.check_table import read_checks
from scalewatt.claims.evidence.claim_types import (
    BY_CONSTRUCTION,
    CHECKED_KINDS,
    INCONSISTENCY,
    NOT_TESTABLE,
    SET_UP,
    SUPPORTED,
    Verdict,
    read_claims,
)
from scalewatt.claims.evidence.evidence import Evidence, Point, Row
from scalewatt.claims.evidence.expectations import expected_of
from scalewatt.claims.load_evidence import find_campaign, published_evidence
from scalewatt.claims.simulated import (
    ALWAYS,
    COSTS,
    DOCUMENTED,
    METRIC,
    ON_SCATTER,
    QUANTITIES_OF,
    SHARES,
    simulated_in,
    verdicts_on,
    without_assumptions,
)
from scalewatt.claims.verdicts.verdict_of_claim import verdict_and_basis
from scalewatt.cli import main
from scalewatt.provenance.versions import SIMULATION_SUBJECTS
from scalewatt.results.build import write_runs
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.table_schema import QUANTITIES
from scalewatt.scaling.model.kind_model import SENTENCE

CLAIMS = {claim.id: claim for claim in read_claims()}
ABOUT_ASSUMPTIONS = {id_: claim for id_, claim in CLAIMS.items() if claim.assumed}
CASES: Mapping[str, Cases] = {**SETTING_CASES, **OF_FOURCASTNET, **OF_POWER}
ALL_BY_HAND = {
    "model": "model.json",
    "model_sha256": "abc",
    "calibrated": False,
    "assumed": None,
    "by_hand": SIMULATION_SUBJECTS,
}


def satisfied(id_: str) -> Evidence:
    """Measured results that satisfy a claim."""
    return CASES[id_].satisfied() if id_ in CASES else resnet_world()


def as_simulated(given: Evidence, **said: Any) -> Evidence:
    """The same numbers, simulated: all that can be by hand is, and fine-tuning is assumed."""

    def row(own: Row) -> Row:
        return {**own, "energy_origin": own.get("energy_origin") and "simulated"}

    def point(own: Point) -> Point:
        return replace(own, row=row(own.row))

    rows = [
        *records(given.runs),
        *(one.row for one in given.points),
        *(one.row for one in given.traces),
    ]
    phases = {str(own["configuration"]): own.get("phase") for own in rows}
    phases |= {id_: None for id_, _ in given.provenance}
    phases = phases or dict.fromkeys(given.specs)
    provenance = {
        (id_, 1): {
            **given.provenance.get((id_, 1), {}),
            "simulated": ALL_BY_HAND
            | {"assumed": SENTENCE if phase == "finetune" else None}
            | said,
        }
        for id_, phase in phases.items()
    }
    return replace(
        given,
        lines=tuple(replace(ln, points=tuple(map(point, ln.points))) for ln in given.lines),
        points=tuple(map(point, given.points)),
        runs=_simulated_runs(given),
        traces=tuple(replace(one, row=row(one.row)) for one in given.traces),
        provenance=provenance,
    )


def _simulated_runs(given: Evidence) -> pd.DataFrame:
    origins = given.runs["energy_origin"]
    return given.runs.assign(energy_origin=origins.where(origins.isna(), "simulated"))


def judged(id_: str, given: Evidence) -> Verdict:
    """The verdict of the report on one claim."""
    (found,) = verdicts_on(given, [CLAIMS[id_]])
    return found


# --- the table ----------------------------------------------------------------------------------


def test_the_table_names_claims_that_have_checks_and_subjects_that_simulations_name() -> None:
    judged("A01", study())  # which loads the checks
    assert set(ABOUT_ASSUMPTIONS) <= set(read_checks())
    assert {claim.assumed for claim in ABOUT_ASSUMPTIONS.values()} <= {
        *SIMULATION_SUBJECTS,
        *ALWAYS,
        COSTS,
    }
    assert all(claim.assumed_about for claim in ABOUT_ASSUMPTIONS.values())


def test_where_it_is_documented_there_is_a_guide() -> None:
    assert "assumed" in (ROOT / DOCUMENTED).read_text(encoding="utf-8")


@pytest.mark.parametrize("id_", ABOUT_ASSUMPTIONS)
def test_what_was_assumed_is_not_testable_though_the_same_measured_numbers_decide(
    id_: str,
) -> None:
    measured = judged(id_, satisfied(id_))
    agree(measured, expected(id_, YES))
    found = judged(id_, as_simulated(satisfied(id_)))
    assert (found.verdict, found.value) == (NOT_TESTABLE, None)
    assert "assumed" in found.detail and DOCUMENTED in found.detail
    assert ABOUT_ASSUMPTIONS[id_].assumed_about[1:] in found.detail
    assert "simulated." in found.detail and found.expected == expected_of(CLAIMS[id_])


@pytest.mark.parametrize(
    "id_",
    sorted({*CASES, *ids("ABDEF", CHECKED_KINDS)} - set(ABOUT_ASSUMPTIONS) - {"H16", "T8", "T9"}),
)
def test_what_the_model_or_a_spec_says_is_decided(id_: str) -> None:
    found = judged(id_, as_simulated(satisfied(id_)))
    agree(found, expected(id_, YES))
    assert found.detail.endswith(("simulated.", f"({DOCUMENTED})."))


def everything() -> Iterator[Evidence]:
    """Studies that between them have points for all claims on points."""
    yield resnet_world()
    yield study()


@pytest.mark.parametrize("factor", [0.3, 2.7])
def test_no_verdict_depends_on_a_share_or_an_error_that_was_assumed(factor: float) -> None:
    names = [name for names in QUANTITIES_OF.values() for name in names]

    def scaled(name: str) -> Any:
        def value(point: Point) -> float | None:
            own = point.row.get(f"{name}_mean")
            return None if own is None else own * factor ** (1 + point.gpus % 3)

        return value

    for world in everything():
        other = changed(world, lambda p: True, **{name: scaled(name) for name in names})
        assert other.points != world.points
        assert verdicts(as_simulated(other)) == verdicts(as_simulated(world))


@pytest.mark.parametrize("spread", [1e-6, 0.001, 0.1])
def test_what_depends_on_how_repeats_scatter_says_so(spread: float) -> None:
    def mean(name: str) -> Any:
        return lambda point: point.row.get(f"{name}_mean")

    told = decided = 0
    for world in everything():
        means = {name: mean(name) for name in QUANTITIES if f"{name}_mean" in world.points[0].row}
        other = changed(world, lambda p: True, spread, **means)
        assert other.points != world.points
        both = (verdicts(as_simulated(one)) for one in (world, other))
        for before, after in zip(*both, strict=True):
            rests = ON_SCATTER in before.detail or ON_SCATTER in after.detail
            told += rests
            decided += before.verdict != after.verdict
            assert before == after or rests, (before, after)
    assert told > 20
    assert decided or spread < 0.01


def test_a_scatter_that_was_measured_is_not_said_to_be_by_hand() -> None:
    given = as_simulated(resnet_world())
    assert any(ON_SCATTER in one.detail for one in verdicts(given))
    measured = as_simulated(resnet_world(), by_hand=by_hand_but("repeat_scatter"))
    assert not any(ON_SCATTER in one.detail for one in verdicts(measured))
    assert not any(ON_SCATTER in one.detail for one in verdicts(resnet_world()))


def test_numbers_by_hand_are_unknown_to_checks_and_all_others_are_as_they_were() -> None:
    given = as_simulated(study())
    found = without_assumptions(given, simulated_in(given))
    for before, after in zip(given.points, found.points, strict=True):
        gone = {name for name in before.row if before.row[name] != after.row[name]}
        assert {name.rsplit("_", 1)[0] for name in gone} <= {
            *QUANTITIES_OF[SHARES],
            *QUANTITIES_OF[METRIC],
            *(f"{n}_population" for names in QUANTITIES_OF.values() for n in names),
        }
        assert after.mean("energy_kwh") == before.mean("energy_kwh") is not None
        assert after.mean("metric_last") is None and after.mean("ram_energy_kwh") is None


# --- what the provenance says counts ------------------------------------------------------------


def by_hand_but(*names: str) -> dict[str, str]:
    return {name: text for name, text in SIMULATION_SUBJECTS.items() if name not in names}


def test_a_model_that_knows_device_kinds_decides_on_them() -> None:
    calibrated = as_simulated(resnet_world(), by_hand=by_hand_but("device_shares"))
    for id_ in ("D08", "D10", "D15"):
        found = judged(id_, calibrated)
        assert found.verdict == SUPPORTED
        assert found.detail.endswith(f"Origin of the energy: simulated. {ON_SCATTER}")


def test_a_published_error_is_testable_and_said_to_be_given() -> None:
    given = as_simulated(resnet_world())
    known = {"simulated": ALL_BY_HAND | {"by_hand": by_hand_but("metric")}}
    last = {(p.id, 1): known for p in given.points if p.gbs == 65536}
    published = replace(given, provenance={**given.provenance, **last})
    found = judged("D18", published)
    assert found.verdict == BY_CONSTRUCTION and "published error" in found.detail
    assert judged("D17", published).verdict == judged("D19", published).verdict == NOT_TESTABLE


def test_errors_at_constant_gbs_stay_untestable_though_each_value_is_published() -> None:
    given = as_simulated(resnet_world(), by_hand=by_hand_but("metric"))
    assert judged("D17", given).verdict == BY_CONSTRUCTION
    assert CLAIMS["E03"].assumed == CLAIMS["E04"].assumed == "batch"
    assert judged("E03", given).verdict == judged("E04", given).verdict == NOT_TESTABLE


def test_a_calibrated_fine_tuning_is_testable_and_an_assumed_one_counts_nowhere() -> None:
    calibrated, assumed = as_simulated(study(), assumed=None), as_simulated(study())
    for id_ in ("H08", "H09", "H10", "H11"):
        assert judged(id_, calibrated).verdict == SUPPORTED
        assert SENTENCE in judged(id_, assumed).detail
    assert "Left out: 5 configurations" in judged("A01", assumed).detail
    assert "finetune" not in judged("A01", assumed).detail
    assert "fourcastnet finetune a100" in judged("A01", calibrated).detail
    assert "Left out" not in judged("D05", as_simulated(resnet_world())).detail


def test_without_provenance_everything_may_have_been_assumed() -> None:
    given = replace(as_simulated(study()), provenance={})
    assert simulated_in(given)
    for id_ in ("B03", "H05", "H08", "K05", "K10"):
        assert judged(id_, given).verdict == NOT_TESTABLE
    assert judged("T1", given).verdict == BY_CONSTRUCTION  # it may have been calibrated on it


def test_what_a_model_gives_again_that_it_was_calibrated_on_is_no_test() -> None:
    given = as_simulated(resnet_world(), calibrated=True)
    found, test = judged("D03", given), judged("D03", as_simulated(resnet_world()))
    assert (found.verdict, test.verdict) == (BY_CONSTRUCTION, SUPPORTED)
    assert found.value == test.value and found.p is found.chances is None
    assert "no test. As one it would read supported." in found.detail
    assert judged("C04", as_simulated(satisfied("C04"), calibrated=True)).verdict == SET_UP


def test_a_claim_on_points_that_were_not_all_calibrated_on_stays_a_test() -> None:
    given = as_simulated(resnet_world(), calibrated=True)
    id_ = next(p.id for p in given.points if p.gpus == 2 and "fd_lbs" in p.modes)
    said = {"simulated": given.provenance[id_, 1]["simulated"] | {"calibrated": False}}
    other = replace(given, provenance={**given.provenance, (id_, 1): said})
    assert judged("D03", other).verdict == SUPPORTED
    assert judged("F03", other).verdict == BY_CONSTRUCTION


def test_claims_on_another_model_are_not_blamed_on_simulations() -> None:
    resnet = without(resnet_world(), lambda point: point.model != "resnet50")
    found = judged("H05", as_simulated(resnet))
    assert found.verdict == NOT_TESTABLE and "by hand" not in found.detail


def test_energies_of_unequal_scope_are_not_compared_as_parts_are_by_hand() -> None:
    found = judged("T9", as_simulated(study()))
    assert found.verdict == NOT_TESTABLE and "of unequal scope" in found.detail


# --- what is said -------------------------------------------------------------------------------


def test_every_detail_and_the_basis_name_the_origin() -> None:
    given = as_simulated(study())
    for one in verdicts(given):
        origins = re.findall(r"Origin of the (?:energy|runs): simulated\.", one.detail)
        assert len(origins) == (one.verdict != INCONSISTENCY), one.id
    said = basis(given)
    assert "origin simulated" in said and "model.json (abc)" in said and DOCUMENTED in said
    assert "by the origin of their energy: simulated" in said
    count = len(simulated_in(given))
    assert f"No run was trained: those of all {count} configurations are of origin" in said
    row = {**study().points[0].row, "configuration": "one that was measured"}
    mixed = basis(replace(given, points=(*given.points, Point(row))))
    assert f"The runs of {count} configurations were not trained: they are of origin" in mixed
    assert "No run was trained" not in mixed


def test_measured_and_published_results_are_told_as_before() -> None:
    for given in (study(), published_evidence()):
        assert not simulated_in(given)
        assert "simulat" not in basis(given)
        assert not any(
            "simulat" in one.detail for one in verdicts(given) if one.verdict != INCONSISTENCY
        )


def test_simulated_results_find_their_campaign_without_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workflow_in(tmp_path))
    results = Path("results", "paper-simulated")
    for given in (None, PAPER):
        assert find_campaign(results, given).name == "paper-simulated"
    with pytest.raises(Exception, match="no campaign is named else-simulated"):
        find_campaign(results.with_name("else-simulated"), None)


# --- a small campaign ---------------------------------------------------------------------------

RUNS = (
    "resnet50-a100-n001-lbs0256-s0005004",
    "resnet50-a100-n002-lbs0256-s0010009",
    "resnet50-a100-n004-lbs0256-s0020018",
    "resnet50-a100-n008-lbs0256-s0040036",
    "resnet50-a100-n016-lbs0256-s0080072",
    "resnet50-a100-n008-lbs0256-full",
    "resnet50-a100-n256-lbs0256-full",
    "fourcastnet.pretrain-a100-n016-lbs0001-full",
    "fourcastnet.pretrain-h100-n016-lbs0001-full",
    "fourcastnet.finetune-a100-n016-lbs0001-full",
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the paper's runs, simulated and accounted for, with the tables of results."""
    results = tmp_path_factory.mktemp("played") / "paper-simulated"
    for id_ in RUNS:
        simulate(results, spec_of(id_)).row()
    definition = runs_definition(campaign(), [[id_, 1] for id_ in RUNS])
    write_runs(definition, results, results / "tables")
    return results


def test_a_simulated_campaign_decides_what_the_model_says(
    played: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--results", str(played), "--campaign", str(PAPER), "--json"]) == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    for id_ in ("F03", "F05", "T3", "T4", "D18"):
        assert found[id_]["verdict"] == BY_CONSTRUCTION, found[id_]["detail"]
    for id_ in set(ABOUT_ASSUMPTIONS) - {"D18"}:
        assert found[id_]["verdict"] == NOT_TESTABLE, found[id_]["detail"]
        assert "assumed" in found[id_]["detail"], found[id_]["detail"]
    assert SENTENCE in found["H09"]["detail"]
    assert all(
        "simulated" in one["detail"] for one in found.values() if one["verdict"] != INCONSISTENCY
    )


def _with_simulated_resnet50(given: Evidence) -> Evidence:
    """The same, whose ResNet50 is simulated by a model that was calibrated on all of it."""
    said = {"simulated": ALL_BY_HAND | {"calibrated": True}}
    ids = [point.id for point in given.points if point.model == "resnet50"]

    def mixed(point: Point) -> Point:
        origin = "simulated" if point.id in ids else point.origin
        return replace(point, row={**point.row, "energy_origin": origin})

    found = given.changed(mixed)
    return replace(found, provenance=dict.fromkeys([(id_, 1) for id_ in ids], said))


@pytest.mark.parametrize("id_", ["J02", "J03", "J04"])
def test_power_that_was_measured_is_a_test_beside_a_model_that_is_simulated(id_: str) -> None:
    given = _with_simulated_resnet50(CASES[id_].satisfied())
    assert simulated_in(given)
    found = judged(id_, given)
    assert found.verdict == SUPPORTED, found.detail
    assert "simulated" not in found.detail


@pytest.mark.parametrize("id_", ["J02", "J03", "J04", "J05", "L06"])
def test_a_claim_on_power_against_time_names_the_trainings_it_rests_on(id_: str) -> None:
    given = CASES[id_].satisfied()
    _, looked_at = verdict_and_basis(CLAIMS[id_], given)
    assert looked_at == {trace.row["configuration"] for trace in given.traces}
