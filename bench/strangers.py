"""What strangers cost others: latencies of real servers beside slow and silent connections.

Webhook, extender and reconciler run as processes with the settings of deploy/base, on clusters in
memory. Each is measured alone, and beside 200 sockets that drip, 200 TLS handshakes that are half
done and 1 000 idle connections, from eight other addresses of this machine, which are opened anew
5 s after the server has dropped them. The dripping ones are on the port of the API where that admits a
caller without certificate (webhook), else on that of the probes.
"""

import asyncio
import http.client
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

import orjson

from bench import objects
from bench.benchmark import Result, Setting
from bench.clusters import NOW_S, cluster, trainer
from bench.exposed_server import NAMES, NODES
from bench.startup import STARTED_S
from e2e.measure.criteria import Criterion
from policy.names import Tier
from runtime import certs, clock

P99_MS = 100.0
DRIPPING, HALF_OPEN, IDLE = 200, 200, 1_000
_STRANGERS = tuple(f"127.0.0.{number}" for number in range(2, 10))
_DRIP_S = 1.0
_REOPEN_S = 5.0
_PAUSE_S = 0.01
"""Between two calls: the latency is measured, not the throughput."""
_CALLS_A_ROUND = 10
_HELLO = b"\x16\x03\x01\x02\x00\x01"
_HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nX-Slow: "
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class _Exposed:
    """A running server."""

    api: int
    probes: int
    trusts: ssl.SSLContext
    open_api: bool
    """Whether the API answers callers without certificate."""


def run(setting: Setting) -> Result:
    """Latency of calls and of probes of each server, alone and beside strangers."""
    raw: dict[str, Any] = {}
    for name in NAMES:
        with _server(name) as server:
            for beside in (False, True):
                setting.report_progress(
                    f"strangers: {name} {'beside strangers' if beside else 'alone'}"
                )
                figures = _measure(name, server, setting.rounds * _CALLS_A_ROUND, beside=beside)
                raw[f"{name}_{'beside' if beside else 'alone'}"] = figures
    criteria = []
    for name in NAMES:
        beside, alone = raw[f"{name}_beside"], raw[f"{name}_alone"]
        for kind in ("call", "probe"):
            if kind in beside:
                figure = f"strangers_{name}_{kind}_p99_ms"
                criteria.append(Criterion(figure, beside[kind]["p99_ms"], "ms", P99_MS))
                criteria.append(Criterion(f"{figure}_alone", alone[kind]["p99_ms"], "ms"))
    return Result(tuple(criteria), {}, raw)


def _measure(name: str, server: _Exposed, count: int, *, beside: bool) -> dict[str, Any]:
    if not beside:
        return _latencies(name, server, count)
    strangers = _Strangers(server)
    strangers.start()
    try:
        return _latencies(name, server, count) | {"reopened": strangers.reopened}
    finally:
        strangers.stop()


def _latencies(name: str, server: _Exposed, count: int) -> dict[str, Any]:
    probe = http.client.HTTPConnection("127.0.0.1", server.probes, timeout=STARTED_S)
    asks: dict[str, Callable[[], None]] = {"probe": lambda: _ask(probe, "GET", "/healthz", b"")}
    call = http.client.HTTPSConnection(
        "127.0.0.1", server.api, timeout=STARTED_S, context=server.trusts
    )
    if name != "reconciler":
        path, body = _call_of(name)
        asks["call"] = lambda: _ask(call, "POST", path, body)
    times: dict[str, list[float]] = {kind: [] for kind in asks}
    pause = Event()
    for _ in range(count):
        for kind, ask in asks.items():
            begun_s = perf_counter()
            ask()
            times[kind].append((perf_counter() - begun_s) * 1000)
        pause.wait(_PAUSE_S)
    probe.close()
    call.close()
    return {kind: _figures(sorted(values)) for kind, values in times.items()}


