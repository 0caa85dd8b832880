"""Which GPUs of a node a run held."""

from __future__ import annotations

from pathlib import Path

from scalewatt.energies.account import Run


def run_of(provenance: dict[str, object]) -> Run:
    return Run(Path(), {}, {}, {"torch_device": "cuda", **provenance}, None)


def on(host: str, gpu: int | None, uuid: str | None) -> dict[str, object]:
    return {"host": host, "gpu": gpu, "gpu_uuid": uuid}


def test_each_segment_counts_the_gpus_that_it_held_itself() -> None:
    segments = [
        {"segment": 0, "ranks": [on("n1", 0, "a")]},
        {"segment": 1, "ranks": [on("n1", 2, "c")]},
        {"segment": 2, "ranks": None},
    ]
    run = run_of({"gpus": {"n1": [0, 2]}, "gpu_uuids": {"n1": ["a", "c"]}, "segments": segments})
    held = [run.used_gpus("n1", [], number) for number in (0, 1, 2)]
    assert held == [[0], [2], None], "what the third held is not guessed"


def test_a_run_of_which_no_segment_noted_ranks_counts_the_gpus_that_it_noted_as_a_whole() -> None:
    run = run_of({"gpus": {"n1": [0, 2]}, "segments": [{"segment": 0}, {"segment": 1}]})
    assert [run.used_gpus("n1", [], number) for number in (0, 1)] == [[0, 2], [0, 2]]


def test_a_gpu_that_a_rank_does_not_know_is_not_guessed() -> None:
    run = run_of({"segments": [{"segment": 0, "ranks": [on("n1", 0, "a"), on("n1", None, "b")]}]})
    assert run.used_gpus("n1", [], 0) is None
