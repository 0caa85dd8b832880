"""Locks on files that cannot be locked."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.files import waiting_lock


def test_what_cannot_be_locked_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be locked"), waiting_lock(tmp_path / "file/a", ""):
        pass
