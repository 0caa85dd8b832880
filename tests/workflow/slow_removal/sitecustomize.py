"""Make the removal of a node's copy of the images take REMOVAL_S seconds longer.

Python runs a file of this name at its start. A copy of ImageNet has 1.3 million files.
"""

import os
import shutil
import time
from typing import Any

rmtree = shutil.rmtree


def slowly_remove(path: str, *args: Any, **options: Any) -> None:
    """Do the same, later where it is a node's copy that is there."""
    if os.path.basename(path).startswith("scalewatt-") and os.path.exists(path):
        time.sleep(float(os.environ["REMOVAL_S"]))
    rmtree(path, *args, **options)


shutil.rmtree = slowly_remove  # type: ignore[assignment]