def _figures(times: list[float]) -> dict[str, float]:
    return {
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[len(times) * 99 // 100],
        "worst_ms": times[-1],
    }


def _ask(link: http.client.HTTPConnection, method: str, path: str, body: bytes) -> None:
    link.request(method, path, body, _JSON)
    answer = link.getresponse()
    text = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{path} answered {answer.status}: {text[:200]!r}")


def _call_of(name: str) -> tuple[str, bytes]:
    """Path and body of an ordinary call."""
    snapshot = cluster(NODES)
    pod = objects.pod(trainer(snapshot.jobs[0], 10_000, tier=Tier.SURPLUS, created_s=NOW_S))
    if name == "extender":
        nodes = [node.name for node in snapshot.nodes]
        return "/filter", orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes})
    review = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {},
        "object": pod,
    }
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return "/mutate", orjson.dumps({**kind, "request": review})


@contextmanager
def _server(name: str) -> Iterator[_Exposed]:
    """Starts one server; its certificates are made for the occasion."""
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        place = Path(folder)
        ca = certs.new_ca("bench-ca", clock.now())
        (place / "ca.crt").write_bytes(ca.cert)
        for file, hosts in (("server.pem", ("127.0.0.1",)), ("client.pem", ())):
            leaf = certs.issue(ca, "bench", clock.now(), hosts=hosts)
            (place / file).write_bytes(leaf.cert + leaf.key)
        program = [sys.executable, "-m", "bench.exposed_server", name, str(place)]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(program, stdout=log, stderr=log)
        try:
            api, probes = _addresses(place / "address", process)
            context = ssl.create_default_context(cafile=place / "ca.crt")
            context.load_cert_chain(place / "client.pem")
            yield _Exposed(api, probes, context, open_api=name == "webhook")
        finally:
            process.terminate()
            process.wait(STARTED_S)


def _addresses(file: Path, process: "subprocess.Popen[bytes]") -> tuple[int, int]:
    until_s = perf_counter() + STARTED_S
    pause = Event()
    while not file.exists():
        if process.poll() is not None or perf_counter() > until_s:
            raise RuntimeError(f"{process.args!r} does not start")
        pause.wait(_PAUSE_S)
    ports = [int(line.rpartition(":")[2]) for line in file.read_text().splitlines()]
    return ports[0], ports[-1]


class _Strangers:
    """Slow and silent connections to one server, from a thread of their own."""

    def __init__(self, server: _Exposed) -> None:
        self._server = server
        self._ready = Event()
        self._loop: asyncio.AbstractEventLoop
        self._all: asyncio.Future[list[None]]
        self._open = 0
        self.reopened = 0
        """Connections that were opened again after the server had dropped them."""
        self._thread = Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Returns when all have been opened once."""
        self._thread.start()
        self._ready.wait(STARTED_S)

    def stop(self) -> None:
        """Closes them."""
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join(STARTED_S)

    async def _run(self) -> None:
        kinds = [(_HEAD, True)] * DRIPPING + [(_HELLO, False)] * HALF_OPEN + [(b"", False)] * IDLE
        tasks = [
            asyncio.create_task(
                self._bother(_STRANGERS[number % len(_STRANGERS)], begun, drips=drips)
            )
            for number, (begun, drips) in enumerate(kinds)
        ]
        self._loop, self._all = asyncio.get_running_loop(), asyncio.gather(*tasks)
        with suppress(asyncio.CancelledError):
            await self._all

    async def _bother(self, address: str, begun: bytes, *, drips: bool) -> None:
        """Opens a connection, sends the beginning of something, then drips or waits."""
        first = True
        tls = drips and self._server.open_api
        port = self._server.api if tls or not drips else self._server.probes
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1",
                    port,
                    local_addr=(address, 0),
                    ssl=self._server.trusts if tls else None,
                )
                writer.write(begun)
                first = self._count(first=first)
                await self._hold(reader, writer, drips=drips)
            await asyncio.sleep(_REOPEN_S)

    def _count(self, *, first: bool) -> bool:
        self._open += first
        self.reopened += not first
        if self._open == DRIPPING + HALF_OPEN + IDLE:
            self._ready.set()
        return False

    async def _hold(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, drips: bool
    ) -> None:
        """Keeps a connection until the server drops it."""
        try:
            while True:
                with suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(1), _DRIP_S):
                        return
                if drips:
                    writer.write(b"1")
        finally:
            writer.close()
