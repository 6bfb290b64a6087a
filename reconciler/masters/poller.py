"""Polls masters for the state of their jobs without blocking the control loop.

One thread runs its own event loop. Each poll takes at most one second, even if the other pod never answers,
and polls and bytes are limited per namespace (`reconciler.masters.poll_schedule`). So masters that are dead,
slow or hostile only delay their own reports. If a master does not answer, the outcome of its job may still be
in the ConfigMap that the master writes.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kube import decode, errors, request
from kube.api import Api
from kube.reading import call
from policy.names import MASTER_PORT
from reconciler.masters import reports as master_reports
from reconciler.masters.poll_schedule import Poll, PollSchedule, PollTarget
from reconciler.masters.reports import MasterReport
from runtime import bounded_get
from runtime.logs import keys

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""Time limit of one poll, from the connection to the end of the answer."""
_ROUND_S = 0.1
_IDLE_S = 0.5
_MAX_OPEN = 32
_READERS = 4
_READ_TIMEOUT_S = 5.0
_STOP_S = 3.0
STATUS_PATH = "/v1/status"


class MasterPoller:
    """Polls the masters of all jobs on its own thread.

    `set_targets` and `reports` are called on the control loop's thread.
    """

    def __init__(
        self,
        api: Api,
        *,
        changed: Callable[[], None],
        clock_s: Callable[[], float],
        monotonic_s: Callable[[], float],
        port: int = MASTER_PORT,
    ) -> None:
        """Initializes the master poller.

        Args:
            api: Reads ConfigMaps.
            changed: Called on another thread when a master reports the end of its job, or a new leader.
            clock_s: Returns the seconds since the epoch, for reports.
            monotonic_s: Schedules the polls.
            port: The port of masters.
        """
        self._api = api
        self._changed = changed
        self._clock_s = clock_s
        self._monotonic_s = monotonic_s
        self._port = port
        self._targets: Mapping[str, PollTarget] = {}
        self._schedule = PollSchedule()
        self._reports: dict[str, MasterReport] = {}
        self._refusing: set[str] = set()
        """uids of jobs whose master refused the token in the last poll."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="masters", daemon=True)

    def start(self) -> None:
        """Starts to poll; may be called once."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread; waits about as long as one poll takes."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def set_targets(self, targets: Mapping[str, PollTarget]) -> None:
        """Sets the masters to poll, by job uid; drops the reports of other jobs."""
        self._targets = dict(targets)

    def reports(self) -> dict[str, MasterReport]:
        """Returns job uid -> the newest report of its master."""
        with self._lock:
            return dict(self._reports)

    def refuses_token(self, uid: str) -> bool:
        """Returns whether a job's master rejects EDL's token."""
        with self._lock:
            return uid in self._refusing

    def _run(self) -> None:
        with ThreadPoolExecutor(_READERS, thread_name_prefix="outcomes") as readers:
            asyncio.run(self._rounds(readers))

    async def _rounds(self, readers: ThreadPoolExecutor) -> None:
        open_: set[asyncio.Task[None]] = set()
        while not self._stopping.is_set():
            for poll in self._begin(_MAX_OPEN - len(open_)):
                task = asyncio.create_task(self._poll(poll, readers))
                open_.add(task)
                task.add_done_callback(open_.discard)
            await asyncio.sleep(_ROUND_S if self._targets else _IDLE_S)
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    def _begin(self, free: int) -> list[Poll]:
        """Returns the polls that are due, and drops the reports of jobs that are no longer polled."""
        targets = self._targets
        with self._lock:
            for uid in self._reports.keys() - targets.keys():
                del self._reports[uid]
            self._refusing &= targets.keys()
            over = {uid for uid, report in self._reports.items() if report.final}
        return self._schedule.begin(targets, self._monotonic_s(), free, over)

    async def _poll(self, poll: Poll, readers: ThreadPoolExecutor) -> None:
        """Runs one poll; never raises an exception, not even for a malformed answer.

        A poll that ended with an exception would stay open, and its job would never be polled again.
        """
        target, report, answered = poll.target, None, False
        try:
            report = await self._status(poll.uid, target) if target.address else None
            answered = report is not None
            if report is None:
                loop = asyncio.get_running_loop()
                report = await loop.run_in_executor(readers, self._outcome, target)
        except Exception:
            log.exception("poll failed", extra=keys(target=repr(target)))
        is_current = self._schedule.end(poll, self._monotonic_s(), answered=answered)
        if report is None or not is_current:
            return
        with self._lock:
            before = self._reports.get(poll.uid)
            self._reports[poll.uid] = report
        if report.final or (before.leader if before is not None else None) != report.leader:
            self._changed()

    async def _status(self, uid: str, target: PollTarget) -> MasterReport | None:
        with self._lock:
            self._refusing.discard(uid)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                body = await bounded_get.get(target.address, self._port, STATUS_PATH, target.token)
        except bounded_get.TokenError:
            with self._lock:
                self._refusing.add(uid)
            return None
        except (OSError, TimeoutError, ValueError, EOFError) as error:
            log.debug("master does not answer", extra=keys(target=repr(target), error=str(error)))
            return None
        self._schedule.charge(target.namespace, len(body), self._monotonic_s())
        return master_reports.parse_status_page(body, self._clock_s())

    def _outcome(self, target: PollTarget) -> MasterReport | None:
        """Returns the outcome from the job's ConfigMap. Runs on a reader's thread."""
        read_request = request.get(request.CONFIGMAPS, target.namespace, target.config_map)
        try:
            config_map = call(self._api, replace(read_request, timeout_s=_READ_TIMEOUT_S))
        except errors.KubeError as error:
            log.debug(
                "could not read the outcome", extra=keys(target=repr(target), error=str(error))
            )
            return None
        return master_reports.parse_outcome(decode.configmap(config_map).data, self._clock_s())
