"""The page of a campaign's status: what it says, what it expects, and how it is kept up to date."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_files import KNOWN, UNKNOWN, forecaster, small, without_energies
from status_files import CAMPAIGN, CLUSTER, ONE, TWO, Made, everything

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import J_PER_KWH
from scalewatt.report.status import watch_page
from scalewatt.report.status.log_tail import LINES, last_lines
from scalewatt.report.status.outlook import Outlook, outlook
from scalewatt.report.status.status_page import MOST_LOGS, Writing, status_page
from scalewatt.report.status.watch_page import follow_campaign
from scalewatt.tracking.energy_used import EnergyUsed
from scalewatt.tracking.run_state import RunState, State
from scalewatt.tracking.status import CampaignStatus, Power, RunStatus

NOW_S = 1.8e9
HOSTILE = '<script>document.title = "broken"</script>&amp;"\''


def page_of(made: Made, writing: Writing | None = None) -> str:
    """A campaign's page as it stands."""
    status = made.status()
    return status_page(status, outlook(status, None), writing or Writing())


def words(page: str) -> str:
    """What a person reads on a page, and in its attributes."""
    body = page.partition("<body")[2].partition("<script>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


# --- what it says -----------------------------------------------------------------------------------


def test_the_page_says_what_runs_what_failed_and_what_was_used(tmp_path: Path) -> None:
    made = Made.create(tmp_path, energy_budget_kwh=0.6)
    everything(made)
    said = words(page_of(made))
    assert "runs done 1 of 4" in said and "failed or refused 1" in said
    assert "power now 240 W measured and estimated" in said
    assert "energy so far ≥ 0.452 kWh of a budget of 0.6 kWh; estimated, measured" in said
    assert "energy budget 75 %" in said
    assert f"{TWO} repeat 1 epoch 5 of 10, train 320 240 W (mixed)" in said
    assert "job 7 on n1" in said and "ends about" in said
    assert f"{ONE} repeat 2: failed" in said
    assert "Job 7: torch.OutOfMemoryError: CUDA out of memory." in said
    assert "The true value lies between 0.452 and 0.453 kWh" in said
    assert "Out of date: results of another spec" in said


def test_a_series_shows_its_share_of_updates_and_its_runs_by_state(made: Made) -> None:
    everything(made)
    said = words(page_of(made))
    assert "series progress runs done running failed out of date images 40 % 40 % 4 1 1 1 1" in said


def test_a_campaign_that_nobody_started_has_a_page(made: Made) -> None:
    said = words(page_of(made))
    assert "runs done 0 of 4" in said and "power now –" in said
    assert "No run is running." in said and "No run has failed or was refused." in said
    assert "energy so far 0 kWh no budget" in said


def test_an_energy_that_is_not_all_known_is_a_least(made: Made) -> None:
    folder = made.work_folder()
    (folder / "spec.json").write_text("{}")
    made.publish(ONE)
    status = made.status()
    assert status.energy_used.unknown_runs
    assert "energy so far ≥ 0 kWh" in words(status_page(status, outlook(status, None), Writing()))


def test_texts_of_logs_names_and_reasons_are_never_markup(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "")  # which no name may have
    series = {name: CAMPAIGN["series"]["images"]}  # type: ignore[index]
    made = Made.create(tmp_path, series=series, figures={"figure2": {"series": [name]}})
    folder = made.work_folder(ONE, 1)
    (folder / "train.log").write_text(f"first\n{HOSTILE}\n")
    made.attempt(ONE, 1, code=70, reason=HOSTILE, job=HOSTILE, host=HOSTILE)
    page = page_of(made)
    assert page.count("<script") == 1
    assert "<script>document" not in page
    assert words(page).count(HOSTILE) >= 3
    assert f"first {HOSTILE}" in words(page) and name in words(page)


def test_a_page_names_no_other_place(made: Made) -> None:
    everything(made)
    page = page_of(made, Writing(30))
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)[^"']*|https?://|@import""", page)


