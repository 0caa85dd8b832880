"""`scalewatt compare`: what is matched, the ratios by hand, and what is not compared."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from archived import Project
from run_files import make_spec

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.cli import main
from scalewatt.comparison.compare import (
    COMPARED,
    Comparison,
    Source,
    compared,
    comparison_text,
    make_source,
    verdict_text,
)
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.table_schema import RUNS

Run = tuple[RunSpec, dict[str, Any]]


NEW = count(1)
PASSES = ("dataset_samples", "gpus_per_replica", "gradient_accumulation_steps")


def run(repeat: int = 1, spec: RunSpec | None = None, **row: Any) -> Run:
    """A spec, and the row of its run: 2 GPUs, 1 kWh of GPUs and CPUs in an hour, unless told otherwise."""
    group = replace(spec or make_spec(), repeat=repeat)
    kwh = row.get("energy_kwh", 1.0)
    return group, dict.fromkeys(RUNS.names) | {
        **{"campaign": "made", "configuration": group.configuration, "repeat": repeat},
        **{name: getattr(group, name) for name in ("model", "phase", "device", "gpus", "protocol")},
        **{
            name: getattr(group, name)
            for name in ("local_batch_size", "global_batch_size", "epochs")
        },
        **{name: getattr(group, name) for name in PASSES},
        **{"spec_sha256": group.sha256, "runtime_s": 3600.0 + next(NEW)},  # no measurement twice
        **{"precision": group.settings.get("precision"), "flags": "[]"},
        **{"energy_origin": "measured", "energy_scope": "gpu+cpu", "device_name": "NVIDIA A100"},
        **{"energy_kwh": kwh, "energy_low_kwh": kwh, "energy_high_kwh": kwh, "runtime_h": 1.0},
        **{"metric_name": "top1_error_percent", "metric_last": 20.0},
        **row,
    }


def source(runs: Sequence[Run], folder: str = "results/made", **changes: Any) -> Source:
    """The source of these runs."""
    rows = frame_of([row for _, row in runs], RUNS)
    rows.attrs = {
        "definition": {"facility": changes.get("facility")},
        "no_energy": changes.get("no_energy"),
    }
    return make_source(folder, rows, [spec for spec, _ in runs], changes.get("provenance", {}))


def beside(a: Sequence[Run], b: Sequence[Run]) -> Comparison:
    """The comparison of these runs."""
    return compared(source(a), source(b, "results/other"))


def row_of(result: Comparison, quantity: str) -> dict[str, Any]:
    """The one row of a quantity."""
    (row,) = [each for each in records(result.table) if each["quantity"] == quantity]
    return row


def repeats(values: Sequence[float], **row: Any) -> list[Run]:
    """A run for each energy in kWh."""
    return [run(repeat, energy_kwh=kwh, **row) for repeat, kwh in enumerate(values, 1)]


# --- ratios by hand -------------------------------------------------------------------------------

T_2 = 4.302652729911275
"""The 97.5 % quantile of Student's t with 2 degrees of freedom, by a table."""


def test_the_ratio_of_two_pairs_of_repeats_is_that_by_hand() -> None:
    """Logarithms 0.0953 apart in both: their standard error is ln 1.1 / √2, with 2 degrees of freedom."""
    row = row_of(beside(repeats([1.0, 1.1]), repeats([0.5, 0.55])), "energy_kwh")
    half = T_2 * 0.09531017980432493 / 2**0.5
    assert row["ratio"] == pytest.approx(0.5, rel=1e-12)
    assert row["ratio_low"] == pytest.approx(0.5 * 2.718281828459045**-half, rel=1e-9)
    assert row["ratio_high"] == pytest.approx(0.5 * 2.718281828459045**half, rel=1e-9)
    assert (row["mean_a"], row["mean_b"]) == (pytest.approx(1.05), pytest.approx(0.525))
    assert row["verdict"] == "lower"
    assert verdict_text(row) == "B is lower by 50 % (33.2 to 62.6 %)"


def test_an_interval_around_1_tells_nothing_apart_and_a_narrow_one_says_that_they_are_the_same() -> (
    None
):
    wide = row_of(beside(repeats([1.0, 1.1]), repeats([0.8, 0.88])), "energy_kwh")
    assert wide["ratio_high"] == pytest.approx(0.8 * 1.33639, rel=1e-4)
    assert verdict_text(wide) == "cannot be told apart"
    narrow = row_of(beside(repeats([1, 1.001, 1.002]), repeats([1, 1.001, 1.002])), "energy_kwh")
    assert verdict_text(narrow) == "cannot be told apart; the same within 5 %"
    lower = row_of(beside(repeats([1, 1.001, 1.002]), repeats([1.02, 1.021, 1.022])), "energy_kwh")
    assert verdict_text(lower).startswith("A is lower by 1.96 % (")
    assert verdict_text(lower).endswith("; the same within 5 %")


def errors(values: Sequence[float], seeds: Sequence[int | None]) -> list[Run]:
    """Runs with these errors and seeds."""
    return [
        run(repeat, replace(make_spec(), seed=seed), metric_last=value)
        for repeat, (value, seed) in enumerate(zip(values, seeds, strict=True), 1)
    ]


