"""Schemas of the tables of results and groups of their columns, from `columns.csv`."""

from __future__ import annotations

from scalewatt.common.columns import schema
from scalewatt.results.columns import tagged
from scalewatt.training.history import PHASES, phase_column

STEP_PHASES = tuple(map(phase_column, PHASES))
"""What a training step spends its time on, in the history and here."""
QUANTITIES = tagged("quantity")
"""What is averaged over repeats."""
OF_ENERGY = tagged("energy")
"""Quantities that have the origin and scope of `energy_kwh`."""
ESTIMATE_BOUNDS = tagged("bound")
"""The interval of the energy, and of each kind's: both ends are the energy where nothing is estimated."""
SUMMARY = ("mean", "sd", "low", "high")
PARTS = (*SUMMARY, "population_sd")
"""How a configuration's row sums up a quantity of its repeats."""

RUNS = schema("runs")
CONFIGURATIONS = schema("configurations", QUANTITIES)
"""ESTIMATE_BOUNDS of a configuration are means of its repeats': errors of estimates do not average out."""
SCALING = schema("scaling")
COMPARISONS = schema("comparisons")
