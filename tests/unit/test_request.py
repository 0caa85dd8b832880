"""What a job asks for: geometry, memory; and what is refused before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest
from campaign_files import replaced
from request_files import cluster, device, horeka, paper, refusal, spec

from scalewatt.scheduling.job_request import (
    account_of,
    check_requests,
    probe_request,
    refused_request,
    training_request,
)

# --- geometry -----------------------------------------------------------------------------------


def test_a_training_asks_for_whole_nodes_of_its_devices_partition() -> None:
    request = training_request(spec(), device(memory_mb=4000), cluster())
    assert (request["slurm_partition"], request["nodes"], request["tasks_per_node"]) == (
        "gpu",
        2,
        4,
    )
    assert (request["cpus_per_task"], request["gres"], request["mem_mb"]) == (8, "gpu:4", 4000)
    assert request["held_gpus"] == 8
    assert "--exclusive" in request["slurm_extra"]
    warned = training_request(spec(), device(gres=None), cluster(stop_warning_s=120))
    assert "--signal=USR1@120" in warned["slurm_extra"], (
        "the ranks get it, not the batch shell alone"
    )
    # the executor would ask for one task
    assert (warned["gres"], warned["tasks"]) == (None, 8)


def test_a_run_on_one_gpu_holds_all_of_its_node() -> None:
    request = training_request(spec(gpus=1, nodes=1, ranks_per_node=1), device(), cluster())
    assert (request["nodes"], request["tasks_per_node"]) == (1, 1)
    assert (request["gres"], request["held_gpus"]) == ("gpu:4", 4)


def test_slurm_starts_a_job_again_only_where_the_cluster_file_says_so_and_appends_its_log() -> None:
    for requeue, option in ((True, "--requeue"), (False, "--no-requeue")):
        extra = training_request(spec(), device(), cluster(requeue=requeue))["slurm_extra"].split()
        assert option in extra and "--open-mode=append" in extra


def test_a_probe_asks_for_one_node_with_all_its_gpus_and_its_own_minutes() -> None:
    request = probe_request(device(), cluster(), 20)
    assert (request["nodes"], request["tasks_per_node"], request["runtime"]) == (1, 4, 20)
    assert request["held_gpus"] == 4
    on_cpu = probe_request(device(torch_device="cpu"), cluster(), 20)
    assert (on_cpu["tasks_per_node"], on_cpu["held_gpus"]) == (1, 4)


def test_the_account_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PROJECT", "hk-project-x")
    assert account_of(cluster(account="$MY_PROJECT")) == "hk-project-x"
    assert training_request(spec(), device(), cluster(account="plain"))["slurm_account"] == "plain"
    assert account_of(cluster()) is None
    monkeypatch.delenv("MY_PROJECT")
    assert account_of(cluster(account="$MY_PROJECT")) == "$MY_PROJECT"


def test_the_slurm_executor_takes_what_is_asked_for() -> None:
    from types import SimpleNamespace

    from snakemake.iocontainers import ResourceList
    from snakemake_executor_plugin_slurm.submit_string import get_submit_command
    from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

    names = ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir")
    for a_device, run in [
        (device(), spec()),
        (device(), spec(gpus=2, ranks_per_node=1)),
        (device(gres=None), spec()),
    ]:
        asked = training_request(run, a_device, cluster(a_device, exclude_nodes=["n1"]))
        resources = ResourceList(fromdict={k: v for k, v in asked.items() if v is not None})
        job: Any = SimpleNamespace(resources=resources, threads=1)
        validate_slurm_extra(job)
        command = get_submit_command(job, dict.fromkeys(names, "x"))
        assert "--nodes=2 " in command
        assert f"--ntasks-per-node={run.ranks_per_node} " in command
        assert "--cpus-per-task=8 " in command
        assert ("--ntasks=8 " in command) == (a_device.gres is None)


@pytest.mark.parametrize(("gres", "tasks"), [("gpu", None), (None, 4)])
def test_a_job_that_only_says_why_its_run_is_not_tried_again_asks_for_a_node_for_a_minute(
    gres: str | None, tasks: int | None
) -> None:
    request = training_request(spec(), device(gres=gres), cluster())
    refused = refused_request(request)
    assert (refused["nodes"], refused["tasks"], refused["runtime"], refused["held_gpus"]) == (
        1,
        tasks,
        1,
        0,
    )
    assert refused["slurm_extra"] == request["slurm_extra"]


# --- refused ------------------------------------------------------------------------------------


def test_a_probe_longer_than_the_limit_is_refused() -> None:
    message = refusal(probe_request, device(time_limit_min=60), cluster(), 75)
    assert "75 min" in message
    assert "time_limit_min is 60" in message


def test_a_campaign_is_held_against_its_devices_before_anything_starts() -> None:
    check_requests(paper(), horeka())
    devices = {name: replaced(d, time_limit_min=60) for name, d in horeka().devices.items()}
    short = replaced(horeka(), devices=devices)
    message = refusal(check_requests, paper(), short, "site", lambda _: 1e7)
    assert "cannot make progress" in message
