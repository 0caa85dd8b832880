"""Which modules a number comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.common.imported_modules import modules_behind


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of five modules, one of which imports two others."""
    files = {
        "__init__.py": "",
        "energy/__init__.py": "",
        "energy/account.py": "from scalewatt.common.files import (\n    read,\n)\n",
        "energy/other.py": "",
        "common/files.py": "def lazy():\n    from scalewatt.common import errors\n",
        "common/errors.py": "import json\n",
    }
    for name, text in files.items():
        path = tmp_path / "scalewatt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "scalewatt"


def test_imports_are_followed_lazy_ones_too(package: Path) -> None:
    found = modules_behind("energy.account", package=package)
    assert {path.relative_to(package).as_posix() for path in found} == {
        *("energy/account.py", "common/files.py", "common/errors.py")
    }
