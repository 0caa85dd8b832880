"""A campaign file: what is trained. Its keys, their bounds, defaults and sentences."""

from __future__ import annotations

from calendar import isleap
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from scalewatt.campaign.model_registry import Size
from scalewatt.common.settings import Bounds, Count, EachOnce, Settings, matching

Protocol = Literal["paper", "corrected"]
Year = Annotated[int, Field(ge=1, le=9999)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
FileName = Annotated[
    str,
    matching(
        r"(?!\.)[^\x00-\x1f\x7f-\x9f\u2028\u2029/\\{}:]{1,200}",
        r"at most 200 letters, without '/', '\', '{', '}', ':', line breaks and control characters, and no "
        r"'.' first",
    ),
]
"""A name that is also the name of a file."""
Label = Annotated[str, Field(max_length=200)]
CampaignName = Annotated[
    str,
    matching(
        r"(?!.*-simulated\Z)[a-z0-9][a-z0-9-]{0,99}",
        "lower-case letters, digits and hyphens, at most 100, not ending in -simulated",
    ),
]


# --- datasets ---------------------------------------------------------------------------------------

EMBEDDED_SCANS, EMBEDDED_CLASSES = 1797, 10
"""What scikit-learn's handwriting scans have."""


Years = Annotated[list[Year], Field(min_length=2, max_length=2, description="First and last year.")]


class ImageNet(Settings):
    """Images and classes."""

    format: Literal["imagenet"]
    """Images in folders, one for each class."""
    source: Literal["embedded", "data_root", "none"]
    """embedded: the handwriting scans that scikit-learn ships; data_root: an ImageNet tree at the
    cluster's data root; none: no images, for loader synthetic only."""
    train_samples: Count
    """Training images."""
    validation_samples: Count
    """Validation images."""
    classes: Annotated[int, Field(ge=2, le=10**12)]
    """Classes."""

    @model_validator(mode="after")
    def _has_enough_scans(self) -> ImageNet:
        samples = self.train_samples + self.validation_samples
        fits = samples <= EMBEDDED_SCANS and self.classes == EMBEDDED_CLASSES
        if self.source == "embedded" and not fits:
            raise ValueError(
                f"{samples} samples of {self.classes} classes; allowed: at most {EMBEDDED_SCANS} scans of "
                f"{EMBEDDED_CLASSES} classes, for training and validation"
            )
        return self


class Era5(Settings):
    """Steps of an atmosphere, 6 h apart."""

    format: Literal["era5"]
    """Yearly files of 20 fields on a grid."""
    source: Literal["embedded", "data_root", "none"]
    """embedded: travelling waves computed here; data_root: ERA5 at the cluster's data root; none: no
    data, for loader synthetic only."""
    grid: Annotated[
        list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=2, max_length=2)
    ]
    """Latitudes used (the southernmost row is dropped) and longitudes."""
    train_years: Years
    validation_years: Years
    test_years: Years
    samples_per_year: Annotated[int, Field(ge=2, le=1464)]
    """Initial times used of each year, 6 h apart, from 1 January."""

    @model_validator(mode="after")
    def _check_years(self) -> Era5:
        for key in ("train_years", "validation_years", "test_years"):
            first, last = years = getattr(self, key)
            if first > last:
                raise ValueError(
                    f"{key}: {years} is the wrong way round; allowed: first and last year"
                )
            shares = first <= self.train_years[1] and self.train_years[0] <= last
            if shares and key != "train_years":
                raise ValueError(
                    f"{key}: {years} shares years with train_years {self.train_years}; allowed: years that "
                    "are not trained on"
                )
        return self


Dataset = Annotated[ImageNet | Era5, Field(discriminator="format")]


def sample_counts(dataset: dict[str, Any]) -> tuple[int, int]:
    """Training and validation samples of a whole dataset."""
    if dataset["format"] == "imagenet":
        return dataset["train_samples"], dataset["validation_samples"]
    train, validation = (len(part_years(dataset, part)) for part in ("train", "validation"))
    return train * dataset["samples_per_year"], validation * dataset["samples_per_year"]


PARTS = ("train", "validation", "test")
"""Parts of a dataset's years."""


def part_years(dataset: dict[str, Any], part: str) -> range:
    """Years of a part (of PARTS), both ends of its pair included."""
    first, last = dataset[f"{part}_years"]
    return range(first, last + 1)


