"""The DCGM exporter's metrics: scrapes with times, or after a line with one, and Prometheus' JSON."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from energy_files import codes
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import (
    Made,
    check_counters,
    check_powers,
    local,
    made,
    of_gpu,
    sensors,
    written,
)

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options
from scalewatt.recordings.terms import INSTANTANEOUS

POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
T0 = 1_717_144_753


def labels(gpu: int, more: str = "", host: str = "n1") -> str:
    return (
        f'{{gpu="{gpu}",UUID="GPU-{host}-{gpu}",modelName="NVIDIA A100-SXM4-40GB",'
        f'{more}Hostname="{host}"}}'
    )


def read(text: str, zone: str | None = None) -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        return read_foreign(written(Path(folder), text), Options(time_zone=zone))


# --- what is known is read back -------------------------------------------------------------------


def scrapes(made: Made, stamp: str) -> list[str]:
    """Write a made recording as scrapes: times behind the values, or a line before each scrape."""
    lines: list[str] = []
    last = None
    for row in made.rows:
        behind = f" {round(row.time_s * 1000)}" if stamp == "behind" else ""
        if stamp != "behind" and row.time_s != last:
            plain = stamp == "unix"
            lines.append(f"{row.time_s:.9f}" if plain else local(row.time_s, made.zone, stamp))
            lines.append(f"# TYPE {POWER} gauge")
        last = row.time_s
        value = "NaN" if row.power_w is None else 61
        lines.append(f"DCGM_FI_DEV_GPU_TEMP{labels(row.gpu)} {value}")
        if row.power_w is not None:
            lines.append(f"{POWER}{labels(row.gpu)} {row.power_w:.6f}{behind}")
            lines.append(f"{ENERGY}{labels(row.gpu)} {row.counter_mj}{behind}")
    return lines


@settings(max_examples=40, deadline=None)
@given(
    made(),
    st.sampled_from(["behind", "unix", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M:%S"]),
    st.integers(0, 100),
)
def test_a_known_power_is_read_back(made: Made, stamp: str, torn: int) -> None:
    lines = scrapes(made, stamp)
    recording = read("\n".join(lines) + "\n" + lines[-1][:torn], made.zone)
    check_powers(recording, made)
    check_counters(recording, made)
    assert ("damaged" in codes(recording.flags)) == (torn > 0)
    assert tuple(recording.nodes) == ("n1",) and recording.format == "prometheus"


@settings(max_examples=30, deadline=None)
@given(made(), st.integers(1, 7), st.sampled_from([(None, ""), (None, "\n"), (2, "\n")]))
def test_a_known_power_is_read_back_from_the_json_of_a_query(
    made: Made, pods: int, form: tuple[int | None, str]
) -> None:
    """A GPU has other labels, and so another result, for each pod that used it."""
    values: dict[tuple[str, int, int], list[tuple[float, str]]] = {}
    for number, row in enumerate(made.rows):
        for metric, value in ((POWER, row.power_w), (ENERGY, row.counter_mj)):
            if value is not None:
                of_pod = values.setdefault((metric, row.gpu, number // 10 % pods), [])
                of_pod.append((row.time_s, str(value)))
    results = [
        {
            "metric": {"__name__": m, "gpu": str(gpu), "pod": f"p{pod}", "instance": "n1:9400"},
            "values": pairs,
        }
        for (m, gpu, pod), pairs in values.items()
    ]
    content = {"status": "success", "data": {"resultType": "matrix", "result": results}}
    indent, end = form
    recording = read(json.dumps(content, indent=indent) + end)
    check_powers(recording, made)
    check_counters(recording, made)
    assert tuple(recording.nodes) == ("n1",)


# --- devices, hosts and times ---------------------------------------------------------------------


def test_of_a_divided_gpu_one_part_counts() -> None:
    lines = [
        POWER + labels(0, f'GPU_I_ID="{part}",') + f" {value} {time}000"
        for time in (T0, T0 + 1)
        for part, value in ((10, 52.636), (4, 52.746), (5, 52.7))
    ]
    recording = read("\n".join(lines) + "\n")
    assert of_gpu(recording, 0).values.tolist() == [52.746, 52.746]
    assert [flag["code"] for flag in recording.flags] == ["second_sensor"] * 2


def test_identity_and_model_are_kept_and_hosts_are_nodes() -> None:
    lines = [f"{POWER}{labels(0, host=host)} 6{n} {T0}000\n" for n, host in enumerate(("n2", "n1"))]
    recording = read("".join(lines))
    assert tuple(recording.nodes) == ("n1", "n2")
    assert [(s.uuid, s.values[0], s.samples) for s in sensors(recording)] == [
        ("GPU-n1-0", 61, INSTANTANEOUS),
        ("GPU-n2-0", 60, INSTANTANEOUS),
    ]


def scrapes_of_two(seconds: int, stamped: range, but: int | None = None) -> str:
    """A scrape of two GPUs each second, of which some have a line with their time."""
    return "".join(
        f"{T0 + second}.0\n" * (second in stamped and second != but)
        + "".join(f"{POWER}{labels(gpu)} {60 + gpu + second}\n" for gpu in (0, 1))
        for second in range(seconds)
    )


def test_scrapes_without_a_time_of_their_own_are_not_dated_to_the_one_before() -> None:
    with pytest.raises(InputError, match="of 40 samples 0 cannot be read and 20 have no time"):
        read(scrapes_of_two(20, range(10)))
    recording = read(scrapes_of_two(40, range(40), but=30))
    assert sensors(recording)[0].time_s.size == 39
    assert "damaged" in codes(recording.flags)
