"""Presets: each tool's own output is known by its heading alone, and read as the tool means it."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from scalewatt.common.settings import validated
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options, TableDescription, decoded, fits, presets

SAMPLES = Path(__file__).parent / "table_samples"
"""Output of each tool in the form that its source shows, named by preset."""
TABLES = [preset for preset in presets() if "totals" not in preset]
UTC = Options(time_zone="UTC")


def test_every_preset_has_a_sample_of_its_tools_output() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == {preset["name"] for preset in TABLES}


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.stem)
def test_a_tools_output_is_known_as_that_of_no_other_tool(path: Path) -> None:
    lines = decoded(path.read_bytes()).splitlines()
    assert [preset["name"] for preset in presets() if fits(preset, lines)] == [path.stem]


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.stem)
def test_a_tools_output_is_read_as_the_tool_means_it(
    path: Path, snapshot: SnapshotAssertion
) -> None:
    recording = read_foreign(path, UTC)
    shown = ["node", "kind", "index", "quantity", "name", "samples", "device", "limit_w"]
    rows = [
        " ".join(str(sensor[name]) for name in shown if str(sensor[name]) not in ("", "nan"))
        + f": {[(round(t, 3), round(v, 6)) for t, v in zip(block.time_s.tolist(), values, strict=True)]}"
        for node, blocks in recording.nodes.items()
        for block in blocks
        for sensor, values in zip(
            block.sensors.assign(node=node).to_dict("records"), block.values.T.tolist(), strict=True
        )
    ]
    flags = [f"{each['code']}: {each['detail']}" for each in recording.flags]
    clock = "unix" if recording.clock_known else "seconds of an unknown clock"
    assert "\n".join([clock, *rows, *flags]) == snapshot


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset["name"])
def test_a_preset_has_the_form_of_a_users_description(preset: dict) -> None:
    description = {k: v for k, v in preset.items() if k != "name"}
    validated(TableDescription, description, preset["name"])
    assert "docs" in preset and ("sensors" in preset or "totals" in preset)
