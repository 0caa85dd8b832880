"""What a run is made with and on: commit, packages, nodes, GPUs; nothing of a person in any value."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scalewatt.common.errors import InputError
from scalewatt.common.redaction import Redaction
from scalewatt.execution.segment_description import variables
from scalewatt.provenance import versions
from scalewatt.provenance.node_description import gpus, grouped
from scalewatt.provenance.rank_placement import Gpu, gpu_identity, held_gpus, visible_gpu
from scalewatt.provenance.versions import lock_note, locked_versions

# --- commit and claims ----------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the project's."""
    folder = tmp_path / "checkout"
    (folder / "reference").mkdir(parents=True)
    monkeypatch.setattr(versions, "PROJECT_ROOT", folder)
    versions.claims_hash.cache_clear()
    yield folder
    versions.claims_hash.cache_clear()


def test_the_commit_of_a_clone_says_whether_its_files_differ(checkout: Path) -> None:
    git(checkout, "init")
    (checkout / "file").write_text("one")
    git(checkout, "add", "file")
    git(checkout, "commit", "-m", "One")
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    assert versions.source_commit() == commit
    (checkout / "file").write_text("two")
    assert versions.source_commit() == f"{commit}-dirty"


def test_without_git_the_commit_is_that_noted_for_a_container_and_not_that_of_a_clone_around_it(
    checkout: Path,
) -> None:
    git(checkout.parent, "init")
    assert versions.source_commit() is None
    (checkout / "COMMIT").write_text("0123456789ab-dirty\n")
    assert versions.source_commit() == "0123456789ab-dirty"
    (checkout / "COMMIT").write_text("")  # built outside of a clone
    assert versions.source_commit() is None


# --- the lock -------------------------------------------------------------------------------------

