"""Give the processes of the host WRONG_HOST a wall clock that is AHEAD_S seconds ahead.

Python runs a file of this name at its start. faketime (0.9.10) will not do: Python's sleep fails under it.
"""

import os
import socket
import time

if socket.gethostname() == os.environ["WRONG_HOST"]:
    ahead_s = float(os.environ["AHEAD_S"])
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + ahead_s
    time.time_ns = lambda: right_ns() + round(ahead_s * 1e9)
