"""`scalewatt gpu-check`: verdicts, time limits, results; the checks themselves run in tests/workflow."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from scalewatt.cli import main
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.gpu_checks import resume_checks
from scalewatt.gpu_checks.check_files import CHECKS, new_folder, write_results
from scalewatt.gpu_checks.check_runner import Checked, run_check, run_checks
from scalewatt.gpu_checks.check_types import (
    Bench,
    Check,
    CheckFailed,
    CheckResult,
    CheckSkipped,
    Finding,
)
from scalewatt.gpu_checks.measuring_checks import cost_with_interval, phases_and_stages
from scalewatt.gpu_checks.network_checks import channels_last, compiling, nccl_one_rank, nvjpeg
from scalewatt.gpu_checks.resume_checks import DISTANCE, States, amp_resume, bitwise_resume
from scalewatt.gpu_checks.sharing_checks import out_of_memory
from scalewatt.gpu_checks.small_trainings import RESNET50, SmallTraining, differences, small_spec


def check(run: Callable[[Bench], Finding], name: str = "one", **facts: Any) -> Check:
    return Check(name, "It holds.", "exactly", run, **facts)


def bench(folder: Path, rehearse: bool = False) -> Bench:
    return Bench(folder, rehearse, Subprocesses(sys.executable, {}))


def result_of(
    tmp_path: Path, one: Check, rehearse: bool = False, named: bool = True
) -> CheckResult:
    processes = Subprocesses(sys.executable, {"PATH": "/bin:/usr/bin"})
    return run_check(one, tmp_path / one.name, rehearse, processes, named).result


def raising(error: Exception) -> Callable[[Bench], Finding]:
    def run(_: Bench) -> Finding:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "verdict", "reason"),
    [
        (lambda _: Finding("1 J", True), "passed", None),
        (lambda _: Finding("1 J", True, "a stand-in"), "passed", "a stand-in"),
        (lambda _: Finding("2 J", False), "failed", None),
        (raising(CheckSkipped("no NVML")), "skipped", "no NVML"),
        (raising(CheckFailed("no flag")), "failed", "no flag"),
        (raising(RuntimeError("CUDA error:\n  lost")), "failed", "RuntimeError: CUDA error: lost"),
    ],
)
def test_a_check_ends_with_a_verdict_whatever_it_raises(
    tmp_path: Path, run: Callable[[Bench], Finding], verdict: str, reason: str | None
) -> None:
    found = result_of(tmp_path, check(run))
    assert (found.verdict, found.reason) == (verdict, reason)


def test_a_check_that_raises_does_not_keep_the_others_from_running() -> None:
    told: list[str] = []
    checks = [
        check(raising(ValueError("bad")), "bad", alone=True),
        check(lambda _: Finding("", True), "good"),
    ]
    found = run_checks(checks, False, lambda one: told.append(one.result.name))
    assert [one.result.verdict for one in found] == ["failed", "passed"]
    assert told == ["bad", "good"]


def test_a_check_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    marker = "9876.54321"

    def hang(one: Bench) -> Finding:
        one.run(["sh", "-c", f"sleep {marker} & sleep {marker}"])
        return Finding("", True)

    found = result_of(tmp_path, check(hang, limit_s=1.0))
    assert found.verdict == "failed" and found.seconds < 10
    assert "gave no answer in" in (found.reason or "")
    alive = [p.pid for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]
    assert not alive


@pytest.mark.parametrize(
    ("facts", "named", "verdict"),
    [
        ({"needs_gpu": True}, True, "skipped"),
        ({"not_rehearsed": "slow"}, False, "skipped"),
        ({"not_rehearsed": "slow"}, True, "passed"),
        ({}, False, "passed"),
    ],
)
def test_a_rehearsal_leaves_out_what_it_cannot_do_and_what_is_slow(
    tmp_path: Path, facts: dict[str, Any], named: bool, verdict: str
) -> None:
    one = check(lambda _: Finding("1", True), **facts)
    assert result_of(tmp_path, one, rehearse=True, named=named).verdict == verdict


def test_without_a_gpu_one_sentence_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["gpu-check"]) == 1
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1
    assert "torch finds no GPU on this machine; expected one, or --rehearse" in said.err
    assert not list(tmp_path.iterdir())


def test_an_unknown_check_is_refused_with_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gpu-check", "--rehearse", "--only", "amp_resum"]) == 1
    assert "did you mean 'amp_resume'?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_names_of_checks_are_different_and_their_statements_are_sentences() -> None:
    assert len({one.name for one in CHECKS}) == len(CHECKS)
    assert all(one.statement.endswith(".") and one.limit for one in CHECKS)


def test_earlier_results_are_kept(tmp_path: Path) -> None:
    first, second, third = (new_folder(tmp_path / "a" / "h100", "H100") for _ in range(3))
    names = [path.name for path in (first, second, third)]
    assert names == ["h100", "h100-2", "h100-3"]


def test_results_are_written_with_the_log_of_what_failed(tmp_path: Path) -> None:
    results = [
        CheckResult(name, "It holds.", "a | b", "1 J", verdict, None, 1.5)
        for name, verdict in (("good", "passed"), ("bad", "failed"))
    ]
    facts = {
        **{"rehearsal": False, "device_name": "H100", "driver": "570", "started": "2026-01-01"},
        **{"commit": "abc", "packages": dict.fromkeys(("torch", "python", "perun", "scalewatt"))},
        "software": dict.fromkeys(("cuda", "cudnn", "nccl", "mpi_library", "mpi_version")),
    }
    write_results(tmp_path, facts, [Checked(one, f"log of {one.name}") for one in results], 3.0)
    content = json.loads((tmp_path / "checks.json").read_text())
    assert [one["verdict"] for one in content["checks"]] == ["passed", "failed"]
    page = (tmp_path / "checks.md").read_text()
    assert "1 passed, 1 failed, 0 skipped" in page and "| bad | failed | 1 J | a \\| b |" in page
    assert {path.name for path in tmp_path.glob("*.log")} == {"bad.log"}


# --- what is compared -----------------------------------------------------------------------------


def state(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "model": {"w": torch.tensor([1.0, float("nan")]), "b": torch.tensor(1)},
        "scaler": {"scale": 65536.0, "_growth_tracker": 7},
        "history": [{"train_loss": 0.5, "epoch_s": 3.0, "segment": 0}],
        "epoch_s": 1.0,
    }
    return {**usual, **changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, []),
        ({"epoch_s": 9.0, "history": [{"train_loss": 0.5, "epoch_s": 4.0, "segment": 1}]}, []),
        ({"scaler": {"scale": 65536.0, "_growth_tracker": 3}}, [".scaler._growth_tracker"]),
        (
            {"history": [{"train_loss": 0.6, "epoch_s": 3.0, "segment": 0}]},
            [".history[0].train_loss"],
        ),
        ({"history": []}, [".history"]),
        ({"model": {"w": torch.tensor([1.0, 1e-38])}}, [".model"]),
        (
            {"model": {"w": torch.tensor([1.0, 1e-38]), "b": torch.tensor(1)}},
            [".model.w"],
        ),
        (
            {"model": {"w": torch.tensor([1.0, float("nan")]), "b": torch.tensor(1.0)}},
            [".model.b"],
        ),
    ],
)
def test_states_differ_in_every_bit_but_that_of_clocks(
    changes: Mapping[str, Any], named: list[str]
) -> None:
    assert differences(state(), state(**changes)) == named


def states(way: float, apart: float) -> States:
    """States whose weights went a way since the stop and are then apart."""
    models = ({"w": torch.full((1,), at)} for at in (way, way + apart, 0.0))
    whole, resumed, stopped = (
        {"model": m, "scaler": {"_growth_tracker": 3, "scale": 2.0}} for m in models
    )
    return States(whole, resumed, stopped)


@pytest.mark.parametrize(("apart", "holds"), [(0.0, True), (1e-6, False)])
def test_amp_resume_holds_for_equal_states_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: float, holds: bool
) -> None:
    monkeypatch.setattr(resume_checks, "stopped_and_resumed", lambda *_: states(1.0, apart))
    assert amp_resume(bench(tmp_path)).holds is holds


@pytest.mark.parametrize(
    ("apart", "noise", "holds"),
    [(1e-6, 0.0, False), (0.5 * DISTANCE, 1e-3, True), (2 * DISTANCE, 1e-3, False)],
)
def test_a_difference_is_excused_only_where_uninterrupted_trainings_differ_too(
    apart: float, noise: float, holds: bool
) -> None:
    found = replace(states(1.0, apart), again=states(1.0, noise).resumed)
    assert found.holds is holds
    assert ("not deterministic" in found.said("x")) is (noise > 0)


def test_amp_resume_fails_where_the_scaler_was_not_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = States(*({"model": {}, "scaler": {}} for _ in range(3)))
    monkeypatch.setattr(resume_checks, "stopped_and_resumed", lambda *_: idle)
    with pytest.raises(CheckFailed, match="scaler of gradients was not at work"):
        amp_resume(bench(tmp_path))


@pytest.mark.parametrize(
    ("of_paper", "of_corrected", "holds"),
    [
        (0.0, 0.9 * DISTANCE, True),
        (0.0, 1.1 * DISTANCE, False),
        (1e-6, 0.0, False),
    ],
)
def test_only_kernels_chosen_by_speed_may_leave_a_difference(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_paper: float,
    of_corrected: float,
    holds: bool,
) -> None:
    def found(_: Bench, name: str, __: Any) -> States:
        return states(
            1.0, {"ResNet50": of_paper, "ResNet50-corrected": of_corrected}.get(name, 0.0)
        )

    monkeypatch.setattr(resume_checks, "stopped_and_resumed", found)
    assert bitwise_resume(bench(tmp_path)).holds is holds


def test_the_samplers_cost_has_an_interval_that_covers_it() -> None:
    cost, low, high = cost_with_interval([1.0, 1.02, 0.98, 1.0], [1.01, 1.03, 0.99, 1.01])
    assert low < cost < high and cost == pytest.approx(0.01, abs=1e-3)


def parts(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> None:
    """Let the checks' child processes answer this."""
    given = iter(answers)
    monkeypatch.setattr(Bench, "part", lambda *_, **__: next(given))


