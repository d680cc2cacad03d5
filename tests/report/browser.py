"""A headless Chromium, driven through its own debugging pipe: nothing to install beside it.

Messages are JSON objects that end in NUL: ours go to its descriptor 3, its own come from 4.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = (
    "chromium", "chromium-browser", "chromium-headless-shell", "google-chrome",
    "google-chrome-stable", "chrome-headless-shell", "chrome",
)  # fmt: skip
OPTIONS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--no-default-browser-check", "--mute-audio",
    "--proxy-server=127.0.0.1:9", "--force-color-profile=srgb",
)  # fmt: skip
#: Seconds for one answer of the browser.
PATIENCE = 30.0


def found() -> str | None:
    """A browser that this machine has: WALSH_TEST_BROWSER, or by its usual names."""
    named = os.environ.get("WALSH_TEST_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. ``seen``: every event that the browser told of it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.seen: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command; RuntimeError where it is refused."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self.seen.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is there."""
        self.seen.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.seen):
            self.seen.append(self._read())

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """Be a window of that size, in that colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, or of what it promises."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, *, whole: bool = False) -> bytes:
        """What is seen, as PNG; ``whole``: the page to its end."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def events(self, method: str) -> list[dict[str, Any]]:
        """The parameters of every event of that name."""
        return [event["params"] for event in self.seen if event.get("method") == method]

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._from, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError("the browser says nothing")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """A tab of a browser of our own, which ends with it."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    # It wants descriptors 3 and 4, whatever the pipes were given.
    command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
    shell = shutil.which("bash") or "bash"
    started = [shell, "-c", command, shell, str(theirs_in), str(theirs_out), program, *OPTIONS]
    process = subprocess.Popen(
        [*started, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)
        process.terminate()
        process.wait(PATIENCE)
        os.close(ours_in)
