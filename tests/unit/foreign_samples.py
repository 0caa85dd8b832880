"""Small recordings of other tools as texts, by format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

N = 120
SMI = "timestamp, index, uuid, power.draw [W], utilization.gpu [%]\n" + "".join(
    f"2024/05/31 10:39:{n // 2 % 60:02d}.{n % 2:03d}, {n % 2}, GPU-{n % 2}, {60 + n / 7:.2f} W, {n % 100} %\n"
    for n in range(N)
)
DCGM = "#Entity   POWER   TOTEC\nID   W   mJ\n" + "".join(
    f"{1717144753 + n // 2}.{n % 2}00 GPU {n % 2}   {60 + n / 7:.3f}   {10**9 + 31_000 * n}\n"
    for n in range(N)
)
QUERY = (
    '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":'
    '"DCGM_FI_DEV_POWER_USAGE","gpu":"0"},"values":['
    + ",".join(f'[{1717144753 + n},"{60 + n / 7:.3f}"]' for n in range(N))
    + "]}]}}\n"
)
ZEUS = "time,power0\n" + "".join(f"{1717144753 + n}.5,{60 + n / 7:.3f}\n" for n in range(N))
TABLE = "t;card;p\n" + "".join(
    f"{1717144753 + n // 2};{n % 2};{60 + n / 7:.3f}\n" for n in range(N)
)
RULES = {
    "time": {"column": "t"},
    "sensors": [{"column": "p", "kind": "gpu", "index_column": "card", "unit": "W"}],
}
FILES = {
    "nvidia-smi": SMI,
    "dcgm": DCGM,
    "prometheus": QUERY,
    "zeus-power": ZEUS,
    "csv": TABLE,
}
WINDOWS = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n" + "".join(
    f"{1717144753 + 10 * n}.5,epoch {n},{9.5},{900 + n}.25,{800 + n}.5\n" for n in range(12)
)
EMISSIONS = (
    "timestamp,project_name,run_id,duration,emissions,cpu_energy,gpu_energy,ram_energy,"
    "energy_consumed,gpu_count,cpu_model,gpu_model,pue,tracking_mode\n"
) + "".join(
    f"2024-05-31T10:3{n}:13,p,run-{n},60.5,0.001,0.002,0.01,0.0005,0.0125,2,Xeon,2 x A100,1.0,machine\n"
    for n in range(6)
)


def options(folder: Path, kind: str) -> dict[str, Any]:
    """What the user says of a file of a format."""
    columns = folder / "columns.yaml"
    columns.write_text(yaml.safe_dump(RULES))
    return {"node": "n1", "time_zone": "UTC", "columns": columns if kind == "csv" else None}