@pytest.mark.parametrize(
    ("phases_s", "left_s", "holds"),
    [(0.96, 0.001, True), (0.9, 0.001, False), (1.1, 0.001, False), (1.0, 0.2, False)],
)
def test_phases_must_add_up_and_the_gpu_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phases_s: float, left_s: float, holds: bool
) -> None:
    # One epoch of three was disturbed.
    found = {"phases_s": [phases_s, phases_s, 0.5], "train_s": [1.0] * 3, "left_s": [0.0, left_s]}
    parts(monkeypatch, found)
    assert phases_and_stages(bench(tmp_path)).holds is holds


@pytest.mark.parametrize(
    ("backend", "total", "holds"), [("nccl", 3.0, True), ("gloo", 3.0, False), ("nccl", 4.0, False)]
)
def test_a_group_on_a_gpu_must_be_nccls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, total: float, holds: bool
) -> None:
    found = {"backend": backend, "device": "cuda:0", "sum": total, "expected": 3.0}
    parts(monkeypatch, found)
    assert nccl_one_rank(bench(tmp_path)).holds is holds


@pytest.mark.parametrize(
    ("device", "pixels", "views", "holds"),
    [
        ("cuda:0", 1.9, 1.9, True),
        ("cuda:0", 2.1, 0.1, False),
        ("cuda:0", 0.1, 2.1, False),
        ("cpu", 0.0, 0.0, False),
    ],
)
def test_photos_must_be_decoded_on_the_gpu_as_on_a_cpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    pixels: float,
    views: float,
    holds: bool,
) -> None:
    found = {"device": device, "photos": 64, "pixels": [pixels, 9.0], "views": [views, 9.0]}
    parts(monkeypatch, found)
    assert nvjpeg(bench(tmp_path)).holds is holds


