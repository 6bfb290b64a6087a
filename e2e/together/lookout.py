"""Looks at a job from outside while it runs: its master's status, its pods, the services' pods.

with lookout(here, "digits") as seen:
    until("four train", lambda: seen.now.training, lambda count: count == 4, 60)
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

from e2e.journey import Journey
from kube import request
from kube.errors import KubeError
from kube.request import SECRETS
from policy.names import MASTER_PORT, MASTER_TOKEN_KEY, Role
from policy.sidecar import object_name
from policy.snapshot import Phase
from runtime import clock

_EVERY_S = 0.1
_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """One moment; what the master says is the newest that it said."""

    at_s: float = 0.0
    """Seconds since the epoch."""
    round: int = 0
    formed: bool = False
    members: tuple[str, ...] = ()
    """Of the round, by rank."""
    training: int = 0
    """Members of the round, once it has formed; without rounds, trainers that the master knows."""
    done_records: int = 0
    trainers: int = 0
    """Pods that run and were not told to stop."""
    services: int = 0
    """The same."""


@dataclass(slots=True)
class Seen:
    """All looks, the oldest first; one thread appends, others read."""

    looks: list[Look] = field(default_factory=list)
    status: Mapping[str, Any] = field(default_factory=dict)
    """The master's last word."""

    @property
    def now(self) -> Look:
        """The newest."""
        return self.looks[-1] if self.looks else Look()

    def leader(self, at_s: float) -> str:
        """Who had rank 0 at that time; "" if nobody."""
        before = [look.members for look in self.looks if look.at_s <= at_s and look.members]
        return before[-1][0] if before else ""


@contextmanager
def lookout(here: Journey, job: str, folder: Path) -> Iterator[Seen]:
    """Looks ten times a second for as long as the block lasts; leaves what it saw in the folder."""
    seen, over = Seen(), threading.Event()
    thread = threading.Thread(target=_look, args=(here, job, seen, over), name="lookout")
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        looks = [asdict(look) for look in seen.looks]
        told = json.dumps({"looks": looks, "status": seen.status})
        (folder / "outside.json").write_text(told, encoding="utf-8")


def _look(here: Journey, job: str, seen: Seen, over: threading.Event) -> None:
    token = ""
    with urllib3.PoolManager(timeout=_ANSWER_S, retries=False) as pool:
        while not over.wait(_EVERY_S):
            token = token or _token(here, job)
            if status := _status(here, job, pool, token):
                seen.status = status
            seen.looks.append(_moment(here, job, seen.status))


def _token(here: Journey, job: str) -> str:
    try:
        secret = here.world.send(request.get(SECRETS, here.namespace, object_name(job)))
    except KubeError:
        return ""
    return base64.b64decode(secret["data"][MASTER_TOKEN_KEY]).decode()


def _status(here: Journey, job: str, pool: urllib3.PoolManager, token: str) -> dict[str, Any]:
    """What the master says, asked at its pod's address; nothing if it does not answer."""
    pods = here.world.pods.now(here.namespace)
    found = [pod.address for pod in pods if pod.job == job and pod.master and not pod.terminal]
    for address in filter(None, found):
        url = f"http://{address}:{MASTER_PORT}/v1/status"
        try:
            answer = pool.request("GET", url, headers={"Authorization": f"Bearer {token}"})
        except urllib3.exceptions.HTTPError:
            continue
        if answer.status == 200:
            return dict(answer.json())
    return {}


def _moment(here: Journey, job: str, status: Mapping[str, Any]) -> Look:
    meeting, known = status.get("rendezvous", {}), status.get("trainers", {})
    ranked = sorted(meeting.get("members", ()), key=lambda one: int(one["rank"]))
    formed = meeting.get("formed", False)
    running = [
        pod
        for pod in here.world.pods.now(here.namespace)
        if pod.phase is Phase.RUNNING and not pod.deleting
    ]
    return Look(
        clock.epoch_s(),
        meeting.get("round", 0),
        formed,
        tuple(one["trainer"] for one in ranked),
        len(ranked) * formed if ranked else sum(one["joined"] for one in known.values()),
        sum(one["done_records"] for one in status.get("datasets", {}).values()),
        sum(pod.job == job and pod.role is Role.TRAINER for pod in running),
        sum(pod.role is None for pod in running),
    )
