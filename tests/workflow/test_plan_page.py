"""The planner page in a real browser: its forecasts are those of Python, and it works by itself."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accessibility import serious_findings
from browser import Browser, chromium, headless
from campaign_files import replaced
from workspace import PROJECT

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.cluster import Cluster, load_cluster
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.common.yaml_files import read_yaml
from scalewatt.report.planner.plan_page import Limits, Site, write_plan_page
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.scaling.model.cost_terms import load_of
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.planning.forecast import Forecaster
from scalewatt.scaling.planning.plan import Planner, stated
from scalewatt.scaling.planning.recommend import recommendations

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
CHOICES = 200
CLOSE = 1e-9
MODELS = {
    ("resnet50", "train", "a100"): (16, 32, 64, 100, 128, 256, 512),
    ("fourcastnet", "pretrain", "a100"): (1, 2, 4),
    ("fourcastnet", "pretrain", "h100"): (1, 2, 4, 8),
    ("fourcastnet", "finetune", "a100"): (1, 2, 3),
}
GPUS = (1, 2, 3, 4, 8, 12, 32, 64, 128, 256, 512, 1024, 2048)


def unlimited() -> Cluster:
    """HoreKa, had its nodes all the memory and numbers that one asks for."""
    cluster = load_cluster(PROJECT / "config/horeka.yaml")
    devices = {
        name: replaced(device, max_gpus=None, max_local_batch_size={})
        for name, device in cluster.devices.items()
    }
    return replaced(cluster, devices=devices)


def random_series(chance: random.Random) -> dict[str, Any]:
    """A series of one point, on the paper's data; some of it is far from all that was calibrated."""
    model, phase, device = chance.choice(list(MODELS))
    gpus = chance.choice(GPUS)
    entry: dict[str, Any] = {
        "model": model,
        "device": device,
        "gpus": [gpus],
        "local_batch_size": chance.choice(MODELS[model, phase, device]),
    }
    if model == "resnet50":
        entry["dataset_fraction"] = chance.choice([1, f"n/{2 * gpus}", f"n/{3 * gpus}", "n/2049"])
    else:
        entry["phase"] = phase
    if chance.random() < 0.5:
        entry["settings"] = {"epochs": chance.choice([1, 7, 20, 300])}
    return entry


@dataclass(frozen=True)
class Asked:
    """A campaign of random points, and for each what is asked of the page beside it."""

    planner: Planner
    choices: dict[str, dict[str, Any]]
    """By configuration."""


def campaign_of(series: dict[str, Any], cluster: Cluster) -> Campaign:
    content = read_yaml(PROJECT / "campaigns/paper.yaml")
    content = {k: v for k, v in content.items() if k not in ("figures", "idle_probe")}
    figures = {"breakdown": {"series": list(series)}}
    content |= {"series": series, "figures": figures}
    return expand(content, Path("random.yaml"), cluster.devices)


@pytest.fixture(scope="module")
def asked() -> Asked:
    chance = random.Random(23)
    cluster = unlimited()
    points: dict[str, Configuration] = {}
    while len(points) < CHOICES:  # two equal ones are one
        more = {f"s{n}": random_series(chance) for n in range(40)}
        # What a fine-tuning begins with.
        more |= {
            f"{name}-before": {**one, "phase": "pretrain"}
            for name, one in more.items()
            if one.get("phase") == "finetune"
        }
        campaign = campaign_of(more, cluster)
        points |= campaign.configurations
    campaign = replace(campaign, configurations=points, repeats=dict.fromkeys(points, 1))
    wanted = chance.sample(list(points), CHOICES)
    forecaster = Forecaster(read_model(PROJECT / "reference/scaling_model.json"))
    choices = {
        id_: {
            "pue": chance.choice([None, 1.0, 1.05, 1.37]),
            "price_per_kwh": chance.choice([None, 0.0, 0.23]),
            "carbon_g_per_kwh": chance.choice([None, 381.0]),
            "deadline_h": chance.choice([None, 1.5, 24.0, 300.0]),
            "budget_kwh": chance.choice([None, 2.0, 50.0, 1000.0]),
        }
        for id_ in wanted
    }
    return Asked(Planner(campaign, cluster, forecaster, Facility()), choices)


