"""The node's power by Redfish, asked of a made controller that answers over HTTP or HTTPS on this machine."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scalewatt.common.errors import InputError
from scalewatt.recordings.meters import redfish
from scalewatt.recordings.meters.redfish import (
    PASSWORD_FILE,
    TLS,
    URL,
    USER,
    Controller,
    RedfishError,
    RedfishPower,
    redfish_settings,
)
from scalewatt.recordings.telemetry_sources import redfish_sources

ROOT = "/redfish/v1/Chassis"
SECRET = "correct horse"


def chassis(name: str, *has: str, inside: str | None = None, systems: int = 1) -> dict[str, Any]:
    """A document of a chassis that links to its `has`: EnvironmentMetrics, Power."""
    links: dict[str, Any] = {
        "ComputerSystems": [{"@odata.id": f"/redfish/v1/Systems/{i}"} for i in range(systems)]
    }
    if inside:
        links["ContainedBy"] = {"@odata.id": f"{ROOT}/{inside}"}
    found = {"@odata.type": "#Chassis.v1_24_0.Chassis", "Id": name, "Links": links}
    return found | {one: {"@odata.id": f"{ROOT}/{name}/{one}"} for one in has}


def collection(*names: str) -> dict[str, Any]:
    return {"Members": [{"@odata.id": f"{ROOT}/{name}"} for name in names]}


def control(watts: Any, context: str | None = None) -> dict[str, Any]:
    one = {"MemberId": "0", "Name": "Server Power Control", "PowerConsumedWatts": watts}
    return one | ({"PhysicalContext": context} if context else {})


def metrics(watts: Any) -> dict[str, Any]:
    uri = f"{ROOT}/1U/Sensors/TotalPower"
    return {"Id": "EnvironmentMetrics", "PowerWatts": {"Reading": watts, "DataSourceUri": uri}}


NEWER = {
    ROOT: collection("1U"),
    f"{ROOT}/1U": chassis("1U", "EnvironmentMetrics", "Power"),
    f"{ROOT}/1U/EnvironmentMetrics": metrics(374.5),
    f"{ROOT}/1U/Power": {"PowerControl": [control(370)]},
}
OLDER = {
    ROOT: collection("1"),
    f"{ROOT}/1": chassis("1", "Power"),
    f"{ROOT}/1/Power": {"PowerControl": [control(150)], "PowerSupplies": []},
}


@dataclass
class Made:
    """A made controller."""

    documents: dict[str, Any]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    connections: int = 0
    authorization: str | None = None
    """What it demands."""
    status: int = 200
    slow: threading.Event | None = None
    """Set when it may answer."""
    slashes: bool | None = None
    """Whether the paths it knows end with a slash; it sends others there. None: both are known."""
    drips_s: float = 0.0
    """Between two bytes of an answer."""
    closes: bool = False
    """Ends each connection after its answer, without saying so."""


def handler(made: Made) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            made.connections += 1

        def do_GET(self) -> None:
            made.asked.append(self.path)
            if made.slow is not None:
                made.slow.wait(30)
            document = made.documents.get(self.path.rstrip("/"))
            status = made.status if document is not None else 404
            if made.authorization and self.headers["Authorization"] != made.authorization:
                status = 401
            if made.slashes is not None and made.slashes != self.path.endswith("/"):
                self.send_response(308)
                other = self.path.rstrip("/") + ("/" if made.slashes else "")
                self.send_header("Location", f"{made.url}{other}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            text = document if isinstance(document, bytes) else json.dumps(document or {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with suppress(OSError):  # who asked may have gone
                for n in range(len(text)) if made.drips_s else ():
                    self.wfile.write(text[n : n + 1])
                    time.sleep(made.drips_s)
                self.wfile.write(b"" if made.drips_s else text)
            self.close_connection = made.closes

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture()
def made() -> Iterator[Made]:
    yield from serving(Made(dict(NEWER)))


def serving(made: Made, context: ssl.SSLContext | None = None) -> Iterator[Made]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(made))
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    made.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        if made.slow is not None:
            made.slow.set()
        server.shutdown()
        server.server_close()
        thread.join()


def controller(url: str, limit_s: float = 10.0, **environment: str) -> Controller:
    settings = redfish_settings({URL: url, **environment}, "n1.cluster")
    assert settings is not None
    return Controller(settings, limit_s)


def reason(url: str, **environment: str) -> RedfishError:
    with pytest.raises(RedfishError) as raised:
        controller(url, **environment).power_w()
    for part in ("127.0.0.1", SECRET, "admin"):
        assert part not in str(raised.value)
    return raised.value


def asked(source: RedfishPower) -> float | None:
    """Ask and wait for the answer to the question before."""
    (watts,) = source()
    if source._thread is not None:
        source._thread.join()
    return watts


# --- what is read -------------------------------------------------------------------------------


def test_the_metrics_of_the_chassis_are_preferred_to_its_older_power(made: Made) -> None:
    one = controller(made.url)
    assert [one.power_w() for _ in range(3)] == [374.5] * 3
    assert made.asked[-2:] == [f"{ROOT}/1U/EnvironmentMetrics"] * 2 and made.connections == 1


@pytest.mark.parametrize(
    ("controls", "watts"),
    [
        ([control(150)], 150),
        ([control(120, "CPU"), control(410, "Chassis")], 410),
        ([control(287.5), control(90)], 287.5),
    ],
)
def test_the_older_power_is_that_of_the_chassis(
    made: Made, controls: list[dict[str, Any]], watts: float
) -> None:
    made.documents = {**OLDER, f"{ROOT}/1/Power": {"PowerControl": controls}}
    assert controller(made.url).power_w() == watts


@pytest.mark.parametrize("reading", [None, 0, -5, "374", True, 1e9, []])
def test_metrics_that_state_no_power_leave_it_to_the_older_power(made: Made, reading: Any) -> None:
    made.documents[f"{ROOT}/1U/EnvironmentMetrics"] = metrics(reading)
    assert controller(made.url).power_w() == 370


def test_parts_of_a_chassis_are_not_the_node(made: Made) -> None:
    made.documents |= {
        ROOT: collection("HGX_GPU_0", "1U"),
        f"{ROOT}/HGX_GPU_0": chassis("HGX_GPU_0", "EnvironmentMetrics", inside="1U"),
        f"{ROOT}/HGX_GPU_0/EnvironmentMetrics": metrics(231.9),
    }
    assert controller(made.url).power_w() == 374.5


def test_several_outermost_chassis_are_not_chosen_among_unless_one_is_named(made: Made) -> None:
    made.documents |= {ROOT: collection("1U", "1")} | {k: v for k, v in OLDER.items() if k != ROOT}
    error = reason(made.url)
    assert "several of its chassis state a power, 1U, 1: name the node's own" in str(error)
    assert error.final
    assert controller(f"{made.url}{ROOT}/1").power_w() == 150


def test_the_meter_of_an_enclosure_is_no_meter_of_one_of_its_nodes(made: Made) -> None:
    made.documents[f"{ROOT}/1U"] = chassis("1U", "EnvironmentMetrics", systems=4)
    assert "holds several systems" in str(reason(made.url))
    assert controller(f"{made.url}{ROOT}/1U/").power_w() == 374.5


def test_links_that_leave_the_controller_are_not_followed(made: Made) -> None:
    made.documents[f"{ROOT}/1U"] = {"Power": {"@odata.id": "http://example.org/redfish/v1/x"}}
    assert "none of its chassis" in str(reason(made.url))


@pytest.mark.parametrize("text", [b"", b"<html>", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_answers_that_are_no_documents_are_errors(made: Made, text: bytes) -> None:
    made.documents[ROOT] = text
    assert str(reason(made.url)).startswith("its answer")


def test_an_endless_answer_is_not_read_to_its_end(made: Made) -> None:
    made.documents[ROOT] = b" " * (3 << 20)
    assert str(reason(made.url)) == "its answer is too long"


def test_a_connection_that_the_controller_has_ended_is_made_anew(made: Made) -> None:
    made.closes = True
    one = controller(made.url)
    assert [one.power_w() for _ in range(3)] == [374.5] * 3


@pytest.mark.parametrize("slashes", [True, False])
def test_one_redirect_to_the_same_path_is_followed(made: Made, slashes: bool) -> None:
    made.slashes = slashes
    end = "/" if not slashes else ""  # the links it writes are the wrong ones
    text = json.dumps(made.documents).replace('"}', f'{end}"}}')
    made.documents = {path.rstrip("/"): one for path, one in json.loads(text).items()}
    assert controller(made.url).power_w() == 374.5


def test_links_are_followed_as_the_controller_wrote_them(made: Made) -> None:
    text = json.dumps(made.documents).replace('"}', '/"}')
    made.documents = json.loads(text)
    assert controller(made.url).power_w() == 374.5
    assert made.asked == [ROOT, f"{ROOT}/1U/", *[f"{ROOT}/1U/EnvironmentMetrics/"] * 2]


def test_a_redirect_to_another_path_is_not_followed(made: Made) -> None:
    made.status = 302
    assert str(reason(made.url)) == "it answers with HTTP 302"


def test_the_limit_holds_for_a_whole_answer(made: Made) -> None:
    made.drips_s = 0.1
    began_s = time.monotonic()
    with pytest.raises(RedfishError, match="does not answer in time"):
        controller(made.url, 0.5).power_w()
    assert time.monotonic() - began_s < 2.0


# --- as whom ------------------------------------------------------------------------------------


@pytest.fixture()
def credentials(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    return {USER: "admin", PASSWORD_FILE: str(tmp_path / "password")}


def test_the_password_is_sent_to_who_asks_for_it(made: Made, credentials: dict[str, str]) -> None:
    made.authorization = f"Basic {base64.b64encode(f'admin:{SECRET}'.encode()).decode()}"
    assert controller(made.url, **credentials).power_w() == 374.5
    settings = redfish_settings({URL: made.url, **credentials}, "n1")
    assert settings is not None and settings.authorization is not None
    assert settings.authorization not in repr(settings)


def test_a_controller_that_refuses_the_user_is_not_asked_again(
    made: Made, credentials: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    made.authorization = "Basic other"
    settings = redfish_settings({URL: made.url, **credentials}, "n1")
    assert settings is not None
    source = RedfishPower(settings)
    assert [asked(source) for _ in range(4)] == [None] * 4
    assert len(made.asked) == 1
    told = capfd.readouterr().err
    assert told.count("\n") == 1 and "it refuses this user (HTTP 401)" in told
    assert "127.0.0.1" not in told and SECRET not in told and "admin" not in told


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({URL: "bmc.example"}, "is no address of a controller"),
        ({URL: "https://bmc:x"}, "is no address of a controller"),
        ({URL: "https://[bmc"}, "is no address of a controller"),
        ({URL: "ftp://bmc"}, "is no address of a controller"),
        ({URL: "https://bmc/redfish/v1/Systems/1"}, "is no address of a controller"),
        ({URL: "https://admin:hunter2@bmc"}, "has a user in it"),
        ({URL: "https://bmc", USER: "admin"}, "only one of"),
        ({URL: "https://bmc", USER: "admin", PASSWORD_FILE: "/none"}, "cannot be read: No such"),
        ({URL: "https://bmc", TLS: "/no/such/file"}, "expected verify, unverified or a file"),
    ],
)
def test_settings_that_cannot_be_used_are_told_without_their_values(
    variables: dict[str, str], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        redfish_settings(variables, "n1")
    for secret in ("hunter2", "https://bmc", "/no/such", "/none"):
        assert secret not in str(raised.value)
    assert redfish_sources(variables, "n1") == []
    assert "Redfish is not asked" in capfd.readouterr().err


def test_a_password_is_never_sent_unencrypted_to_another_machine(
    credentials: dict[str, str],
) -> None:
    with pytest.raises(InputError, match="would send the password unencrypted"):
        redfish_settings({URL: "http://bmc", **credentials}, "n1")
    assert redfish_settings({URL: "http://169.254.1.1"}, "n1") is not None


def test_the_address_names_the_node() -> None:
    settings = redfish_settings({URL: "https://{node}-bmc.site/redfish/v1/Chassis/1"}, "n1.cluster")
    assert settings is not None
    assert (settings.host, settings.chassis) == ("n1-bmc.site", f"{ROOT}/1")


def test_without_an_address_nothing_is_asked() -> None:
    assert redfish_sources({URL: " "}, "n1") == [] and redfish_sources({}, "n1") == []


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not there")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2"),
            *("-subj", "/CN=bmc", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture()
def secure(certificate: Path) -> Iterator[Made]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    yield from serving(Made(dict(OLDER)), context)


def test_a_certificate_of_its_own_is_trusted_only_where_said_so(
    secure: Made, certificate: Path, credentials: dict[str, str]
) -> None:
    assert "its certificate is not trusted" in str(reason(secure.url, **credentials))
    assert secure.asked == []  # nor was the password sent
    for trust in (str(certificate / "cert.pem"), "unverified"):
        assert controller(secure.url, **{TLS: trust}, **credentials).power_w() == 150


# --- in the sampler -----------------------------------------------------------------------------


def power(url: str, limit_s: float = 10.0) -> RedfishPower:
    settings = redfish_settings({URL: url}, "n1")
    assert settings is not None
    return RedfishPower(settings, limit_s)


def test_the_answer_comes_with_the_next_question(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "_COST_SHARE", 1e9)
    source = power(made.url)
    assert [asked(source) for _ in range(3)] == [None, 374.5, 374.5]


def test_it_rests_so_that_it_costs_little(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    source = power(made.url)
    assert [asked(source) for _ in range(5)] == [None, 374.5, None, None, None]
    questions = len(made.asked)
    later = time.monotonic() + redfish._MOST_REST_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert [asked(source), asked(source)] == [None, 374.5] and len(made.asked) == questions + 1


def test_a_controller_that_hangs_delays_nothing(made: Made) -> None:
    made.slow = threading.Event()
    source = power(made.url)
    began_s = time.monotonic()
    assert [source() for _ in range(100)] == [(None,)] * 100
    assert time.monotonic() - began_s < 1 and len(made.asked) <= 1
    made.slow.set()
    assert source._thread is not None
    source._thread.join()
    assert source() == (374.5,)


def test_a_controller_that_answers_too_late_is_given_up(
    made: Made, capfd: pytest.CaptureFixture[str]
) -> None:
    made.slow = threading.Event()
    assert asked(power(made.url, limit_s=0.05)) is None
    assert "it does not answer in time" in capfd.readouterr().err


def test_a_controller_that_fails_is_asked_again_after_a_pause(
    made: Made, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(redfish, "_COST_SHARE", 1e9)
    monkeypatch.setattr(time, "monotonic", clock)
    made.status = 503
    source = power(made.url)
    assert [asked(source) for _ in range(6)] == [None] * 6 and len(made.asked) == 3
    assert capfd.readouterr().err.count("it answers with HTTP 503") == 1
    made.status = 200
    now[0] += redfish._PAUSE_S
    assert [asked(source), asked(source)] == [None, 374.5]


def test_nobody_at_the_address_is_told_without_it(made: Made) -> None:
    made.documents = {}
    assert "HTTP 404" in str(reason(made.url))
    url = "http://127.0.0.1:1"
    assert "it cannot be reached" in str(reason(url))
