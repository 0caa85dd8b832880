"""What surrounds a run: the lock, the node, the flags, and nothing of a person in any value."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.redaction import Redaction
from scalewatt.execution import segment_description
from scalewatt.execution.segment_description import (
    flags,
    variables,
)
from scalewatt.provenance import rank_placement as placement
from scalewatt.provenance.node_description import cpus, gpus, node_description
from scalewatt.provenance.package_lock import (
    Difference,
    differences,
    lock_note,
    lock_sha256,
    locked_versions,
)
from scalewatt.provenance.rank_placement import gathered_placement

# --- the lock -----------------------------------------------------------------------------------

PINS = """# made by uv
torch==2.7.0 \\
    --hash=sha256:0123 \\
    # via -r envs/requirements.in
Typing_Extensions==4.1 ; python_version < "3.12" \\
uvicorn[standard]==0.30.0
"""


def test_a_lock_says_the_version_of_each_package_under_its_one_name(tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(PINS)
    assert locked_versions(path) == {
        "torch": "2.7.0",
        "typing-extensions": "4.1",
        "uvicorn": "0.30.0",
    }
    assert len(lock_sha256(path)) == 64


@pytest.mark.parametrize("content", [None, "", "numpy\n"])
def test_a_lock_that_is_none_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"lock\.txt: .*expected"):
        locked_versions(path)
    assert lock_note({}, path) is None


LOCKED = {"numpy": "2.2.6", "torch": "2.7.0", "certifi": "2025.1.31"}


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        (LOCKED, []),
        (LOCKED | {"torch": "2.7.0+cu126", "certifi": "2025.01.31"}, []),
        (LOCKED | {"torch": "2.7.1+cu126"}, [("torch", "2.7.0", "2.7.1+cu126")]),
        (LOCKED | {"numpy": "not a version"}, [("numpy", "2.2.6", "not a version")]),
        ({"numpy": "2.2.6", "certifi": "2025.1.31"}, [("torch", "2.7.0", None)]),
        (LOCKED | {"einops": "0.8"}, [("einops", None, "0.8")]),
        (LOCKED | {"scalewatt": "0.1.0", "pip": "24.0", "setuptools": "80"}, []),
    ],
)
def test_what_is_not_as_locked_is_named(
    installed: dict[str, str], found: list[tuple[str, str | None, str | None]]
) -> None:
    assert differences(LOCKED, installed, None) == [Difference(*one) for one in found]


def test_an_environment_for_analysis_lacks_nothing_but_may_have_other_versions() -> None:
    assert differences(LOCKED, {"numpy": "2.2.6"}, "analysis") == []
    other = differences(LOCKED, {"numpy": "2.0.0"}, "analysis")
    assert other == [Difference("numpy", "2.2.6", "2.0.0")]
    assert len(differences(LOCKED, {"numpy": "2.2.6"}, "training")) == 2


def test_what_is_noted_of_the_lock_says_which_one_and_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_text("numpy==1.0\n")
    environment = {"environment": "analysis", "lock_sha256": "ab" * 32}
    (tmp_path / "scalewatt-environment.json").write_text(json.dumps(environment))
    assert lock_note({"numpy": "2.0"}, path, tmp_path) == {
        "sha256": lock_sha256(path),
        "environment": "analysis",
        "environment_lock_sha256": "ab" * 32,
        "differences": [{"package": "numpy", "locked": "1.0", "installed": "2.0"}],
    }


# --- variables ------------------------------------------------------------------------------------

ALICE = Redaction(("/home/alice", "/work/ab1234"), ("alice", "hk-project", "ab1"), "/srv/checkout")


def test_variables_that_matter_are_written_and_no_others() -> None:
    environment = {
        "OMP_NUM_THREADS": "8",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_API_KEY": "x",
        "HOME": "/home/alice",
        "USER": "alice",
        "SLURM_JOB_ACCOUNT": "hk-project",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x3",
        "LD_LIBRARY_PATH": "/usr/lib:/home/alice/lib:/hk/lib",
        "AWS_SESSION_TOKEN": "x",
        "WANDB_MODE": "offline",
        "UCX_TLS": "hk-project",
    }
    assert variables(environment, ALICE) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "LD_LIBRARY_PATH": "/usr/lib:$HOME/lib:<path>",
        "OMP_NUM_THREADS": "8",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x3",
        "UCX_TLS": "<name>",
    }


# --- nodes --------------------------------------------------------------------------------------


def test_a_node_names_its_cpus_and_counts_its_sockets(tmp_path: Path) -> None:
    one = "model name\t: Some  CPU @ 2 GHz\nphysical id\t: {}\n\n"
    (tmp_path / "cpuinfo").write_text(one.format(0) * 2 + one.format(1))
    assert cpus(tmp_path) == {"cpu_models": ["Some CPU @ 2 GHz"], "cpu_sockets": 2}
    (tmp_path / "cpuinfo").write_text("Features : fp asimd\n")
    assert cpus(tmp_path) == {"cpu_models": None, "cpu_sockets": None}
    assert cpus(tmp_path / "none") == {"cpu_models": None, "cpu_sockets": None}


def fails(*_: object) -> Any:
    raise RuntimeError("not supported")


def nvml(**changes: Any) -> SimpleNamespace:
    known: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"535.104.12",
        "nvmlSystemGetCudaDriverVersion": lambda: 12020,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"A100" if handle else "H100",
    }
    return SimpleNamespace(**known | changes)


def test_gpus_and_driver_are_what_nvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert gpus() == {
        "gpu_models": {"A100": 2, "H100": 1},
        "gpu_driver": "535.104.12",
        "gpu_driver_cuda": "12.2",
    }


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"nvmlInit": fails}, {"gpu_models", "gpu_driver", "gpu_driver_cuda"}),
        ({"nvmlDeviceGetName": fails}, {"gpu_models"}),
        ({"nvmlDeviceGetCount": lambda: 0}, {"gpu_models"}),
        ({"nvmlSystemGetCudaDriverVersion": fails}, {"gpu_driver_cuda"}),
    ],
)
def test_what_nvml_does_not_say_is_unknown(
    changes: dict[str, Any], unknown: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**changes))
    assert {name for name, value in gpus().items() if value is None} == unknown


class Comm:
    """Gathers what ranks before this one would have said."""

    def __init__(self, others: list[Any]) -> None:
        self.others = others

    def gather(self, own: Any, root: int) -> list[Any]:
        return [own, *self.others]


def test_each_node_is_told_by_its_first_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "node_description", lambda: {"gpu_driver": "535"})
    others = [
        ({"host": "n1", "rank": 1}, None, None),
        ({"host": "n2", "rank": 2}, None, {"gpu_driver": "550"}),
        ({"host": "n2", "rank": 3}, None, None),
        ({"host": "n3", "rank": 4}, None, {"gpu_driver": "535"}),
    ]
    first: Any = SimpleNamespace(rank=0, local_rank=0, host="n1", comm=Comm(others))
    found = gathered_placement(first, None)
    assert found is not None
    assert found["nodes"] == [
        {"hosts": ["n1", "n3"], "gpu_driver": "535"},
        {"hosts": ["n2"], "gpu_driver": "550"},
    ]
    assert found["hostnames"] == ["n1", "n2", "n3"]


def test_this_node_is_described_without_anything_personal() -> None:
    text = json.dumps(node_description())
    assert Redaction((), (), None).text(text) == text
    assert socket.gethostname() not in text


# --- software and flags -------------------------------------------------------------------------


def test_flags_are_those_of_the_process_and_its_variables() -> None:
    import torch

    found = flags({"PYTHONHASHSEED": "0"}, 7, torch)
    assert (found["seed"], found["python_hash_seed"]) == (7, "0")
    assert found["cublas_workspace_config"] is None
    assert found["deterministic_algorithms"] is torch.are_deterministic_algorithms_enabled()
    unknown = flags({}, None)
    assert unknown.keys() == found.keys() and set(unknown.values()) == {None}


def test_a_training_that_has_ended_is_not_lost_where_clocks_cannot_be_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [{"host": "n2", "at_s": 1.0, "offset_s": 0.0, "uncertainty_s": 0.0}]
    monkeypatch.setattr(segment_description, "measured_clock_offsets", lambda _: found)
    job = SimpleNamespace(work=tmp_path, segment=0, require_lock=lambda: None)
    segment_description.add_clock_offsets(job, None)  # type: ignore[arg-type]
    assert "the clocks' offsets at the end are not noted" in capsys.readouterr().err
