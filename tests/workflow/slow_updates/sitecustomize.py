"""Make each update of a training wait UPDATE_S seconds on rank 0, without using a processor.

Python runs a file of this name at its start. The other ranks wait for rank 0 in their reductions.
"""

import os
import time

from scalewatt.training.progress import ProgressNotes

at_step = ProgressNotes.at_step


def slow_at_step(self: ProgressNotes, epoch: int, step: int) -> None:
    """Do the same, later."""
    time.sleep(float(os.environ["UPDATE_S"]))
    at_step(self, epoch, step)


ProgressNotes.at_step = slow_at_step