@pytest.fixture(scope="module")
def page(asked: Asked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page of the paper's campaign on that cluster, opened."""
    folder = tmp_path_factory.mktemp("planner")
    cluster = asked.planner.cluster
    content = read_yaml(PROJECT / "campaigns/paper.yaml")
    campaign = expand(content, PROJECT / "campaigns/paper.yaml", cluster.devices)
    site = Site(asked.planner.forecaster, cluster, campaign)
    write_plan_page(folder / "plan.html", site, Limits())
    assert (folder / "plan.html").stat().st_size < 1.5e6
    with headless(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.open((folder / "plan.html").as_uri())


def chosen(configuration: Configuration, given: dict[str, Any]) -> str:
    """A choice on the page as JavaScript: a configuration and what is asked beside it."""
    phase = "" if configuration.phase == "train" else f".{configuration.phase}"
    numbers = {
        name: getattr(configuration, name) for name in ("gpus", "local_batch_size", "epochs")
    }
    numbers |= {"samples": configuration.dataset_samples, **given}
    of = f"one.model === {configuration.model + phase!r} && one.device === {configuration.device!r}"
    training = f"DATA.trainings.findIndex(one => {of})"
    return f"{{training: {training}, ...{json.dumps(numbers)}}}"


def forecasts(page: Browser, asked: Asked) -> dict[str, Any]:
    """What the page's function returns, by configuration."""
    known = asked.planner.campaign.configurations
    choices = ", ".join(chosen(known[id_], given) for id_, given in asked.choices.items())
    return dict(zip(asked.choices, page.evaluate(f"[{choices}].map(forecast)"), strict=True))


def test_time_energy_cost_and_carbon_of_200_choices_are_those_of_python(
    page: Browser, asked: Asked
) -> None:
    found = forecasts(page, asked)
    for id_, one in found.items():
        given = asked.choices[id_]
        facility = Facility(given["pue"], given["carbon_g_per_kwh"], given["price_per_kwh"])
        planner = replace(asked.planner, facility=facility)
        point = planner.point(id_)
        assert point is not None
        assert one["id"] == id_
        amounts = dict(planner.amounts(id_, point))
        amounts.pop("segments", None)
        ends = {"": "median", "_low": "low", "_high": "high"}
        theirs = {
            f"{name}{end}": estimates[which]
            for name, estimates in one["estimates"].items()
            for end, which in ends.items()
        }
        assert theirs == pytest.approx(stated(amounts), rel=CLOSE, abs=0), id_
        for name, limit, share in (
            ("runtime_h", given["deadline_h"], one["within_deadline"]),
            ("energy_kwh", given["budget_kwh"], one["within_budget"]),
        ):
            assert share == (None if limit is None else np.mean(amounts[name] <= limit)), id_


def test_the_page_warns_and_refuses_as_a_plan_does(page: Browser, asked: Asked) -> None:
    found = forecasts(page, asked)
    forecaster, campaign = asked.planner.forecaster, asked.planner.campaign
    warned = 0
    for run in asked.planner.runs():
        if run.configuration.id not in found:
            continue
        one = found[run.configuration.id]
        assert one["reason"] is None and run.reason is None
        warnings = forecaster.warnings(run_spec(campaign, run.configuration.id, 1))
        assert one["warnings"] == warnings
        warned += any("extrapolated" in words for words in warnings)
    assert warned


def test_loads_of_split_models_and_accumulated_gradients_are_those_of_python(page: Browser) -> None:
    chance = random.Random(3)
    for _ in range(50):
        per_replica, steps = chance.choice([1, 2, 4, 8]), chance.choice([1, 2, 5])
        gpus, batch = per_replica * chance.randint(1, 40), steps * chance.randint(1, 90)
        samples, epochs = chance.randint(gpus, 10**6), chance.randint(1, 90)
        wanted = load_of(gpus, -(-gpus // 4), batch, samples, epochs, per_replica, steps)
        training = {
            "gpus_per_replica": per_replica,
            "gradient_accumulation_steps": steps,
            "gpus_per_node": 4,
        }
        choice = {"gpus": gpus, "local_batch_size": batch, "samples": samples, "epochs": epochs}
        found = page.evaluate(f"loadOf({json.dumps(training)}, {json.dumps(choice)})")
        assert found == {
            "gpus": gpus,
            "nodes": wanted.nodes,
            "epochs": epochs,
            "samples": wanted.samples,
            "updates": wanted.updates,
            "steps": steps,
            "passes": wanted.passes,
            "passSize": pytest.approx(wanted.pass_size, rel=1e-15),
        }


def test_the_recommended_n_are_those_of_a_plan(page: Browser, asked: Asked) -> None:
    content = read_yaml(PROJECT / "campaigns/paper.yaml")
    cluster = asked.planner.cluster
    campaign = expand(content, PROJECT / "campaigns/paper.yaml", cluster.devices)
    planner = replace(asked.planner, campaign=campaign)
    for name in ("resnet50-full-lbs256", "fourcastnet-pretrain-lbs1"):
        points = campaign.series[name].points
        nothing = dict.fromkeys(
            ("pue", "price_per_kwh", "carbon_g_per_kwh", "deadline_h", "budget_kwh")
        )
        choices = ", ".join(chosen(campaign.configurations[i], nothing) for i in points.values())
        by_n = f"[{choices}].map(one => [one.gpus, forecast(one)])"
        for deadline_h, energy_kwh in ((0.6, 28.0), (24.0, 150.0), (90.0, 27.0), (0.01, 1.0)):
            wanted = {
                one.limit: [one.gpus_with_95_percent, one.gpus_with_median]
                for one in recommendations(planner, deadline_h, energy_kwh)
                if one.series == name
            }
            for limited, limit in (("runtime_h", deadline_h), ("energy_kwh", energy_kwh)):
                call = f"recommended({by_n}, {limited!r}, {limit})"
                best = page.evaluate(f"(found => [found.sure, found.likely])({call})")
                assert best == wanted["deadline_h" if limited == "runtime_h" else limited]


# --- as a page ------------------------------------------------------------------------------------


def put(page: Browser, name: str, value: Any) -> None:
    """Fill a field as a person does."""
    event = "change" if name in ("model", "device", "settings") else "input"
    field = f"document.getElementById({name!r})"
    page.evaluate(
        f"{field}.value = {json.dumps(str(value))};"
        f"{field}.dispatchEvent(new Event({event!r}, {{bubbles: true}}))"
    )


def text(page: Browser, selector: str) -> str:
    return page.evaluate(f"document.querySelector({selector!r}).innerText")


def begin(page: Browser) -> None:
    page.evaluate("document.getElementById('reset').click()")
    put(page, "model", "resnet50")


def test_the_page_asks_nobody_and_complains_of_nothing(page: Browser) -> None:
    begin(page)
    assert page.complaints() == []
    assert page.requests() == []


def test_what_is_typed_is_answered_at_once(page: Browser) -> None:
    begin(page)
    put(page, "gpus", 16)
    put(page, "local_batch_size", 256)
    assert "5.12 h" in text(page, "#facts [data-of=runtime_h]")
    assert text(page, "#facts [data-of=cost]").endswith("–")
    put(page, "pue", 1.5)
    put(page, "price_per_kwh", 0.2)
    assert "7.92" in text(page, "#facts [data-of=cost]")
    put(page, "deadline_h", 24)
    assert text(page, "#limits li") == "Ends within 24 h with 100 % probability."
    assert text(page, "#recommended li") == (
        "Within 24 h, the cheapest n: 4 with 95 % probability, 4 by the median."
    )


def test_what_cannot_be_is_named_beside_the_form_and_no_number_stays(page: Browser) -> None:
    begin(page)
    cases: tuple[tuple[str, Any, str], ...] = (
        ("gpus", 6, "6 does not fit nodes of 4 GPUs"),
        ("gpus", "", "GPUs: expected a whole number from 1"),
        ("local_batch_size", 1.5, "local batch size: expected a whole number from 1"),
        ("deadline_h", -1, "Deadline (h): -1; expected a number above 0"),
        ("pue", 0.5, "PUE: 0.5; expected a number from 1"),
        ("samples", 3, "3 samples for"),
    )
    for name, value, words in cases:
        begin(page)
        put(page, "gpus", 64)
        put(page, name, value)
        assert words in text(page, "#refusal")
        assert page.evaluate("document.getElementById('found').offsetHeight") == 0, "not seen"
    begin(page)
    assert page.evaluate("document.getElementById('refusal').hidden")


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_axe_finds_nothing_serious(page: Browser, scheme: str) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=media)
    begin(page)
    put(page, "gpus", 2048)
    put(page, "deadline_h", 24)
    assert serious_findings(page) == []


def test_without_javascript_the_page_says_what_to_do_and_what_was_calibrated(
    asked: Asked, tmp_path: Path
) -> None:
    out = tmp_path / "plan.html"
    write_plan_page(out, Site(asked.planner.forecaster), Limits())
    (tmp_path / "profile").mkdir()
    with headless(tmp_path / "profile") as opened:
        target = opened.call("Target.createTarget", url="about:blank")["targetId"]
        attached = opened.call("Target.attachToTarget", targetId=target, flatten=True)
        opened.session = attached["sessionId"]
        opened.call("Page.enable")
        opened.call("Emulation.setScriptExecutionDisabled", value=True)
        opened.call("Page.navigate", url=out.as_uri())
        opened.wait_for("Page.loadEventFired")
        said = text(opened, "body")
    assert "JavaScript is off. scalewatt plan prints the same numbers" in said
    assert "resnet50 on a100" in said and "GPUs (n)" not in said


# --- the command ----------------------------------------------------------------------------------


def test_a_training_that_was_not_calibrated_is_offered_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    out = tmp_path / "plan.html"
    assert main(["plan", "--html", str(out)]) == 0
    (tmp_path / "profile").mkdir()
    with headless(tmp_path / "profile") as opened:
        opened.open(out.as_uri())
        assert opened.evaluate("DATA.trainings[chosenTraining()].reason") is None
        put(opened, "model", "resnet50")
        put(opened, "device", "local")
        assert "is not calibrated for resnet50 on local" in text(opened, "#refusal")
        assert text(opened, "#settings option:checked").endswith("not calibrated")


@pytest.mark.parametrize("option", ("--json", "--results=x", "--from=4"))
def test_an_option_that_the_page_does_not_answer_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--html", str(tmp_path / "plan.html"), option]) == 1
    said = capsys.readouterr().err
    assert option.partition("=")[0] in said and "is for a plan as text; allowed: " in said
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_looks_like_markup_stays_a_text(asked: Asked, tmp_path: Path) -> None:
    hostile = "</script><script>window.broken=1</script>"
    model = asked.planner.forecaster.model
    kinds = tuple(replace(k, kind=replace(k.kind, key=hostile)) for k in model.kinds[:1])
    forecaster = Forecaster(replace(model, kinds=kinds, sources=(hostile,)))
    write_plan_page(tmp_path / "plan.html", Site(forecaster), Limits())
    (tmp_path / "profile").mkdir()
    with headless(tmp_path / "profile") as opened:
        opened.open((tmp_path / "plan.html").as_uri())
        assert opened.evaluate("window.broken") is None
        assert opened.complaints() == []
        assert text(opened, "#model option") == hostile
