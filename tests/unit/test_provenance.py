"""The GPUs that a run held, known by their own identity or not known; the commit of the code."""

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

from scalewatt.provenance import versions as provenance
from scalewatt.provenance.versions import Gpu, gpu_identity, held_gpus, joined_gpus

UUIDS = ["aa", "bb", "cc", "dd"]


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """CUDA that shows the last two of four GPUs, and the NVML of all four."""
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: UUIDS.index(uuid.removeprefix("GPU-")),
        nvmlDeviceGetIndex=lambda handle: handle,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(uuid=UUIDS[2 + device.index]),
    )
    return nvml


def device(index: int) -> torch.device:
    return torch.device("cuda", index)


def test_a_gpu_has_nvml_s_index_whatever_cuda_shows(masked: SimpleNamespace) -> None:
    assert gpu_identity(device(0)) == Gpu(2, "GPU-cc")
    assert gpu_identity(device(1)) == Gpu(3, "GPU-dd")


def test_without_nvml_the_index_is_unknown_and_never_cuda_s(masked: SimpleNamespace) -> None:
    def fails() -> None:
        raise RuntimeError("driver and library differ")

    masked.nvmlInit = fails
    assert gpu_identity(device(1)) == Gpu(None, "GPU-dd")


def test_a_device_without_a_uuid_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    assert gpu_identity(device(0)) == Gpu(None, None)


def test_each_host_has_its_gpus_once() -> None:
    places = [("n2", Gpu(3, "d")), ("n1", Gpu(1, "b")), ("n1", Gpu(0, "a")), ("n1", Gpu(1, "b"))]
    assert held_gpus(places) == {
        "gpus": {"n1": [0, 1], "n2": [3]},
        "gpu_uuids": {"n1": ["a", "b"], "n2": ["d"]},
    }


def test_a_host_with_one_unknown_gpu_has_unknown_ones() -> None:
    places = [("n1", Gpu(0, "a")), ("n1", Gpu(None, "b")), ("n2", Gpu(0, None))]
    assert held_gpus(places) == {
        "gpus": {"n1": None, "n2": [0]},
        "gpu_uuids": {"n1": ["a", "b"], "n2": None},
    }


@pytest.mark.parametrize(
    ("segments", "joined"),
    [
        ([{"n1": [0]}, {"n1": [2]}, {"n2": [1]}], {"n1": [0, 2], "n2": [1]}),
        ([{"n1": [0]}, {"n1": None}], {"n1": None}),
        ([{"n1": []}, None], None),
        ([], None),
    ],
)
def test_what_one_segment_does_not_know_is_not_known(segments: list[Any], joined: Any) -> None:
    described = [{"gpus": gpus, "gpu_uuids": gpus} for gpus in segments]
    assert joined_gpus(described) == {"gpus": joined, "gpu_uuids": joined}


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_the_commit_of_a_clone_says_whether_its_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "PROJECT_ROOT", tmp_path)
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "One")
    commit = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert provenance.source_commit() == commit
    (tmp_path / "file").write_text("two")
    assert provenance.source_commit() == f"{commit}-dirty"


def test_a_copy_without_git_has_no_commit_nor_that_of_a_clone_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init")
    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(provenance, "PROJECT_ROOT", tmp_path / "copy")
    assert provenance.source_commit() is None


CLAIMS = (
    "claims.csv",
    "claim_checks.csv",
    "portable_checks.csv",
    "inconsistencies.csv",
    "tolerances.csv",
    "published_results.csv",
)


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of `reference`."""
    monkeypatch.setattr(provenance, "PROJECT_ROOT", tmp_path)
    provenance.claims_hash.cache_clear()
    yield tmp_path / "reference"
    provenance.claims_hash.cache_clear()


@pytest.mark.parametrize("names", [CLAIMS, CLAIMS[:3]])
def test_the_hash_of_the_claims_is_that_of_the_bytes_of_their_tables_in_order(
    names: tuple[str, ...], reference: Path
) -> None:
    reference.mkdir()
    for name in reversed(names):
        (reference / name).write_bytes(name.encode() + b"\xff\r\n")
    (reference / "README.md").write_text("no claim")
    every = b"".join(name.encode() + b"\xff\r\n" for name in names)
    assert provenance.claims_hash() == hashlib.sha256(every).hexdigest()


@pytest.mark.parametrize("name", ["claim_checks.csv", "tolerances.csv", "published_results.csv"])
def test_a_changed_check_tolerance_or_published_spread_changes_the_hash_of_the_claims(
    name: str, reference: Path
) -> None:
    reference.mkdir()
    found = []
    for value in ("0.10", "0.15"):
        (reference / name).write_text(f"id,value\nF20,{value}\n")
        provenance.claims_hash.cache_clear()
        found.append(provenance.claims_hash())
    assert None not in found and found[0] != found[1]


def test_a_container_says_the_commit_that_was_noted_when_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "PROJECT_ROOT", tmp_path)
    (tmp_path / "COMMIT").write_text("0123456789ab-dirty\n")
    assert provenance.source_commit() == "0123456789ab-dirty"
    (tmp_path / "COMMIT").write_text("")  # built outside of a clone
    assert provenance.source_commit() is None
