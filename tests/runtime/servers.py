"""A small service of its own on `runtime.serve`, run as a real process, and how to call it."""

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
from flask import Response

from runtime import certs, clock, metrics, serve, tls, web, worker
from runtime.certs import Pair

ROOT = Path(__file__).parents[2]
START_S = 40.0
"""Ends a hang, and nothing else: starting takes a second, and many on a machine that is busy."""


class EchoSettings(serve.ServeSettings):
    """Settings of the echo service."""

    component: ClassVar[str] = "echo"

    broken: bool = False
    """Fail while the service is built."""
    gate: Path | None = None
    """File without which GET /slow does not answer."""
    later: Path | None = None
    """If this file exists, the worker's clock is an hour ahead."""
    io_timeout_s: float = tls.IO_TIMEOUT_S
    """How long one read or write may wait for the peer."""


@dataclass
class Running:
    """A started service."""

    process: subprocess.Popen[bytes]
    address: str
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
        yield Running(process, announce.read_text().strip(), log_file)
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
    """The echo service: POST /echo, GET /boom, GET /slow."""
    if settings.broken:
        raise RuntimeError("this service is broken")
    registry = metrics.Metrics("echo")
    app = web.application(
        "echo",
        registry=registry,
        readiness=lambda: web.Readiness(ready=True, details={"answer": 42}),
        max_body_bytes=settings.max_body_bytes,
        client_certs_required=settings.client_ca is not None,
    )

    @app.post("/echo")
    def echo() -> Response:
        return web.reply(web.body_json())

    @app.get("/boom")
    def boom() -> Response:
        raise KeyError("no such thing")

    log = logging.getLogger("echo")

    @app.get("/slow")
    def slow() -> Response:
        log.info("slow begins")
        wait_until(lambda: settings.gate is None or settings.gate.exists())
        return web.reply({"slow": True})

    return serve.WebService(app, lambda: log.info("started"), lambda: log.info("watches ended"))


def _patch(settings: EchoSettings) -> None:
    """Time as the settings have it: a shorter time-out, a clock that the test moves."""
    for module in (tls, worker):
        vars(module)["IO_TIMEOUT_S"] = settings.io_timeout_s

    def monotonic_s() -> float:
        if settings.later is None or not settings.later.exists():
            return clock.monotonic_s()
        logging.getLogger("echo").info("it is later")
        return clock.monotonic_s() + 3600

    vars(worker)["monotonic_s"] = monotonic_s


def main() -> None:
    """Serves."""
    settings = EchoSettings.from_command_line("Echoes.")
    _patch(settings)
    settings.start_logging()
    try:
        serve.run(settings, lambda: service(settings))
    except serve.ServeError as error:
        raise SystemExit(f"echo: {error}") from error


if __name__ == "__main__":
    main()