def all_years(dataset: dict[str, Any]) -> list[int]:
    """Years of all parts, ascending."""
    return sorted({year for part in PARTS for year in part_years(dataset, part)})


LEAD_STEPS = {"pretrain": 1, "finetune": 2}
"""Steps of 6 h that a phase forecasts."""
TARGET_STEPS = max(LEAD_STEPS.values())
"""Steps that a year's file has beyond its samples, for their targets."""


def samples_with_targets(dataset: dict[str, Any], year: int, lead_steps: int) -> int:
    """Samples of a year of ERA5 whose targets, so many steps of 6 h ahead, are in the dataset."""
    asked, steps = dataset["samples_per_year"], {y: 4 * (365 + isleap(y)) for y in (year, year + 1)}
    stored = {y: min(asked + TARGET_STEPS, count) for y, count in steps.items()}
    is_whole = stored[year] == steps[year] and year + 1 in all_years(dataset)
    known = stored[year] + (stored[year + 1] if is_whole else 0)
    return min(asked, stored[year], known - lead_steps)


# --- series -----------------------------------------------------------------------------------------


class SeriesEntry(Settings):
    """A line in a figure: one point for each number of GPUs."""

    model: str
    """What is trained: a key of `models`, without its phase."""
    phase: Literal["train", "pretrain", "finetune"] | None = None
    """train for resnet50 (the default there); pretrain or finetune for fourcastnet."""
    device: str
    """A device of the cluster file."""
    gpus: Annotated[list[Size], Field(min_length=1, max_length=1000), EachOnce]
    """GPU counts, one point each."""
    local_batch_size: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Samples per GPU and update, constant along the series. Either this or global_batch_size."""
    global_batch_size: Count | None = None
    """Samples per update over all GPUs, constant along the series."""
    dataset_fraction: Annotated[
        int | str,
        matching(
            "1|(n|[1-9][0-9]{0,11})/[1-9][0-9]{0,11}", "1, or a fraction such as 1/4 or n/256"
        ),
    ] = 1
    """1, or n/256: floor(N*n/256) samples at n GPUs; the validation set is scaled alike."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    """Independent executions of every point."""
    seeds: Literal["same", "varied"] = "same"
    """same: every repeat has the campaign's seed, so repeats show how time and energy scatter; varied:
    repeat r has seed + r - 1, so they also show how errors scatter."""
    gpu_clock_mhz: Annotated[float, Bounds(ge=100, le=10_000)] | None = None
    """Clock of the GPUs' multiprocessors in MHz. The cluster file says how it is set."""
    gpu_power_limit_w: Annotated[float, Bounds(ge=10, le=10_000)] | None = None
    """Power limit of each GPU in W."""
    cpu_clock_mhz: Annotated[float, Bounds(ge=100, le=20_000)] | None = None
    """Clock of the CPUs in MHz."""
    label: Label | None = None
    """Words for the legend, at most 200 characters; a line break is kept."""
    protocol: Protocol | None = None
    """A protocol other than the campaign's."""
    settings: dict[str, Any] = {}
    """Settings of the model that differ from `models` in this series."""

    @property
    def fraction_rule(self) -> str:
        """The dataset's part: a fraction in lowest terms, or with n for the GPUs."""
        rule = str(self.dataset_fraction)
        return rule if "n" in rule else str(Fraction(rule))

    @model_validator(mode="after")
    def _check_batch_size(self) -> SeriesEntry:
        given = [key for key in ("local_batch_size", "global_batch_size") if getattr(self, key)]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no batch size'} given; allowed: local_batch_size (constant per "
                "GPU) or global_batch_size (constant over all GPUs)"
            )
        return self


# --- figures ----------------------------------------------------------------------------------------

SeriesNames = Annotated[list[str], Field(min_length=1, max_length=10_000), EachOnce]


class Point(Settings):
    """A point of a series."""

    series: str
    """Name of a series."""
    gpus: Annotated[int, Field(ge=1)]
    """A GPU count of that series."""


PanelLetter = Annotated[str, matching(r"[A-Z]{1,2}[1-9]?", "A, B, … as in the drawing")]
Points = Annotated[list[Point], Field(min_length=1, max_length=1000), EachOnce]


