"""Python's variables after a cluster file's `setup`: for the user's command, not for scalewatt.

A module's PYTHONPATH would give the recorder other packages than those it was installed with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_NAMES = ("PYTHONPATH", "PYTHONHOME")
_OURS, _CALLERS = "SCALEWATT_OWN_", "SCALEWATT_CALLERS_"


def shell_setup(commands: Sequence[str]) -> str:
    """`setup` as the beginning of bash's line that ends with a program of scalewatt.

    That program gets Python's variables as they were before, and those of `setup` under other names.
    """
    if not commands:
        return ""
    before = " ".join(f'{_OURS}{name}="${{{name}-}}"' for name in _NAMES)
    apart = " ".join(f'{_CALLERS}{name}="${{{name}-}}" {name}="${_OURS}{name}"' for name in _NAMES)
    return f"{before} && {' && '.join(commands)} && {apart}"


def callers_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the user's command: with Python's variables as `setup` left them."""
    users = dict(environment)
    for name in _NAMES:
        callers = users.pop(_CALLERS + name, None)
        if callers is not None:
            users.pop(name, None)
            users |= {name: callers} if callers else {}
    return users
