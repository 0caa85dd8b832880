"""Zeus's published tables become runs: of an epoch, or to a target; what is none is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from zeus_tables import EPOCHS, TARGETS, epoch, target, write_part, write_table

from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.energies.accounting.account import write_energy
from scalewatt.registration.register import register
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.run_row import RunFiles, run_row

OTHERS = os.environ.get("SCALEWATT_OTHERS")
needs_real = pytest.mark.skipif(
    not OTHERS or not Path(OTHERS, "zeus").is_dir(),
    reason="SCALEWATT_OTHERS names no folder with Zeus's tables",
)
NAME = "shufflenetv2-v100-n001-lbs{:04d}-s0050000-{}-gpulimit{}w"


def registered(tmp_path: Path, *paths: Path, table: Path | None = None) -> list[str]:
    return register("zeus", list(paths), table, tmp_path / "results", tmp_path / "campaigns")


def row_of(tmp_path: Path, configuration: str, repeat: int = 1) -> dict[str, Any]:
    """Return the row of RUNS of a registered run, accounted for."""
    files = RunFiles(tmp_path / "results" / "zeus", configuration, repeat)
    for path in (files.energy, files.traces):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_energy(files.folder, files.folder / "spec.json", {}, files.traces, files.energy)
    return run_row(files, "zeus", Facility())


def powers(tmp_path: Path, *rows: str, gpu: str = "v100") -> Path:
    return write_table(tmp_path / "trace" / f"summary_power_{gpu}.csv", EPOCHS, rows)


def targets(tmp_path: Path, *rows: str) -> Path:
    return write_table(tmp_path / "trace" / "summary_train.csv", TARGETS, rows)


def starting(lines: list[str], word: str) -> list[str]:
    return [line for line in lines if line.startswith(word)]


def test_a_row_is_a_run_with_the_energy_of_its_epoch(tmp_path: Path) -> None:
    path = powers(tmp_path, epoch(64, 125, 60.0, 90.0), epoch(64, 250, 50.0, 180.0))
    lines = registered(tmp_path, path)
    assert len(starting(lines, "registered")) == 2
    row = row_of(tmp_path, NAME.format(64, "e001", 125))
    assert row["energy_kwh"] == pytest.approx(60 * 90 / 3.6e6, rel=1e-12)
    assert (row["energy_origin"], row["energy_scope"]) == ("measured", "gpu")
    assert (row["runtime_s"], row["gpu_power_limit_w"]) == (60.0, 125.0)
    assert (row["gpus"], row["local_batch_size"]) == (1, 64)
    assert (row["samples"], row["updates"]) == (50_000, pytest.approx(50_000 / 64, abs=1))
    assert row["device_name"] == "NVIDIA V100"
    assert row["metric_last"] is None
    assert "total_only" in row["flags"] and "epochs_combined" not in row["flags"]


def test_limits_and_batch_sizes_are_series_of_their_own_and_a_figure_compares_them(
    tmp_path: Path,
) -> None:
    rows = [epoch(batch, limit, 60.0, 90.0 + batch) for batch in (64, 128) for limit in (125, 250)]
    registered(tmp_path, powers(tmp_path, *rows))
    campaign = load_campaign(tmp_path / "campaigns" / "zeus.yaml", None)
    assert set(campaign.series) == {
        f"shufflenetv2-v100-lbs{batch:04d}-gpulimit{limit}w"
        for batch in (64, 128)
        for limit in (125, 250)
    }
    assert campaign.figures["operating_points"] == {"series": list(campaign.series)}
    assert len(campaign.figures["table1"]["points"]) == 4
    labels = {one.label for one in campaign.series.values()}
    assert "ShuffleNetV2, CIFAR-100, V100, LBS 64, 125 W" in labels


def test_a_run_keeps_its_own_row_and_the_digest_of_the_table(tmp_path: Path) -> None:
    rows = epoch(64, 125, 60.0, 90.0), epoch(64, 250, 50.0, 180.0)
    path = powers(tmp_path, *rows)
    registered(tmp_path, path)
    folder = tmp_path / "results" / "zeus" / "runs" / NAME.format(64, "e001", 250) / "1"
    (kept,) = (folder / "perun").iterdir()
    assert kept.read_text() == f"{EPOCHS}\n{rows[1]}\n"
    (noted,) = json.loads((folder / "provenance.json").read_text())["recordings"]
    assert (noted["original"], noted["sha256"]) == ("summary_power_v100.csv", file_sha256(path))
    assert noted["kept"] == kept.read_text()


def test_the_same_rows_again_are_already_there_from_whatever_table(tmp_path: Path) -> None:
    rows = [epoch(64, limit, 60.0, 90.0) for limit in (125, 250)]
    registered(tmp_path, powers(tmp_path, *rows))
    lines = registered(tmp_path, powers(tmp_path, *reversed(rows), epoch(32, 250, 80.0, 90.0)))
    assert len(starting(lines, "already there")) == 2 and len(starting(lines, "registered")) == 1
    assert len(list((tmp_path / "results" / "zeus" / "runs").glob("*/*"))) == 3


def test_several_rows_of_a_setting_are_repeats_and_a_row_twice_is_one(tmp_path: Path) -> None:
    first, second = epoch(64, 125, 60.0, 90.0), epoch(64, 125, 61.0, 90.0)
    lines = registered(tmp_path, powers(tmp_path, first, second, first))
    (twice,) = starting(lines, "left out")
    assert "line 4: is the same as" in twice and twice.endswith("line 2")
    one, two = (row_of(tmp_path, NAME.format(64, "e001", 125), n)["energy_kwh"] for n in (1, 2))
    assert (one, two) == pytest.approx((60 * 90 / 3.6e6, 61 * 90 / 3.6e6))


def test_the_optimiser_is_the_variant_where_a_training_has_several(tmp_path: Path) -> None:
    row = epoch(64, 125, 60.0, 90.0)
    bert = epoch(8, 125, 60.0, 90.0, "squad,bert_base_uncased")
    registered(tmp_path, powers(tmp_path, row, row.replace("adadelta", "adam"), bert))
    found = {path.name for path in (tmp_path / "results" / "zeus" / "runs").iterdir()}
    assert found == {
        "shufflenetv2-v100-n001-lbs0064-s0050000-e001-adadelta-gpulimit125w",
        "shufflenetv2-v100-n001-lbs0064-s0050000-e001-adam-gpulimit125w",
        "bert_base_uncased.squad-v100-n001-lbs0008-s0087599-e001-gpulimit125w",
    }


@pytest.mark.parametrize(
    ("seconds", "watts", "reason"),
    [
        (-60.0, 90.0, "time_per_epoch: -60.0; expected above 0"),
        ("nan", 90.0, "time_per_epoch: nan; expected above 0"),
        (60.0, "", "average_power: empty; expected above 0"),
        (60.0, 1e6, "average_power: 1000000.0; expected above 0"),
    ],
)
def test_a_row_with_a_number_that_is_none_is_named_and_left_out(
    tmp_path: Path, seconds: object, watts: object, reason: str
) -> None:
    path = powers(tmp_path, epoch(64, 125, seconds, watts), epoch(64, 250, 50.0, 180.0))
    lines = registered(tmp_path, path)
    assert len(starting(lines, "registered")) == 1
    (left_out,) = starting(lines, "left out")
    assert f"line 2: {reason}" in left_out


def test_a_training_whose_samples_are_not_known_is_named_and_left_out(tmp_path: Path) -> None:
    other = epoch(64, 125, 60.0, 90.0, "mnist,lenet")
    lines = registered(tmp_path, powers(tmp_path, other, epoch(64, 250, 50.0, 180.0)))
    (left_out,) = starting(lines, "left out")
    assert "lenet on mnist" in left_out and "samples" in left_out


def test_a_table_of_such_rows_alone_is_refused_with_the_reasons(tmp_path: Path) -> None:
    path = powers(tmp_path, epoch(64, 125, "nan", 90.0))
    with pytest.raises(InputError, match=r"no run to register: .*time_per_epoch: nan"):
        registered(tmp_path, path)
    assert not (tmp_path / "results").exists()


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "summary_power_v100.csv"
    path.write_text("dataset,network,batch_size,optimizer\ncifar100,shufflenetv2,64,adadelta\n")
    with pytest.raises(InputError, match="lacks the columns power_limit, time_per_epoch, average"):
        registered(tmp_path, path)


def test_a_name_that_tells_no_gpu_is_refused(tmp_path: Path) -> None:
    path = powers(tmp_path, epoch(64, 125, 60.0, 90.0), gpu="")
    with pytest.raises(InputError, match="its name tells no GPU"):
        registered(tmp_path, path)


def test_a_gpu_that_the_paper_has_not_is_registered_without_a_name(tmp_path: Path) -> None:
    registered(tmp_path, powers(tmp_path, epoch(64, 125, 60.0, 90.0), gpu="h100"))
    row = row_of(tmp_path, NAME.replace("v100", "h100").format(64, "e001", 125))
    assert (row["device"], row["device_name"]) == ("h100", None)


def test_a_table_of_descriptions_is_not_taken_beside_them_alone(tmp_path: Path) -> None:
    path = powers(tmp_path, epoch(64, 125, 60.0, 90.0))
    told = tmp_path / "told.csv"
    told.write_text("path,variant\ntrace,mine\n")
    with pytest.raises(InputError, match="--table"):
        registered(tmp_path, path, table=told)


# --- to a target --------------------------------------------------------------------------------


def test_an_execution_is_a_run_to_the_target_at_each_limit(tmp_path: Path) -> None:
    epochs = powers(tmp_path, epoch(64, 125, 60.0, 90.0), epoch(64, 250, 50.0, 180.0))
    rows = target(64, 1, 10), target(64, 2, 12), target(64, 1, 3, metric=0.5)
    lines = registered(tmp_path, epochs, targets(tmp_path, *rows))
    assert len(starting(lines, "registered")) == 4
    for repeat, needed in ((1, 10), (2, 12)):
        row = row_of(tmp_path, NAME.format(64, "target", 125), repeat)
        assert row["energy_kwh"] == pytest.approx(needed * 60 * 90 / 3.6e6, rel=1e-12)
        assert row["runtime_s"] == pytest.approx(needed * 60)
        assert (row["protocol"], row["epochs"]) == ("target", 1)
        assert row["samples"] == needed * 50_000
        assert (row["energy_origin"], row["energy_scope"]) == ("measured", "gpu")
        assert {"total_only", "epochs_combined"} <= {
            one["code"] for one in json.loads(row["flags"])
        }
    campaign = load_campaign(tmp_path / "campaigns" / "zeus.yaml", None)
    assert {one.seeds for one in campaign.configurations.values()} == {"varied"}
    assert set(campaign.repeats.values()) == {2}
    again = registered(tmp_path, epochs, tmp_path / "trace" / "summary_train.csv")
    assert len(starting(again, "already there")) == 4 and not starting(again, "registered")


def test_executions_that_never_reached_the_target_are_named_and_never_counted(
    tmp_path: Path,
) -> None:
    epochs = powers(tmp_path, epoch(64, 125, 60.0, 90.0), epoch(32, 125, 80.0, 80.0))
    rows = [target(64, 1, 10), target(64, 2, ""), target(32, 1, "NaN")]
    rows += [target(batch, 1, 5) for batch in (128, 16)]
    lines = registered(tmp_path, epochs, targets(tmp_path, *rows))
    assert len(starting(lines, "registered")) == 1
    left_out = "\n".join(starting(lines, "left out"))
    assert (
        "batch 64, adadelta: 1 of 2 executions (run 2) never reached 0.6 top1_accuracy" in left_out
    )
    assert "batch 32, adadelta: 1 of 1 executions (run 1) never reached" in left_out
    assert "adadelta, batch 32: no execution that reached the target is known" in left_out
    assert "adadelta, batch 16, 128: its power on v100 was not measured" in left_out


def test_a_run_to_the_target_keeps_the_rows_of_both_tables(tmp_path: Path) -> None:
    path = targets(tmp_path, target(64, 3, 10))
    registered(tmp_path, powers(tmp_path, epoch(64, 125, 60.0, 90.0)), path)
    folder = tmp_path / "results" / "zeus" / "runs" / NAME.format(64, "target", 125) / "1"
    provenance = json.loads((folder / "provenance.json").read_text())
    assert [one["original"] for one in provenance["recordings"]] == [
        "summary_power_v100.csv",
        "summary_train.csv",
    ]
    assert provenance["recordings"][1]["sha256"] == file_sha256(path)
    assert (folder / "perun" / "segment-000.v100.epochs.csv").read_text() == (
        f"{TARGETS}\n{target(64, 3, 10)}\n"
    )
    assert provenance["description"]["source"].endswith("run 3")


def test_an_execution_that_stands_there_twice_is_one_run(tmp_path: Path) -> None:
    train = targets(tmp_path, target(64, 1, 10), target(64, 1, 10), target(64, 2, 10))
    lines = registered(tmp_path, powers(tmp_path, epoch(64, 125, 60.0, 90.0)), train)
    assert len(starting(lines, "registered")) == 2
    assert "line 3: is the same as" in starting(lines, "left out")[0]


def test_epochs_to_targets_without_powers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no power"):
        registered(tmp_path, targets(tmp_path, target(64, 1, 10)))


# --- the real tables ------------------------------------------------------------------------------


@needs_real
def test_resnet50_on_a_v100_is_that_of_the_table(tmp_path: Path) -> None:
    source = Path(OTHERS or "", "zeus", "summary_power_v100.csv")
    part = write_part(tmp_path / source.name, source, network="resnet50", batch_size="256")
    registered(tmp_path, part)
    known = {250: (3515, 0.215), 150: (4149, 0.167)}
    rows = {
        limit: row_of(tmp_path, f"resnet50-v100-n001-lbs0256-s1281167-e001-gpulimit{limit}w")
        for limit in (100, 150, 250)
    }
    for limit, (seconds, kwh) in known.items():
        assert rows[limit]["runtime_s"] == pytest.approx(seconds, abs=0.5)
        assert rows[limit]["energy_kwh"] == pytest.approx(kwh, abs=0.0005)
    assert rows[100]["runtime_s"] > rows[150]["runtime_s"]
    assert rows[100]["energy_kwh"] > rows[150]["energy_kwh"]


@needs_real
@pytest.mark.long
def test_every_row_of_the_four_gpus_is_a_run(tmp_path: Path) -> None:
    lines = registered(tmp_path, Path(OTHERS or "", "zeus"))
    assert len(starting(lines, "registered")) == 453 + 270 + 410 + 476
    assert not starting(lines, "left out")
    assert not starting(lines, "note")
