"""docs/paper/real-measurements.md: its commands run on the data it speaks of, and its numbers are theirs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from documents import commands, run
from workspace import PROJECT, Workspace

PAGE = "docs/paper/real-measurements.md"
CONVERT = "python examples/mlperf/convert.py training_results_v4.0/smc-dc-power"
SHARED = os.environ.get("SCALEWATT_MLPERF")
MODELS = {
    "BERT": "bert",
    "ResNet-50": "resnet",
    "SSD": "ssd",
    "Llama 2 70B LoRA": "llama2_70b_lora",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        SHARED is None or not Path(SHARED).is_dir(),
        reason="SCALEWATT_MLPERF names no folder with MLPerf's power logs",
    ),
]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command of the page printed, run in its order, and the folder under `folder`."""
    folder = tmp_path_factory.mktemp("page") / "project"
    Workspace.create(folder)
    data = folder / "training_results_v4.0" / "smc-dc-power"
    shutil.copytree(Path(str(SHARED)) / data.name, data)
    printed = {"folder": str(folder)}
    shutil.copytree(PROJECT / "examples", folder / "examples")
    for command in (
        candidate for candidate in commands(PAGE) if not candidate.bare.startswith("git ")
    ):
        if "unet" in command.bare:
            add_unet3d(data)
        printed[command.bare] = run(command, folder)
    return printed


def add_unet3d(data: Path) -> None:
    """Make a benchmark that splits its model of a run of another: other powers, and no local batch."""
    results = data / "results" / "1xSMC-H100-SXM-80GB"
    log = next((results / "resnet").glob("result_*.txt"))
    power = results / "unet3d" / "power" / log.stem
    power.mkdir(parents=True)
    text = log.read_text().replace('"value": "resnet"', '"value": "unet3d"')
    kept = [line for line in text.splitlines() if "local_batch_size" not in line]
    (results / "unet3d" / log.name).write_text("\n".join(kept) + "\n")
    for file in (results / "resnet" / "power" / log.stem).glob("node_*.txt"):
        (power / file.name).write_text(re.sub(r'("value": )(\d+)', r"\g<1>1\2", file.read_text()))


@pytest.fixture(scope="module")
def runs(walked: dict[str, str]) -> pd.DataFrame:
    return pd.read_parquet(Path(walked["folder"]) / "results/mlperf-v4/tables/runs.parquet")


def output(walked: dict[str, str], beginning: str) -> str:
    (output,) = (text for command, text in walked.items() if command.startswith(beginning))
    return output


def table(heading: str) -> list[list[str]]:
    """The rows of the page's table whose heading begins so."""
    text = (PROJECT / PAGE).read_text(encoding="utf-8")
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def of(runs: pd.DataFrame, name: str, gpus: str) -> pd.DataFrame:
    return runs[(runs["model"] == MODELS[name]) & (runs["gpus"] == int(gpus))]


def number(cell: str) -> float:
    return float(cell.replace("−", "-").removesuffix(" %"))


def test_all_runs_are_registered_and_all_that_is_drawn_is_there(walked: dict[str, str]) -> None:
    registered = output(walked, "scalewatt register mlperf-v4")
    assert "\nregistered: … and 40 more, 45 in all\n" in registered
    assert "left out" not in output(
        walked, "python examples/mlperf/convert.py training_results_v4.0/smc-dc-power converted"
    )
    results = Path(walked["folder"]) / "results" / "mlperf-v4"
    figures = {path.stem for path in (results / "figures").glob("*.png")}
    assert {"figure2", "figure5", "figure6", "breakdown"} <= figures
    assert len(list((results / "figures" / "runs").rglob("*.svg"))) == 45
    assert (results / "report.html").stat().st_size > 100_000


def test_replicas_that_are_told_let_a_benchmark_in(walked: dict[str, str]) -> None:
    assert "left out" not in output(walked, f"{CONVERT} with-unet")
    table = (Path(walked["folder"]) / "with-unet" / "runs.csv").read_text()
    assert "\nunet3d," in table


def test_energies_of_both_windows_are_those_of_the_page(
    walked: dict[str, str], runs: pd.DataFrame
) -> None:
    rule = pd.read_csv(Path(walked["folder"]) / "converted/mlcommons.csv")
    rows = table("| training | GPUs | runs |")
    assert len(rows) == runs.groupby(["model", "gpus"]).ngroups
    for name, gpus, count, seconds, window, lacking, by_rule, difference in rows:
        repeats = of(runs, name, gpus)
        assert len(repeats) == int(count)
        assert repeats["energy_kwh"].mean() == pytest.approx(number(window), abs=0.6e-3)
        ruled = of(rule, name, gpus)["rule_kwh"].mean()
        assert ruled == pytest.approx(number(by_rule), abs=0.6e-3)
        off = 100 * (ruled / repeats["energy_kwh"].mean() - 1)
        assert off == pytest.approx(number(difference), abs=0.06)
        assert repeats["runtime_s"].mean() == pytest.approx(number(seconds), abs=0.6)
        assert 100 * (1 - repeats["coverage"].mean()) == pytest.approx(number(lacking), abs=0.06)