def test_errors_over_repeats_of_one_seed_tell_nothing_and_over_several_they_do() -> None:
    values = [20.0, 20.1, 20.2], [30.0, 30.1, 30.2]
    shared = beside(*(errors(group, (0, 0, 0)) for group in values))
    assert verdict_text(row_of(shared, "metric_last")) == "no interval: repeats share one seed"
    unknown = beside(*(errors(group, (None, None, None)) for group in values))
    assert verdict_text(row_of(unknown, "metric_last")) == "no interval: repeats may share a seed"
    varied = beside(*(errors(group, (0, 1, 2)) for group in values))
    assert verdict_text(row_of(varied, "metric_last")).startswith("A is lower by 33.2 % (")


# --- origin and scope -----------------------------------------------------------------------------


def test_energies_of_other_scope_are_not_compared_and_the_gpus_part_is() -> None:
    gpu = {"gpu_energy_kwh": 0.6, "gpu_energy_low_kwh": 0.6, "gpu_energy_high_kwh": 0.6}
    whole = [run(1, **gpu)]
    alone = [run(1, energy_scope="gpu", energy_kwh=0.3, **(gpu | {"gpu_energy_kwh": 0.3}))]
    result = beside(whole, alone)
    row = row_of(result, "energy_kwh")
    assert (row["verdict"], row["ratio"]) == ("not_compared", None)
    assert verdict_text(row) == "not compared: A is the energy of gpu+cpu, B of gpu"
    assert row_of(result, "gpu_energy_kwh")["ratio"] == pytest.approx(0.5)


def test_gpus_that_were_measured_with_uncovered_time_are_no_estimate() -> None:
    gpu = {"gpu_energy_kwh": 0.6, "gpu_energy_low_kwh": 0.6, "gpu_energy_high_kwh": 0.63}
    mixed = {"energy_origin": "mixed", "energy_low_kwh": 0.7, "energy_high_kwh": 2.8}
    result = beside(repeats([1.0, 1.01], **mixed, **gpu), repeats([1.2, 1.21], **mixed, **gpu))
    row = row_of(result, "gpu_energy_kwh")
    assert (row["origin_a"], row["origin_b"]) == ("measured", "measured")
    assert row_of(result, "energy_kwh")["origin_a"] == "mixed"


def test_what_is_measured_against_what_is_simulated_is_named() -> None:
    measured, simulated = repeats([1.0, 1.01]), repeats([1.2, 1.21], energy_origin="simulated")
    metadata = {
        (spec.configuration, spec.repeat): {"simulated": {"seed": 0}} for spec, _ in simulated
    }
    result = compared(source(measured), source(simulated, "results/other", provenance=metadata))
    for quantity in ("energy_kwh", "runtime_h", "metric_last"):
        row = row_of(result, quantity)
        assert (row["origin_a"], row["origin_b"]) == ("measured", "simulated")
    assert "A measured, B simulated. Energy of gpu+cpu." in comparison_text(result)


def test_an_energy_that_is_not_known_says_why() -> None:
    unknown = run(1, energy_kwh=None, energy_origin=None, energy_scope=None)
    metadata = {unknown[0].configuration: "a node that was not recorded"}
    result = compared(source([run(1)]), source([unknown], "results/other", no_energy=metadata))
    row = row_of(result, "energy_kwh")
    assert row["reason"] == "not known of B (a node that was not recorded)"
    assert (row["mean_a"], row["mean_b"]) == (1.0, None)


def test_totals_of_unlike_work_are_not_compared_and_energies_per_sample_are() -> None:
    a = [run(1, energy_per_sample_j=2.0)]
    b = [run(1, make_spec(epochs=8), energy_per_sample_j=1.0)]
    result = beside(a, b)
    assert row_of(result, "energy_kwh")["reason"] == "unlike work: 4 and 8 epochs"
    assert row_of(result, "metric_last")["verdict"] == "not_compared"
    assert row_of(result, "energy_per_sample_j")["ratio"] == pytest.approx(0.5)


def test_different_metrics_are_not_compared() -> None:
    result = beside([run(1)], [run(1, metric_name="z500_rmse_m2_s2", metric_last=700.0)])
    assert (
        row_of(result, "metric_last")["reason"] == "A's is Top-1 error (%), B's Z500 RMSE (m²/s²)"
    )


# --- what is set beside what ----------------------------------------------------------------------


def variant(id_: str, device: str = "local", precision: str = "torch_default", **more: Any) -> Run:
    """A run of its own configuration; `more`: settings of its model."""
    settings = {**make_spec().settings, "precision": precision, **more}
    return run(1, make_spec(configuration=id_, device=device, settings=settings))


def pairs(result: Comparison) -> list[tuple[str, str]]:
    """The ids of what is compared."""
    return list(result.pairs.itertuples(index=False, name=None))


def listed(result: Comparison) -> list[tuple[Any, ...]]:
    """What differs: section, name and both values."""
    rows = records(result.differences)
    return [tuple(row[name] for name in ("section", "name", "a", "b")) for row in rows]


