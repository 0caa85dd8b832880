"""Where a simulation may be written: over nothing that was measured."""

from __future__ import annotations

from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.recordings.record_file import read_header
from scalewatt.recordings.series import SIMULATED, origin_stated


def check_replaceable(folder: Path) -> None:
    """InputError where a run folder holds more than its spec and what a simulation has written.

    A finished simulation says of itself what it is in its provenance, one that was broken off in its
    journals.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; expected an empty folder (--out)")
    provenance = folder / "provenance.json"
    if provenance.exists():
        said = read_json(provenance)
        if not (isinstance(said, dict) and said.get("simulated")):
            raise _measured(folder, "its provenance.json is that of a run which was not simulated")
        return
    recordings = sorted((folder / "perun").glob("*"))
    for path in recordings:
        if not _is_simulated(path):
            raise _measured(folder, f"nothing says that perun/{path.name} was simulated")
    others = {path.name for path in folder.glob("*")} - {"perun", "spec.json"}
    if others and not recordings:
        raise _measured(folder, f"nothing says that {min(others)} is of a simulation")


def _is_simulated(recording: Path) -> bool:
    """Whether the journals of a recording's segment, of which there is one at least, say so."""
    segment = recording.name.lstrip(".").split(".")[0]
    journals = list(recording.parent.glob(f"{segment}.*.journal"))
    try:
        origins = {origin_stated(read_header(journal)[0]) for journal in journals}
    except InputError:
        return False
    return origins == {SIMULATED}


def _measured(folder: Path, what: str) -> InputError:
    return InputError(
        f"{folder}: {what}; a simulation takes the place of another one alone: expected an empty "
        "folder (--out)"
    )
