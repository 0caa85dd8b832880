"""Assumptions of simulated runs where the scaling model states nothing, each with its source.

None of them changes a run's time or its whole energy, which are the model's: they divide it among devices
and over time.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewatt.campaign.cluster import Device
from scalewatt.campaign.run_spec import RunSpec


@dataclass(frozen=True)
class Training:
    """Assumptions of one model's trainings.

    A CPU socket draws idle + (rated - idle) * busy, with busy = `cpu_base` + `cpu_gpus` * share of the
    node's GPUs that are used. Memory draws `ram_base_w` + `ram_gpus_w` * that share.
    """

    cpu_base: float
    cpu_gpus: float
    ram_base_w: float
    ram_gpus_w: float
    runtime_sd: float
    """Relative standard deviation of repeats of one configuration from its first."""
    energy_sd: float
    """Like `runtime_sd`, of the energy at a given time."""
    metric_sd: float
    checkpoint_s: float
    first_batch_s: float
    """How long GPUs wait at the start of a stage, in s for each sample of the local batch."""


MODELS = {
    # CPU: base, GPUs; memory in W: base, GPUs; repeats: time, energy, metric; checkpoint and batch in s
    "resnet50": Training(0.116, 0.334, 22.0, 12.0, 0.0073, 0.0085, 0.0045, 0.4, 0.0099),
    "fourcastnet": Training(0.05, 0.16, 22.0, 6.0, 0.0535, 0.0416, 0.01, 4.0, 1.5),
}
"""Power of the host: ResNet50's is solved from CPU 18.9 kWh at n = 1 and 6.7 kWh at n = 4 with the model's
run times, 236 and 331 W a node, and memory from what GPU 17.6 kWh and the CPU's 49 % leave at n = 1 (Huber
et al. 2025, section 3.2.2); the published GPU 20.3 of 30.2 kWh at n = 256 agrees. FourCastNet decodes no
images: assumed, memory below 4 % of a node (section 3.5).