def test_verdicts_on_claims_are_those_of_the_page(walked: dict[str, str]) -> None:
    claims = pd.read_csv(Path(walked["folder"]) / "results/mlperf-v4/tables/claims.csv")
    text = (PROJECT / PAGE).read_text(encoding="utf-8")
    counted = re.search(r"(\d+) are tested: (\d+) supported, (\d+) contradicted", text)
    assert counted is not None
    counts = claims["verdict"].value_counts()
    tested, supported, contradicted = map(int, counted.groups())
    assert (counts["supported"], counts["contradicted"]) == (supported, contradicted)
    assert tested == supported + contradicted + counts.get("undecided", 0)
    for claim in claims.loc[claims["verdict"] == "contradicted", "id"]:
        assert claim in text


RATIOS = {
    "energy (E09, H19)": ("E09", "energy at n = 64 over that at n = 8 is"),
    "energy per GPU hour (K09)": ("K09", "energy per GPU hour at n = 64 over that at n = 8 is"),
    "efficiency (E05, H14)": ("H14", "efficiency at n = 64 over that at n = 8 is"),
    "exponent of energy in GPU hours (E08)": ("E08", "exponent of energy in GPU hours is"),
}


def test_ratios_of_64_to_8_gpus_are_those_of_the_page(walked: dict[str, str]) -> None:
    claims = pd.read_csv(Path(walked["folder"]) / "results/mlperf-v4/tables/claims.csv")
    details = claims.set_index("id")["detail"]
    rows = table("| | ResNet-50 | SSD | Llama 2 70B LoRA |")
    assert [row[0] for row in rows] == list(RATIOS)
    for what, *cells in rows:
        claim, sentence = RATIOS[what]
        for model, cell in zip(("resnet", "ssd", "llama2_70b_lora"), cells, strict=True):
            beginning = rf"{model} h100[^:]* fd_gbs_s \d+:.*?{sentence} "
            interval = r" ± ([\d.]+)| \(([\d.]+) to ([\d.]+)\)"
            pattern = rf"{beginning}([\d.]+)(?:{interval})"
            match = re.search(pattern, details[claim])
            assert match is not None, (claim, model)
            numbers = [float(group) for group in match.groups() if group is not None]
            shown = re.findall(r"\d+\.\d+", cell)
            digits = len(shown[0].partition(".")[2])
            assert [float(number) for number in shown] == pytest.approx(
                numbers, abs=0.6 * 10**-digits
            )


def test_energies_with_what_the_logs_lack_are_those_of_the_page(runs: pd.DataFrame) -> None:
    text = (PROJECT / PAGE).read_text(encoding="utf-8")
    for gpus in ("64", "512"):
        repeats = of(runs, "Llama 2 70B LoRA", gpus)
        filled = (repeats["energy_kwh"] / repeats["coverage"]).mean()
        assert f"{filled:.2f} kWh on {gpus}" in text


def test_the_low_run_of_ssd_is_that_of_the_page(runs: pd.DataFrame) -> None:
    repeats = of(runs, "SSD", "64").set_index("repeat")
    low, others = repeats.loc[2], repeats.drop(index=2)
    text = (PROJECT / PAGE).read_text(encoding="utf-8")
    assert (repeats["energy_kwh"] == low["energy_kwh"]).idxmax() == repeats["energy_kwh"].idxmin()
    low_power = "less than a hundredth of the usual power"
    assert low_power in low["flags"]
    assert not others["flags"].str.contains(low_power).any()
    lowest, highest = others["energy_kwh"].min(), others["energy_kwh"].max()
    assert f"{low['energy_kwh']:.2f} kWh, the others {lowest:.2f} to {highest:.2f}" in text
    ratio = others["energy_kwh"].mean() / of(runs, "SSD", "8")["energy_kwh"].mean()
    assert f"mean is {others['energy_kwh'].mean():.2f} kWh, × {ratio:.2f} of that on 8 GPUs" in text


def test_predictions_of_a_number_of_gpus_left_out_are_those_of_the_page(
    walked: dict[str, str],
) -> None:
    printed = output(walked, "scalewatt calibrate")
    for row in table("| Llama, left out"):
        gpus = row[0].split()[2].strip(",")
        lines = "\n".join(line for line in printed.splitlines() if f"  n = {gpus}, " in line)
        for cell in row[1:4]:
            for shown in re.findall(r"\d+(?:\.\d+)?(?= %|[ ),:])", cell):
                assert re.search(rf"\b{re.escape(shown)}(?:%|\b)", lines), (shown, lines)
