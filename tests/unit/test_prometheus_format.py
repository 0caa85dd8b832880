"""The DCGM exporter's metrics as JSON of Prometheus and VictoriaMetrics."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from energy_files import codes
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import Made, check_counters, check_powers, made, of_gpu, sensors, written

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options

POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
T0 = 1_717_144_753
Series = tuple[dict[str, str], list[tuple[float, Any]]]


def labels(gpu: int, host: str = "n1", **more: str) -> dict[str, str]:
    model = {"modelName": "NVIDIA A100-SXM4-40GB", "UUID": f"GPU-{host}-{gpu}"}
    return {"__name__": POWER, "gpu": str(gpu), "Hostname": host, **model, **more}


def answer(series: Iterable[Series], indent: int | None = None) -> str:
    results = [{"metric": metric, "values": pairs} for metric, pairs in series]
    content = {"status": "success", "data": {"resultType": "matrix", "result": results}}
    return json.dumps(content, indent=indent)


def export(series: Iterable[Series]) -> str:
    """Lines as VictoriaMetrics exports them."""
    lines = [
        {
            "metric": metric,
            "values": [float(value) for _, value in pairs],
            "timestamps": [time_s * 1000 for time_s, _ in pairs],
        }
        for metric, pairs in series
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def read(text: str) -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        return read_foreign(written(Path(folder), text), Options())


@settings(max_examples=8, deadline=None)
@given(made(), st.integers(1, 7), st.sampled_from([None, 2, "export"]))
def test_a_known_power_is_read_back(made: Made, pods: int, form: Any) -> None:
    """A GPU has other labels, and so another series, for each pod that used it."""
    values: dict[tuple[str, int, int], list[tuple[float, str]]] = {}
    for number, row in enumerate(made.rows):
        for metric, value in ((POWER, row.power_w), (ENERGY, row.counter_mj)):
            if value is not None:
                of_pod = values.setdefault((metric, row.gpu, number // 10 % pods), [])
                of_pod.append((row.time_s, str(value)))
    series = [
        ({"__name__": m, "gpu": str(gpu), "pod": f"p{pod}", "instance": "n1:9400"}, pairs)
        for (m, gpu, pod), pairs in values.items()
    ]
    recording = read(export(series) if form == "export" else answer(series, form))
    check_powers(recording, made)
    check_counters(recording, made)
    assert tuple(recording.nodes) == ("n1",) and recording.format == "prometheus"


def test_times_in_milliseconds_are_refused() -> None:
    pairs = [(1000.0 * (T0 + second), "300") for second in range(9)]
    with pytest.raises(InputError, match="9 samples have no unix time in s"):
        read(answer([(labels(0), pairs)]))


def test_of_a_divided_gpu_one_part_counts() -> None:
    parts = {"10": 52.636, "4": 52.746, "5": 52.7}
    series = [
        (labels(0, GPU_I_ID=part), [(T0, value), (T0 + 1, value)]) for part, value in parts.items()
    ]
    recording = read(answer(series))
    assert of_gpu(recording, 0).values.tolist() == [52.746, 52.746]
    assert [flag["code"] for flag in recording.flags] == ["second_sensor"] * 2


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_a_line_of_an_export_that_is_cut_off_is_flagged(torn: int) -> None:
    lines = export([(labels(gpu), [(T0 + s, 60 + s) for s in range(9)]) for gpu in (0, 1)])
    recording = read(lines + lines[:torn])
    assert len(sensors(recording)) == 2
    assert ("damaged" in codes(recording.flags)) == (torn > 0)