def test_only_the_first_failures_show_their_logs(tmp_path: Path) -> None:
    images = {**CAMPAIGN["series"]["images"], "repeats": MOST_LOGS + 2}  # type: ignore[index]
    made = Made.create(tmp_path, series={"images": images})
    for repeat in range(1, MOST_LOGS + 3):
        (made.work_folder(ONE, repeat) / "train.log").write_text(f"log {repeat}.\n")
        made.attempt(ONE, repeat, code=70, reason="it broke")
    page = page_of(made)
    assert page.count('<article class="failure">') == MOST_LOGS + 2
    assert page.count("<pre ") == MOST_LOGS


def test_a_page_that_is_kept_up_to_date_says_so_and_one_that_is_not_says_since_when(
    made: Made,
) -> None:
    page = page_of(made, Writing(30))
    assert '<noscript><meta http-equiv="refresh" content="30"></noscript>' in page
    assert "and again every 30 s" in words(page)
    page = page_of(made, Writing(ended="all runs are done"))
    assert "refresh" not in page.partition("<script>")[0] and 'data-every=""' in page
    assert re.search(
        r"no longer updated : all runs are done. It was last written at \d{4}-\d\d-\d\d \d\d:\d\d",
        words(page),
    )
    assert "Written once, at " in words(page_of(made))


# --- logs -------------------------------------------------------------------------------------------


def test_the_last_lines_are_shown_without_colours_and_old_states_of_a_bar(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"".join(b"line %d\n" % n for n in range(50))
        + b"10 %\r50 %\r\x1b[1m90 %\x1b[0m\r\n\n\xff\xfe odd\x07\ttab\nRuntimeError: it broke\n"
    )
    found = last_lines(log)
    assert len(found) == LINES
    assert found[-3:] == ["90 %", "\ufffd\ufffd odd\\x07    tab", "RuntimeError: it broke"]
    assert found[0] == "line 38"


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "wb") as file:
        file.truncate(1 << 34)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"x" * 2000 + b"\nthe end\n")
    found = last_lines(log)
    assert found[-1] == "the end" and found[-2].endswith("x…") and len(found[-2]) == 500


def test_a_line_whose_begin_is_cut_off_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = "hf_" + "aB3" * 12
    log.write_text(f"begin\n{'x' * 99}{key}{' y' * (16 * 1024 - 10)}\nthe end\n")
    assert last_lines(log) == ["the end"], "the end of a key looks like none"


