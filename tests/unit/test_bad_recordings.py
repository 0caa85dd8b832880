"""Files that are no recordings: one line with the path and what was expected, and no more harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from energy_files import codes, gpu, write_perun

from scalewatt.common.errors import InputError
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.perun_file import list_runs, read_perun_file

EXPECTED = "expected an HDF5 file written by perun"
SIGNATURE = b"\x89HDF\r\n\x1a\n"


def energy(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "scalewatt.cli", "energy", "--json", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b'{"a": 1}', "begins like JSON"),
        (b"Perun report\n", "begins like text"),
        (SIGNATURE + b"\0" * 4000, "cannot be read"),
    ],
)
def test_a_file_that_is_no_recording_of_perun_is_refused_by_name(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.hdf5"
    if content is not None:
        path.write_bytes(content)
    for read in (list_runs, read_perun_file):
        with pytest.raises(InputError, match=f"^{path}: .*{words}.*{EXPECTED}"):
            read(path)


def test_an_hdf5_file_of_others_holds_no_run(tmp_path: Path) -> None:
    path = tmp_path / "foreign.hdf5"
    with h5py.File(path, "w") as handle:
        handle["x"] = [1, 2]
        handle.create_group("group/nodes")
        handle["other/nodes"] = [1, 2]
    for read in (list_runs, read_perun_file, describe):
        with pytest.raises(InputError, match=f"^{path}: holds no run; {EXPECTED}"):
            read(path)


@pytest.mark.parametrize("inside", ["app/nodes/r1", "app/nodes/r1/nodes/0", "app/nodes/r1/nodes"])
def test_a_run_without_hosts_is_listed_and_not_read(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "hostless.hdf5"
    with h5py.File(path, "w") as handle:
        handle.create_group(inside)
    (run,) = list_runs(path)
    assert (run.run_id, run.hosts) == ("r1", ())
    for read in (read_perun_file, describe):
        with pytest.raises(InputError, match=r"hostless\.hdf5: run r1 holds no host; expected"):
            read(path)


HOLDS = """
import fcntl, h5py, sys
path, how = sys.argv[1:]
if how == "writing":
    held = h5py.File(path, "r+", locking=True)
else:
    held = open(path, "r+b")
    (fcntl.flock if how == "flock" else fcntl.lockf)(held, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["writing", "flock", "lockf"])
def test_a_file_that_another_process_has_locked_is_read(tmp_path: Path, how: str) -> None:
    path = tmp_path / "held.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": gpu(3)}})
    command = [sys.executable, "-c", HOLDS, str(path), how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        recording = read_perun_file(path)
        assert holder.poll() is None
        holder.communicate("")
    assert recording.series[0].values.tolist() == [100, 100, 100]
    # HDF5 locks whole files; a lock on their bytes is none of its.
    assert codes(recording.problems) == (set() if how == "lockf" else {"damaged"})


def test_other_files_of_the_call_are_read_and_the_exit_code_is_one(tmp_path: Path) -> None:
    good, empty, note = tmp_path / "good.hdf5", tmp_path / "empty.hdf5", tmp_path / "note.hdf5"
    write_perun(good, {"n1": {"CUDA:0_POWER": gpu(9)}})
    empty.write_bytes(b"")
    note.write_text('{"energy": 5}')
    done = energy(empty, good, note, tmp_path / "none.hdf5")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 3, lines
    for line, path in zip(lines, (empty, note, tmp_path / "none.hdf5"), strict=True):
        assert str(path) in line
    assert str(good) not in done.stderr and '"n1"' in done.stdout
    assert "Traceback" not in done.stderr and "NaN" not in done.stdout
