"""The exception whose message is written for the user, and words of such messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_SHOWN = 100
"""Letters of a wrong value in a message."""


class InputError(Exception):
    """Something the user gave is wrong; the message says what, where and what is allowed."""


def shown(value: Any) -> str:
    """A value in a message, cut to a length that can be read."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(word: object, allowed: Iterable[object]) -> str:
    """'; did you mean …?' or nothing."""
    close = get_close_matches(str(word), [str(a) for a in allowed], n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def one_of(word: object, allowed: Iterable[object]) -> str:
    """'allowed: a, b; did you mean 'a'?', each word once."""
    names = list(dict.fromkeys(map(str, allowed)))
    return f"allowed: {', '.join(names) or 'nothing'}{nearest(word, names)}"
