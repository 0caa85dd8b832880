"""Where the paper contradicts itself or the facts: the reading chosen, and where that shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slip:
    """One contradiction."""

    id: str
    """A row of reference/claims.csv of kind inconsistency; Y… where it has none."""
    reading: str
    """What is done instead, in a sentence."""
    shows_in: str
    """Products of a campaign that the reading is seen in."""
    claims: tuple[str, ...] = ()
    """Claims that are checked by this reading."""
    says: str = ""
    """What is wrong, for a slip without a row in claims.csv."""


SLIPS: tuple[Slip, ...] = (
    Slip(
        "X01",
        "Figure 4 shows FourCastNet's scaling; Figure 7 its power and rates, as the captions say.",
        "figure4, figure7",
        ("H01", "H02"),
    ),
    Slip(
        "X02",
        "The captions count: Figure 6 is ResNet50, Figure 7 FourCastNet.",
        "figure6, figure7",
        ("K07", "K08"),
    ),
    Slip(
        "X03",
        "Figure 4 B shows the Z500 RMSE in m²/s², as its axis says; FourCastNet has no top-1 error.",
        "figure4 panel B",
        ("G06", "H15"),
    ),
    Slip(
        "X04",
        "76 and 64 are the cores of a node with two sockets: 2 × 38 (Xeon 8368), 2 × 32 (EPYC 9354).",
        "profiles/horeka/cluster.yaml",
        ("B04",),
    ),
    Slip(
        "X05",
        "The printed spread is the population standard deviation; ours is the sample standard "
        "deviation with a 95 % t interval, and theirs is kept beside it as population_sd.",
        "configurations, all figures with error bars",
        ("C10",),
    ),
    Slip(
        "X06",
        "28 % and 42 % are top-1 errors, 100 % less the accuracy.",
        "figure2 and figure3 panel B",
        ("C11", "D17", "D18"),
    ),
    Slip(
        "X07",
        "Each onset is checked as it is stated (4 and 64, and 32); they cannot all hold of one curve.",
        "figure4 panel B",
        ("H04", "H05"),
    ),
    Slip(
        "X08",
        "Both intervals are checked, each with 5 % at its bounds: that of section 3.5 on every point, "
        "that of the conclusion on the means of series.",
        "figure6 and figure7 panel A",
        ("K01", "K03", "L01", "L02"),
    ),
    Slip(
        "X09",
        "Energy grows with GPU hours; energy per GPU hour falls with n where GPUs work less.",
        "figure4 panel D, figure7 panel A",
        ("H11", "K07"),
    ),
    Slip(
        "X10",
        "The interval is taken for four GPUs and more; points below are named with their values.",
        "figure6 panel A",
        ("K03", "L01"),
    ),
    Slip(
        "X11",
        "Training 1979–2015, validation 2016–2017, test 2019; 2018 is not used.",
        "the campaign's dataset, every spec",
        ("G01",),
    ),
    Slip(
        "X12",
        "The signs are checked as they are written; the authors' own numbers contradict them, as if "
        "the two regimes had been exchanged.",
        "figure6 panel D",
        ("K14", "K15"),
    ),
    Slip(
        "X13",
        "The saving is computed from Table 1: 24.7 to 27.1 %, so 30 % is never reached.",
        "table1, comparisons",
        ("T7",),
    ),
    Slip(
        "X14",
        "Z500 RMSE of the published rows is missing, not 0; energy per node is the energy divided by "
        "the nodes, gpus/4.",
        "table1",
        ("T1", "T2", "T3", "T4", "T5", "T6"),
    ),
    Slip(
        "X15",
        "80 072 samples a GPU, from the names of the authors' public runs: a fraction n/16.",
        "the campaign's series, figure3",
        ("F08",),
    ),
    Slip("X16", "Figure 3 A is meant; there is no section 3.2.2A.", "nowhere", ("L05",)),
    Slip(
        "X17",
        "The point at 256 GPUs is the full dataset, 1 281 167 samples; the others have "
        "floor(1 281 167 · n/256).",
        "the campaign's series, figure3",
        ("F01",),
    ),
    Slip(
        "X18",
        "The authors' ResNet code is public (RAI-SCC/ResNet, BSD-3); what it does and the text leaves "
        "out is protocol paper.",
        "docs/protocols.md",
    ),
    Slip(
        "X19",
        "Start-up is counted in every run, and the published spread of single runs is 3.8 % (4.7 % as a "
        "sample's): four times the probe are 8 % more GPU hours and 7 % more energy than the long run, "
        "less than two of these.",
        "the tolerance of single runs",
        ("G08", "G09", "G10", "H18"),
    ),
    Slip(
        "X20",
        "The share of RAM is checked run by run; n ≥ 4 by its own limit.",
        "runs (ram_energy_share)",
        ("B03", "K06"),
    ),
)

FURTHER: tuple[Slip, ...] = (
    Slip(
        "Y01",
        "ResNet50 has 16 residual blocks, in stages of 3, 4, 6 and 3; 50 counts its weighted layers.",
        "the model as torchvision defines it",
        says="The text gives ResNet50 50 residual blocks.",
    ),
    Slip(
        "Y02",
        "Between workloads the paper's own factors, 0.18 to 0.32 kWh per GPU hour, differ 1.8-fold; "
        "an order of magnitude is not in its numbers.",
        "figure6 and figure7 panel A",
        ("A02",),
        says="A third-party summary speaks of an order of magnitude between workloads.",
    ),
)
"""Slips that have no row in claims.csv; `model.listed_claims` has them beside it."""
