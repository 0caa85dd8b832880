"""docs/zeus-power-limits.md: its numbers are those of the published tables, and Zeus's own figure's."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
OTHERS = os.environ.get("SCALEWATT_OTHERS")
PAGE = ROOT / "docs" / "zeus-power-limits.md"
sys.path.insert(0, str(ROOT / "examples" / "zeus"))

import power_limits as script  # noqa: E402

pytestmark = pytest.mark.skipif(
    not OTHERS or not Path(OTHERS, "zeus").is_dir(),
    reason="SCALEWATT_OTHERS names no folder with Zeus's tables",
)

AXIS_HEIGHT = 71.90668 / 1.1
"""Of the default's energy, in the units of the figure: its axis ends at 1.1."""
BARS = {
    "DeepSpeech2, LibriSpeech": (53.603298, 54.785684, 37.398867),
    "BERT, SQuAD": (60.967843, 53.744445, 47.360313),
    "BERT, Sentiment140": (63.157662, 51.504425, 48.098087),
    "ResNet-50, ImageNet": (63.427424, 50.652016, 49.781347),
    "ShuffleNetV2, CIFAR-100": (24.050952, 44.810961, 16.553631),
    "NCF, MovieLens-1M": (22.881184, 63.430168, 21.836618),
}
"""Heights of the bars in Zeus's figure of the V100 (docs/overview/img/eta-potential-all-v100-light.svg in
github.com/ml-energy/zeus): the energy to the target by batch size, by limit, by both."""


@pytest.fixture(scope="module")
def found() -> tuple[pd.DataFrame, pd.DataFrame]:
    epochs, to_target = script.measured(Path(OTHERS or "", "zeus"))
    return epochs, to_target


@pytest.fixture(scope="module")
def limits(found: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return script.best_limits(found[0])


@pytest.fixture(scope="module")
def batches(found: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return script.best_batches(found[1])


def table(heading: str) -> list[list[str]]:
    """The rows of the page's table whose heading begins so."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def sentence(beginning: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(beginning) :].splitlines()[0]


def test_the_best_limits_are_those_of_the_page(limits: pd.DataFrame) -> None:
    assert table("| training | GPU | batch | limit") == script.limits_rows(limits)


def test_the_best_batch_sizes_are_those_of_the_page(batches: pd.DataFrame) -> None:
    assert table("| training | GPU | default batch") == script.batches_rows(batches)


def test_all_bars_of_zeus_own_figure_are_found_again(batches: pd.DataFrame) -> None:
    shown = {row[0]: row[1:] for row in table("| training | batch | limit | both |")}
    assert set(shown) == set(BARS)
    of_v100 = batches[batches["device"] == "v100"].set_index("training", drop=False)
    for training, heights in BARS.items():
        for way, height, cell in zip(
            ("by_batch", "by_limit", "both"), heights, shown[training], strict=True
        ):
            saved = script.saved(of_v100.loc[training], way)
            assert saved == pytest.approx(1 - height / AXIS_HEIGHT, abs=1e-4), (training, way)
            assert cell == f"{100 * saved:.2f} %"


def test_shares_of_the_highest_limit_are_those_of_the_page(limits: pd.DataFrame) -> None:
    told = sentence("- Without NCF")
    own = limits[limits["training"] != "NCF, MovieLens-1M"]
    p100 = own[own["device"] == "p100"]
    at_lowest = (p100["limit_w"] == 125).sum()
    assert f"125 W, is the best in {at_lowest} of {len(p100)} cases" in told
    shown = script.limits_rows(limits)
    said_of = re.findall(r"(\d+ to \d+) %[^,.]* on the (V100|A40|RTX 6000)", told)
    assert len(said_of) == 3
    for said, gpu in said_of:
        shares = [
            float(row[3].split(" of ")[0]) / float(row[3].split(" of ")[1])
            for row in shown
            if row[1] == gpu and "NCF" not in row[0]
        ]
        assert said == f"{100 * min(shares):.0f} to {100 * max(shares):.0f}", gpu


def test_powers_and_apparent_savings_of_ncf_are_those_of_the_page(
    found: tuple[pd.DataFrame, pd.DataFrame], limits: pd.DataFrame
) -> None:
    own = found[0][found[0]["training"] == "NCF, MovieLens-1M"]
    watts = own["energy_kwh"] * script.J_PER_KWH / own["runtime_s"]
    told = sentence("- NCF draws")
    assert f"draws {watts.min():.0f} to {watts.max():.0f} W" in told
    assert watts.max() < own["gpu_power_limit_w"].min()
    most = limits.loc[limits["training"] == "NCF, MovieLens-1M", "saving"].max()
    assert f"up to {100 * most:.0f} %" in told


def test_numbers_of_runs_are_those_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    tables = Path(OTHERS or "", "zeus").glob("summary_power_*.csv")
    counts = {path.stem[-4:]: len(pd.read_csv(path)) for path in tables}
    assert f"V100 has {counts['v100']}" in text


def test_executions_that_never_reached_the_target_are_those_of_the_page() -> None:
    rows = pd.read_csv(Path(OTHERS or "", "zeus", "summary_train.csv"))
    targets = {"imagenet": 0.65, "movielens-1m": 0.41, "librispeech": 40.0, "cifar100": 0.6}
    targets |= {"squad": 84.0, "sentiment140": 0.84}
    at_target = rows[rows["target_metric"] == rows["dataset"].map(targets)]
    never = at_target["target_epoch"].isna().groupby([rows["dataset"], rows["batch_size"]])
    counts = never.agg(["sum", "size"]).query("sum > 0")
    assert {key: tuple(row) for key, row in counts.iterrows()} == {
        ("imagenet", 64): (4, 4),
        ("movielens-1m", 4): (3, 3),
        ("movielens-1m", 8): (5, 5),
        ("movielens-1m", 16): (5, 5),
        ("movielens-1m", 32): (4, 5),
        ("librispeech", 512): (3, 3),
        ("cifar100", 4096): (1, 5),
    }
    told = sentence("- Executions that never")
    assert "ResNet-50 with batch 64, of NCF with 4 to 16 and of DeepSpeech2 with 512" in told
    assert "4 of 5 of NCF with 32, 1 of 5 of ShuffleNet with 4096" in told
