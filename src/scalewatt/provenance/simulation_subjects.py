"""What the simulation of a run assumes beside the scaling model, as provenance.json names it."""

from __future__ import annotations

SUBJECTS = {
    "device_shares": "how the energy divides among GPUs, CPUs and memory",
    "power_profile": "how power varies in time: stages, loading dips, noise, what sensors average",
    "stage_shares": "how the time of an epoch divides among stages",
    "metric": "learning curves, where no value is published",
    "repeat_scatter": "how much repeats of one configuration vary",
    "restarts": "what a further segment costs",
}
"""What is assumed of each subject. A run's provenance lists those that its scaling model does not know."""
