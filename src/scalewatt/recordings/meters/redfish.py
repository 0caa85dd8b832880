"""The power of a node by Redfish: its management controller (BMC), asked over HTTPS.

Which controller, and as whom, comes from the environment (`redfish_settings`), and is never written
anywhere: what went wrong is told in words that have neither address nor name in them.

Asked for is the `EnvironmentMetrics` of the chassis (`PowerWatts.Reading`), or its older `Power`
(`PowerControl[].PowerConsumedWatts`: the entry of the chassis, the first where none says so). Without
a chassis in the address the outermost one that has a power is taken, if there is only one and it holds
only one system: the meter of an enclosure of several nodes is no meter of one node.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json

URL, USER = "SCALEWATT_REDFISH_URL", "SCALEWATT_REDFISH_USER"
PASSWORD_FILE, TLS = "SCALEWATT_REDFISH_PASSWORD_FILE", "SCALEWATT_REDFISH_TLS"
VERIFY, UNVERIFIED = "verify", "unverified"
LIMIT_S = 10.0
"""Of every whole answer of a controller; controllers often need seconds."""
_CHASSIS = "/redfish/v1/Chassis"
_MOVED = (301, 302, 307, 308)
_MOST_BYTES = 1 << 20
_MOST_CHASSIS = 64
_COST_SHARE, _MOST_REST_S = 1e-3, 60.0
_FAILURES, _PAUSE_S = 3, 300.0
"""After so many failures in a row a controller is asked again only after a pause."""

Document = dict[str, Any]


class RedfishError(Exception):
    """Why a controller gave no power, without its address. `final`: asking again would not help."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


@dataclass(frozen=True)
class RedfishSettings:
    """Whom to ask, and as whom."""

    scheme: str
    host: str
    port: int | None
    chassis: str | None
    """Path of the chassis; None: to be found."""
    authorization: str | None = field(repr=False)
    tls: str
    """VERIFY, UNVERIFIED, or a file of certificates to trust."""


def redfish_settings(environment: Mapping[str, str], host: str) -> RedfishSettings | None:
    """Return the settings for the node `host`; None where no address is set.

    `{node}` in the address stands for the node's name without its domain. InputError, which does not
    repeat the values: no such address, a password without TLS, a file that cannot be read.
    """
    if not (address := environment.get(URL, "").strip()):
        return None
    try:
        parts = urlsplit(address.replace("{node}", host.split(".")[0]))
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port, parts = None, None, urlsplit("")
    path = parts.path.rstrip("/")
    chassis = path if path.startswith(f"{_CHASSIS}/") and path.count("/") == 4 else None
    if parts.scheme not in ("https", "http") or not name or (path and chassis is None):
        form = f"https://{{node}}-bmc.example or that and {_CHASSIS}/<id>"
        raise InputError(f"{URL} is no address of a controller; expected {form}")
    if parts.username or parts.password:
        raise InputError(f"{URL} has a user in it; expected {USER} and {PASSWORD_FILE} instead")
    authorization = _authorization(environment)
    if parts.scheme == "http" and authorization and not _is_here(name):
        raise InputError(f"{URL} would send the password unencrypted; expected https")
    tls = environment.get(TLS, "").strip() or VERIFY
    if tls not in (VERIFY, UNVERIFIED) and not Path(tls).is_file():
        allowed = f"{VERIFY}, {UNVERIFIED} or a file of certificates"
        raise InputError(f"{TLS} is neither a word that is known nor a file; expected {allowed}")
    return RedfishSettings(parts.scheme, name, port, chassis, authorization, tls)


