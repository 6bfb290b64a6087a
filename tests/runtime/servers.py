"""A small service of its own on `runtime.supervisor`, run as a real process, and how to call it."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import urllib3
from flask import Response, request

from runtime import certs, clock, metrics, serve, supervisor, web
from runtime.certs import Pair

ROOT = Path(__file__).parents[2]
START_S = 90.0
"""Ends a hang, and nothing else: starting takes a second, and many on a machine that is busy."""


class EchoSettings(serve.ServeSettings):
    """Settings of the echo service."""

    component: ClassVar[str] = "echo"

    one_port: bool = False
    """Serve probes and metrics on the port of the rest."""
    broken: bool = False
    """Fail while the service is built."""
    unstartable: bool = False
    """Fail while the service is started."""
    gate: Path | None = None
    """File without which GET /slow does not answer."""
    later: Path | None = None
    """If this file exists, the worker's drain began an hour ago."""
    stuck: Path | None = None
    """If this file names the worker's process id or "any", its event loops have not run for an hour."""
    heartbeat_seconds: int = 0
    """After a pause of heartbeats of this length the worker is replaced; 0 leaves it as it is."""


@dataclass
class Running:
    """A started service."""

    process: subprocess.Popen[bytes]
    address: str
    probes: str
    """The address of probes and metrics."""
    log_file: Path

    @property
    def log(self) -> list[dict[str, Any]]:
        """The records that it has logged."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def workers(self) -> list[int]:
        """Process ids of its children."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]

    def replacement_of(self, ended: int) -> int:
        """Waits for the worker after `ended`, and returns its process id."""
        wait_until(lambda: self.workers() not in ([], [ended]))
        (replacement,) = self.workers()
        return replacement


def command(*flags: str) -> list[str]:
    """The command line that starts the echo service."""
    return [sys.executable, "-m", "tests.runtime.servers", *flags]


@contextmanager
def running(directory: Path, *flags: str) -> Iterator[Running]:
    """Starts it on a free port, waits until it listens, and leaves no process behind."""
    announce, log_file = directory / "address", directory / "log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own server
            command(
                "--listen=127.0.0.1:0",
                *(() if "--one-port" in flags else ("--probe-listen=127.0.0.1:0",)),
                f"--announce-file={announce}",
                "--drain-seconds=0",
                *flags,
            ),
            cwd=ROOT,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(announce.exists)
        addresses = announce.read_text().split()
        yield Running(process, addresses[0], addresses[-1], log_file)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks nicely first, so that its coverage is written; then takes the whole group."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(START_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(START_S)


def run_to_end(*flags: str) -> subprocess.CompletedProcess[str]:
    """Runs it with flags that let it end by itself."""
    return subprocess.run(  # noqa: S603 - our own server
        command(*flags), cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )


def wait_until(fact: Any, within_s: float = START_S) -> None:
    """Waits until `fact()` is true; AssertionError ends a hang."""
    end = clock.monotonic_s() + within_s
    while not fact():
        assert clock.monotonic_s() < end, f"{fact} is still false after {within_s} s"
        time.sleep(0.02)


@contextmanager
def caller(ca: Path | None = None, **options: Any) -> Iterator[urllib3.PoolManager]:
    """An HTTP client that trusts `ca` and closes its connections at the end."""
    trust: dict[str, Any] = {"ca_certs": str(ca)} if ca is not None else {}
    pool = urllib3.PoolManager(timeout=START_S, retries=False, **trust, **options)
    try:
        yield pool
    finally:
        pool.clear()


JSON = {"Content-Type": "application/json"}


def get_status(pool: urllib3.PoolManager, url: str) -> int:
    """The status of a GET."""
    return pool.request("GET", url).status


def echo_status(pool: urllib3.PoolManager, url: str) -> int:
    """The status of a POST to /echo of the service at `url`."""
    return pool.request("POST", f"{url}/echo", body=b"1", headers=JSON).status


def make_ca(directory: Path, name: str = "ca") -> tuple[Pair, Path]:
    """A CA and the file with its certificate."""
    ca = certs.new_ca(name, clock.now())
    file = directory / f"{name}.pem"
    file.write_bytes(ca.cert)
    return ca, file


def make_leaf(ca: Pair, file: Path, hosts: tuple[str, ...] = ("127.0.0.1",)) -> Path:
    """Writes a leaf under `ca`, certificate and key, in one rename."""
    leaf = certs.issue(ca, "echo", clock.now(), hosts=hosts)
    partial = file.with_suffix(".partial")
    partial.write_bytes(leaf.cert + leaf.key)
    return partial.replace(file)


def service(settings: EchoSettings) -> serve.WebService:
    """The echo service: POST /echo, GET /boom, GET /slow, GET /peer (its certificate)."""
    if settings.broken:
        raise RuntimeError("this service is broken")
    registry = metrics.Metrics("echo")
    app = web.application(
        "echo",
        registry=registry,
        readiness=lambda: web.Readiness(ready=True, details={"answer": 42}),
        max_body_bytes=settings.max_body_bytes,
    )

    @app.post("/echo")
    def echo() -> Response:
        return web.reply(web.body_json())

    @app.get("/peer")
    def peer() -> Response:
        return web.reply(request.environ[web.PEER_CERTIFICATE])

    @app.get("/boom")
    def boom() -> Response:
        raise KeyError("no such thing")

    log = logging.getLogger("echo")

    @app.get("/slow")
    def slow() -> Response:
        log.info("slow begins")
        wait_until(lambda: settings.gate is None or settings.gate.exists())
        return web.reply({"slow": True})

    def start() -> None:
        if settings.unstartable:
            raise RuntimeError("this service does not start")

    return serve.WebService(app, start, lambda: log.info("watches ended"))


def _patch(settings: EchoSettings) -> None:
    """Clocks that the test moves, and an arbiter that waits less long for heartbeats."""

    def drain_clock_s() -> float:
        if settings.later is None or not settings.later.exists():
            return clock.monotonic_s()
        logging.getLogger("echo").info("it is later")
        return clock.monotonic_s() + 3600

    def beat_clock_s() -> float:
        file = settings.stuck
        stuck = file is not None and file.exists() and file.read_text() in (str(os.getpid()), "any")
        return clock.monotonic_s() + 3600 * stuck

    vars(supervisor)["monotonic_s"] = drain_clock_s
    vars(serve)["monotonic_s"] = beat_clock_s
    if settings.heartbeat_seconds:
        vars(supervisor)["_HEARTBEAT_S"] = settings.heartbeat_seconds


def main() -> None:
    """Serves."""
    settings = EchoSettings.from_command_line("Echoes.")
    if settings.one_port:
        settings = settings.model_copy(update={"probe_listen": None})
    _patch(settings)
    settings.start_logging()
    try:
        supervisor.run(settings, lambda: service(settings))
    except serve.ServeError as error:
        raise SystemExit(f"echo: {error}") from error


if __name__ == "__main__":
    main()
