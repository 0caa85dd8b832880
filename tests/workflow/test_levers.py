"""Clocks and power limits of GPUs that stand in for real ones, set for runs and always undone."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from commands import PATIENCE_S, SCRIPTS, Direct, wait_for
from governed import LEVERS, SCRIPT, command, environment_of

from scalewatt.campaign.run_spec import read_spec
from scalewatt.execution.node_levers import gpus_of_ranks

HOST = socket.gethostname()
POINT = {"gpu_clock_mhz": 1200.0, "gpu_power_limit_w": 250.0}


class Governed(Direct):
    """A run of two ranks on such GPUs, which asks for a clock and a power limit."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int = 2) -> None:
        monkeypatch.setitem(SCRIPTS, "governed", SCRIPT)
        super().__init__(path, "governed", monkeypatch, command=command(5, epochs))
        spec = replace(read_spec(path / "spec.json"), operating_point=POINT)
        (path / "spec.json").write_text(spec.text)
        self.cluster = {"levers": LEVERS, "devices": self.devices(torch_device="cuda")}
        self.settings = path / "settings"
        self.settings.mkdir()
        for name, value in environment_of(self.settings, 2).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def setting(self, name: str) -> list[str | None]:
        """What the two GPUs are set to; None for the default."""
        files = [self.settings / f"{HOST}-{gpu}-{name}" for gpu in range(2)]
        return [file.read_text() if file.exists() else None for file in files]

    @property
    def is_set(self) -> bool:
        return self.setting("clock") == ["1200"] * 2 and self.setting("limit") == ["250"] * 2

    @property
    def is_undone(self) -> bool:
        return self.setting("clock") == [None] * 2 and self.setting("limit") == ["400"] * 2

    def processes(self) -> list[psutil.Process]:
        """All that was started in the run's folder."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("GOVERNED_GPUS") == str(self.settings):
                    found.append(process)
        return [one for one in found if one.pid != os.getpid()]

    def shells(self) -> list[psutil.Process]:
        """Those that reset what was set."""
        return [
            one for one in self.processes() if one.name() == "sh" and "-rgc" in one.cmdline()[-1]
        ]


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, timeout=PATIENCE_S)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Governed]:
    governed = Governed(tmp_path, monkeypatch)
    yield governed
    kill(governed.processes())


def test_they_are_set_while_a_run_trains_and_undone_when_it_has_ended(run: Governed) -> None:
    process = run.start()
    wait_for(lambda: list(run.path.glob("work/*/script/epoch")))
    assert run.is_set
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert run.is_undone
    assert not run.shells()
    told = json.loads((run.path / "out" / "provenance.json").read_text())
    assert told["spec_sha256"] == read_spec(run.path / "spec.json").sha256


def test_they_are_undone_when_all_other_processes_of_a_run_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Governed(tmp_path, monkeypatch, epochs=500)
    process = run.start()
    try:
        wait_for(lambda: list(run.path.glob("work/*/script/epoch")))
        assert run.is_set
        shells = {one.pid for one in run.shells()}
        assert len(shells) == 1
        kill([one for one in run.processes() if one.pid not in shells])
        process.communicate(timeout=PATIENCE_S)
        wait_for(lambda: run.is_undone and not run.shells())
    finally:
        kill(run.processes())


def test_a_command_that_fails_refuses_the_run_and_what_was_set_before_is_undone(
    run: Governed,
) -> None:
    (run.settings / f"{HOST}-refuses").touch()
    process = run.start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 64, output
    assert "-lgc 1200' ended with exit code 1: Insufficient Permissions" in output
    assert not list(run.path.glob("work/*/perun/*.sensors.json"))
    assert (run.settings / f"{HOST}-commands").read_text().splitlines()[0] == "-i 0,1 -lgc 1200"


def test_without_a_way_to_set_them_a_run_is_refused(run: Governed) -> None:
    run.cluster["levers"] = {"gpu_clock_mhz": LEVERS["gpu_clock_mhz"]}
    process = run.start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert "the cluster file lacks levers.gpu_power_limit_w" in output
    assert not (run.settings / f"{HOST}-commands").exists()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ([None, None], "0,1"),
        (["2,3", "2,3"], "2,3"),
        (["2", "3"], "2,3"),
        (["GPU-a,GPU-b,GPU-c", "GPU-a,GPU-b,GPU-c"], "GPU-a,GPU-b"),
        (["1", "1"], "1"),
    ],
)
def test_the_gpus_are_those_that_the_ranks_take(visible: list[str | None], gpus: str) -> None:
    assert gpus_of_ranks(list(enumerate(visible))) == gpus