def test_a_log_that_is_none_gives_the_reason(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none") == ["(cannot be read: No such file or directory)"]
    (tmp_path / "empty").touch()
    assert last_lines(tmp_path / "empty") == []


HIDDEN_LINE = "(a line with a key or password)"
BODY = ["MIIEpAIBAAKCAQEA7x", "q83vEjRWeJCrze8SNFZ4"]
PEM = ["-----BEGIN RSA PRIVATE KEY-----", *BODY, "-----END RSA PRIVATE KEY-----"]


@pytest.mark.parametrize(
    "key", [PEM, PEM[:-1], PEM[1:], ["Authorization:", "Bearer abcdefghijklmnop1234"]]
)
def test_no_line_of_a_key_of_several_lines_is_shown(tmp_path: Path, key: list[str]) -> None:
    """The first or last lines of it may be cut off."""
    log = tmp_path / "train.log"
    log.write_text("\n".join(key))
    assert last_lines(log) == [HIDDEN_LINE] * len(key)
    rest = [] if key == PEM[:-1] else ["went on"]
    log.write_text("\n".join([*key, *rest]) + "\n")
    assert last_lines(log)[-1] == (rest or [HIDDEN_LINE])[0]


def test_a_line_with_a_key_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = "hf_" + "aB3" * 12
    log.write_text(f"begin\nlogin with {key}\nend\n")
    assert last_lines(log) == ["begin", HIDDEN_LINE, "end"]


# --- what is expected -------------------------------------------------------------------------------


def campaign_status_of(campaign: Campaign, **states: Any) -> CampaignStatus:
    """A status made by hand: each run's fields by `configuration/repeat`, else it is not started."""
    runs = tuple(
        RunStatus(
            one.configuration.id,
            one.repeat,
            one.configuration.gpus,
            tuple(campaign.series),
            RunState("not_started"),
            None,
            one.configuration.updates,
        )
        for one in campaign.runs()
    )
    runs = tuple(replace(r, **states.get(f"{r.configuration}/{r.repeat}", {})) for r in runs)
    folder = Path("nowhere")
    used = EnergyUsed(1.0, 1.0, {"measured": 1.0}, ())
    return CampaignStatus(campaign, "horeka", folder, folder, NOW_S, None, runs, used)


def state(name: State) -> dict[str, RunState]:
    return {"state": RunState(name)}


def medians(campaign: Campaign, run: RunStatus) -> tuple[float, float]:
    """Seconds and kWh of a run, as the scaling model predicts them."""
    found = forecaster().runs(run_spec(campaign, run.configuration, run.repeat))
    assert found.total_j is not None
    return float(np.median(found.runtime_s)), float(np.median(found.total_j)) / J_PER_KWH


@pytest.mark.parametrize("queued", [0, 1, 2])
def test_while_no_run_is_running_there_is_no_end_but_how_long_the_rest_takes(queued: int) -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4], "repeats": 2}})
    (id_,) = campaign.configurations
    runs = {f"{id_}/{repeat}": state("queued") for repeat in range(1, queued + 1)}
    status = campaign_status_of(campaign, **runs)
    seconds, kwh = medians(campaign, status.runs[0])
    found = outlook(status, forecaster())
    assert found.ends_s is None and found.more_kwh == pytest.approx(2 * kwh)
    assert "Not known, as no run is running" in found.basis
    assert f"what is left takes {2 * seconds / 3600:.3g} h by the scaling model" in found.basis


def test_as_many_run_at_a_time_as_run_now() -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    runs = {f"{id_}/1": {**state("running"), "ends_s": NOW_S + 100}, f"{id_}/2": state("running")}
    status = campaign_status_of(campaign, **runs)
    seconds, kwh = medians(campaign, status.runs[1])
    found = outlook(status, forecaster())
    # The third begins when the first has ended.
    assert found.ends_s == pytest.approx(NOW_S + 100 + seconds)
    assert found.more_kwh == pytest.approx(3 * kwh)
    assert "2 at a time, as now" in found.basis


def test_of_a_run_at_a_checkpoint_the_rest_is_expected() -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4], "repeats": 1}})
    (id_,) = campaign.configurations
    total = campaign.configurations[id_].updates
    assert total is not None
    updates = {"updates": total // 4}
    seconds, kwh = medians(campaign, campaign_status_of(campaign).runs[0])
    rest = 1 - (total // 4) / total
    running = campaign_status_of(campaign, **{f"{id_}/1": {**state("running"), **updates}})
    assert outlook(running, forecaster()).ends_s == pytest.approx(NOW_S + rest * seconds)
    queued = campaign_status_of(campaign, **{f"{id_}/1": {**state("queued"), **updates}})
    found = outlook(queued, forecaster())
    assert found.ends_s is None
    assert found.more_kwh == pytest.approx(rest * kwh)


def test_where_all_that_is_left_runs_the_pace_tells_the_end() -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4], "repeats": 2}})
    (id_,) = campaign.configurations
    running = {**state("running"), "ends_s": NOW_S + 50}
    status = campaign_status_of(campaign, **{f"{id_}/1": state("done"), f"{id_}/2": running})
    assert outlook(status, None) == Outlook(
        NOW_S + 50, "By the pace of the running trainings.", None
    )


