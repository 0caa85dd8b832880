"""The study of one GPU: fitting a campaign to a machine."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scalewatt.campaign.campaign_types import Campaign, Device
from scalewatt.campaign.load import expand
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.gpu_study import gpu_here, plain_runs, trial_child
from scalewatt.gpu_study.fit import CLOSING_S, COMPILE_S, PROCESS_S, asked_trials, fit
from scalewatt.gpu_study.gpu_here import Machine, cluster_content, device_word, least_train_s
from scalewatt.gpu_study.study import CAMPAIGNS, Limits, limits_of, study
from scalewatt.gpu_study.trials import Asked, Trial, run_trials, uncompiled

DEVICES = {"h100": Device("h100", 1, 16, {}, max_gpus=1)}
START_S = 4.0


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000adageneration"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("AMD Instinct MI250X", "mi250x"),
        ("NVIDIA Graphics Device", "gpu"),
    ],
)
def test_a_device_is_named_by_its_gpu(name: str, word: str) -> None:
    assert device_word(name) == word


def test_an_averaging_sensor_asks_for_a_longer_training_than_an_instantaneous_one() -> None:
    assert least_train_s("NVIDIA H100 80GB HBM3", 0.1, 0.03) == pytest.approx(20)
    assert least_train_s("NVIDIA A100-SXM4-40GB", 0.1, 0.03) == gpu_here.STEADY_S
    assert least_train_s("NVIDIA A100-SXM4-40GB", 0.1, 0.003) == pytest.approx(0.1 / 0.003)
    assert least_train_s("a GPU of tomorrow", 0.1, 0.03) == pytest.approx(20)


def test_without_a_gpu_the_study_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"shows no GPU that torch can use; .* --rehearse"):
        gpu_here.machine_here(rehearse=False)
    assert not gpu_here.machine_here(rehearse=True).is_gpu


def test_the_cluster_of_a_machine_has_its_gpu_alone_and_starts_its_rank_directly() -> None:
    local = read_yaml(PROJECT_ROOT / "profiles/local/cluster.yaml")
    made = cluster_content(local, Machine("h100", "NVIDIA H100 80GB HBM3", 16), "mine", "a.yaml")
    assert made["launcher"] == "env SCALEWATT_RANK_COUNT={gpus}"
    assert list(made["devices"]) == ["h100"]
    assert (made["cluster"], made["campaign"]) == ("mine", "a.yaml")
    assert made["devices"]["h100"]["torch_device"] == "cuda"
    assert made["devices"]["h100"]["cpus_per_rank"] == 16


@pytest.mark.parametrize(
    ("text", "words"),
    [("minuts=3", "unknown key 'minuts'.*did you mean 'minutes'"), ("minutes=soon", "a number above 0"),
     ("minutes=-1", "a number above 0"), ("minutes", "a number above 0")],
)  # fmt: skip
def test_limits_that_are_wrong_are_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        limits_of([text], rehearse=False)


def test_limits_are_those_given_else_the_default_ones() -> None:
    assert limits_of([], rehearse=False) == Limits()
    assert limits_of(["minutes=10", "seconds=5"], rehearse=False) == Limits(10, seconds=5)
    assert limits_of(["minutes=1"], rehearse=True).seconds == 1.5


# --- fitting --------------------------------------------------------------------------------------


def content() -> dict[str, Any]:
    """The shipped campaign, on an H100."""
    found = read_yaml(PROJECT_ROOT / CAMPAIGNS[False])
    for entry in found["series"].values():
        entry["device"] = "h100"
    return copy.deepcopy(found)


def expanded(made: dict[str, Any]) -> Campaign:
    return expand(made, Path("one-gpu.yaml"), DEVICES)


def asked(campaign: Campaign) -> list[Asked]:
    return asked_trials(campaign, dict.fromkeys(campaign.datasets(), "somewhere"))


def trials_of(
    campaign: Campaign, largest: dict[str, int], rate: float = 1000.0
) -> dict[str, Trial]:
    """Trials on a stand-in GPU that holds `largest` by model and computes `rate` samples/s."""
    found = {}
    for one in asked(campaign):
        spec = one.spec
        most = largest[spec.model]
        batch = most if one.largest else min(most, spec.local_batch_size)
        step_s = batch / (rate if spec.model == "resnet50" else rate / 100)
        found[spec.configuration] = Trial(
            spec.configuration, batch, step_s if batch else None, 1.0, START_S
        )
    return found


H100 = {"resnet50": 896, "fourcastnet": 12}


def fitted(seconds: float = 20, minutes: float = 600, largest: dict[str, int] = H100) -> Any:
    made = content()
    campaign = expanded(made)
    return fit(made, campaign, trials_of(campaign, largest), seconds, minutes)


def test_every_point_trains_as_long_as_its_energy_asks_in_whole_batches() -> None:
    campaign = expanded(fitted().content)
    for one in campaign.configurations.values():
        rate = 1000 if one.model == "resnet50" else 10
        assert one.dataset_samples % one.local_batch_size == 0
        samples = one.dataset_samples * one.epochs
        assert samples / rate >= 20
        if one.dataset["name"] != "photos" and one.phase != "finetune":
            assert samples / rate <= 20 + one.local_batch_size / rate + 1e-9
    photos = [one for one in campaign.configurations.values() if one.dataset["name"] == "photos"]
    assert photos and all((one.epochs, one.dataset_samples) == (2, 16384) for one in photos)


def test_the_largest_batch_of_a_line_becomes_the_largest_that_fits() -> None:
    series = fitted().content["series"]
    assert series["resnet50-fast-largest"]["local_batch_size"] == 896
    assert series["fourcastnet-largest"]["local_batch_size"] == 12
    assert series["resnet50-fast-256"]["local_batch_size"] == 256
    assert (
        fitted(largest={"resnet50": 4096, "fourcastnet": 12}).content["series"][
            "resnet50-fast-largest"
        ]["local_batch_size"]
        == 4096
    )


def test_what_does_not_fit_is_left_out_by_name_and_what_becomes_another_point_too() -> None:
    found = fitted(largest={"resnet50": 48, "fourcastnet": 1})
    left = "\n".join(found.left_out)
    assert "resnet50-fast-64: LBS 48, the largest that fits, is another's already" in left
    assert "fourcastnet-4: LBS 1" in left
    assert set(found.content["figures"]["breakdown"]["series"]) == set(found.content["series"])
    expanded(found.content)
    none = fitted(largest={"resnet50": 48, "fourcastnet": 0})
    assert "fourcastnet-1: not even a batch of 1 fits into the memory" in none.left_out
    assert "fourcastnet-finetune-1: not even a batch of 1 fits into the memory" in none.left_out


def test_fine_tuning_has_the_batch_samples_and_repeats_of_the_pre_training_before_it() -> None:
    campaign = expanded(fitted().content)
    fine = [one for one in campaign.configurations.values() if one.phase == "finetune"]
    assert fine
    for one in fine:
        before = campaign.configurations[str(one.initial_weights)]
        assert before.dataset_samples == one.dataset_samples
        assert before.local_batch_size == one.local_batch_size


def test_where_time_is_short_repeats_go_first_and_then_the_last_series() -> None:
    whole = fitted()
    repeats = sum(entry["repeats"] for entry in whole.content["series"].values())
    tight = fitted(minutes=whole.minutes - 0.1)
    assert tight.minutes <= whole.minutes - 0.1
    assert sum(entry["repeats"] for entry in tight.content["series"].values()) == repeats - 1
    assert (
        tight.left_out == ("fourcastnet-1: a repeat, for lack of time",) or len(tight.left_out) == 1
    )
    short = fitted(minutes=5)
    assert all(entry["repeats"] == 1 for entry in short.content["series"].values())
    names = list(content()["series"])
    kept = list(short.content["series"])
    assert kept == [name for name in names if name in kept] and len(kept) < len(names)
    assert names[0] in kept and names[-1] not in kept
    expanded(short.content)
    with pytest.raises(InputError, match=r"nothing of it can be run in 0\.1 minutes"):
        fitted(minutes=0.1)


def test_the_expected_time_is_that_of_training_start_and_end() -> None:
    made = content()
    campaign = expanded(made)
    found = fit(made, campaign, trials_of(campaign, H100), 20, 600)
    after = expanded(found.content)
    trained = sum(
        after.repeats[id_] * one.dataset_samples * one.epochs
        / (1000 if one.model == "resnet50" else 10)
        for id_, one in after.configurations.items()
    )  # fmt: skip
    runs = sum(after.repeats.values())
    compiled = sum(one.settings["compile"] for one in after.configurations.values())
    expected = trained + runs * (START_S + PROCESS_S + CLOSING_S) + compiled * COMPILE_S
    assert compiled == 3 and found.minutes * 60 == pytest.approx(expected)


def test_a_short_or_slow_point_still_leaves_a_sample_to_validate_on() -> None:
    made = content()
    campaign = expanded(made)
    found = fit(made, campaign, trials_of(campaign, H100, rate=100.0), 3, 6000)
    assert all(
        one.validation_samples >= 1 for one in expanded(found.content).configurations.values()
    )


def test_an_archive_that_cannot_be_written_is_refused_before_anything_is_trained(
    tmp_path: Path,
) -> None:
    (tmp_path / "there").touch()
    for path in (tmp_path / "there", tmp_path / "nowhere" / "study.tar.gz"):
        with pytest.raises(InputError, match="expected a new file"):
            study(True, Limits(), False, path)


def test_a_run_that_is_compiled_is_tried_as_it_is() -> None:
    specs = {one.spec.configuration: one.spec for one in asked(expanded(content()))}
    (compiled,) = [
        spec for name, spec in specs.items()
        if spec.settings["compile"] and spec.model == "resnet50"
    ]  # fmt: skip
    plain = uncompiled(compiled)
    assert not plain.settings["compile"] and plain.text in {
        replace(one).text for one in specs.values()
    }


# --- trials ---------------------------------------------------------------------------------------


def small() -> Campaign:
    made = read_yaml(PROJECT_ROOT / CAMPAIGNS[True])
    for entry in made["series"].values():
        entry["device"] = "h100"
    return expanded(made)


def test_trials_time_real_updates_in_a_process_of_their_own(tmp_path: Path) -> None:
    wanted = [one for one in asked(small()) if one.spec.model == "fourcastnet"]
    told: list[str] = []
    found = run_trials(wanted, "cpu", 1, 0.05, told.append)
    assert set(found) == {one.spec.configuration for one in wanted}
    for one in wanted:
        trial = found[one.spec.configuration]
        assert trial.local_batch_size == one.spec.local_batch_size
        assert trial.step_s and 0 < trial.step_s < 60 and trial.start_s > 0
    assert len(told) == len(found)


def test_a_trial_that_fails_names_its_configuration_and_the_reason(tmp_path: Path) -> None:
    (one,) = [
        a
        for a in asked(small())
        if a.spec.configuration.endswith("s0000400") and a.spec.phase == "finetune"
    ]
    broken = replace(one, spec=replace(one.spec, settings={**one.spec.settings, "embed_dim": 63}))
    with pytest.raises(InputError, match=r"ended at fourcastnet\.finetune-.*: exit code 1: "):
        run_trials([broken], "cpu", 1, 0.05, print)


class LittleMemory:
    """Trials on a stand-in GPU that holds `limit` samples."""

    def __init__(self, limit: int) -> None:
        self.limit, self.seconds, self.timed = limit, 1.0, 0
        self.device = torch.device("cuda")

    def of(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        trials = object.__new__(trial_child.Trials)
        trials.device, trials.seconds = self.device, self.seconds
        monkeypatch.setattr(trials, "_trainer", lambda spec, folder: None)
        monkeypatch.setattr(trial_child, "trials", lambda _: lambda size: size <= self.limit)

        def timed(spec: Any, folder: str) -> tuple[float, int]:
            if spec.local_batch_size > self.limit:
                raise torch.OutOfMemoryError("CUDA out of memory")
            self.timed = spec.local_batch_size
            return 0.5, 2**30

        monkeypatch.setattr(trials, "_timed", timed)
        return trials


@pytest.mark.parametrize(
    ("limit", "asked_batch", "wants_largest", "expected"),
    [(1000, 256, False, 256), (1000, 256, True, 968), (100, 256, False, 88), (5, 256, True, 4),
     (100_000, 256, True, 1976)],
)  # fmt: skip
def test_a_trial_finds_the_largest_batch_that_fits_where_asked_or_needed(
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    asked_batch: int,
    wants_largest: bool,
    expected: int,
) -> None:
    gpu = LittleMemory(limit)
    spec = replace(
        asked(small())[0].spec, local_batch_size=asked_batch, global_batch_size=asked_batch
    )
    found = gpu.of(monkeypatch).trial(spec, "nowhere", wants_largest)
    assert found.local_batch_size == expected == gpu.timed
    assert (found.step_s, found.peak_memory_gib) == (0.5, 1.0)


def test_a_model_of_which_no_sample_fits_is_tried_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = LittleMemory(0).of(monkeypatch).trial(asked(small())[0].spec, "nowhere", True)
    assert (found.local_batch_size, found.step_s) == (0, None)


# --- runs -----------------------------------------------------------------------------------------


def test_a_study_that_is_asked_to_stop_waits_for_its_training(tmp_path: Path) -> None:
    """The training answers Ctrl-C itself, at its next step."""
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (time.sleep(1), sys.exit(75)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    study = (
        "import sys\n"
        "from scalewatt.gpu_study.plain_runs import run_to_its_end\n"
        f"print(run_to_its_end([sys.executable, '-c', {script!r}]), flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", study], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    began_s = time.monotonic()
    assert process.stdout.readline() == "75\n"
    assert process.wait(10) == 0 and time.monotonic() - began_s > 0.9


def test_a_packed_study_has_no_weights_and_overwrites_nothing(tmp_path: Path) -> None:
    run = tmp_path / "results" / "one-gpu-h100" / "runs" / "a" / "1"
    run.mkdir(parents=True)
    for name in ("weights.pt", "spec.json", "history.parquet"):
        (run / name).write_text(json.dumps(name))
    out = tmp_path / "study.tar.gz"
    plain_runs.pack([tmp_path / "results" / "one-gpu-h100"], out)
    with tarfile.open(out) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"spec.json", "history.parquet"} <= names and "weights.pt" not in names
    with pytest.raises(InputError, match="exists already"):
        plain_runs.pack([tmp_path / "results" / "one-gpu-h100"], out)
