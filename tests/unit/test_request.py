"""What a job asks for: geometry, memory, wall time; and what is refused before anything is asked."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import yaml
from campaign_files import DELETE, DEMO, PAPER, ROOT, edited, write_yaml
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.campaign.cluster import load_cluster, parse_cluster
from scalewatt.campaign.expand import load_campaign
from scalewatt.campaign.model import Campaign, Cluster, Device
from scalewatt.campaign.spec import run_spec
from scalewatt.errors import InputError
from scalewatt.jobs.position import done_updates, note_position
from scalewatt.jobs.request import (
    RESOURCES,
    Request,
    account_of,
    as_resources,
    check_requests,
    probe_request,
    step_time_s,
    training_request,
    wall_time_min,
)

HOREKA = ROOT / "profiles" / "horeka" / "cluster.yaml"
UNLIMITED_MIN = 10**6


@cache
def horeka() -> Cluster:
    return load_cluster(HOREKA)


@cache
def paper() -> Campaign:
    return load_campaign(PAPER, horeka())


def device(**values: Any) -> Device:
    """A device of a Slurm cluster whose limit is a day."""
    given = {
        "name": "a100",
        "gpus_per_node": 4,
        "cpus_per_rank": 8,
        "cpu": {"sockets": 2, "idle_w": 80, "rated_w": 270},
        "partition": "gpu",
        "gres": "gpu",
        "time_limit_min": 1440,
    }
    return Device(**{**given, **values})


def cluster(one: Device | None = None, **values: Any) -> Cluster:
    chosen = one or device()
    return Cluster(name="mini", launcher="srun", devices={chosen.name: chosen}, **values)


def spec(**values: Any) -> dict[str, Any]:
    """A run of 100 epochs of 50 updates on two nodes."""
    return {
        "configuration": "resnet50-a100-n008-lbs0032-full",
        "model": "resnet50",
        "phase": "train",
        "repeat": 1,
        "gpus": 8,
        "nodes": 2,
        "ranks_per_node": 4,
        "local_batch_size": 32,
        "updates_per_epoch": 50,
        "updates": 5000,
        **values,
    }


def bound(base_s: float, per_sample_s: float) -> dict[str, dict[str, float]]:
    return {"resnet50": {"base_s": base_s, "per_sample_s": per_sample_s}}


# --- geometry -----------------------------------------------------------------------------------


def test_a_training_asks_for_whole_nodes_of_its_devices_partition() -> None:
    request = training_request(spec(), device(memory_mb=4000), cluster())
    assert (request.partition, request.nodes, request.tasks_per_node) == ("gpu", 2, 4)
    assert (request.cpus_per_task, request.gres, request.memory_mb) == (8, "gpu:4", 4000)
    assert request.held_gpus == 8
    assert "--exclusive" in request.extra


def test_a_run_on_one_gpu_holds_all_of_its_node() -> None:
    request = training_request(spec(gpus=1, nodes=1, ranks_per_node=1), device(), cluster())
    assert (request.nodes, request.tasks_per_node) == (1, 1)
    assert (request.gres, request.held_gpus) == ("gpu:4", 4)


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_the_papers_runs_have_four_gpus_a_node(gpus: int) -> None:
    ids = [c.id for c in paper().configurations.values() if c.gpus == gpus]
    assert ids
    for id_ in ids:
        run = run_spec(paper(), id_, 1)
        request = training_request(run, horeka().devices[run["device"]], horeka())
        assert request.nodes == max(1, gpus // 4)
        assert request.nodes * request.tasks_per_node == gpus
        assert request.held_gpus == 4 * request.nodes


def test_a_device_without_gpus_asks_for_none() -> None:
    request = training_request(spec(), device(gres=None), cluster())
    assert request.gres is None
    # the executor would ask for one task
    assert as_resources(request)["tasks"] == 8


def test_the_warning_goes_to_the_ranks_and_not_to_the_batch_shell_alone() -> None:
    request = training_request(spec(), device(), cluster(stop_warning_s=120))
    assert "--signal=USR1@120" in request.extra


def test_later_repeats_wait_behind_earlier_ones() -> None:
    def nice(repeat: int) -> int:
        extra = training_request(spec(repeat=repeat), device(), cluster()).extra
        return int(next((o.partition("=")[2] for o in extra if o.startswith("--nice=")), 0))

    assert [nice(repeat) for repeat in (1, 2, 3)] == [0, 100, 200]


def test_excluded_nodes_are_asked_for_by_nobody() -> None:
    without = cluster(exclude_nodes=("n7", "n[01-03]"))
    for request in (
        training_request(spec(), device(), without),
        probe_request(device(), without, 20),
    ):
        assert "--exclude=n7,n[01-03]" in request.extra
        # as one word of the shell that runs sbatch
        assert "'--exclude=n7,n[01-03]'" in str(as_resources(request)["slurm_extra"])
    assert "--exclude" not in str(training_request(spec(), device(), cluster()).extra)


def test_a_probe_asks_for_one_node_with_all_its_gpus_and_its_own_minutes() -> None:
    request = probe_request(device(), cluster(), 20)
    assert (request.nodes, request.tasks_per_node, request.runtime_min) == (1, 4, 20)
    assert request.held_gpus == 4
    on_cpu = probe_request(device(torch_device="cpu"), cluster(), 20)
    assert (on_cpu.tasks_per_node, on_cpu.held_gpus) == (1, 4)


def test_the_account_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PROJECT", "hk-project-x")
    assert account_of(cluster(account="$MY_PROJECT")) == "hk-project-x"
    assert training_request(spec(), device(), cluster(account="plain")).account == "plain"
    assert account_of(cluster()) is None
    monkeypatch.delenv("MY_PROJECT")
    assert account_of(cluster(account="$MY_PROJECT")) == "$MY_PROJECT"


def test_the_executor_gets_every_resource_and_starts_no_srun() -> None:
    resources = as_resources(training_request(spec(), device(), cluster(account="project")))
    assert tuple(resources) == RESOURCES
    assert resources["mpi"] == ""
    assert resources["tasks"] is None  # the executor would make them tasks per GPU
    assert str(resources["slurm_extra"]).startswith("--ntasks-per-node=4 ")
    assert (resources["slurm_account"], resources["gres"]) == ("project", "gpu:4")


def test_the_slurm_executor_takes_what_is_asked_for() -> None:
    from types import SimpleNamespace

    from snakemake.iocontainers import ResourceList
    from snakemake_executor_plugin_slurm.submit_string import get_submit_command
    from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

    names = ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir")
    for one, run in [
        (device(), spec()),
        (device(), spec(gpus=2, ranks_per_node=1)),
        (device(gres=None), spec()),
    ]:
        asked = as_resources(training_request(run, one, cluster(one, exclude_nodes=("n1",))))
        resources = ResourceList(fromdict={k: v for k, v in asked.items() if v is not None})
        job: Any = SimpleNamespace(resources=resources, threads=1)
        validate_slurm_extra(job)
        command = get_submit_command(job, dict.fromkeys(names, "x"))
        assert "--nodes=2 " in command
        assert f"--ntasks-per-node={run['ranks_per_node']} " in command
        assert "--cpus-per-task=8 " in command
        assert ("--ntasks=8 " in command) == (one.gres is None)


# --- wall time ----------------------------------------------------------------------------------


def test_the_wall_time_follows_the_stated_rule() -> None:
    one = device(step_time=bound(0.2, 0.025))  # 1 s an update
    # 15 + 1.25 × 5000 / 60 + 10 = 129.2
    assert step_time_s(spec(), one) == pytest.approx(1.0)
    assert wall_time_min(spec(), one) == 130
    # 15 + 1.25 × 1000 / 60 + 10 = 45.8
    assert wall_time_min(spec(), one, done_updates=4000) == 50
    # 15 + 1.25 × 1000 / 60 + 2 = 37.8
    assert wall_time_min(spec(), one, done_updates=4000, stop_warning_s=120) == 40


def test_the_wall_time_of_a_run_at_its_end_has_room_for_an_epoch() -> None:
    one = device(step_time=bound(0.2, 0.025))
    assert wall_time_min(spec(), one, done_updates=5000) == 30


def test_without_a_known_time_of_an_update_the_limit_is_asked_for() -> None:
    assert wall_time_min(spec(), device()) == 1440
    other = device(step_time={"fourcastnet": {"base_s": 1, "per_sample_s": 1}})
    assert wall_time_min(spec(), other) == 1440
    unknown = spec(updates=None, updates_per_epoch=None)
    assert wall_time_min(unknown, device(step_time=bound(0.2, 0.025))) == 1440


def test_a_phase_may_have_a_time_of_its_own() -> None:
    times = {
        "fourcastnet": {"base_s": 1, "per_sample_s": 0.1},
        "fourcastnet.finetune": {"base_s": 2, "per_sample_s": 0.1},
    }
    one = device(step_time=times)
    pretrain = spec(model="fourcastnet", phase="pretrain", local_batch_size=10)
    assert step_time_s(pretrain, one) == pytest.approx(2)
    assert step_time_s(pretrain | {"phase": "finetune"}, one) == pytest.approx(3)


@given(
    epochs=st.integers(1, 500),
    per_epoch=st.integers(1, 20000),
    done=st.integers(0, 10**7),
    base_s=st.floats(0, 2),
    per_sample_s=st.floats(1e-5, 0.1),
    limit=st.integers(30, 5000),
)
def test_the_wall_time_is_never_above_the_limit_and_never_grows_with_progress(
    epochs: int, per_epoch: int, done: int, base_s: float, per_sample_s: float, limit: int
) -> None:
    one = device(step_time=bound(base_s, per_sample_s), time_limit_min=limit)
    run = spec(updates_per_epoch=per_epoch, updates=epochs * per_epoch)
    step_s = base_s + 32 * per_sample_s
    if 15 + per_epoch * step_s / 60 + 10 > limit:
        with pytest.raises(InputError, match="cannot make progress"):
            wall_time_min(run, one, done)
        return
    asked = wall_time_min(run, one, done)
    assert 0 < asked <= limit
    assert asked <= wall_time_min(run, one)
    remaining = max(epochs * per_epoch - done, per_epoch)
    enough = 15 + 1.25 * remaining * step_s / 60 + 10
    assert asked == limit or enough <= asked < enough + 10 + 1e-6


def published() -> list[dict[str, str]]:
    text = (ROOT / "reference" / "published_results.csv").read_text(encoding="utf-8")
    return [row for row in csv.DictReader(text.splitlines()) if row["runtime_h"]]


def published_spec(row: dict[str, str]) -> dict[str, Any]:
    gpus, samples = int(row["gpus"]), int(row["dataset_samples"])
    each = math.ceil(samples // gpus / int(row["local_batch_size"]))
    return spec(
        model=row["model"],
        phase=row["phase"],
        local_batch_size=int(row["local_batch_size"]),
        updates_per_epoch=each,
        updates=each * int(row["epochs"]),
    )


def published_id(row: dict[str, str]) -> str:
    names = ("model", "device", "gpus", "local_batch_size", "dataset_samples", "epochs")
    return "-".join(row[name] for name in names)


def test_there_are_published_times_of_every_device() -> None:
    assert len(published()) == 26
    assert {row["device"] for row in published()} == set(horeka().devices)


@pytest.mark.parametrize("row", published(), ids=published_id)
def test_no_published_run_takes_longer_than_the_rule_asks_for(row: dict[str, str]) -> None:
    one = horeka().devices[row["device"]]
    run, took_min = published_spec(row), 60 * float(row["runtime_h"])
    asked = wall_time_min(run, replace(one, time_limit_min=UNLIMITED_MIN))
    assert 1.0 < asked / took_min < 3.0
    assert wall_time_min(run, one) == min(asked, 2880)
    # an update's bound is one, the start-up and the margin aside
    assert took_min * 60 / run["updates"] < step_time_s(run, one)


def test_of_every_training_of_the_paper_horeka_knows_the_time() -> None:
    for id_, configuration in paper().configurations.items():
        run = run_spec(paper(), id_, 1)
        assert step_time_s(run, horeka().devices[configuration.device]) is not None, id_


def test_the_updates_that_are_done_come_from_the_checkpoint(tmp_path: Any) -> None:
    id_ = "resnet50-a100-n008-lbs0032-full"
    run = run_spec(paper(), id_, 1)
    assert done_updates(tmp_path, run) == 0
    from scalewatt.jobs.attempts import run_key

    folder = tmp_path / f"{run_key(run)}-01234567"
    folder.mkdir()
    assert done_updates(tmp_path, run) == 0
    note_position(folder, updates=4321, epoch=8, step=17)
    assert done_updates(tmp_path, run) == 4321
    (folder / "position.json").write_text('{"updates": "many"')
    assert done_updates(tmp_path, run) == 0


# --- refused ------------------------------------------------------------------------------------


def refusal(function: Any, *arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_limit_below_an_epoch_cannot_make_progress() -> None:
    one = device(time_limit_min=60, step_time=bound(60, 0.01))
    message = refusal(wall_time_min, spec(), one)
    for part in (
        "resnet50-a100-n008-lbs0032-full: this run cannot make progress",
        "devices.a100.time_limit_min is 60",
        "one epoch needs about 76 min",
        "50 updates",
        "allowed: a longer limit",
    ):
        assert part in message


def test_a_limit_as_long_as_the_warning_cannot_make_progress() -> None:
    message = refusal(wall_time_min, spec(), device(time_limit_min=10))
    assert "this run cannot make progress" in message
    assert "10 min (stop_warning_s)" in message
    assert wall_time_min(spec(), device(time_limit_min=1), stop_warning_s=20) == 1


def test_more_cpus_than_a_node_has_are_refused() -> None:
    one = device(cpus_per_node=24)
    for function, arguments in (
        (training_request, (spec(), one, cluster(one))),
        (probe_request, (one, cluster(one), 20)),
    ):
        message = refusal(function, *arguments)
        assert "no node of devices.a100 holds it" in message
        assert "4 ranks × cpus_per_rank 8 = 32 CPUs, but cpus_per_node is 24" in message
        assert "allowed: cpus_per_rank of at most 6" in message
    alone = spec(gpus=1, nodes=1, ranks_per_node=1)
    assert isinstance(training_request(alone, one, cluster(one)), Request)


def test_a_probe_longer_than_the_limit_is_refused() -> None:
    message = refusal(probe_request, device(time_limit_min=60), cluster(), 75)
    assert "75 min" in message
    assert "time_limit_min is 60" in message


def test_a_campaign_is_held_against_its_devices_before_anything_starts() -> None:
    check_requests(paper(), horeka())
    a100 = replace(horeka().devices["a100"], cpus_per_node=76)
    small = replace(horeka(), devices={**horeka().devices, "a100": a100})
    assert "cpus_per_node is 76" in refusal(check_requests, paper(), small)
    short = replace(
        horeka(), devices={**horeka().devices, "a100": replace(a100, cpus_per_node=None)}
    )
    short = replace(
        short, devices={k: replace(d, time_limit_min=60) for k, d in short.devices.items()}
    )
    assert "cannot make progress" in refusal(check_requests, paper(), short)


def test_a_machine_without_partitions_is_not_asked(tmp_path: Any) -> None:
    local = load_cluster(ROOT / "profiles" / "local" / "cluster.yaml")
    one = replace(local.devices["local"], cpus_per_node=1, cpus_per_rank=8)
    check_requests(load_campaign(DEMO, local), replace(local, devices={"local": one}))


CLUSTER_EDITS: dict[str, tuple[dict[tuple[str, ...], Any], list[str]]] = {
    "a partition without a limit": (
        {("devices", "a100", "time_limit_min"): DELETE},
        ["devices.a100", "time_limit_min", "accelerated", "minutes"],
    ),
    "a device without a partition beside one with": (
        {("devices", "h100", "partition"): DELETE},
        ["devices.h100", "'partition'", "devices.a100", "all devices of a file or none"],
    ),
    "an account of two words": ({("account",): "my project"}, ["account", "without spaces"]),
    "a node that is no name": ({("exclude_nodes",): ["n 1"]}, ["exclude_nodes[0]", "node's name"]),
    "a warning of nothing": ({("stop_warning_s",): 0}, ["stop_warning_s", "1 or more"]),
    "a warning that Slurm does not know": (
        {("stop_warning_s",): 70000},
        ["stop_warning_s", "at most 65535"],
    ),
    "a negative number of jobs": ({("crash_retries",): -1}, ["crash_retries", "0 or more"]),
    "a time without its part per sample": (
        {("devices", "a100", "step_time", "resnet50"): {"base_s": 1}},
        ["step_time.resnet50", "per_sample_s"],
    ),
    "a negative time": (
        {("devices", "a100", "step_time", "resnet50", "base_s"): -1},
        ["step_time.resnet50.base_s", "0 or more"],
    ),
    "a node of no CPUs": (
        {("devices", "a100", "cpus_per_node"): 0},
        ["cpus_per_node", "1 or more"],
    ),
}


@pytest.mark.parametrize(("edits", "parts"), CLUSTER_EDITS.values(), ids=CLUSTER_EDITS)
def test_a_wrong_cluster_file_is_refused_with_what_is_allowed(
    edits: dict[tuple[str, ...], Any], parts: list[str]
) -> None:
    message = refusal(parse_cluster, edited(edits, HOREKA), "mine.yaml")
    for part in ["mine.yaml", *parts]:
        assert part in message


def test_an_energy_budget_is_read_and_must_be_more_than_nothing(tmp_path: Any) -> None:
    def read(value: Any) -> Campaign:
        content = edited({("energy_budget_kwh",): value})
        return load_campaign(write_yaml(tmp_path / "campaign.yaml", content))

    assert read(12.5).energy_budget_kwh == 12.5
    assert load_campaign(DEMO).energy_budget_kwh is None
    assert "energy_budget_kwh" in refusal(read, 0)


@pytest.mark.parametrize("name", ["slurm", "horeka"])
def test_a_slurm_profile_limits_jobs_and_gpus(name: str) -> None:
    profile = yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text())
    assert profile["executor"] == "scalewatt-slurm"
    limits = dict(text.split("=") for text in profile["resources"])
    assert int(limits["held_gpus"]) > 0
    assert profile["jobs"] > 0
    assert profile["retries"] == 100
    described = load_cluster(ROOT / "profiles" / name / "cluster.yaml")
    assert all(one.partition for one in described.devices.values())


def test_horekas_profile_lets_the_largest_run_in() -> None:
    profile = yaml.safe_load((HOREKA.parent / "profile.yaml").read_text())
    largest = max(c.gpus for c in paper().configurations.values())
    assert largest == 256
    assert profile["resources"] == [f"held_gpus={2 * largest}"]
