"""Why a segment failed, in one line."""

from __future__ import annotations

import pytest

from scalewatt.execution.failure_reason import most_informative_line, was_refused

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


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", None),
        (BROKEN + TRACEBACK, "ValueError: the loss is no number"),
        (TRACEBACK + "scalewatt: error: a: is wrong\nlast", "a: is wrong"),
        ("[n1]: scalewatt: refused: one GPU\n" + KILLED, "one GPU"),
        ("RuntimeError: scalewatt: epoch 3 comes twice\n" + KILLED, "epoch 3 comes twice"),
        ("scalewatt: error: RuntimeError: Connection closed by peer\n" + KILLED, "EXIT CODE: 9"),
        (BROKEN + "srun: error: n2: task 3: Killed\n", "srun: error: n2: task 3: Killed"),
        (
            f"Fatal Python error: Segmentation fault\n\nThread 0x1:\n{KILLED}",
            "Fatal Python error: Segmentation fault",
        ),
        ("slurmstepd: Detected 1 oom_kill event\nbye\n", "slurmstepd: Detected 1 oom_kill event"),
        (
            "scalewatt: n1: is watched\nImportError: libnccl.so.2: cannot open shared object file\n",
            "ImportError: libnccl.so.2: cannot open shared object file",
        ),
        (BROKEN, "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:3"),
        (
            "Abort(70) on node 0 (rank 0 in comm 0): application called MPI_Abort(comm=0, 70)\n"
            "scalewatt: gives up\n",
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
