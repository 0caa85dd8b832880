"""Campaigns of commands: what they become, and what is refused."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from campaign_files import DEMO, PAPER, write_yaml
from run_files import make_spec

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.external_command import (
    check_commands,
    check_unchanged,
    command_files,
    command_words,
    find_launcher,
    is_command_spec,
)
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.execution.command_rank import child_environment
from scalewatt.run_files.record import Job

ENTRY = {
    "workload": "command",
    "command": "python train.py --batch-size {local_batch_size} '{configuration} {repeat}'",
    "files": ["train.py"],
    "epochs": 3,
}


def content(entry: dict[str, Any] | None = None, **series: Any) -> dict[str, Any]:
    given = {"model": "mynet", "device": "local", "gpus": [1, 2], "local_batch_size": 32}
    return {
        "name": "own",
        "protocol": "corrected",
        "models": {"mynet": ENTRY | (entry or {})},
        "series": {"one": given | series},
        "figures": {"figure1": {"series": ["one"]}},
    }


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script, in the folder where the workflow is started."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("print()\n")
    return path


def own(entry: dict[str, Any] | None = None, **series: Any) -> Campaign:
    return expand(content(entry, **series), Path("own.yaml"), known_devices())


def spec(campaign: Campaign, gpus: int = 2, repeat: int = 1) -> RunSpec:
    return run_spec(campaign, campaign.series["one"].points[gpus], repeat)


def test_a_campaign_is_checked_for_a_site(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "--site", "horeka", str(PAPER)]) == 0
    assert "runs: 175" in capsys.readouterr().out
    assert main(["campaign", "--site", "horeka", str(DEMO)]) == 1
    assert "'local' is not on the cluster 'horeka'" in capsys.readouterr().err


# --- commands -----------------------------------------------------------------------------------


def test_a_command_needs_no_prepared_dataset() -> None:
    campaign = own()
    assert list(campaign.configurations) == [
        "mynet-local-n001-lbs0032-full",
        "mynet-local-n002-lbs0032-full",
    ]
    assert campaign.datasets() == {}
    assert list(campaign.command_settings()) == ["mynet"]
    run = spec(campaign)
    assert is_command_spec(run) and not is_command_spec(make_spec())
    assert run.dataset_samples is run.updates is run.samples_per_epoch is None


def test_declared_samples_can_be_scaled_and_a_series_may_change_a_few_keys() -> None:
    run = spec(own({"samples": 1000}, dataset_fraction="n/4"))
    assert (run.dataset_samples, run.updates_per_epoch) == (500, 8)
    assert run.configuration == "mynet-local-n002-lbs0032-s0000500"
    run = spec(own({"samples": 64}, settings={"epochs": 5, "precision": "bf16"}))
    assert (run.epochs, run.settings["precision"]) == (5, "bf16")
    assert run.configuration.endswith("-full-epochs5-precisionbf16")
    with pytest.raises(InputError, match="unknown key 'command'"):
        own(settings={"command": "python other.py"})


def test_the_words_of_a_command_are_those_of_its_run() -> None:
    name = "mynet-local-n002-lbs0032-full"
    words = ["python", "train.py", "--batch-size", "32", f"{name} 4"]
    assert command_words(spec(own(), repeat=4)) == words
    shell = own({"command": "exec python train.py {gpus}; {{ true; }}", "shell": True})
    assert command_words(spec(shell))[-1] == "exec python train.py 2; { true; }"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sh -c 'exit 3' | cat", 3),
        ("echo $NOT_SET; true", 1),
        ("false || true", 0),
    ],
)
def test_a_shell_line_ends_as_the_first_command_that_fails(line: str, code: int) -> None:
    words = command_words(spec(own({"command": line, "shell": True})))
    assert subprocess.run(words, capture_output=True).returncode == code


def test_batches_updates_and_passes_of_a_split_model_count_its_copies() -> None:
    entry = {"command": "python train.py {gpus_per_replica} {gradient_accumulation_steps}"}
    split = {"samples": 1000, "gpus_per_replica": 2, "gradient_accumulation_steps": 4}
    run = spec(own(entry | split, gpus=[2, 4]), gpus=4)
    assert (run.replicas, run.gradient_accumulation_steps) == (2, 4)
    assert (run.local_batch_size, run.global_batch_size) == (32, 64)
    assert run.updates_per_epoch == -(-500 // 32)
    assert command_words(run)[-2:] == ["2", "4"]


@pytest.mark.parametrize("change", ["changed", "new", "gone"])
def test_files_that_change_after_the_start_of_a_run_are_noticed(
    change: str, script: Path, tmp_path: Path
) -> None:
    other = tmp_path / "tools.py"
    if change != "new":
        other.write_text("one = 1\n")
    run = spec(own({"files": ["*.py"]}))
    files = command_files(run)
    assert files["train.py"] == hashlib.sha256(b"print()\n").hexdigest()
    check_unchanged(run, files)
    other.write_text("two = 2\n") if change != "gone" else other.unlink()
    with pytest.raises(InputError, match=r"^tools\.py: has changed.*mynet-local-n002"):
        check_unchanged(run, files)


WRONG = {
    "a placeholder that is not known": (
        content({"command": "python train.py {gpu}"}),
        ["models.mynet.command", "'{gpu}'", "{local_batch_size}", "did you mean 'gpus'?"],
    ),
    "samples that are not declared": (
        content({"command": "python train.py {samples}"}),
        ["'{samples}' is not known", "`samples`"],
    ),
    "a part of unknown samples": (
        content(None, dataset_fraction="n/4"),
        ["series.one.dataset_fraction", "n/4", "`samples` in models.mynet"],
    ),
    "more GPUs than samples": (
        content({"samples": 4}, dataset_fraction="1/4"),
        ["leaves 1 training samples for 2 GPUs"],
    ),
    "a file that is not there": (content({"files": ["trian.py"]}), ["models.mynet.files", "trian"]),
    "an unknown key": (content({"file": "a"}), ["models.mynet: unknown key 'file'", "'files'"]),
    "a model of the project as a command": (
        {**content(), "models": {"mynet": ENTRY, "resnet50": ENTRY}},
        ["own.yaml: models: 'resnet50' cannot be the name of a command"],
    ),
}


@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG)
def test_a_campaign_of_commands_is_refused_for(
    given: dict[str, Any], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_yaml(tmp_path / "own.yaml", given)
    before = sorted(tmp_path.rglob("*"))
    assert main(["campaign", "own.yaml"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("scalewatt: error: ") and message.count("\n") == 1
    assert not [word for word in words if word not in message], message
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        "/opt/env/bin/torchrun --standalone --nproc_per_node={ranks_per_node} train.py",
        "python -m torch.distributed.run train.py",
        "cd data && srun python train.py",
        "export A=1\nNCCL_DEBUG=INFO exec torchrun train.py 2>&1 | tee log",
    ],
)
def test_a_command_that_starts_ranks_itself_is_refused(command: str) -> None:
    with pytest.raises(
        InputError, match=r"^own\.yaml: models\.mynet\.command: '.* starts ranks"
    ) as no:
        check_commands(own({"command": command, "shell": True}))
    assert "python train.py" in str(no.value), "the remedy"


def test_a_launchers_name_as_the_value_of_an_option_starts_nothing() -> None:
    assert find_launcher("python train.py --epochs 3 --strategy deepspeed --lr 1") is None
    for command in (
        "python -m deepspeed train.py",
        "uv run --frozen torchrun train.py",
        "python a.py --verbose; srun python b.py",
    ):
        assert find_launcher(command)


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        ({"settings": {"epochs": 5}}, "series.one changes epochs, but {command} has no {{epochs}}"),
        ({"dataset_fraction": "n/4"}, "samples, but {command} has no {{samples}}"),
        ({"settings": {"samples": 64}}, "samples, but {command} has no {{samples}}"),
        ({"seeds": "varied", "repeats": 3}, "seed, but {command} has no {{seed}}"),
        (
            {"settings": {"gpus_per_replica": 2}, "gpus": [2, 4]},
            "gpus_per_replica, but {command} has no {{gpus_per_replica}}",
        ),
        (
            {"global_batch_size": 32},
            "local_batch_size, but {command} has no {{local_batch_size}}",
        ),
    ],
)
def test_a_series_that_changes_what_its_command_does_not_receive_is_refused(
    series: dict[str, Any], reason: str, script: Path
) -> None:
    def check(command: str) -> None:
        given = content({"command": command, "samples": 1000}, **series)
        if "global_batch_size" in series:
            del given["series"]["one"]["local_batch_size"]
        check_commands(expand(given, Path("own.yaml"), known_devices()))

    with pytest.raises(InputError) as refused:
        check("python train.py --width 3")
    assert reason.format(command="models.mynet.command") in str(refused.value)
    check(f"python train.py {{{reason.split('{{')[1][:-2]}}}")
    check("python train.py {configuration} {repeat}")
    script.write_text("import os; os.environ['SCALEWATT_SPEC']\n")
    check("python train.py")  # reads them from spec.json


WORLD = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "4711",
}  # fmt: skip


def test_a_command_finds_torchruns_variables_and_none_of_mpis() -> None:
    launcher = {"PMI_FD": "7", "PMI_RANK": "5", "HYDI_CONTROL_FD": "8", "OMPI_COMM_WORLD_SIZE": "8"}
    given = {**launcher, "SLURM_JOB_ID": "1", "HOME": "/home/me"}
    variables = child_environment(given, WORLD, Job(make_spec(), "", Path("/work/run"), 2))
    assert not set(launcher) & set(variables)
    assert (variables["SLURM_JOB_ID"], variables["HOME"]) == ("1", "/home/me")
    wanted = {
        **WORLD, "SCALEWATT_SEGMENT": "2",
        "SCALEWATT_WORK": "/work/run/script", "SCALEWATT_SPEC": "/work/run/spec.json",
    }  # fmt: skip
    assert {name: variables[name] for name in wanted} == wanted
    assert "GLOO_SOCKET_IFNAME" not in variables
