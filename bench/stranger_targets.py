"""The servers of EDL that any pod can reach: each one is started, and called like its clients call it.

Webhook, extender, reconciler and page have the settings of deploy/base, on clusters in memory; master and
parameter servers are those of a job; a ring and an agent's snapshots are in a process like a trainer's.
Used by `bench.strangers`.
"""

import http.client
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

import numpy as np
import orjson
from edl.agent.part_exchange import PartClient
from edl.collective import Listener
from edl.collective.handshake import MAGIC, previous_position
from edl.servers import Gradients

from bench import exposed_member, exposed_server, objects, pserver
from bench.clusters import NOW_S, cluster, trainer
from bench.master import MasterProcess, temporary_home
from bench.startup import STARTED_S
from bench.stranger_sockets import Approach, Kind
from policy.names import Tier
from runtime import certs, clock

_LOOK_S = 0.01
_REFILLED_S = 6.0
"""Pause between two rounds: strangers are back, and the queue of connections is full again."""
_TLS_HELLO = b"\x16\x03\x01\x02\x00\x01"
_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: "
_CALLED = frozenset({"webhook", "extender", "page"})
"""Components that are called; the reconciler serves nothing but probes and metrics."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running server."""

    pid: int
    approaches: Mapping[Kind, Approach]
    slow_s: float | None
    """Time limit of the server for a handshake, and for the head of a request; None without one."""
    silent_s: float | None = None
    """Time limit for a connection that says nothing, but has shaken hands where anybody may; None: not measured."""
    call: Callable[[], object] | None = None
    """A call of its clients; None if it has none."""
    probe_port: int | None = None
    """A probe; None if it has none."""
    pause_s: float = 0.01
    """Between two calls: their latency is measured, not the throughput."""

    @property
    def silent(self) -> Approach:
        """A connection on which nothing is said: where those are that drip."""
        dripping = self.approaches[Kind.DRIPPING]
        return Approach(dripping.port, tls=dripping.tls)


class HttpCall:
    """A call that is sent again and again, over one connection where that stays open."""

    def __init__(
        self, link: http.client.HTTPConnection, method: str, path: str, body: Any, token: str = ""
    ) -> None:
        self._link, self._method, self._path = link, method, path
        self._body = b"" if body is None else orjson.dumps(body)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    def __call__(self) -> None:
        """Raises OSError, HTTPException or RuntimeError where the answer is not 200."""
        try:
            self._link.request(self._method, self._path, self._body, self._headers)
            answer = self._link.getresponse()
            text = answer.read()
        except BaseException:
            self._link.close()
            raise
        if answer.status != http.client.OK:
            raise RuntimeError(f"{self._path} answered {answer.status}: {text[:200]!r}")


@contextmanager
def _component(name: str) -> Iterator[Target]:
    """Starts one server; its certificates are made for the occasion."""
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        place = Path(folder)
        ca = certs.new_ca("bench-ca", clock.now())
        (place / "ca.crt").write_bytes(ca.cert)
        for file, hosts in (("server.pem", ("127.0.0.1",)), ("client.pem", ())):
            leaf = certs.issue(ca, "bench", clock.now(), hosts=hosts)
            (place / file).write_bytes(leaf.cert + leaf.key)
        with _started("exposed_server", name, place) as (process, ports):
            trusts = ssl.create_default_context(cafile=place / "ca.crt")
            trusts.load_cert_chain(place / "client.pem")
            api, probes = ports[0], ports[-1]
            open_api = name in {"webhook", "page"}  # they answer callers without certificate
            approaches = {
                Kind.DRIPPING: Approach(api, _HEAD, trusts)
                if open_api
                else Approach(probes, _HEAD),
                Kind.HALF_OPEN: Approach(api, _TLS_HELLO),
                Kind.IDLE: Approach(api),
            }
            if name == "reconciler":  # it does not speak TLS
                del approaches[Kind.HALF_OPEN]
            link = http.client.HTTPSConnection("127.0.0.1", api, timeout=STARTED_S, context=trusts)
            with closing(link):
                call = HttpCall(link, *_call_of(name)) if name in _CALLED else None
                if call is not None:
                    _await(call)
                yield Target(process.pid, approaches, 5.0, 120.0, call, probes)


def _await(call: Callable[[], object]) -> None:
    """Waits until a server answers: the page has read its cluster."""
    until_s = perf_counter() + STARTED_S
    pause = Event()
    while True:
        try:
            call()
        except RuntimeError:
            if perf_counter() > until_s:
                raise
            pause.wait(_LOOK_S)
        else:
            return