class Figure(Settings):
    """A figure of any kind."""

    width_mm: Literal[88, 180] = 180
    """Width of the figure: one column or two of a journal, in mm."""
    font: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Font of all words, such as Arial, which must be installed. Without it DejaVu Sans, which comes with
    matplotlib."""


class Drawing(Figure):
    """Series without further options."""

    series: SeriesNames
    """Names of series, in the order of the legend."""


class Panels(Drawing):
    """Panels of series."""

    panels: Annotated[list[PanelLetter], Field(min_length=1, max_length=100), EachOnce] | None = (
        None
    )
    """Letters of the panels to draw, such as [A, C]; without it all that have values."""


class Bars(Drawing):
    """Bars, one for each point of the series."""

    error_bars: Literal["interval", "sd", "population_sd", "none"] = "interval"
    """Error bars: 95 % t interval of the mean, sample standard deviation, population standard deviation
    (as the paper printed it), none."""


class Curves(Bars, Panels):
    """Curves and points, one line for each series."""

    overlay: Literal["published"] | None = None
    """published: also the paper's points for the same trainings."""


class Powers(Figure):
    """Power against time, one panel for each point."""

    points: Points
    """The panels, in their order."""
    power_window_s: Annotated[float, Bounds(gt=0)] | None = None
    """Length in seconds of the windows over which power is averaged, on all devices alike, because
    sensors differ in what they average."""


class Variants(Settings):
    """Compares one training with different settings (docs/guide/compare-settings.md)."""

    series: SeriesNames
    """Names of series, in the order of the table."""
    baselines: SeriesNames
    """Which of them the others are compared with: one for each model and phase."""


class Table1(Settings):
    """The rows of Table 1."""

    points: Points
    """The rows, in their order."""
    overlay: Literal["published"] | None = None
    """published: under each row the paper's own, where it is of the same training."""


class Figures(Settings):
    """Which series or points each figure shows."""

    figure1: Drawing | None = None
    figure2: Curves | None = None
    figure3: Curves | None = None
    figure4: Curves | None = None
    figure5: Powers | None = None
    figure6: Curves | None = None
    figure7: Curves | None = None
    speedup: Curves | None = None
    power: Curves | None = None
    breakdown: Bars | None = None
    learning: Drawing | None = None
    pareto: Curves | None = None
    cost_per_sample: Panels | None = None
    operating_points: Panels | None = None
    phases: Panels | None = None
    variants: Variants | None = None
    table1: Table1 | None = None

    def contents(self) -> dict[str, dict[str, Any]]:
        """Content of each figure as the file has it."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


# --- the file ---------------------------------------------------------------------------------------


class Probe(Settings):
    """Measures each device's idle power by runs on one node that only hold its GPUs. Without this key
    nothing is probed."""

    seconds: Annotated[float, Bounds(ge=10, le=86_400)] = 300
    """How long a probe measures."""
    repeats: int = Field(3, ge=1, le=1000)
    """How many probes of each device; two or more give a spread."""

    @property
    def job_minutes(self) -> int:
        """Wall time in min that a job needs for a probe, its start and end included."""
        return 15 + ceil(self.seconds / 60)


class CampaignFile(Settings):
    """A campaign: what is trained."""

    name: CampaignName
    """Names the results folder: lower-case letters, digits and hyphens."""
    protocol: Protocol | None = None
    """paper: as the authors' code does; corrected: evaluation as it should be (docs/paper/protocols.md).
    Needed unless all models are commands, which do not use it."""
    seed: Seed = 0
    """Seed of weights, order, augmentation and subsets of the data, for every repeat or for the first one
    (`seeds` of a series)."""
    sampling_period_s: Annotated[float, Bounds(ge=0.1, le=10)] = 1
    """perun's sampling period in seconds."""
    idle_probe: Probe | None = None
    energy_budget_kwh: Annotated[float, Bounds(gt=0, le=10**12)] | None = None
    """Energy that the campaign may use, in kWh: once it is used up nothing more is trained, and
    running ones go on. Without this key there is no limit."""
    datasets: dict[FileName, Dataset] = Field({}, min_length=1)
    """The datasets, by name; none is needed if all models are commands."""
    models: dict[str, Any] = Field(min_length=1)
    """Settings of each model; keys that are not given keep their default, the paper's value. Further
    models are files of your own (docs/guide/add-a-model.md), and entries of any name with workload:
    command (docs/your-script.md)."""
    series: dict[FileName, SeriesEntry] = Field(min_length=1, max_length=1000)
    """The lines of the figures, by name."""
    figures: Figures

    @property
    def period_s(self) -> float:
        """Sampling period in s; 1 and 1.0 are the same."""
        whole = int(self.sampling_period_s)
        return whole if whole == self.sampling_period_s else self.sampling_period_s