def test_a_failed_run_beside_running_ones_needs_no_scaling_model_and_none_is_named() -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4], "repeats": 2}})
    (id_,) = campaign.configurations
    running = {**state("running"), "ends_s": NOW_S + 50}
    status = campaign_status_of(campaign, **{f"{id_}/1": state("failed"), f"{id_}/2": running})
    found = outlook(replace(status), None)
    assert "By the pace of the running trainings" in found.basis
    assert "scaling model" not in found.basis


def test_what_cannot_be_predicted_leaves_the_end_unknown_with_the_reason() -> None:
    status = campaign_status_of(small({"a": KNOWN, "b": UNKNOWN}))
    found = outlook(status, forecaster())
    assert (found.ends_s, found.more_kwh) == (None, None)
    assert found.basis == "Not known: 2 runs cannot be predicted by the scaling model."
    assert "the cluster file names no scaling model" in outlook(status, None).basis
    campaign = small({"a": KNOWN})
    running = {f"{next(iter(campaign.configurations))}/1": state("running")}
    timed = outlook(campaign_status_of(campaign, **running), without_energies())
    assert timed.ends_s is not None and timed.more_kwh is None


def test_runs_that_failed_are_not_expected_and_named() -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    runs = {f"{id_}/1": state("failed"), f"{id_}/2": state("refused"), f"{id_}/3": state("done")}
    found = outlook(campaign_status_of(campaign, **runs), forecaster())
    assert found == Outlook(
        None, "No run is left to be made; 2 runs that failed or were refused left out.", 0.0
    )
    runs[f"{id_}/3"] = state("running")
    found = outlook(campaign_status_of(campaign, **runs), forecaster())
    assert found.ends_s is not None and "2 runs that failed or were refused left out" in found.basis


def test_an_energy_that_will_be_above_the_budget_is_said() -> None:
    status = campaign_status_of(small({"a": KNOWN}, energy_budget_kwh=2.0))
    said = words(status_page(status, outlook(status, forecaster()), Writing()))
    assert "above the budget of 2 kWh, as predicted" in said


