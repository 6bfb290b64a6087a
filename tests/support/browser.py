"""A headless Chromium, driven by the DevTools protocol over its web socket.

Chromium is a program of the system (Debian: `apt-get install chromium`). Each `Tab` has its own
cookies and storage, and keeps what its page has written to the console.
"""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from websocket import WebSocket, create_connection

from runtime.clock import monotonic_s

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
"""Path of Chromium; "" where the system has none."""
WAIT_S = 30.0
_ANSWER_S = 60.0
_START_S = 60.0
_POLL_S = 0.02
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio"),
    *("--remote-debugging-port=0", "--force-color-profile=srgb", "--lang=en-GB"),
)
_KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    " ": (32, " "),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
}
"""Name -> (virtual key code, the text that it types)."""


class BrowserError(Exception):
    """Chromium refused a command, or a script of the page threw."""


class Browser:
    """One process of Chromium, from `start` to the end of its block."""

    def __init__(self, address: str) -> None:
        """Connects to its web socket."""
        self._socket: WebSocket = create_connection(
            address, timeout=_ANSWER_S, suppress_origin=True
        )
        self._count = 0
        self._tabs: dict[str, Tab] = {}

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The result of a command.

        Raises:
            BrowserError: Chromium refused it.
        """
        self._count += 1
        number = self._count
        command = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(command | ({"sessionId": session} if session else {})))
        while True:
            message = self._receive()
            if message.get("id") == number:
                break
        if "error" in message:
            raise BrowserError(f"{method}: {message['error'].get('message')}")
        result: dict[str, Any] = message["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        tab = self._tabs.get(message.get("sessionId", ""))
        if tab is not None and "method" in message:
            tab.take(message["method"], message["params"])
        return message

    @contextmanager
    def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator["Tab"]:
        """A new tab with storage of its own, `width` x `height` CSS pixels; closed at the end of the block."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"])
        self._tabs[attached["sessionId"]] = tab
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.send(f"{domain}.enable")
        tab.resize(width, height)
        tab.prefer(dark=dark)
        try:
            yield tab
        finally:
            self._tabs.pop(attached["sessionId"])
            self.send("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        self._socket.close()


class Tab:
    """One page in sight."""

    def __init__(self, browser: Browser, session: str) -> None:
        """Of a session that is attached."""
        self._browser = browser
        self._session = session
        self.console: list[str] = []
        """Errors and warnings: of scripts, of the network, of the content security policy."""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command in this tab; see `Browser.send`."""
        return self._browser.send(method, self._session, **parameters)

    def take(self, method: str, parameters: Mapping[str, Any]) -> None:
        """Keeps what an event says of faults."""
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            values = [str(arg.get("value", arg.get("description"))) for arg in parameters["args"]]
            self.console.append(" ".join(values))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{parameters['entry']['text']} {parameters['entry'].get('url')}")

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        """Sets the size in CSS pixels, and device pixels for each of them."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, *, dark: bool) -> None:
        """Sets what the reader's system prefers; without motion."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Goes to an address, and returns when it is loaded."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The JSON value of an expression in the page; promises are waited for.

        Raises:
            BrowserError: it threw.
        """
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, condition: str, limit_s: float = WAIT_S) -> Any:
        """The value of an expression as soon as it is true.

        Raises:
            TimeoutError: it was not in time; with what the page shows.
        """
        return self._poll(condition, bool, limit_s)

    def wait_value(self, script: str, wanted: object, limit_s: float = WAIT_S) -> None:
        """Returns as soon as an expression has this JSON value; see `wait`."""
        self._poll(script, lambda value: value == wanted, limit_s)

    def wait_text(self, *words: str, limit_s: float = WAIT_S) -> None:
        """Returns as soon as the page shows all of these words; see `wait`."""
        conditions = (f"document.body.innerText.includes({json.dumps(each)})" for each in words)
        self.wait(" && ".join(conditions), limit_s)

    def _poll(self, script: str, is_met: Callable[[Any], bool], limit_s: float) -> Any:
        end_s = monotonic_s() + limit_s
        while not is_met(value := self.run(script)):
            if monotonic_s() > end_s:
                shown = f"{self.text()[:2000]}\n{self.console}"
                raise TimeoutError(f"still {value!r}: {script}\n{shown}")
            time.sleep(_POLL_S)
        return value

    def text(self) -> str:
        """What the page shows as text."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str, times: int = 1, *, shift: bool = False) -> None:
        """Presses and lets go a key, as a person does."""
        code, text = _KEYS.get(key, (ord(key[0].upper()), key))
        common: dict[str, Any] = {
            "key": key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 if shift else 0,
        }
        for _ in range(times):
            down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
            self.send("Input.dispatchKeyEvent", **down, **common)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Writes text where the focus is."""
        self.send("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Writes a PNG of what is in sight, or of the whole page."""
        parameters: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            corner = {"x": 0, "y": 0, "scale": 1}
            parameters["clip"] = corner | {name: size[name] for name in ("width", "height")}
        data = self.send("Page.captureScreenshot", **parameters)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium with an empty profile; ended with the block.

    Raises:
        TimeoutError: it did not start.
    """
    with TemporaryDirectory(prefix="edl-chromium-", ignore_cleanup_errors=True) as profile:
        environment = {**os.environ, "TZ": "UTC", "HOME": profile}
        command = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(  # noqa: S603 - the browser of this machine
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            browser = Browser(_address(Path(profile) / "DevToolsActivePort", process))
            try:
                yield browser
            finally:
                browser.close()
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def _address(file: Path, process: "subprocess.Popen[bytes]") -> str:
    """The web socket that Chromium names in a file when it is ready."""
    end_s = monotonic_s() + _START_S
    while monotonic_s() < end_s and process.poll() is None:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(_POLL_S)
    raise TimeoutError(f"Chromium did not start; it ended with {process.poll()}")
