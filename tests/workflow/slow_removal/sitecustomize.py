"""Make the removal of a node's copy of the images take REMOVAL_S seconds longer.

Python runs a file of this name at its start. A copy of ImageNet has 1.3 million files.
"""

import os
import time

from scalewatt.datasets import node_staging

remove_staged = node_staging.remove_staged


def slowly_remove_staged(folder: str) -> None:
    """Do the same, later."""
    time.sleep(float(os.environ["REMOVAL_S"]))
    remove_staged(folder)


node_staging.remove_staged = slowly_remove_staged
