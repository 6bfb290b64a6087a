"""Faults of EDL's servers and of the API server that journeys make, and the state that they start from."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from e2e.cluster import identity
from e2e.environment import SLOTS, Environment, IsolatedNamespace
from e2e.waiting import until
from policy.cluster.snapshot import Pod
from policy.names import SYSTEM_NAMESPACE
from runtime import certs, extender_tls

_RUNS_S, _STOPS_S = 0.05, 0.45


def fill(namespace: IsolatedNamespace, *jobs: str) -> None:
    """Jobs that share the whole cluster, each with 2 trainers at least."""
    for job in jobs:
        namespace.submit(job, low=2, high=SLOTS)
    share = SLOTS // len(jobs)
    until(
        "the jobs share the cluster",
        lambda: {job: namespace.running(job) for job in jobs},
        lambda counts: sum(counts.values()) == SLOTS and min(counts.values()) >= share * 2 // 3,
        60,
    )


def live_ids(namespace: IsolatedNamespace) -> list[tuple[str, int]]:
    """(job, trainer id) of every trainer that is there."""
    pods: list[Pod] = namespace.environment.pods.now(namespace.name)
    return [(pod.job, pod.trainer_id) for pod in pods if pod.role and not pod.terminal]


def authors(namespace: IsolatedNamespace, job: str) -> set[str]:
    """Which reconcilers made trainers of a job, by its events."""
    return {event["source"]["component"] for event in namespace.events(job, "TrainersMade")}


@contextmanager
def slowed(send: Callable[[signal.Signals], None]) -> Iterator[None]:
    """A process that gets a tenth of its time: it is stopped twice a second.

    Args:
        send: Sends it a signal.
    """
    ended = threading.Event()

    def stutter() -> None:
        while not ended.is_set():
            send(signal.SIGSTOP)
            ended.wait(_STOPS_S)
            send(signal.SIGCONT)
            ended.wait(_RUNS_S)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def stopped(send: Callable[[signal.Signals], None]) -> Iterator[None]:
    """A process that hangs."""
    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)


@contextmanager
def extender_certificate(environment: Environment, issued: datetime) -> Iterator[None]:
    """The extender runs with a certificate of its CA that was issued at another time.

    Args:
        environment: Where it is a process.
        issued: The certificate is valid for `certs.LEAF_LIFE` from then on; aware.
    """
    control_plane, directory = environment.control_plane, environment.control_plane.extender_tls
    valid = {name: (directory / name).read_bytes() for name in ("tls.crt", "tls.key")}
    ca = certs.Pair((directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())
    hosts = extender_tls.names(SYSTEM_NAMESPACE)
    leaf = certs.issue(ca, extender_tls.SERVICE, issued, hosts=hosts)

    def restart_with(files: Mapping[str, bytes]) -> None:
        control_plane.kill("extender")
        for name, content in files.items():
            identity.write_secret(directory / name, content)
        environment.restore()

    restart_with({"tls.crt": leaf.cert, "tls.key": leaf.key})
    try:
        yield
    finally:
        restart_with(valid)