def _authorization(environment: Mapping[str, str]) -> str | None:
    user, file = environment.get(USER, ""), environment.get(PASSWORD_FILE, "")
    if not user and not file:
        return None
    if not user or not file:
        raise InputError(f"only one of {USER} and {PASSWORD_FILE} is set; expected both or neither")
    try:
        password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the file of {PASSWORD_FILE} cannot be read: {reason}") from None
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _is_here(name: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


class Controller:
    """A connection to a controller, which is kept; not to be used by two threads at a time."""

    def __init__(self, settings: RedfishSettings, limit_s: float = LIMIT_S) -> None:
        self._settings, self._limit_s = settings, limit_s
        self._connection: http.client.HTTPConnection | None = None
        self._source: str | None = None
        """The path that a power was found at."""

    def power_w(self) -> float:
        """Return the node's power in W; RedfishError where there is none."""
        try:
            if self._source is None:
                self._source = self._find()
            watts = self._watts(self._source)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self.close()
            raise RedfishError(_reason(error)) from None
        except RedfishError:
            self.close()
            raise
        if watts is None:
            self._source = None
            raise RedfishError("it states no power")
        return watts

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _find(self) -> str:
        """Return the path of the document with the node's power."""
        chosen = self._settings.chassis
        if chosen is not None:
            found = self._with_power(chosen, self._get(chosen))
            if found is None:
                raise RedfishError("the chassis in the address states no power")
            return found
        members = _links(self._get(_CHASSIS).get("Members"))[:_MOST_CHASSIS]
        chassis = {path: self._get(path) for path in members}
        outer = {p: one for p, one in chassis.items() if not _links_of(one).get("ContainedBy")}
        powers = {p: source for p, one in outer.items() if (source := self._with_power(p, one))}
        if len(powers) != 1:
            names = ", ".join(p.rstrip("/").rpartition("/")[2] for p in powers or chassis)
            count = "several" if powers else "none"
            raise RedfishError(f"{count} of its chassis state a power, {names}: {_NAME_IT}", True)
        ((path, source),) = powers.items()
        if len(_links(_links_of(outer[path]).get("ComputerSystems"))) > 1:
            raise RedfishError(f"its chassis holds several systems: {_NAME_IT}", True)
        return source

    def _with_power(self, path: str, chassis: Document) -> str | None:
        """Return which document of a chassis states a power now; None if none does."""
        for name in ("EnvironmentMetrics", "Power"):
            at = _link(chassis.get(name))
            with suppress(_NotThere):
                if at is not None and self._watts(at) is not None:
                    return at
        return None

    def _watts(self, path: str) -> float | None:
        document = self._get(path)
        measured = document.get("PowerWatts")
        if isinstance(measured, dict):
            return _positive(measured.get("Reading"))
        controls = document.get("PowerControl")
        entries = (
            [one for one in controls if isinstance(one, dict)] if isinstance(controls, list) else []
        )
        whole = [one for one in entries if one.get("PhysicalContext") == "Chassis"]
        return _positive((whole or entries)[0].get("PowerConsumedWatts")) if entries else None

    def _get(self, path: str) -> Document:
        answer, text = self._answer(path)
        other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
        if answer.status in _MOVED and urlsplit(answer.headers.get("Location", "")).path == other:
            answer, text = self._answer(other)
        if answer.status in (401, 403):
            # Controllers lock an account that is tried again and again.
            raise RedfishError(f"it refuses this user (HTTP {answer.status})", final=True)
        if answer.status == 404:
            raise _NotThere("it does not know what is asked for (HTTP 404)")
        if answer.status != 200:
            raise RedfishError(f"it answers with HTTP {answer.status}")
        if len(text) > _MOST_BYTES:
            raise RedfishError("its answer is too long")
        document = parse_json(text)
        if not isinstance(document, dict):
            raise RedfishError("its answer is no document of Redfish")
        return document

    def _answer(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            return self._exchange(path)
        except ConnectionError:
            if self._connection is None:
                raise
            self.close()  # a controller ends connections that rest
            return self._exchange(path)

    def _exchange(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connection or self._open()
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._settings.authorization:
            headers["Authorization"] = self._settings.authorization
        with _ended_after(self._limit_s, connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES + 1)
        self._connection = connection
        return answer, text

    def _open(self) -> http.client.HTTPConnection:
        one, limit_s = self._settings, self._limit_s
        if one.scheme == "http":
            return http.client.HTTPConnection(one.host, one.port, timeout=limit_s)
        trusted = one.tls if one.tls not in (VERIFY, UNVERIFIED) else None
        context = ssl.create_default_context(cafile=trusted)
        if one.tls == UNVERIFIED:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(one.host, one.port, timeout=limit_s, context=context)


@contextmanager
def _ended_after(limit_s: float, connection: http.client.HTTPConnection) -> Iterator[None]:
    """End an exchange that takes longer; TimeoutError then. A socket's own limit is for each piece of it."""
    over = threading.Event()

    def end() -> None:
        over.set()
        if connection.sock is not None:
            with suppress(OSError):
                # Of a TLS connection too the plain one, which the thread that reads may go on using.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    watch = threading.Timer(limit_s, end)
    watch.daemon = True
    watch.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if over.is_set():
            raise TimeoutError from None
        raise
    finally:
        watch.cancel()
    if over.is_set():
        raise TimeoutError


_NAME_IT = f"name the node's own in {URL} (…{_CHASSIS}/<id>)"


class _NotThere(RedfishError):
    pass


def _link(value: Any) -> str | None:
    """Return the path that a link leads to: on the same controller only."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    if not isinstance(path, str) or not re.fullmatch(r"/redfish/[!-~]+", path):
        return None
    return path  # as it was written: some controllers know a path with or without a slash alone


def _links(value: Any) -> list[str]:
    return [path for one in value if (path := _link(one))] if isinstance(value, list) else []


def _links_of(chassis: Document) -> Document:
    links = chassis.get("Links")
    return links if isinstance(links, dict) else {}


def _positive(value: Any) -> float | None:
    """Return a number over 0: controllers state 0 W where they do not measure."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e5 else None


def _reason(error: Exception) -> str:
    """Say what went wrong without the address, which messages of libraries repeat."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted (see {TLS})"
    if isinstance(error, ssl.SSLError):
        return "no TLS connection can be made"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, OSError):
        return f"it cannot be reached ({error.strerror or type(error).__name__})"
    return "its answer cannot be read"


class RedfishPower:
    """Ask in a thread of its own, and return what was answered since the last call, in W.

    An answer is up to one interval old. It never waits. Between two questions the thread rests for so
    long that it takes at most 0.1 % of a core, up to a minute. A controller that has refused this user
    is not asked again, since it may lock the account; one that failed three times in a row only every
    five minutes.
    """

    def __init__(self, settings: RedfishSettings, limit_s: float = LIMIT_S) -> None:
        self._controller = Controller(settings, limit_s)
        self._answer: float | None = None
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._not_before_s: float = 0.0
        self._told: set[str] = set()

    def __call__(self) -> tuple[float | None]:
        if self._thread is not None and self._thread.is_alive():
            return (None,)
        watts, self._answer = self._answer, None
        if time.monotonic() >= self._not_before_s:
            self._thread = threading.Thread(target=self._ask, name="redfish", daemon=True)
            self._thread.start()
        return (watts,)

    def _ask(self) -> None:
        began_s, pause_s = time.thread_time(), 0.0
        try:
            self._answer = self._controller.power_w()
            self._failures = 0
        except RedfishError as error:
            self._failures += 1
            pause_s = _PAUSE_S if self._failures >= _FAILURES else 0.0
            pause_s = float("inf") if error.final else pause_s
            self._tell(str(error))
        except (
            Exception
        ) as error:  # a thread of the sampler never prints a stack with an address in it
            self._failures, pause_s = self._failures + 1, _PAUSE_S
            self._tell(f"unforeseen {type(error).__name__}")
        rest_s = min((time.thread_time() - began_s) / _COST_SHARE, _MOST_REST_S)
        self._not_before_s = time.monotonic() + max(pause_s, rest_s)

    def _tell(self, reason: str) -> None:
        """Report the first trouble of a kind."""
        if reason not in self._told:
            self._told.add(reason)
            host = socket.gethostname()
            text = f"scalewatt: {host}: the node's controller (Redfish) gives no power: {reason}"
            with suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)
