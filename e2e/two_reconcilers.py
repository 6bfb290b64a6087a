"""Two reconcilers in place of the usual one, for journeys about their lease."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.cluster.process import Process
from e2e.environment import Environment, readiness
from e2e.waiting import until
from kube import request
from kube.errors import NotFound
from kube.request import LEASES
from policy.names import SYSTEM_NAMESPACE
from reconciler.app import LEASE

LEASE_S = 3.0
_ROOT = Path(__file__).parents[1]
_RECONCILER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-reconciler"


class Pair:
    """Two reconcilers in place of the usual one, with a short lease."""

    def __init__(self, environment: Environment, directory: Path) -> None:
        self._environment = environment
        self._directory = directory
        self._kubeconfig = environment.cluster.kubeconfig(_RECONCILER)
        self.processes: dict[str, Process] = {}

    def start(self, name: str, *words: str, lease_s: float = LEASE_S) -> None:
        """Starts one under that identity; returns when it knows the cluster.

        Args:
            name: Its identity in the lease.
            words: What Python runs, with arguments that come first; `-m reconciler` by default.
            lease_s: Duration of its lease.
        """
        announced = self._directory / f"{name}.address"
        self.processes[name] = Process(
            name,
            [
                *(sys.executable, *(words or ("-m", "reconciler"))),
                *("--kubeconfig", str(self._kubeconfig)),
                *("--listen", "127.0.0.1:0", "--announce-file", str(announced)),
                *("--drain-seconds", "0"),
                *("--identity", name, "--lease-seconds", str(lease_s)),
            ],
            self._directory / f"{name}.log",
            cwd=_ROOT,
        )
        until(f"{name} is ready", lambda: is_synced(announced), bool, 30)

    def holder(self) -> str:
        """Returns the leader according to the lease."""
        lease = self._environment.send(request.get(LEASES, SYSTEM_NAMESPACE, LEASE))
        return str(lease["spec"].get("holderIdentity", ""))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to all processes of one reconciler."""
        os.killpg(self.processes[name].pid, number)

    def stop(self) -> None:
        """Ends both."""
        for process in self.processes.values():
            process.kill()


@contextmanager
def pair(
    environment: Environment,
    directory: Path,
    *,
    first: Sequence[str] = (),
    lease_s: float = LEASE_S,
) -> Iterator[Pair]:
    """Both run, and `first` leads.

    Args:
        environment: Its usual reconciler is killed.
        directory: Of logs.
        first: What Python runs as the first leader; the reconciler by default.
        lease_s: Duration of the lease.
    """
    environment.control_plane.kill("reconciler")
    with suppress(NotFound):
        environment.api.send(
            request.delete(LEASES, SYSTEM_NAMESPACE, LEASE)
        )  # of the one just killed
    two = Pair(environment, directory)
    try:
        two.start("first", *first, lease_s=lease_s)
        until("the first leads", lambda: led_by(two), lambda name: name == "first", 30)
        two.start("second", lease_s=lease_s)
        yield two
    finally:
        two.stop()


def is_synced(announced: Path) -> bool:
    """Returns whether the reconciler whose address is in that file has all first lists."""
    if not announced.exists():
        return False
    return readiness(f"http://{announced.read_text().strip()}").get("synced") is True


def led_by(two: Pair) -> str:
    """Returns the leader; "" before there is a lease."""
    try:
        return two.holder()
    except NotFound:
        return ""
