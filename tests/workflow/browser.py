"""A headless Chromium that tests talk to over a pipe (DevTools protocol), without a port."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import Any, Self

ANSWER_S = 60.0
# Chromium reads commands from descriptor 3 and writes answers to 4.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in enumerate(ends, 3):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The browser's program, or None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@dataclass
class Browser:
    """One page of a headless Chromium, and everything that it reported."""

    read_fd: int
    write_fd: int
    session: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _last: int = 0
    _rest: bytes = b""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._last:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def wait_for(self, method: str) -> None:
        """Wait until the page has reported an event, which may have been before."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def open(self, url: str) -> Self:
        """Load a page, and note everything that it asks for and complains of."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")
        return self

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page; promises are awaited."""
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def resize(self, width: int, height: int = 900, mobile: bool = False) -> None:
        """Give the page another size, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip

    def press_enter(self) -> None:
        """Press Enter and let it go."""
        key = {"key": "Enter", "windowsVirtualKeyCode": 13}
        self.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        self.evaluate("0")
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Where the page sent requests to, its own file and data URIs left out."""
        sent = [e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        urls = [event["request"]["url"] for event in sent if event.get("type") != "Document"]
        return [url for url in urls if not url.startswith("data:")]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select([self.read_fd], [], [], ANSWER_S)
            assert ready, f"Chromium did not answer within {ANSWER_S} s"
            more = os.read(self.read_fd, 1 << 20)
            assert more, "Chromium ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def headless(profile: Path) -> Iterator[Browser]:
    """A Chromium of its own, with its profile in an empty folder; ended at the end."""
    program = chromium()
    assert program is not None
    (theirs, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}",
        "--remote-debugging-pipe", "about:blank",
    ]  # fmt: skip
    with open(profile / "stderr.txt", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(theirs), str(theirs_out), *command],
            pass_fds=(theirs, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(theirs)
    os.close(theirs_out)
    browser = Browser(ours_in, ours_out)
    try:
        yield browser
        browser.session = None
        browser.call("Browser.close")
    finally:
        os.close(ours_in)
        os.close(ours_out)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