@pytest.mark.parametrize(
    ("loss", "share", "holds"), [(1.0001, 1.0, True), (1.01, 1.0, False), (1.0, 0.9, False)]
)
def test_channels_last_must_be_there_and_give_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float, share: float, holds: bool
) -> None:
    found = {
        "losses": {"channels_last": [loss], "contiguous": [1.0]},
        "contiguous": {"inputs": 0.0, "parameters": 0.5},
        "channels_last": {"inputs": 1.0, "parameters": share},
    }
    parts(monkeypatch, {"fp32": found})
    assert channels_last(bench(tmp_path)).holds is holds


@pytest.mark.parametrize(
    ("second_s", "loss", "holds"), [(4.0, 1.0, True), (6.0, 1.0, False), (4.0, 1.1, False)]
)
def test_a_second_start_must_not_compile_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_s: float, loss: float, holds: bool
) -> None:
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "graph").touch()
    first = {"eager_losses": [1.0], "compiled_losses": [loss], "compiled_s": 10.0}
    parts(monkeypatch, first, {"compiled_losses": [loss], "compiled_s": second_s})
    assert compiling(bench(tmp_path)).holds is holds


SENTENCE = "scalewatt: error: x: a local batch of 8192 does not fit; largest local batch size that fits: 40"


@pytest.mark.parametrize(
    ("errors", "code", "then", "holds"),
    [
        (SENTENCE, 64, 75, True),
        (SENTENCE, 64, 64, False),
        (SENTENCE, 70, 75, None),
        (f"Traceback\n{SENTENCE}", 64, 75, None),
        ("scalewatt: error: CUDA out of memory", 64, 75, None),
    ],
)
def test_a_batch_that_does_not_fit_must_be_said_and_the_one_that_does_must_train(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    errors: str,
    code: int,
    then: int,
    holds: bool | None,
) -> None:
    answers = iter([Answer(errors=errors, code=code), Answer(code=then)])
    monkeypatch.setattr(SmallTraining, "start", lambda *_: next(answers))
    if holds is None:
        with pytest.raises(CheckFailed, match=f"exit code {code}"):
            out_of_memory(bench(tmp_path))
    else:
        assert out_of_memory(bench(tmp_path)).holds is holds


def test_specs_of_small_trainings_are_made_for_a_gpu_and_for_a_rehearsal() -> None:
    for rehearse in (False, True):
        spec = small_spec(rehearse, RESNET50, protocol="paper", settings={"precision": "bf16"})
        assert spec.settings["loader"] == "synthetic" and spec.settings["precision"] == "bf16"
        assert spec.updates_per_epoch and spec.updates_per_epoch > 5
