"""Python's variables after a cluster file's `setup`: for the user's command, not for scalewatt.

A module's PYTHONPATH would give the recorder other packages than those it was installed with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CALLERS_PATH = "SCALEWATT_CALLERS_PATH"
"""PATH as it was before this Python's commands were put first, for what is not ours."""
_NAMES = ("PYTHONPATH", "PYTHONHOME")
_BEFORE, _AFTER = "SCALEWATT_OWN_", "SCALEWATT_CALLERS_"


def shell_setup(commands: Sequence[str]) -> str:
    """Beginning of bash's line that ends with a program of scalewatt: the commands of `setup`.

    The program gets Python's variables as they were before, and those of `setup` under other names.
    """
    if not commands:
        return ""
    before = " ".join(f'{_BEFORE}{name}="${{{name}-}}"' for name in _NAMES)
    after = " ".join(f'{_AFTER}{name}="${{{name}-}}" {name}="${_BEFORE}{name}"' for name in _NAMES)
    return " && ".join([before, *commands, after])


def callers_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the user's command: with Python's variables as `setup` left them."""
    kept = dict(environment)
    for name in _NAMES:
        value = kept.pop(_AFTER + name, None)
        if value is not None:
            kept[name] = value
    return {name: value for name, value in kept.items() if value or name not in _NAMES}
