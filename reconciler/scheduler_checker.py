"""Checks whether the trainers' scheduler is configured with the extender.

A test pod in EDL's own namespace, where no tenant can change it, lets the scheduler itself answer. The
result is kept in a ConfigMap, which the webhook watches and a new leader reads. Called by
`reconciler.loop`; requests run in its pool, one at a time.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from kube import decode, errors, request
from kube.api import Api
from kube.reading import call
from policy import scheduling
from policy.cluster.cluster_state import ClusterState
from policy.document.model import ExtenderUse, Policy
from policy.names import SCHEDULING_CONFIGMAP, TRAINER_RESOURCE
from policy.scheduling import Registration, SchedulerCheck, Scheduling
from reconciler.manifests import scheduler as scheduler_manifests
from runtime.logs import keys

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 300.0
_DOUBT_S = 10.0
"""Minimum interval between two checks while the result is in doubt: it is about another scheduler, or a
waiting training pod contradicts it."""
_RETRY_S = 10.0
_UNSEEN_S = 30.0
"""A test pod that the watch has not shown for this long is considered deleted."""


class SchedulerChecker:
    """Creates the test pod, reads the answer and stores the result.

    `advance` and `scheduling` are called only on the loop's thread. A request changes the state only while
    it is in flight, and `advance` reads the state only while no request is in flight, so no lock is needed.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        cluster: ClusterState,
        pool: Executor,
        *,
        policy: Callable[[], Policy],
        on_change: Callable[[], None],
    ) -> None:
        """Initializes the scheduler checker.

        Args:
            api: Sends the requests.
            namespace: EDL's namespace.
            cluster: The cluster state, which the loop keeps up to date.
            pool: Runs the requests.
            policy: Returns the policy in effect.
            on_change: Called when a request has completed.
        """
        self._api = api
        self._namespace = namespace
        self._cluster = cluster
        self._pool = pool
        self._policy = policy
        self._on_change = on_change
        self._check: SchedulerCheck | None = None
        """None until the stored result has been read."""
        self._uid = ""
        """uid of the test pod, or "" if there is none."""
        self._created_s = 0.0
        self._due_s = 0.0
        self._in_flight: Future[None] | None = None

    @property
    def check(self) -> SchedulerCheck:
        """The newest result."""
        return self._check or SchedulerCheck()

    @property
    def scheduling(self) -> Scheduling:
        """How training pods choose their scheduler at present."""
        return scheduling.in_force(self._policy(), self.check)

    def advance(self, now_s: float) -> None:
        """Takes the next step of a check if one is due; never waits."""
        if self._in_flight is not None:
            if not self._in_flight.done():
                return
            self._end_request(self._in_flight, now_s)
            self._in_flight = None
        settings = self._policy().scheduling
        if self._uid:
            self._read_answer(settings.scheduler_name, now_s)
        elif settings.extender is ExtenderUse.AUTO and now_s >= self._due(settings.scheduler_name):
            if self._check is None:
                self._send(self._restore)
            else:
                self._created_s = now_s
                self._send(lambda: self._create(settings.scheduler_name))

    def _due(self, scheduler: str) -> float:
        """Returns the time of the next check of this scheduler, which is earlier if the result is in doubt."""
        check = self.check
        is_doubtful = check.scheduler != scheduler or (
            check.registration is Registration.REGISTERED and self._is_refused(scheduler)
        )
        return min(self._due_s, self._created_s + _DOUBT_S) if is_doubtful else self._due_s

    def _is_refused(self, scheduler: str) -> bool:
        """Returns whether this scheduler reports the marker resource as insufficient for a waiting pod."""
        return any(
            TRAINER_RESOURCE in pod.insufficient and pod.scheduler == scheduler
            for pod in self._cluster.waiting.values()
        )

    def _read_answer(self, scheduler: str, now_s: float) -> None:
        pod = self._cluster.pods.get(self._uid)
        if pod is None:
            if now_s - self._created_s >= _UNSEEN_S:
                self._uid = ""
            return
        registration = scheduling.registration_by(pod.insufficient)
        if pod.scheduler != scheduler or self._policy().scheduling.extender is not ExtenderUse.AUTO:
            self._due_s = now_s
            self._send(self._delete)
        elif registration is not Registration.UNKNOWN:
            self._due_s = now_s + _CHECK_EVERY_S
            self._send(lambda: self._conclude(SchedulerCheck(scheduler, registration)))

    def _send(self, work: Callable[[], None]) -> None:
        self._in_flight = self._pool.submit(work)
        self._in_flight.add_done_callback(lambda _: self._on_change())

    def _end_request(self, work: Future[None], now_s: float) -> None:
        error = work.exception()
        if error is not None:
            self._due_s = now_s + _RETRY_S
            log.warning("could not check the scheduler", extra=keys(error=str(error)))

    # The following methods run in the pool; their errors reach `_end_request`.

    def _restore(self) -> None:
        read = request.get(request.CONFIGMAPS, self._namespace, SCHEDULING_CONFIGMAP)
        try:
            data = decode.configmap(call(self._api, read)).data
        except errors.NotFound:
            data = {}
        self._check = SchedulerCheck.from_data(data)

    def _create(self, scheduler: str) -> None:
        body = scheduler_manifests.check_pod(self._namespace, scheduler)
        try:
            created = call(self._api, request.create(request.PODS, self._namespace, body))
        except errors.AlreadyExists:  # created by another leader, so its answer may be outdated
            self._delete()
            raise
        self._uid = decode.pod(created).uid

    def _conclude(self, check: SchedulerCheck) -> None:
        if check != self._check:
            self._store(check)
            self._check = check
            log.info("scheduler checked", extra=keys(**check.to_data()))
        self._delete()

    def _store(self, check: SchedulerCheck) -> None:
        body: dict[str, Any] = {
            "metadata": {
                "name": SCHEDULING_CONFIGMAP,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/part-of": "edl"},
            },
            "data": check.to_data(),
        }
        kind = request.CONFIGMAPS
        try:
            self._api.send(request.replace(kind, self._namespace, SCHEDULING_CONFIGMAP, body))
        except errors.NotFound:
            self._api.send(request.create(kind, self._namespace, body))

    def _delete(self) -> None:
        with suppress(errors.NotFound):
            self._api.send(
                request.delete(
                    request.PODS, self._namespace, scheduler_manifests.CHECK_POD, grace_s=0
                )
            )
        self._uid = ""
