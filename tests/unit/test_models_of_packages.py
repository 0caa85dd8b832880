"""Models of other packages, which entry points name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_known_models import FILE

from scalewatt.campaign.model_registry import known_models, modules_of_packages
from scalewatt.common.errors import InputError
from scalewatt.workloads import workload_class

POINTS = "[scalewatt.workloads]\n"


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """Forget what was found before, and what this test's packages were."""
    for function in (known_models, modules_of_packages):
        function.cache_clear()
    before = set(sys.modules)
    yield
    for function in (known_models, modules_of_packages):
        function.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, points: str, text: str, package: str = "theirs"
) -> None:
    """Put a package with a module `nets.small` and entry points on the path."""
    nets = folder / package / "nets"
    nets.mkdir(parents=True)
    (folder / package / "__init__.py").write_text("raise RuntimeError('imported')")
    (nets / "__init__.py").write_text("")
    (nets / "small.py").write_text(text)
    facts = folder / f"{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(POINTS + points)
    monkeypatch.syspath_prepend(str(folder))


def test_a_packages_model_is_known_by_its_entry_point_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "tiny = theirs.nets.small\n", FILE)
    found = known_models()
    assert set(found) == {"resnet50", "fourcastnet", "tiny"}
    assert (found["tiny"].name, set(found["tiny"].settings)) == ("tiny", {"tiny"})


def test_its_workload_is_that_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "MODEL = {'data_format': 'imagenet', 'settings': {}}\nWORKLOAD = dict\n"
    install(tmp_path, monkeypatch, "tiny = theirs.nets.small\n", text)
    (tmp_path / "theirs" / "__init__.py").write_text("")
    assert workload_class("tiny") is dict


def test_a_name_that_there_is_already_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "resnet50 = theirs.nets.small\n", FILE)
    with pytest.raises(InputError, match=r"entry point 'resnet50' .* a model of that name"):
        known_models()


def test_two_packages_with_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "a", monkeypatch, "tiny = theirs.nets.small\n", FILE)
    install(tmp_path / "b", monkeypatch, "tiny = others.nets.small\n", FILE, "others")
    with pytest.raises(InputError, match=r"entry point 'tiny' .* is both .* uninstall a package"):
        known_models()


@pytest.mark.parametrize(
    ("module", "text", "says"),
    [
        ("theirs.nets.big", FILE, "there is no module theirs.nets.big"),
        ("nowhere.nets", FILE, "there is no module nowhere.nets"),
        ("theirs.nets.small", "WORKLOAD = 1\n", "has no MODEL; expected one"),
    ],
)
def test_an_entry_point_that_leads_to_no_model_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str, says: str
) -> None:
    install(tmp_path, monkeypatch, f"tiny = {module}\n", text)
    with pytest.raises(InputError, match=says):
        known_models()
