"""A headless Chromium that tests steer by its own protocol, over two pipes: no driver, no port, no other package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CODES = {" ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "n": 78, "+": 187, "-": 189}
PATIENCE = 120.0  # seconds that an answer may take


def executable() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def axe_core() -> Path | None:
    """Return the script of axe-core, which AXE_CORE names or `npm install axe-core` has put here, or None."""
    place = Path(os.environ.get("AXE_CORE") or "node_modules/axe-core/axe.min.js")
    return place if place.is_file() else None


class Tab:
    """A page that is open, and what it complained about."""

    def __init__(self, reading: int, writing: int) -> None:
        self.complaints: list[str] = []
        self._reading, self._writing, self._pending, self._number = reading, writing, b"", 0
        self._session: str | None = None
        (target,) = (each for each in self.send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._pending:
            left = deadline - time.monotonic()
            assert select.select([self._reading], [], [], max(left, 0))[0], "Chromium does not answer"
            part = os.read(self._reading, 1 << 20)
            assert part, "Chromium has ended"
            self._pending += part
        line, self._pending = self._pending.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(parameters["entry"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        return message

    def open(self, file: Path) -> None:
        """Open a file, and return once its scripts have run."""
        self.send("Page.navigate", url=file.absolute().as_uri())
        self.until("location.protocol === 'file:' && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, condition: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.value(condition):
            assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{place}.scrollIntoView({{block: 'center'}})")
        middle = "({x, y, width, height}) => [x + width / 2, y + height / 2]"
        x, y = self.value(f"({middle})({place}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = CODES[key]
        about = {"key": key, "windowsVirtualKeyCode": code, "code": "Space" if key == " " else key}
        typed = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **about, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def screen(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        """Set the size of the window in CSS pixels, and what the reader prefers."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=mobile)
        self.send("Emulation.setTouchEmulationEnabled", enabled=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def barriers(self, axe: Path) -> list[tuple[str, str, str]]:
        """Return what axe-core finds wrong in the page: (how bad, rule, first element)."""
        self.value(f"{axe.read_text(encoding='utf-8')}; 1")
        found = "violations.map((v) => [v.impact, v.id, v.nodes[0].html.slice(0, 200)])"
        return [tuple(each) for each in self.value(f"axe.run().then(({{violations}}) => {found})")]

    def picture(self, file: Path) -> None:
        """Save the whole page as a PNG."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """Yield a tab of a Chromium of its own, whose profile is that folder; it ends afterwards."""
    chromium = executable()
    assert chromium
    to_child, writing = os.pipe()
    reading, from_child = os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    words = [chromium, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    # Chromium reads its commands from descriptor 3 and answers on 4.
    line = ["bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "bash", *words]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        line, pass_fds=(to_child, from_child), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    os.close(to_child)
    os.close(from_child)
    try:
        yield Tab(reading, writing)
    finally:
        os.close(writing)
        os.close(reading)
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
