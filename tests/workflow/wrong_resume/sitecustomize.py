"""Let a training resume without its optimiser's state, in Python's processes that have this folder.

Python runs a file of this name at its start.
"""

import sys

if "scalewatt.execution.rank" in sys.orig_argv:
    from torch.optim import Optimizer

    Optimizer.load_state_dict = lambda self, state: None
