"""Where a simulation may be written: over nothing that was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulated_runs import MODEL, Simulated, cluster, simulate, spec_of

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.scaling.simulation.simulate import simulate_run

RUN = "resnet50-a100-n001-lbs0256-s0005004"
MEASURED = b"a recording of a real run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with its spec."""
    run = tmp_path / "results" / "paper" / "runs" / RUN / "1"
    (run / "perun").mkdir(parents=True)
    (run / "spec.json").write_text(spec_of(RUN, epochs=1).text + "\n")
    return run


def simulated_into(folder: Path) -> None:
    simulate_run(folder / "spec.json", folder, cluster(), MODEL)


@pytest.mark.parametrize("name", ["perun/segment-000.hdf5", "history.parquet", "notes.txt"])
@pytest.mark.parametrize("has_provenance", [True, False])
def test_a_run_that_was_measured_is_never_simulated_over(
    folder: Path, name: str, has_provenance: bool
) -> None:
    (folder / name).write_bytes(MEASURED)
    if has_provenance:
        write_json(folder / "provenance.json", {"hostnames": ["n1"], "segments": []})
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    with pytest.raises(InputError, match=r"not known to be simulated; expected nothing but spec"):
        simulated_into(folder)
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before


@pytest.fixture
def finished(tmp_path: Path) -> Simulated:
    """A finished simulation."""
    return simulate(tmp_path, spec_of(RUN, epochs=1))


def test_a_simulation_that_was_broken_off_is_not_finished_and_is_refused_until_it_is_removed(
    finished: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
        patched.setattr("scalewatt.scaling.simulation.simulate.write_table", broken)
        simulated_into(finished.folder)
    assert not (finished.folder / "provenance.json").exists()
    with pytest.raises(InputError, match=r"expected nothing but spec\.json"):
        simulated_into(finished.folder)


def test_a_finished_simulation_is_made_anew(finished: Simulated) -> None:
    provenance = finished.folder / "provenance.json"
    provenance.write_text(json.dumps({**finished.provenance, "seen": True}))
    simulated_into(finished.folder)
    assert "seen" not in finished.provenance


def test_with_a_cluster_that_trains_the_command_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trains = PROJECT_ROOT / "config" / "horeka.yaml"
    given = ["simulate", str(folder / "spec.json"), "--site", str(trains)]
    assert main([*given, "--model", str(MODEL)]) == 1
    assert "the cluster 'horeka' trains" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["perun", "spec.json"]
