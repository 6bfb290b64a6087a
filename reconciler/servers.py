"""Makes the parameter servers that the plan wants, deletes those it gives up, and tells of silent ones.

Which are missing and where they go is the plan's decision. A pod that is lost comes back under its
name at once, and each time later if it keeps on getting lost; a process that ends is restarted in its
pod by the kubelet. Who calls: `reconciler.loop`.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import orjson

from kube import decode, errors, request
from kube.client import Api
from policy import servers
from policy.index import Index
from policy.names import SERVER_CONTAINER
from policy.planning import Plan, Retire
from policy.snapshot import Job, Pod
from policy.snapshot import Servers as Asked
from reconciler import serverobjects
from reconciler.events import Event
from reconciler.expectations import PATIENCE_S, Expectations
from reconciler.provider import Provision
from runtime.logs import keys

log = logging.getLogger(__name__)

SILENT_S = 60.0
"""A server that is not ready for so long is worth an event."""
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
CALM_S = 300.0
"""Losses further apart than this do not add up."""
_TIMEOUT_S = 10.0
_NO_IMAGE = ".image: Required"
"""What the API server says of a pod to which admission has added none."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """One server that is to be made now."""

    job: Job
    asked: Asked
    number: int
    node: str


@dataclass(frozen=True, slots=True)
class _Pause:
    """When a server may be made again, and how long the pause after that is."""

    until_s: float
    next_s: float


@dataclass(slots=True)
class _Down:
    """A server that is not ready."""

    since_s: float
    told: bool = False


class Servers:
    """Owned by the loop's thread; the calls themselves run side by side in `pool`."""

    def __init__(
        self,
        api: Api,
        index: Index,
        *,
        expectations: Expectations,
        pool: Executor,
        clock_s: Callable[[], float],
        provided: Callable[[Job], Provision | None],
    ) -> None:
        """Starts nothing.

        Args:
            api: Where writes go.
            index: The loop's own.
            expectations: Learn what was done.
            pool: Where calls run.
            clock_s: Seconds since the epoch.
            provided: Addresses and token of a job; None while they are not there.
        """
        self._api = api
        self._index = index
        self._expectations = expectations
        self._pool = pool
        self._clock_s = clock_s
        self._provided = provided
        self._pauses: dict[tuple[str, int], _Pause] = {}
        """Job uid and index -> after the newest try."""
        self._asked: dict[str, float] = {}
        """Pod uid -> until when its deletion is not asked for again."""
        self._down: dict[tuple[str, int], _Down] = {}

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a job that is gone."""
        for key in [key for key in self._pauses if key[0] == uid]:
            del self._pauses[key]

    def act(self, made: Plan, grace_s: int) -> list[Event]:
        """Deletes and makes what the plan says; what to tell people."""
        self._retire(made.retires)
        now_s = self._clock_s()
        due = [
            _Wish(job, job.servers, number, node)
            for serve in made.serves
            if (job := self._index.jobs[serve.job]).servers is not None
            and self._provided(job) is not None
            for number, node in zip(serve.numbers, serve.nodes, strict=True)
            if self._is_due(job, number, now_s)
        ]
        answers = self._pool.map(lambda wish: self._create(wish, grace_s), due)
        return self._tell(list(zip(due, answers, strict=True)))

    def look(self, now_s: float) -> list[Event]:
        """Once for each, servers that are not ready for long."""
        events: list[Event] = []
        down: dict[tuple[str, int], _Down] = {}
        for job in self._index.jobs.values():
            pods = {pod.server: pod for pod in self._index.servers_of(job) if not pod.deleting}
            for number in range(self._index.serving(job)):
                pod = pods.get(number)
                if pod is not None and pod.ready:
                    continue
                key = (job.uid, number)
                seen = down[key] = self._down.get(key, _Down(now_s))
                if now_s - seen.since_s >= SILENT_S and not seen.told:
                    seen.told = True
                    events.append(_silence(job, number, pod, now_s - seen.since_s))
        self._down = down
        return events

    def _retire(self, retires: Iterable[Retire]) -> None:
        now_s = self._clock_s()
        self._asked = {uid: until for uid, until in self._asked.items() if until > now_s}
        due = [retire for retire in retires if retire.uid not in self._asked]
        for retire, error in zip(due, self._pool.map(self._delete, due), strict=True):
            self._asked[retire.uid] = now_s + PATIENCE_S
            gone = error is None or isinstance(error, errors.NotFound | errors.Conflict)
            if gone:
                self._expectations.released(self._index, retire.uid, now_s)
            log.info(
                "parameter server let go" if gone else "parameter server not let go",
                extra=keys(
                    job=retire.job, pod=retire.pod, reason=retire.reason, error=str(error or "")
                ),
            )

    def _delete(self, retire: Retire) -> errors.KubeError | None:
        """At once where nobody on its node would confirm its end, and its name would be taken."""
        asked = request.delete(
            request.PODS,
            retire.namespace,
            retire.pod,
            uid=retire.uid,
            grace_s=0 if retire.lost else None,
        )
        try:
            self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            return error
        return None

    def _is_due(self, job: Job, number: int, now_s: float) -> bool:
        """Whether it may be made now; if so, its next pause begins."""
        key = (job.uid, number)
        pause = self._pauses.get(key, _Pause(0.0, FIRST_PAUSE_S))
        if now_s < pause.until_s:
            return False
        wait_s = FIRST_PAUSE_S if now_s - pause.until_s > CALM_S else pause.next_s
        self._pauses[key] = _Pause(now_s + wait_s, min(LAST_PAUSE_S, wait_s * 2))
        return True

    def _create(self, wish: _Wish, grace_s: int) -> Pod | str:
        """The pod, or the line that says why there is none. On any thread."""
        job = wish.job
        body = serverobjects.pod(job, wish.asked, wish.number, wish.node, grace_s)
        try:
            return self._ask(request.create(request.PODS, job.namespace, body))
        except errors.AlreadyExists:
            return self._adopt(job, body["metadata"]["name"])
        except errors.KubeError as error:
            text = str(error)
            if _NO_IMAGE in text:
                return (
                    f"{body['metadata']['name']} has no image: EDL's webhook is away, or was "
                    "started without --master-image"
                )
            return text

    def _adopt(self, job: Job, name: str) -> Pod | str:
        """The pod that is there already: made by a lost answer, or somebody else's."""
        try:
            found = self._ask(request.get(request.PODS, job.namespace, name))
        except errors.KubeError as error:
            return str(error)
        if found.owner_uid == job.uid:
            return found
        return f"Pod {name} exists and is not this Job's: delete it, or name the Job otherwise"

    def _ask(self, asked: request.Request) -> Pod:
        return decode.pod(orjson.loads(self._api.send(replace(asked, timeout_s=_TIMEOUT_S))))

    def _tell(self, answers: list[tuple[_Wish, Pod | str]]) -> list[Event]:
        """Enters what was made; one event for each job and outcome."""
        made: dict[str, list[_Wish]] = {}
        refused: dict[str, tuple[Job, str]] = {}
        for wish, answer in answers:
            if isinstance(answer, Pod):
                self._expectations.made(self._index, answer, self._clock_s())
                made.setdefault(wish.job.key, []).append(wish)
            else:
                refused[wish.job.key] = (wish.job, answer)
                log.warning(
                    "parameter server not made",
                    extra=keys(job=wish.job.key, index=wish.number, error=answer),
                )
        events = [
            Event(wishes[0].job, "ServersMade", _said([wish.number for wish in wishes]))
            for wishes in made.values()
        ]
        return events + [
            Event(job, "ServersRefused", text, warning=True) for job, text in refused.values()
        ]


def _said(numbers: list[int]) -> str:
    names = ", ".join(str(number) for number in sorted(numbers))
    return f"made parameter server{'s' if len(numbers) > 1 else ''} {names}"


def _silence(job: Job, number: int, pod: Pod | None, silent_s: float) -> Event:
    said = f"parameter server {number} has not been ready for {silent_s:.0f} s"
    if pod is None:
        text = f"{said}: it has no pod, because no node has room for it or it could not be made"
    elif not pod.node:
        name = servers.name_of(job.name, number)
        text = f"{said}: see kubectl -n {job.namespace} describe pod {name}"
    else:
        text = f"{said}: see kubectl -n {job.namespace} logs {pod.name} -c {SERVER_CONTAINER}"
    return Event(job, "ServerSilent", text, warning=True)