def _call_of(name: str) -> tuple[str, str, Any, str]:
    """Method, path, body and token of an ordinary call."""
    if name == "page":
        return "GET", "/api/v1/me", None, "admin"
    snapshot = cluster(exposed_server.NODES)
    pod = objects.pod(trainer(snapshot.jobs[0], 10_000, tier=Tier.SURPLUS, created_s=NOW_S))
    if name == "extender":
        nodes = [node.name for node in snapshot.nodes]
        return "POST", "/filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes}, ""
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
    return "POST", "/mutate", {**kind, "request": review}, ""


@contextmanager
def _master() -> Iterator[Target]:
    """A trainer that is silent for too long is taken for dead, so what is called is its heartbeat."""
    with temporary_home() as home, MasterProcess(home) as master:
        who = {"trainer": "t", "incarnation": "t"}
        link = http.client.HTTPConnection("127.0.0.1", master.port, timeout=STARTED_S)
        with closing(link):
            HttpCall(link, "POST", "/v1/join", who, master.token)()
            beat = HttpCall(link, "POST", "/v1/heartbeat", {**who, "held": []}, master.token)
            yield _job_server(master.pid, master.port, beat)


@contextmanager
def _pserver() -> Iterator[Target]:
    """Strangers come to one of two servers; a worker pushes to both, and pulls."""
    gradients = Gradients({"w": np.ones(pserver.SMALL, np.float32)}, {}, {})
    with (
        pserver.served(pserver.SMALL) as (urls, token, pids),
        pserver.connected(urls, token, pserver.SMALL) as client,
    ):
        port = int(urls[0].rpartition(":")[2])
        yield _job_server(
            pids[0], port, lambda: client.push(gradients, client.next_number(), 1, want=True)
        )


def _job_server(pid: int, port: int, call: Callable[[], object]) -> Target:
    approaches = {Kind.DRIPPING: Approach(port, _HEAD), Kind.IDLE: Approach(port)}
    return Target(pid, approaches, 10.0, 300.0, call, port)


@contextmanager
def _snapshots() -> Iterator[Target]:
    """The port on which agents exchange snapshots; another agent fetches a part of 4 KiB."""
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        place = Path(folder)
        (place / "own").mkdir()
        (place / "copies").mkdir()
        with _started("exposed_member", "parts", place / "own") as (process, (port,)):
            client = PartClient(previous_position(exposed_member.POSITION), exposed_member.KEY)
            fetch = partial(
                client.fetch,
                f"{exposed_member.LOCAL}:{port}",
                exposed_member.POSITION.rank,
                exposed_member.PART,
                place / "copies",
                0,
            )
            yield Target(process.pid, _member(port), 5.0, 5.0, fetch)


@contextmanager
def _ring() -> Iterator[Target]:
    """The port on which members of a round connect; two of them form a round after the other.

    Between two rounds nobody accepts: connections wait in the system's queue, without a time limit.
    """
    with (
        tempfile.TemporaryDirectory(prefix="edl-bench-") as folder,
        _started("exposed_member", "ring", Path(folder)) as (process, (port,)),
        closing(Listener(exposed_member.LOCAL)) as listener,
    ):
        own = f"{exposed_member.LOCAL}:{listener.address[1]}"
        addresses = [f"{exposed_member.LOCAL}:{port}", own]
        numbers = count(1)

        def form() -> None:
            number = next(numbers)
            assert process.stdin is not None  # noqa: S101 - for mypy: it is a pipe
            process.stdin.write(f"{number} {own}\n".encode())
            process.stdin.flush()
            exposed_member.form(listener, addresses, 1, number)

        yield Target(process.pid, _member(port), None, None, form, pause_s=_REFILLED_S)


def _member(port: int) -> dict[Kind, Approach]:
    return {
        Kind.DRIPPING: Approach(port, MAGIC),
        Kind.HALF_OPEN: Approach(port, MAGIC),
        Kind.IDLE: Approach(port),
    }


@contextmanager
def _started(
    module: str, name: str, folder: Path
) -> Iterator[tuple["subprocess.Popen[bytes]", list[int]]]:
    """Starts `python -m bench.MODULE`; yields the process and its ports."""
    program = [sys.executable, "-m", f"bench.{module}", name, str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield process, _ports(folder / "address", process)
    finally:
        process.terminate()
        process.wait(STARTED_S)
        if process.stdin is not None:
            process.stdin.close()


def _ports(file: Path, process: "subprocess.Popen[bytes]") -> list[int]:
    until_s = perf_counter() + STARTED_S
    pause = Event()
    while not file.exists():
        if process.poll() is not None or perf_counter() > until_s:
            raise RuntimeError(f"{process.args!r} does not start")
        pause.wait(_LOOK_S)
    return [int(line.rpartition(":")[2]) for line in file.read_text().splitlines()]


TARGETS: dict[str, Callable[[], AbstractContextManager[Target]]] = {
    **{name: partial(_component, name) for name in exposed_server.NAMES},
    "master": _master,
    "pserver": _pserver,
    "snapshots": _snapshots,
    "ring": _ring,
}
"""How each is started, by name."""
