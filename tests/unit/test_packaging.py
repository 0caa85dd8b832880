"""What an installed scalewatt says of packages that it lacks, and knows of devices."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from campaign_files import PAPER, ROOT

from scalewatt import cli
from scalewatt.campaign.cluster import known_devices, site_file
from scalewatt.cli import main
from scalewatt.cli.command import COMMANDS
from scalewatt.common.errors import InputError


def test_a_missing_package_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "INSTALLED", True)

    def without_matplotlib(_: object) -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    changed = replace(COMMANDS["doctor"], handler=without_matplotlib)
    monkeypatch.setitem(COMMANDS, "doctor", changed)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        "scalewatt: error: matplotlib is not installed here; "
        "`pip install 'scalewatt[figures,workflow,train]'` brings it\n"
    )


def test_a_site_is_the_name_of_a_file_here_or_of_one_that_came_along_or_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert site_file("horeka") == ROOT / "config" / "horeka.yaml"
    assert site_file("local") == ROOT / "config.yaml"
    mine = Path("config", "horeka.yaml")
    mine.parent.mkdir()
    for path in (mine, Path("config.yaml"), Path("results.json")):
        path.touch()
    assert site_file("horeka") == mine
    assert site_file("local") == Path("config.yaml")
    assert site_file("results.json") == Path("results.json")


@pytest.mark.parametrize("given", ["horka", "profiles/horeka", "config/horeka.yml"])
def test_of_an_unknown_site_the_nearest_is_suggested(given: str) -> None:
    with pytest.raises(InputError, match=f"^--site {given}: .*; did you mean 'horeka'\\?$"):
        site_file(given)


def test_a_project_knows_the_devices_of_its_own_sites_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "config"
    mine.mkdir()
    text = (ROOT / "config.yaml").read_text()
    text = text.replace("\n  local:\n", "\n  h999:\n").replace("max_gpus: 4", "max_gpus: 2")
    (mine / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    devices = known_devices()
    assert devices["h999"].max_gpus == 2
    assert {"local", "a100"} <= set(devices), "those that ship are known as well"


LOADING = {
    "import scalewatt": {"pandas", "numpy", "pyarrow", "matplotlib"},
    "import scalewatt.cli": {"pandas", "numpy", "pyarrow", "matplotlib"},
    "import scalewatt.tracking.status": {"torch", "perun", "mpi4py", "snakemake"},
    # A login node parses the Snakefile with these.
    "import scalewatt.scaling.predict": {"pyarrow", "scipy"},
    f"from scalewatt.campaign.load import load_campaign; load_campaign({str(PAPER)!r})": {"torch"},
}


@pytest.mark.parametrize("code", LOADING)
def test_what_is_not_needed_is_not_imported(code: str) -> None:
    names = f"{code}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", names], capture_output=True, check=True)
    assert not LOADING[code] & set(loaded.stdout.decode().split())
