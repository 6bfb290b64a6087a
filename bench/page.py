"""The page: how soon it is there, how soon a change is, and what streams cost, with 5 000 nodes and 1 000 jobs.

The server is a process, `bench.page_server`, which has the API server in its own memory: its memory and its
processor time include that. A change is a decision about a job; a stream has its record when the browser would.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import orjson
import psutil
from edl.local.ports import free_ports

from bench.benchmark import Result, Setting, Times
from e2e.measure.criteria import Criterion
from runtime import clock

_ROOT = Path(__file__).parents[1]
_START_S = 240.0
_EVERY_S = 0.5
"""Between two changes of the cluster."""
_STREAMS = 20
_SPAN_S = 10.0
"""In which processor time is measured."""
_ALL = "usage,jobs,records,reclaims,objective,nodes"
_FIRST_S = 1.0
_LIVE_S = 1.0


class _Stream:
    """One stream, as a browser reads it."""

    def __init__(self, port: int, sections: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=_START_S)
        self._connection.request(
            "GET",
            f"/api/v1/stream?sections={sections}",
            headers={"Authorization": "Bearer admin"},
        )
        self._response = self._connection.getresponse()
        if self._response.status != 200:  # noqa: PLR2004 - OK
            raise RuntimeError(f"the page answers {self._response.read()!r}")
        self.size = 0

    def events(self) -> Iterator[tuple[str, bytes]]:
        """(name, data) of its events, and ("", id) after each batch."""
        name = ""
        for line in self._response:
            self.size += len(line)
            field, _, value = line.rstrip(b"\n").partition(b": ")
            if field == b"event":
                name = value.decode()
            elif field == b"data":
                yield name, value
            elif field == b"id":
                yield "", value

    def read_batch(self) -> None:
        """Reads up to the end of a batch."""
        next(value for name, value in self.events() if not name)

    def close(self) -> None:
        """Ends it."""
        self._response.close()
        self._connection.close()


def run(setting: Setting) -> Result:
    """Measures at the largest size."""
    nodes = setting.sizes[-1]
    setting.report_progress(f"page: {nodes} nodes")
    with _serving(nodes) as (port, process):
        first, size = _first(port, min(setting.rounds, 10))
        setting.report_progress("page: changes")
        live = _live(port, min(setting.rounds, 20))
        setting.report_progress(f"page: {_STREAMS} streams")
        cost_ms, memory_mb = _cost(port, process)
    criteria = (
        Criterion("page_first_s", first.median / 1000, "s", _FIRST_S),
        Criterion("page_live_s", live.worst / 1000, "s", _LIVE_S),
        Criterion("page_stream_cpu_ms_per_s", cost_ms, "ms"),
    )
    figures = {"first_mb": size / 1e6, "memory_mb": memory_mb}
    raw: dict[str, Any] = {"first": first.figures(), "live": live.figures(), **figures}
    return Result(criteria, {}, raw)


def _first(port: int, count: int) -> tuple[Times, int]:
    """How long it takes to have everything, and how many bytes that is."""
    times, size = Times(), 0
    for _ in range(count):
        with ExitStack() as stack:

            def read(stack: ExitStack = stack) -> int:
                stream = _Stream(port, _ALL)
                stack.callback(stream.close)
                stream.read_batch()
                return stream.size

            size = times.run(read)
    return times, size


def _live(port: int, count: int) -> Times:
    """From a decision until a stream has its record."""
    times = Times()
    stream = _Stream(port, "records")
    stream.read_batch()
    for name, data in stream.events():
        if name == "records":
            newest_s = max(record["at"] for record in orjson.loads(data)["records"])
            times.values.append((clock.epoch_s() - newest_s) * 1000)
        if len(times.values) >= count:
            break
    stream.close()
    return times


def _cost(port: int, process: psutil.Process) -> tuple[float, float]:
    """Milliseconds of processor time that one stream of all sections costs in a second, and memory in MB."""
    alone_s = _used_s(process)
    with ExitStack() as stack:
        for index in range(_STREAMS):
            token = ("admin", "vision")[index % 2]
            stack.enter_context(_reading(port, token))
        with_streams_s = _used_s(process)
    cost_ms = (with_streams_s - alone_s) / _SPAN_S / _STREAMS * 1000
    return cost_ms, process.memory_info().rss / 1e6


@contextmanager
def _reading(port: int, token: str) -> Iterator[None]:
    """A stream that curl reads, so that reading costs this process nothing."""
    command = [
        *("curl", "-sN", "-o", "/dev/null", "-H", f"Authorization: Bearer {token}"),
        f"http://127.0.0.1:{port}/api/v1/stream?sections={_ALL}",
    ]
    reader = subprocess.Popen(command)
    try:
        yield
    finally:
        reader.kill()
        reader.wait()


def _used_s(process: psutil.Process) -> float:
    time.sleep(1.0)
    before = process.cpu_times()
    time.sleep(_SPAN_S)
    after = process.cpu_times()
    return (after.user + after.system) - (before.user + before.system)


@contextmanager
def _serving(nodes: int) -> Iterator[tuple[int, psutil.Process]]:
    """A page on a cluster of this size, that has read it: its port, and the process that serves."""
    (port,) = free_ports(1)
    words = ["--port", str(port), "--nodes", str(nodes), "--every", str(_EVERY_S)]
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.page_server", *words],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end_s = clock.monotonic_s() + _START_S
        while not _is_ready(port):
            if clock.monotonic_s() > end_s or server.poll() is not None:
                raise RuntimeError("the page did not start")
            time.sleep(0.2)
        yield port, psutil.Process(server.pid).children()[0]
    finally:
        server.terminate()
        server.wait()


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=_START_S)
    try:
        connection.request("GET", "/api/v1/me", headers={"Authorization": "Bearer admin"})
        return connection.getresponse().status == 200  # noqa: PLR2004 - OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