PINS = """# made by uv
numpy==2.2.6
torch==2.7.0 \\
    --hash=sha256:0123 \\
    # via perun
Typing_Extensions==4.1 ; python_version < "3.12" \\
uvicorn[standard]==0.30.0
certifi==2025.1.31
"""
LOCKED = {
    **{"numpy": "2.2.6", "torch": "2.7.0", "typing-extensions": "4.1"},
    **{"uvicorn": "0.30.0", "certifi": "2025.1.31"},
}


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock of five packages."""
    path = tmp_path / "lock.txt"
    path.write_text(PINS)
    return path


def test_a_lock_without_pins_is_refused_and_without_a_lock_nothing_is_noted(lock: Path) -> None:
    lock.write_text("numpy\n")
    with pytest.raises(InputError, match=r"lock\.txt: .*expected"):
        locked_versions(lock)
    lock.unlink()
    assert lock_note({}, lock) is None


@pytest.mark.parametrize(
    ("installed", "different"),
    [
        (LOCKED, []),
        (LOCKED | {"torch": "2.7.0+cu126", "certifi": "2025.01.31"}, []),
        (LOCKED | {"torch": "2.7.1+cu126"}, [("torch", "2.7.0", "2.7.1+cu126")]),
        (LOCKED | {"numpy": "not a version"}, [("numpy", "2.2.6", "not a version")]),
        ({"numpy": "2.2.6"}, []),
        (LOCKED | {"einops": "0.8"}, [("einops", None, "0.8")]),
        (LOCKED | {"scalewatt": "0.1.0", "pip": "24.0", "setuptools": "80"}, []),
    ],
)
def test_packages_that_are_not_as_locked_are_noted(
    installed: dict[str, str], different: list[tuple[str, str | None, str]], lock: Path
) -> None:
    keys = ("package", "locked", "installed")
    assert lock_note(installed, lock) == {
        "sha256": hashlib.sha256(PINS.encode()).hexdigest(),
        "differences": [dict(zip(keys, values, strict=True)) for values in different],
    }


# --- nodes and GPUs -------------------------------------------------------------------------------

UUIDS = ["GPU-aa", "GPU-bb", "GPU-cc", "GPU-dd"]


def fails(*_: object) -> Any:
    raise RuntimeError("driver and library differ")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """NVML of four GPUs, the last two of which CUDA shows."""
    made = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "535.104.12",
        nvmlDeviceGetCount=lambda: 4,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=UUIDS.index,
        nvmlDeviceGetIndex=lambda handle: handle,
        nvmlDeviceGetUUID=UUIDS.__getitem__,
        nvmlDeviceGetName=lambda handle: "A100" if handle else "H100",
    )
    monkeypatch.setitem(sys.modules, "pynvml", made)
    shown = lambda device: SimpleNamespace(uuid=UUIDS[2 + device.index].removeprefix("GPU-"))  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", shown)
    return made


def test_a_gpu_has_nvmls_index_and_never_cudas(nvml: SimpleNamespace) -> None:
    device = torch.device("cuda", 1)
    assert gpu_identity(device) == Gpu(3, "GPU-dd", "A100")
    nvml.nvmlInit = fails
    assert gpu_identity(device) == Gpu(None, "GPU-dd")


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [(None, 5, 1), ("2,0", 0, 2), ("2,0", 1, 0), ("GPU-cc", 0, 2), ("MIG-a", 0, None)],
)
def test_a_rank_holds_the_gpu_of_its_local_rank_among_the_visible(
    visible: str | None,
    local_rank: int,
    index: int | None,
    nvml: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpu = visible_gpu("cuda", local_rank)
    assert gpu is not None and gpu.index == index
    assert gpu.uuid == (None if index is None else UUIDS[index])
    assert visible_gpu("cpu", local_rank) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpu("auto", 0) is None and visible_gpu("cuda", 0) == Gpu(None, None)


def test_gpus_and_driver_are_nvmls_and_unknown_where_it_fails(nvml: SimpleNamespace) -> None:
    assert gpus() == {"gpu_models": {"A100": 3, "H100": 1}, "gpu_driver": "535.104.12"}
    nvml.nvmlDeviceGetName = fails
    assert gpus() == {"gpu_models": None, "gpu_driver": None}


def test_nodes_that_are_alike_are_described_once() -> None:
    nodes = [("n3", "535"), ("n2", "550"), ("n1", "535"), ("n1", "535")]
    assert grouped({"host": host, "gpu_driver": driver} for host, driver in nodes) == [
        {"hosts": ["n1", "n3"], "gpu_driver": "535"},
        {"hosts": ["n2"], "gpu_driver": "550"},
    ]


@pytest.mark.parametrize(
    ("ranks", "indices", "uuids"),
    [
        (
            [("n2", 3, "d"), ("n1", 1, "b"), ("n1", 0, "a"), ("n1", 1, "b")],
            {"n1": [0, 1], "n2": [3]},
            {"n1": ["a", "b"], "n2": ["d"]},
        ),
        (
            [("n1", 0, "a"), ("n1", None, "b"), ("n2", 0, None)],
            {"n1": None, "n2": [0]},
            {"n1": ["a", "b"], "n2": None},
        ),
        ([("n1", None, None)], None, None),
        ([], None, None),
    ],
)
def test_a_hosts_gpus_are_unknown_where_those_of_a_rank_are(
    ranks: list[tuple[str, int | None, str | None]], indices: Any, uuids: Any
) -> None:
    keys = ("host", "gpu", "gpu_uuid")
    rows = [dict(zip(keys, rank, strict=True)) for rank in ranks]
    assert held_gpus(rows) == {"gpus": indices, "gpu_uuids": uuids}


# --- a segment's description ----------------------------------------------------------------------


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
    alice = Redaction("/home/alice", ("alice", "hk-project", "ab1"), "/srv/checkout")
    assert variables(environment, alice) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "LD_LIBRARY_PATH": "/usr/lib:$HOME/lib:<path>",
        "OMP_NUM_THREADS": "8",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x3",
        "UCX_TLS": "<name>",
    }
