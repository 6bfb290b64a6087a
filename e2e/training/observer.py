"""Observes a job from outside while it runs: its master's status, its pods, the services' pods.

with observe(namespace, "digits", folder) as observations:
    until("four train", lambda: observations.now.training, lambda count: count == 4, 60)
"""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from e2e.environment import IsolatedNamespace
from kube import request
from kube.errors import KubeError
from kube.request import SECRETS
from policy.admission.sidecar import object_name
from policy.cluster.snapshot import Phase
from policy.names import MASTER_PORT, MASTER_TOKEN_KEY, Role
from runtime import clock

_EVERY_S = 0.1
_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a job at one moment; the master's figures are from its newest answer."""

    at_s: float = 0.0
    """Seconds since the epoch."""
    round: int = 0
    formed: bool = False
    members: tuple[str, ...] = ()
    """Members of the round, by rank."""
    training: int = 0
    """Members of the round once it has formed; without rounds, trainers known to the master."""
    done_records: int = 0
    trainers: int = 0
    """Running trainer pods that are not terminating."""
    services: int = 0
    """Running service pods that are not terminating."""


@dataclass(slots=True)
class Observations:
    """All observations of a job, oldest first; one thread appends, others read."""

    looks: list[Observation] = field(default_factory=list)
    status: Mapping[str, Any] = field(default_factory=dict)
    """The master's newest status."""

    @property
    def now(self) -> Observation:
        """The newest observation."""
        return self.looks[-1] if self.looks else Observation()

    def leader(self, at_s: float) -> str:
        """Returns the member with rank 0 at that time; "" if there was none."""
        before = [look.members for look in self.looks if look.at_s <= at_s and look.members]
        return before[-1][0] if before else ""


@contextmanager
def observe(namespace: IsolatedNamespace, job: str, folder: Path) -> Iterator[Observations]:
    """Observes a job ten times a second during the block; writes the observations to the folder."""
    observations, stopped = Observations(), threading.Event()
    thread = threading.Thread(
        target=_poll, args=(namespace, job, observations, stopped), name="lookout"
    )
    thread.start()
    try:
        yield observations
    finally:
        stopped.set()
        thread.join()
        looks = [asdict(look) for look in observations.looks]
        document = json.dumps({"looks": looks, "status": observations.status})
        (folder / "outside.json").write_text(document, encoding="utf-8")


def _poll(
    namespace: IsolatedNamespace, job: str, observations: Observations, stopped: threading.Event
) -> None:
    token = ""
    with urllib3.PoolManager(timeout=_ANSWER_S, retries=False) as pool:
        while not stopped.wait(_EVERY_S):
            token = token or _token(namespace, job)
            if status := _status(namespace, job, pool, token):
                observations.status = status
            observations.looks.append(_observation(namespace, job, observations.status))


def _token(namespace: IsolatedNamespace, job: str) -> str:
    try:
        secret = namespace.environment.send(request.get(SECRETS, namespace.name, object_name(job)))
    except KubeError:
        return ""
    return base64.b64decode(secret["data"][MASTER_TOKEN_KEY]).decode()


def _status(
    namespace: IsolatedNamespace, job: str, pool: urllib3.PoolManager, token: str
) -> dict[str, Any]:
    """Returns the master's status, from its pod's address; empty if it does not answer."""
    pods = namespace.environment.pods.now(namespace.name)
    addresses = [pod.address for pod in pods if pod.job == job and pod.master and not pod.terminal]
    for address in filter(None, addresses):
        url = f"http://{address}:{MASTER_PORT}/v1/status"
        try:
            answer = pool.request("GET", url, headers={"Authorization": f"Bearer {token}"})
        except urllib3.exceptions.HTTPError:
            continue
        if answer.status == 200:
            return dict(answer.json())
    return {}


def _observation(namespace: IsolatedNamespace, job: str, status: Mapping[str, Any]) -> Observation:
    meeting, trainers = status.get("rendezvous", {}), status.get("trainers", {})
    ranked = sorted(meeting.get("members", ()), key=lambda member: int(member["rank"]))
    formed = meeting.get("formed", False)
    running = [
        pod
        for pod in namespace.environment.pods.now(namespace.name)
        if pod.phase is Phase.RUNNING and not pod.deleting
    ]
    return Observation(
        clock.epoch_s(),
        meeting.get("round", 0),
        formed,
        tuple(member["trainer"] for member in ranked),
        len(ranked) * formed if ranked else sum(trainer["joined"] for trainer in trainers.values()),
        sum(dataset["done_records"] for dataset in status.get("datasets", {}).values()),
        sum(pod.job == job and pod.role is Role.TRAINER for pod in running),
        sum(pod.role is None for pod in running),
    )
