"""Make each batch of a training take UPDATE_S seconds longer, without using a processor.

Python runs a file of this name at its start. A training asks after each batch whether it is to stop.
"""

import os
import time

from scalewatt.common.termination import StopRequest

asked = StopRequest.asked


def slowly_asked(self: StopRequest) -> bool:
    """Do the same, later."""
    time.sleep(float(os.environ["UPDATE_S"]))
    return asked(self)


StopRequest.asked = slowly_asked