Repeats: the first one of a configuration, and so a single run, is the model's median; the others scatter
about it, so that with the published number of repeats r their sample has the published standard deviations:
its variance is (r - 1) / r of that of the others. The published ones are the population's; of a sample
(√(r / (r - 1)) times as much) they are, in the median of ResNet50's 17 rows (r = 5), 0.65 % in time and
0.81 % in energy, and 4.4 % and 4.7 % of FourCastNet's one, the probe of three runs. What of the energy
follows from the time (the model's median 0.44 % and 0.74 % for each 1 %) is subtracted. Errors: assumed.

Waits for the first batch: ResNet50's is what the scaling model finds for the first batch of an epoch; of
FourCastNet's 83 MB samples it is assumed. Checkpoints: assumed."""
_OTHER = Training(0.05, 0.16, 22.0, 6.0, 0.01, 0.01, 0.01, 1.0, 0.01)


def of_training(spec: RunSpec) -> Training:
    """Assumptions of a run's model."""
    return MODELS.get(spec.model, _OTHER)


MOST_BESIDE_GPUS = 0.65
"""CPUs and memory get at most this part of a node's energy."""


def host_power_w(spec: RunSpec, device: Device) -> dict[str, float]:
    """Mean power in W of a node's CPUs and of its memory in a training."""
    host, held = of_training(spec), spec.ranks_per_node / device.gpus_per_node
    busy = host.cpu_base + host.cpu_gpus * held
    socket_w = device.cpu["idle_w"] + (device.cpu["rated_w"] - device.cpu["idle_w"]) * busy
    ram_w = device.ram["power_w"] if device.ram else host.ram_base_w + host.ram_gpus_w * held
    return {"cpu": device.cpu["sockets"] * socket_w, "ram": ram_w}


MOST_NORMAL = 1.5
"""Deviations in time and energy are normal, truncated where they jointly exceed this, and then scaled
to the standard deviations above: so no run deviates by more than 2.2 of them."""

STARTUP_S, SHUTDOWN_S = 20.0, 5.0
"""Imports, rendezvous, warm-up; and the time after the last checkpoint."""
MOST_OF_RUN = 0.05
"""Start, end and checkpoints together take at most this part of a run each."""

TRAIN_WEIGHT, EVALUATE_WEIGHT = 1.0, 0.55
"""Time of a sample in training, and in an evaluation, which also loads it but only runs forward."""
OTHER_VALIDATION = 0.04
"""Part of an epoch spent on validation, where its number of samples is unknown."""

MOST_OF_STAGE = 0.2
"""The wait for the first batch takes at most this part of its stage."""

FIRST_BATCH = "first batch"
_OF_GPU = {"startup": 0.05, "train": 1.0, "evaluate_train": 0.8, "validate": 0.8, FIRST_BATCH: 0.04}
_OF_HOST = {"startup": 0.5, "train": 1.0, "evaluate_train": 1.0, "validate": 1.0, FIRST_BATCH: 1.1}
LEVELS = {"gpu": _OF_GPU, "cpu": _OF_HOST, "ram": _OF_HOST}
"""Power above idle in a stage, and while GPUs wait for its first batch, relative to that in training."""
OTHER_LEVEL = 0.1
"""In all other stages."""
IDLE_OF_MEAN = 0.7
"""A device's idle power is at most this part of its mean power."""
RAM_IDLE = 0.6
"""Part of memory's mean power that it draws when idle."""

WAITS_BASE, WAITS_PER_DOUBLING, MOST_WAITS = 0.08, 0.05, 0.25
"""Part of a step in which a GPU waits for data, growing with the doublings of LBS: so an instantaneous
sensor falls back to the baseline regularly, the less the smaller LBS is (section 3.4, figure 5)."""
WAIT_LEVEL = 0.08
"""Power above idle while a GPU waits, as part of the stage's mean."""
NOISE, AVERAGED_NOISE = 0.05, 0.03
"""Relative standard deviation of samples otherwise."""
LEAST_NOISE = 0.1
"""No sample is below this part of what it would be without noise."""
DEVICE_SPREAD = 0.02
"""Relative standard deviation among devices of one kind."""
UNUSED_NOISE = 0.02
"""As NOISE, of a GPU that the run does not use."""

INTEL_RANGES_UJ = {"cpu": 262_143_328_850, "ram": 65_712_999_613}
AMD_RANGES_UJ = {"cpu": 65_532_610_987, "ram": 65_532_610_987}
"""Where RAPL counters wrap, in µJ (max_energy_range_uj): as recorded by perun on a node with Xeons at KIT,
and as Linux states it for EPYCs."""

PERIOD_S, FINE_START_S = 10.0, 360.0
"""Sampling period, unless the campaign's is longer, and how long the start is sampled at the campaign's own:
figure 5 shows the first 300 s of training. At 1 s throughout, the paper's recordings would take seven times
as much; over steps longer than 30 s an EPYC's counters may wrap twice."""


def waits(spec: RunSpec) -> float:
    """Part of the time in which a GPU waits for data."""
    doublings = max(int(spec.local_batch_size).bit_length() - 1, 0)
    return min(WAITS_BASE + WAITS_PER_DOUBLING * doublings, MOST_WAITS)


def counter_range_uj(kind: str, device: Device) -> int:
    """Range in µJ of a counter of CPU or memory: an EPYC's where the device names one."""
    return (AMD_RANGES_UJ if "EPYC" in device.description else INTEL_RANGES_UJ)[kind]


# --- learning curves ------------------------------------------------------------------------------

TOP1_ERRORS = {8192: 28.0}
"""ResNet50's, in percent by GBS, next to the published ones: 28 % at GBS 256 and 1024, and 42 % at 65 536,
all on the full dataset (Huber et al. 2025, section 3.2.2). Its text says "about constant up to 32 GPUs"; the
number is not published. Between two of them a run's error is interpolated along log2 GBS."""
ERROR_PER_HALVING, WORST_ERROR = 8.0, 99.0
"""Percentage points that halving the samples costs ResNet50, assumed; and its largest error."""
FORECAST = {"pretrain": 150.0, "finetune": 240.0}
"""FourCastNet's Z500 RMSE in m²/s² at GBS 4, after 6 and 12 hours, assumed: published only as a figure."""
SLIGHT, STEEP, SLIGHT_DOUBLINGS = 0.02, 0.15, 4
"""Its relative growth with each doubling of GBS, up to GBS 64 and beyond, assumed."""
OTHER_METRIC = 0.5
FIRST_METRIC = {"resnet50": 98.0, "fourcastnet": 900.0}
"""Before the first epoch."""
LEARNING_SPEED = 5.0
"""Number of e-foldings by which a curve falls over the training."""
METRIC_NOISE = 0.02
"""Noise of a curve before its end, relative to what is left to learn."""
