"""Why a segment failed, in one line."""

from __future__ import annotations

import errno

import pytest

from scalewatt.execution.failure_reason import is_full, most_informative_line, was_refused

TRACEBACK = """resnet50 epoch 1/3: train_loss 2.3
Traceback (most recent call last):
  File "loop.py", line 3, in run
    raise ValueError("no")
ValueError: the loss is no number
"""
BROKEN = """Traceback (most recent call last):
  File "loop.py", line 3, in run
RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:3
"""
KILLED = """=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
"""
SHARED = "/dev/shm may be full, the memory that processes share (df -h /dev/shm)"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", None),
        (TRACEBACK, "ValueError: the loss is no number"),
        (BROKEN + TRACEBACK, "ValueError: the loss is no number"),
        (TRACEBACK + "scalewatt: error: a: is wrong\nlast", "a: is wrong"),
        ("scalewatt: error: OSError: disk\n" + TRACEBACK, "OSError: disk"),
        ("[n1]: scalewatt: refused: one GPU\n" + KILLED, "one GPU"),
        ("RuntimeError: scalewatt: epoch 3 comes twice\n" + KILLED, "epoch 3 comes twice"),
        (
            "scalewatt: error: RuntimeError: Connection closed by peer\n" + TRACEBACK,
            "ValueError: the loss is no number",
        ),
        (
            "scalewatt: error: RuntimeError: Connection closed by peer\n" + KILLED,
            "a rank was ended by signal SIGKILL (EXIT CODE: 9)",
        ),
        (
            BROKEN + "srun: error: n2: task 3: Killed\n",
            "a rank was ended by signal SIGKILL (srun: error: n2: task 3: Killed)",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=3.0\n",
            "a rank was killed (slurmstepd: error: Detected 1 oom_kill event in StepId=3.0)",
        ),
        (
            f"Fatal Python error: Segmentation fault\n\nThread 0x1:\n{KILLED}",
            "a rank was ended by signal SIGSEGV",
        ),
        (
            "srun: error: n1: task 0: Terminated\nsrun: error: n2: task 3: Bus error (core dumped)\n",
            f"a rank was ended by signal SIGBUS: {SHARED}",
        ),
        (
            "mpirun noticed that process rank 1 with PID 0 on node n exited on signal 8 "
            "(Floating point exception).\n",
            "a rank was ended by signal SIGFPE",
        ),
        (
            "scalewatt: error: the command of rank 1 on n1 was ended by signal SIGBUS\n",
            f"the command of rank 1 on n1 was ended by signal SIGBUS: {SHARED}",
        ),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n",
            f"RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.: {SHARED}",
        ),
        (
            "scalewatt: n1: is watched\nImportError: libnccl.so.2: cannot open shared object file\n",
            "ImportError: libnccl.so.2: cannot open shared object file",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error\nscalewatt: n1: has died\n",
            "n1: has died",
        ),
        (BROKEN, "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:3"),
        (
            "scalewatt: the rank with process id 7 has died\nbye\n",
            "the rank with process id 7 has died",
        ),
        (
            "Abort(1) on node 0 (rank 0 in comm 0): Fatal error in internal_Init: no PMI\n"
            "srun: error: n1: task 0: Exited with exit code 15\n",
            "Abort(1) on node 0 (rank 0 in comm 0): Fatal error in internal_Init: no PMI",
        ),
        (
            "scalewatt: gives up\n"
            "Abort(70) on node 0 (rank 0 in comm 0): application called MPI_Abort(comm=0, 70)\n",
            "gives up",
        ),
        ("one\n\ntwo words \n\n", "two words"),
    ],
)
def test_the_most_informative_line_is_chosen(log: str, expected: str | None) -> None:
    assert most_informative_line(log) == expected


@pytest.mark.parametrize(
    ("log", "refused"),
    [
        ("epoch 1\nscalewatt: refused: one GPU\n", True),
        ("[0]: scalewatt: refused: one GPU\n", True),
        ("scalewatt: error: refused\n", False),
        ("RuntimeError: scalewatt: refused: no\n", False),
    ],
)
def test_only_a_rank_that_found_its_input_wrong_was_refused(log: str, refused: bool) -> None:
    assert was_refused(log) is refused


def test_a_full_disk_is_recognised_also_as_the_cause_of_another_error() -> None:
    full, other = OSError(errno.ENOSPC, "full"), OSError(errno.EACCES, "denied")
    assert is_full(full) and is_full(OSError(errno.EDQUOT, "quota"))
    assert not is_full(other) and not is_full(None)
    for told in (ValueError("a"), RuntimeError("b")):
        told.__context__ = full
        assert is_full(told)
