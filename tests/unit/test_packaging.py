"""What an installed scalewatt asks for, against what measurements are made with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scalewatt.campaign.cluster import known_devices
from scalewatt.cli import command, main
from scalewatt.provenance.package_lock import normalised

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def names(requirements: list[str]) -> dict[str, str]:
    """{package: the rest of its requirement}, without scalewatt itself."""
    found = {}
    for one in requirements:
        name = _NAME.match(one)
        assert name
        found[normalised(name[0])] = one[name.end() :]
    return {name: rest for name, rest in found.items() if name != "scalewatt"}


def of_the_lock() -> dict[str, str]:
    """What envs/requirements.in asks for."""
    lines = (ROOT / "envs" / "requirements.in").read_text().splitlines()
    return names([line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()])


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_the_wheel_asks_for_no_package_that_the_lock_does_not_have(extra: str) -> None:
    asked = names(EXTRAS[extra] if extra else PROJECT["dependencies"])
    locked = of_the_lock()
    in_lock = {
        normalised(line.split("==")[0])
        for line in (ROOT / "envs" / "lock.txt").read_text().splitlines()
        if re.match(r"[a-z0-9]", line)
    }
    for name, rest in asked.items():
        assert name in in_lock, name
        if rest and name in locked and not name.startswith("torch"):
            assert locked[name] == rest, name


def test_every_hint_at_an_extra_names_a_module_of_it() -> None:
    assert set(command._EXTRAS) == set(EXTRAS)
    assert command.install_hint("matplotlib.pyplot") is not None
    assert command.install_hint("nothing_of_ours") is None


def test_a_missing_package_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "INSTALLED", True)
    figure = command.COMMANDS["figure"]

    def without_matplotlib(_: object) -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    changed = command.Command(figure.name, without_matplotlib, figure.arguments, figure.examples)
    monkeypatch.setitem(command.COMMANDS, "figure", changed)
    assert main(["figure", "2", "--table", "t.parquet", "--out", str(tmp_path / "f")]) == 1
    assert capsys.readouterr().err == (
        "scalewatt: error: figure: needs matplotlib, which is not installed here; install it by "
        "pip install 'scalewatt[figures]'\n"
    )


def test_a_project_knows_the_devices_of_its_own_profiles_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "profiles" / "mine"
    mine.mkdir(parents=True)
    text = (ROOT / "profiles" / "local" / "cluster.yaml").read_text()
    text = text.replace("\n  local:\n", "\n  h999:\n").replace("max_gpus: 4", "max_gpus: 2")
    (mine / "cluster.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    found = known_devices()
    assert found["h999"].max_gpus == 2
    assert {"local", "a100"} <= set(found), "those that ship are known as well"
