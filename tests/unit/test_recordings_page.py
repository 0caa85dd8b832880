"""docs/guide/formats.md: its examples, and that of a new tool, work as they stand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from campaign_files import ROOT
from made_recordings import sensors

from scalewatt.recordings import tables
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options, find_preset, read_table

PAGE = (ROOT / "docs" / "guide" / "formats.md").read_text(encoding="utf-8")


def test_the_pages_tables_are_read_by_the_pages_yaml(tmp_path: Path) -> None:
    examples = re.findall(r"```csv\n(.*?)```\s+```yaml\n(.*?)```", PAGE, re.DOTALL)
    path, columns = tmp_path / "n1.csv", tmp_path / "columns.yaml"
    values = []
    for text, rules in examples:
        path.write_text(text)
        columns.write_text(rules)
        recording = read_foreign(path, Options(columns=columns))
        assert tuple(recording.nodes) == ("n1",) and not recording.flags
        assert {sensor.time_s[0] for sensor in sensors(recording)} == {1_717_144_753.0}
        key = lambda sensor: (sensor.kind, sensor.index, sensor.quantity)  # noqa: E731
        values.append({key(sensor): sensor.values.tolist() for sensor in sensors(recording)})
    assert values == [
        {
            ("gpu", 0, "power"): [61.2, 61.9],
            ("gpu", 1, "power"): [70.1, 70.4],
            ("node", 0, "power"): [402, 403],
        },
        {("gpu", 0, "counter"): [812_500, 812_900], ("gpu", 0, "utilisation"): [0.97, 0.98]},
    ]


def test_a_tool_added_as_the_page_says_is_known_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.partition("## Add a tool")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```csv\n(.*?)```", section, re.DOTALL)
    (rules,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (name,) = re.findall(r"recordings/presets/(\w+)\.yaml", section)
    assert find_preset(text) is None and len(rules.splitlines()) <= 15

    shutil.copytree(tables.PRESETS, tmp_path / "presets")
    (tmp_path / "presets" / f"{name}.yaml").write_text(rules)
    monkeypatch.setattr(tables, "PRESETS", tmp_path / "presets")
    tables.presets.cache_clear()
    try:
        preset = find_preset(text)
    finally:
        tables.presets.cache_clear()
    assert preset is not None and preset["name"] == name
    path = tmp_path / "n1.csv"
    path.write_text(text)
    (block,) = read_table(path, preset).nodes["n1"]
    assert block.sensors[["kind", "index", "quantity"]].to_numpy().tolist() == [
        ["cpu", 0, "power"],
        ["gpu", 0, "power"],
    ]
    assert block.values.tolist() == [[61.2, 30.3], [61.9, 30.6]]
