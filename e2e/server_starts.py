"""How long the pods of EDL's servers take from their first instruction to their first readiness."""

import contextlib
from dataclasses import dataclass
from http import HTTPStatus

import urllib3

from e2e.environment import Environment
from e2e.in_cluster import WAIT_S, BareCluster
from e2e.waiting import until, until_true
from kube import request
from kube.request import PODS
from policy.names import SYSTEM_NAMESPACE
from runtime import clock

READY_S = 3.0
"""The bar, on two cores that do nothing else."""
_STARTED = (
    "import glob, time\n"
    "up = float(open('/proc/uptime').read().split()[0])\n"
    "ticks = int(open('/proc/1/stat').read().rpartition(')')[2].split()[19])\n"
    "stats = [open(path).read().rpartition(')')[2].split() for path in glob.glob('/proc/[0-9]*/stat')]\n"
    "print(time.time() - up + ticks / 100, sum(int(n) for s in stats for n in s[11:13]) / 100)\n"
)
"""Prints when the first process of a container was started, in seconds since the epoch, and CPU seconds of all."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a server.

    Attributes:
        ready_s: From its first instruction to the first answer 200 of /readyz.
        cpu_s: What all processes of the pod had used shortly after.
    """

    ready_s: float
    cpu_s: float


def restarted(bare: BareCluster, environment: Environment, server: str) -> Start:
    """Deletes a pod of a server, and measures the one that follows.

    Args:
        bare: The cluster.
        environment: The same, with a client.
        server: Such as "webhook".
    """
    before = addresses(environment, server)
    words = ("delete", "pod", min(before), "--wait=false")
    bare.kubectl("-n", SYSTEM_NAMESPACE, *words)
    ((name, address),) = until(
        "there is a new one",
        lambda: [item for item in addresses(environment, server).items() if item[0] not in before],
        bool,
        WAIT_S,
    )
    until_true(lambda: _is_ready(address), WAIT_S)
    ready_s = clock.epoch_s()
    text = bare.kubectl("-n", SYSTEM_NAMESPACE, "exec", name, "--", "python", "-c", _STARTED)
    started_s, cpu_s = map(float, text.split())
    return Start(ready_s - started_s, cpu_s)


def addresses(environment: Environment, server: str) -> dict[str, str]:
    """Name -> address of a server's pods that have one and stay."""
    page = environment.send(request.list_page(PODS, SYSTEM_NAMESPACE))
    return {
        pod["metadata"]["name"]: pod["status"]["podIP"]
        for pod in page["items"]
        if pod["metadata"]["labels"].get("app.kubernetes.io/name") == f"edl-{server}"
        and pod["status"].get("podIP")
        and not pod["metadata"].get("deletionTimestamp")
    }


def _is_ready(address: str) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        url = f"http://{address}:8080/readyz"
        return urllib3.request("GET", url, timeout=1.0, retries=False).status == HTTPStatus.OK
    return False
