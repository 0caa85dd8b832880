"""A light step of the workflow: what the scripts of workflow/scripts/ share."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from scalewatt.common.errors import InputError
from scalewatt.common.redaction import without_logins


@contextmanager
def logged(path: str) -> Iterator[None]:
    """Write what a step prints to its log; an input error is a single line there, and ends the step."""
    with open(path, "w", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            yield
        except InputError as error:
            print(f"scalewatt: error: {without_logins(str(error))}", file=log)
            raise SystemExit(1) from None
        except Exception:
            traceback.print_exc(file=log)
            raise SystemExit(1) from None
