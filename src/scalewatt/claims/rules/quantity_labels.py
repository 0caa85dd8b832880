"""Words for quantities in verdicts."""

from __future__ import annotations

WORDS = {
    "runtime_h": "run time",
    "gpu_hours": "GPU hours",
    "energy_kwh": "energy",
    "gpu_energy_kwh": "GPU energy",
    "cpu_energy_kwh": "CPU energy",
    "ram_energy_kwh": "RAM energy",
    "gpu_energy_share": "share of GPU energy",
    "cpu_energy_share": "share of CPU energy",
    "ram_energy_share": "share of RAM energy",
    "p_gpuh_kw": "energy per GPU hour",
    "mean_gpu_power_w": "mean GPU power",
    "mean_cpu_socket_power_w": "mean power of a CPU socket",
    "samples_per_gpuh": "samples per GPU hour",
    "passes_per_gpuh": "passes per GPU hour",
    "metric_last": "quality metric",
}


def word(name: str) -> str:
    """What a quantity is called in a sentence; its column's name where there is no word."""
    return WORDS.get(name, name)