def test_power_of_some_running_runs_says_of_how_many() -> None:
    campaign = small({"a": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    known = {**state("running"), "power": Power(12345.0, "measured")}
    status = campaign_status_of(campaign, **{f"{id_}/1": known, f"{id_}/2": state("running")})
    said = words(status_page(status, outlook(status, None), Writing()))
    assert "power now 12.3 kW measured, of 1 of 2 running runs" in said


# --- kept up to date --------------------------------------------------------------------------------


@pytest.fixture
def place(made: Made) -> Path:
    """A profile of the small campaign, whose results and work are in its folder."""
    (made.folder / "made.yaml").write_text(json.dumps(CAMPAIGN))
    (made.folder / "profile").mkdir()
    cluster = {**CLUSTER, "campaign": "made.yaml", "work_root": "work"}
    (made.folder / "profile" / "cluster.yaml").write_text(json.dumps(cluster))
    return made.folder


@pytest.fixture
def follow(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the page in the place's folder, with `time.sleep` as it is given."""
    monkeypatch.chdir(place)

    def run(every_s: float | None, sleep: Callable[[float], None]) -> None:
        monkeypatch.setattr(time, "sleep", sleep)
        follow_campaign(Path("status.html"), Path("profile"), None, Path("results"), None, every_s)

    return run


def finish(made: Made) -> None:
    for configuration in (ONE, TWO):
        for repeat in (1, 2):
            made.publish(configuration, repeat)


def test_it_is_written_again_until_all_runs_are_done(
    follow: Callable[..., None], made: Made, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def sleep(seconds: float) -> None:
        assert seconds == 30
        seen.append(words((place / "status.html").read_text()))
        if len(seen) == 1:
            made.publish(ONE)
        else:
            finish(made)

    follow(30, sleep)
    assert ["0 of 4" in seen[0], "1 of 4" in seen[1]] == [True, True]
    assert all("again every 30 s" in one for one in seen) and len(seen) == 2
    last = words((place / "status.html").read_text())
    assert "4 of 4" in last and "no longer updated : all runs are done" in last
    assert capsys.readouterr().out.endswith(
        "status.html: all runs are done; it is no longer written\n"
    )
    assert not list(place.glob(".status*"))


def test_ctrl_c_leaves_a_page_that_says_it_is_no_longer_updated(
    follow: Callable[..., None], place: Path
) -> None:
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(30, sleep)
    last = words((place / "status.html").read_text())
    assert "no longer updated : the command that wrote it was stopped. It was last written" in last


def test_once_means_once(
    follow: Callable[..., None], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(None, lambda _: pytest.fail("it waited"))
    assert "Written once, at " in words((place / "status.html").read_text())
    assert capsys.readouterr().out == "status.html: written\n"


def test_a_disk_that_is_full_for_a_while_keeps_the_page_before(
    follow: Callable[..., None],
    made: Made,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = watch_page.write_text
    rounds: list[bytes] = []

    def write(path: Path, text: str) -> None:
        if len(rounds) == 1:
            raise OSError(28, "No space left on device")
        real(path, text)

    def sleep(_: float) -> None:
        rounds.append((place / "status.html").read_bytes())
        if len(rounds) == 2:
            finish(made)

    monkeypatch.setattr(watch_page, "write_text", write)
    follow(5, sleep)
    assert rounds[0] == rounds[1]
    assert "cannot be written now (No space left on device)" in capsys.readouterr().err
    assert "4 of 4" in words((place / "status.html").read_text())


def test_a_last_page_that_could_not_be_written_is_written_later(
    follow: Callable[..., None], made: Made, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watch_page.write_text
    rounds: list[int] = []

    def write(path: Path, text: str) -> None:
        if len(rounds) == 1:
            raise OSError(28, "No space left on device")
        real(path, text)

    def sleep(_: float) -> None:
        rounds.append(1)
        finish(made)

    monkeypatch.setattr(watch_page, "write_text", write)
    follow(5, sleep)
    assert len(rounds) == 2
    assert "4 of 4" in words((place / "status.html").read_text())


def test_an_error_leaves_a_page_that_says_it_is_no_longer_updated(
    follow: Callable[..., None], place: Path
) -> None:
    def sleep(_: float) -> None:
        raise OSError(116, "Stale file handle")

    with pytest.raises(OSError, match="Stale"):
        follow(5, sleep)
    last = words((place / "status.html").read_text())
    assert "no longer updated : the command that wrote it ended with an error." in last


def test_a_page_that_cannot_be_a_file_ends_it_at_once(
    follow: Callable[..., None], place: Path
) -> None:
    (place / "status.html").mkdir()
    with pytest.raises(InputError, match="is a folder; expected a file"):
        follow(30, lambda _: pytest.fail("it waited"))


@pytest.mark.slow
@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
def test_each_signal_that_ends_the_command_leaves_a_last_page(
    number: signal.Signals, place: Path
) -> None:
    command = [sys.executable, "-m", "scalewatt.cli", "status", "--profile", "profile"]
    process = subprocess.Popen(
        [*command, "--html", "status.html", "--watch", "3600"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "written every 3600 s" in process.stdout.readline()
    time.sleep(0.5)  # until it sleeps
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the command that wrote it was stopped" in (place / "status.html").read_text()


def test_options_that_the_page_does_not_know_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    for option in ("--all", "--json"):
        assert main(["status", "--html", "x.html", option]) == 1
        assert "allowed: without --all and --json" in capsys.readouterr().err
    assert main(["status", "--html", "x.html", "--watch", "0.5"]) == 1
    assert "--watch: 0.5; allowed: 1 to 86400 seconds" in capsys.readouterr().err
    assert not (place / "x.html").exists()
