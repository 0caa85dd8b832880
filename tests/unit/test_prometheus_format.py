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
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options
from scalewatt.recordings.terms import INSTANTANEOUS

POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def labels(gpu: int, more: str = "") -> str:
    return (
        f'{{gpu="{gpu}",UUID="GPU-{gpu}f",device="nvidia{gpu}",modelName="NVIDIA A100-SXM4-40GB",'
        f'{more}Hostname="n1"}}'
    )


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
        lines.append(
            f"DCGM_FI_DEV_GPU_TEMP{labels(row.gpu)} {'NaN' if row.power_w is None else 61}"
        )
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
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "\n".join(lines) + "\n" + lines[-1][:torn])
        found = read_foreign(path, Options(time_zone=made.zone))
    check_powers(found, made)
    check_counters(found, made)
    assert ("damaged" in codes(found.flags)) == (torn > 0)
    assert tuple(found.nodes) == ("n1",) and found.format == "prometheus"


@settings(max_examples=30, deadline=None)
@given(made(), st.integers(1, 7))
def test_a_known_power_is_read_back_from_the_json_of_a_query(made: Made, pods: int) -> None:
    # A GPU has other labels, and so another result, for each pod that used it.
    results: dict[tuple[str, int, int], list[list]] = {}
    for number, row in enumerate(made.rows):
        for metric, value in ((POWER, row.power_w), (ENERGY, row.counter_mj)):
            if value is not None:
                own = results.setdefault((metric, row.gpu, number // 10 % pods), [])
                own.append([row.time_s, str(value)])
    content = {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                {
                    "metric": {
                        "__name__": metric,
                        "gpu": str(gpu),
                        "pod": f"p{pod}",
                        "instance": "n1:9400",
                    },
                    "values": values,
                }
                for (metric, gpu, pod), values in results.items()
            ],
        },
    }
    for indent, end in ((None, ""), (None, "\n"), (2, "\n")):
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(content, indent=indent) + end
            found = read_foreign(written(Path(folder), text))
        check_powers(found, made)
        check_counters(found, made)
        assert tuple(found.nodes) == ("n1",)


def test_of_a_divided_gpu_one_part_counts(tmp_path: Path) -> None:
    lines = [
        POWER + labels(0, f'GPU_I_ID="{part}",') + f" {value} {time}000"
        for time in (1717144753, 1717144754)
        for part, value in ((10, 52.636), (4, 52.746), (5, 52.7))
    ]
    found = read_foreign(written(tmp_path, "\n".join(lines) + "\n"))
    assert of_gpu(found, 0).values.tolist() == [52.746, 52.746]
    assert [one["code"] for one in found.flags] == ["second_sensor"] * 2


def test_identity_and_model_are_kept_and_hosts_are_nodes(tmp_path: Path) -> None:
    text = "".join(
        f'{POWER}{{gpu="0",UUID="GPU-{host}",modelName="NVIDIA A100-SXM4-40GB",'
        f'Hostname="{host}"}} 6{n} 1717144753000\n'
        for n, host in enumerate(("n2", "n1"))
    )
    found = read_foreign(written(tmp_path, text))
    assert tuple(found.nodes) == ("n1", "n2")
    assert [(one.uuid, one.values[0]) for one in sensors(found)] == [("GPU-n1", 61), ("GPU-n2", 60)]
    assert {one.samples for one in sensors(found)} == {INSTANTANEOUS}


def scrape_of(gpus: int, second: int, stamp: bool, broken: int | None = None) -> str:
    """Return one scrape, of which the labels of GPU `broken` are damaged."""
    lines = [f"{1717144753 + second}.0"] if stamp else []
    for gpu in range(gpus):
        named = labels(gpu).replace("Host", '"') if gpu == broken else labels(gpu)
        lines.append(f"{POWER}{named} {60 + gpu + second}")
    return "\n".join(lines) + "\n"


def test_scrapes_without_a_time_of_their_own_are_not_dated_to_the_one_before(
    tmp_path: Path,
) -> None:
    text = "".join(scrape_of(2, second, stamp=second < 10) for second in range(20))
    with pytest.raises(InputError, match="of 40 samples 0 cannot be read and 20 have no time"):
        read_foreign(written(tmp_path, text))
    few = "".join(scrape_of(2, second, stamp=second != 30) for second in range(40))
    found = read_foreign(written(tmp_path, few))
    assert sensors(found)[0].time_s.size == 39
    assert "damaged" in codes(found.flags)
