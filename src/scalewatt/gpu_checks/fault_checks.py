"""A check of GPUs whose NVML begins to fail in mid-run; a stand-in fails, so any machine can make it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scalewatt.gpu_checks.check_types import Bench, Check, CheckFailed, Finding
from scalewatt.gpu_checks.run_energies import RunEnergies, as_if_on_gpu, energies_of
from scalewatt.gpu_checks.small_trainings import FOURCASTNET, SmallTraining, small_spec
from scalewatt.run_files.progress_files import read_progress, read_segments

STAND_IN = Path(__file__).parent / "stand_in_nvml"
UNKNOWN_ERROR, ZERO_POWER, LOST = "unknown_error", "zero_power", "lost"
"""What the driver reports: an error that it cannot explain, 0 W, and a GPU that fell off the bus."""
_EPOCHS = {True: 24, False: 16}
"""By whether it is a rehearsal."""
_RESTARTED = "monitor_lost"


def gpu_faults(bench: Bench) -> Finding:
    """Train while the power of two GPUs fails, and while one is lost with all it could answer."""
    with ThreadPoolExecutor(2) as pool:
        powers = pool.submit(_trained, bench, (UNKNOWN_ERROR, ZERO_POWER))
        lost = pool.submit(_trained, bench, (LOST,))
        said = [_fault_text(powers.result(), (UNKNOWN_ERROR, ZERO_POWER))]
        said.append(_fault_text(lost.result(), (LOST,)))
    return Finding("; ".join(said), True, "NVML is a stand-in's")


def _trained(bench: Bench, faults: tuple[str, ...]) -> SmallTraining:
    """Return a training that has ended, NVML having failed since its second epoch."""
    spec = small_spec(bench.rehearse, FOURCASTNET, epochs=_EPOCHS[bench.rehearse])
    training = SmallTraining.of(bench, "-".join(faults), spec)
    begin = training.folder / "faults-begin"
    environment = {
        "PYTHONPATH": str(STAND_IN),
        "SCALEWATT_FAULTS": ",".join(faults),
        "SCALEWATT_FAULTS_BEGIN": str(begin),
        "SCALEWATT_FAULTS_UUIDS": "" if bench.rehearse else _uuid(),
    }
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(training.finished, environment)
        bench.wait_for(lambda: job.done() or _in_second_epoch(training), "the second epoch")
        begin.touch()
        job.result()
    return training


def _uuid() -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def _in_second_epoch(training: SmallTraining) -> bool:
    if not list((training.folder / "work").glob("*/progress.json")):
        return False
    progress = read_progress(training.work)
    return progress is not None and progress.epoch >= 1


def _fault_text(training: SmallTraining, faults: tuple[str, ...]) -> str:
    """Return what became of a training; CheckFailed if an energy is stated in spite of the faults."""
    folder = as_if_on_gpu(training) if training.torch_device == "cpu" else training.out
    energies = energies_of(training, folder)
    outcomes = [one["outcome"] for one in read_segments(training.work)]
    if LOST in faults and _RESTARTED not in outcomes:
        raise CheckFailed(f"{LOST}: the sampler went on (segments: {', '.join(outcomes)})")
    for index, fault in enumerate(faults):
        _require_unknown(energies, index, fault)
    codes = ", ".join(sorted(energies.codes()))
    return f"{' and '.join(faults)}: energy null, training {' then '.join(outcomes)}, flags {codes}"


def _require_unknown(energies: RunEnergies, index: int, fault: str) -> None:
    kinds = [kind for kind in ("gpu", "unused_gpu") if index in energies.indices(kind)]
    if not kinds or energies.recorded_j(kinds[0], index) <= 0:
        raise CheckFailed(f"{fault}: GPU {index} was not recorded before the fault")
    energy_j = energies.totals.joules(kinds[0])
    if energy_j is not None:
        raise CheckFailed(f"{fault}: the energy of GPU {index} is stated, {energy_j:.1f} J")
    sensors = set(energies.flags["sensor"].to_pylist())
    if fault != LOST and f"CUDA:{index}_POWER" not in sensors:
        raise CheckFailed(f"{fault}: no sample of GPU {index} is flagged")


CHECKS = (
    Check(
        "gpu_faults",
        "Where NVML begins to fail (unknown error, 0 W, GPU is lost) the training goes on, samples are "
        "flagged, and the energy is null rather than too low.",
        "energy null, training finished, flags",
        gpu_faults,
    ),
)