def test_names_do_not_matter_and_the_device_may_differ_and_is_named() -> None:
    result = beside([variant("one")], [variant("other", device="h100")])
    assert pairs(result) == [("one", "other")]
    assert listed(result)[0] == ("settings", "device", "local", "h100")
    assert result.differences["pairs"].tolist()[0] == 1
    assert "one | other" in comparison_text(result)


def test_variants_are_matched_by_what_they_vary_in_and_the_rest_is_listed() -> None:
    a = [variant("a-pil"), variant("a-dali", loader="dali")]
    b = [variant("b-dali", loader="dali"), variant("b-jpeg", loader="torchvision")]
    result = beside(a, b)
    assert pairs(result) == [("a-dali", "b-dali")]
    assert (result.only("a"), result.only("b")) == (["a-pil"], ["b-jpeg"])
    assert "Configurations only in A: 1\n  a-pil" in comparison_text(result)


def seeded(id_: str, device: str, seeds: Sequence[int]) -> list[Run]:
    """A run of a configuration for each seed."""
    return [
        run(repeat, make_spec(configuration=id_, device=device, seed=seed))
        for repeat, seed in enumerate(seeds, 1)
    ]


@pytest.mark.parametrize(
    ("seeds", "listed_seeds"),
    [([0, 1, 2], []), ([3, 4], [("settings", "seeds", "0, 1, 2", "3, 4")])],
)
def test_seeds_make_no_other_training_and_are_listed_where_the_campaigns_have_others(
    seeds: Sequence[int], listed_seeds: list[tuple[Any, ...]]
) -> None:
    a = [*seeded("a1", "a100", [0, 1, 2]), *seeded("a2", "h100", [0, 1])]
    result = beside(a, [*seeded("b1", "a100", seeds), *seeded("b2", "h100", seeds)])
    assert pairs(result) == [("a1", "b1"), ("a2", "b2")]
    assert listed(result) == listed_seeds


def test_settings_software_machines_and_cluster_that_differ_are_listed_by_their_keys() -> None:
    a = source(
        [run(1)],
        provenance={
            (run()[0].configuration, 1): {"packages": {"torch": "2.6.0"}, "hostnames": ["n1"]}
        },
        facility={"pue": 1.05},
    )
    group = make_spec(protocol="paper", settings={**make_spec().settings, "momentum": 0.8})
    b = source(
        [run(1, group, device_name="NVIDIA H100")],
        "results/other",
        provenance={
            (group.configuration, 1): {"packages": {"torch": "2.7.0"}, "hostnames": ["n1"]}
        },
        facility={"pue": 1.3},
    )
    assert listed(compared(a, b)) == [
        ("settings", "models.resnet50.momentum", None, "0.8"),
        ("settings", "protocol", "corrected", "paper"),
        ("cluster", "PUE", "1.05", "1.3"),
        ("machines", "devices", "local: NVIDIA A100", "local: NVIDIA H100"),
        ("software", "torch", "2.6.0", "2.7.0"),
    ]


# --- by the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are run in the folder of a simulated campaign of two configurations."""
    monkeypatch.chdir(project.path)


def test_a_campaign_is_compared_with_a_copy_by_names_of_folders(
    folder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("results/small", "results/theirs")
    Path("small").mkdir()  # has the campaign's name, and no results
    given = ["compare", "small", "results/theirs", "--out", "ratios"]
    assert main(given) == 0
    text = capsys.readouterr().out
    assert "The same measurements in both, whose ratios say nothing: 2." in text
    assert "Nothing differs in settings, seeds, software, machines and cluster." in text
    assert "Configurations in both: 2" in text
    assert "Energy: no interval: 2\n  Both simulated." in text
    stored = pq.read_table("ratios.parquet")
    assert stored.schema.names == COMPARED.names
    assert set(stored["ratio"].to_pylist()) == {1.0}
    assert Path("ratios.csv").exists()
    assert main([*given[:3], "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["a"]["folder"] == "results/small" and result["b"]["folder"] == "results/theirs"
    assert result["differences"] == [] and len(result["compared"]) == len(stored)


def test_a_table_of_another_training_is_refused(
    folder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("results/small", "results/theirs")
    spec = next(Path("results/small/runs").glob("*/1/spec.json"))
    spec.write_bytes(spec.read_bytes().replace(b'"seed": 0', b'"seed": 1'))
    assert main(["compare", "small", "theirs"]) == 1
    assert "runs.parquet is of another training of " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["smal", "small"],
            r"smal: has no tables/runs.parquet.*; allowed: .*small.*did you mean 'small'",
        ),
        (["small", "results/small"], "are the same; expected two campaigns"),
        (["small", "campaigns"], "campaigns: has no tables/runs.parquet"),
        (["small", "no.zip", "--results", "campaigns"], "none with tables.*imported first"),
    ],
)
def test_what_is_no_campaigns_results_is_refused_with_what_is_allowed(
    words: list[str], why: str, folder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words]) == 1
    assert re.search(why, capsys.readouterr().err)
