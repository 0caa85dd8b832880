"""Checks of a GPU's limits: several ranks on one, and a batch that does not fit into its memory."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import read_json
from scalewatt.gpu_checks.check_types import Bench, Check, CheckFailed, Finding
from scalewatt.gpu_checks.run_energies import RunEnergies, as_if_on_gpu, energies_of
from scalewatt.gpu_checks.small_trainings import FOURCASTNET, RESNET50, SmallTraining, small_spec

ONCE = 0.01
"""By how much a run's GPU energy may differ from the one GPU's own: no rank counts it again."""
TOO_LARGE = 8192
"""A local batch of ResNet50 at 224 pixels that no GPU's memory holds (about 0.1 GB a sample)."""
_NAMED = re.compile(r"largest local batch size that fits: (\d+)")
_IMAGES = {"image_size": 224}


def shared_gpu(ranks: int, bench: Bench) -> Finding:
    """Train with several ranks on one GPU, and look what the run says of its GPU and its energy."""
    spec = small_spec(bench.rehearse, FOURCASTNET, gpus=ranks, epochs=2)
    training = SmallTraining.of(bench, f"shared-{ranks}", spec, "cpu" if bench.rehearse else "auto")
    training.finished()
    out, note = training.out, None
    if bench.rehearse:
        if not energies_of(training).indices("unused_gpu"):
            note = "without NVML no GPU's energy is counted; only the training is rehearsed"
            return Finding(f"{ranks} ranks trained", True, note)
        out, note = (
            as_if_on_gpu(training),
            "accounted as if the ranks had held GPU 0 of the stand-in",
        )
    return _of_one_gpu(training, out, ranks, note)


def _of_one_gpu(training: SmallTraining, out: Path, ranks: int, note: str | None) -> Finding:
    from scalewatt.results.tables.run_row import shared_gpus

    provenance = read_json(out / "provenance.json")
    said = [one["detail"] for one in shared_gpus(training.spec, provenance)]
    energies = energies_of(training, out)
    energy_j, devices = energies.totals.joules("gpu"), energies.totals.devices("gpu")
    if energy_j is None:
        raise CheckFailed(f"the GPU's energy is not known; flags: {', '.join(energies.codes())}")
    own_j = _whole_j(out, energies)
    measured = (
        f"{ranks} ranks trained; {said[0] if said else 'nothing is said of a shared GPU'}; "
        f"{devices} GPU, {energy_j:.1f} J of its own {own_j:.1f} J"
    )
    once = devices == 1 and abs(energy_j / own_j - 1) <= ONCE if own_j else False
    return Finding(measured, once and bool(said), note)


def _whole_j(out: Path, energies: RunEnergies) -> float:
    """Return the energy of the one GPU over its whole recording, from its samples alone, in J."""
    from scalewatt.energies.integration.integrate import validate
    from scalewatt.recordings.journal import read_journal

    (index,) = energies.indices("gpu")
    wanted = ("gpu", index, "power")
    return sum(
        float(validate(one, 0.1).curve.between(float("-inf"), float("inf")))
        for path in sorted((out / "perun").glob("*.journal"))
        for one in read_journal(path).series
        if (one.device_kind, one.device_index, one.quantity) == wanted
    )


def out_of_memory(bench: Bench) -> Finding:
    """Train with a batch that does not fit, and then with the one that is said to fit."""
    large = small_spec(
        bench.rehearse,
        RESNET50,
        local_batch_size=TOO_LARGE,
        dataset_samples=TOO_LARGE,
        settings=_IMAGES,
    )
    training = SmallTraining.of(bench, "too-large", large)
    answer = training.start(1)
    text = answer.errors + answer.output
    found = _NAMED.search(text)
    if answer.code != ExitCode.REFUSED or found is None or "Traceback" in text:
        raise CheckFailed(
            f"the training ended with exit code {answer.code} and "
            f"{f'names {found[1]}' if found else 'names no batch that fits'}: {answer.problem}"
        )
    fits = int(found[1])
    again = small_spec(
        bench.rehearse, RESNET50, local_batch_size=fits, dataset_samples=2 * fits, settings=_IMAGES
    )
    code = SmallTraining.of(bench, "fits", again).start(1).code
    trained = "trains" if code == ExitCode.STOPPED else f"does not train (exit code {code})"
    return Finding(f"exit code {answer.code}; {fits} fits, and {trained}", code == ExitCode.STOPPED)


_SHARED = "{} ranks train on one GPU by gloo; the run says so, and its GPU energy is the GPU's, counted once."
CHECKS = (
    *(
        Check(
            f"shared_gpu_{ranks}",
            _SHARED.format(name),
            f"flag gpus_shared; one GPU, its energy within {ONCE:.0%}",
            partial(shared_gpu, ranks),
            alone=True,
            not_rehearsed=left_out,
        )
        for ranks, name, left_out in (
            (2, "Two", None),
            (4, "Four", "shared_gpu_2 rehearses it with fewer ranks; so does --only shared_gpu_4"),
        )
    ),
    Check(
        "out_of_memory",
        "A run whose batch does not fit ends with one sentence that names the largest local batch size "
        "that does.",
        f"exit code {ExitCode.REFUSED:d}, no traceback, and that batch trains",
        out_of_memory,
        limit_s=180,
        alone=True,
        needs_gpu=True,
    ),
)
