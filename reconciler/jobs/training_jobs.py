"""Keeps the Job of each TrainingJob up to date, and writes its state into the TrainingJob's status.

This runs on its own thread, so TrainingJobs do not slow down the control loop, which only sees their
Jobs (docs/decisions/0047). While the CustomResourceDefinition is not installed, the thread waits for it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kube import errors, request
from kube.api import Api
from kube.changes import Changes
from kube.reading import call, find
from kube.reflector import Reflector
from kube.request import JOBS, TRAININGJOBS
from kube.training_job import ENDED, MAX_BYTES, TrainingJob, decode
from policy.names import ANNOTATION_TEMPLATE_HASH, LABEL_TRAINING_JOB
from policy.timestamps import timestamp
from reconciler.jobs import training_status
from reconciler.jobs.role_counts import JobRoles, RoleCounts
from reconciler.jobs.training_status import Acceptance
from reconciler.leader_only import LeaderOnlyApi
from reconciler.manifests import owned
from reconciler.manifests import training_job as manifests
from reconciler.records.events import Event, EventRecorder
from reconciler.turns import in_turns
from reconciler.watchdog import Watchdog
from runtime import clock
from runtime.backoff import Backoffs
from runtime.logs import keys

log = logging.getLogger(__name__)

_MAX_A_PASS = 100
"""Maximum number of TrainingJobs that one pass writes; the next pass, `_GATHER_S` later, continues with the rest."""
_GATHER_S = 0.2
_WAIT_S = 5.0
_KIND_S = 5.0
"""Interval between two checks whether the kind TrainingJob exists."""
_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0
_CALM_S = 300.0


class TrainingJobController:
    """Creates and updates the Jobs of TrainingJobs; one thread calls `run_pass`."""

    def __init__(
        self,
        api: Api,
        recorder: EventRecorder,
        leads: Callable[[], bool],
        *,
        watch_api: Api,
        role_counts: RoleCounts | None = None,
        epoch_s: Callable[[], float] = clock.epoch_s,
        monotonic_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """Initializes the training job controller.

        Args:
            api: Sends the writes, while this process leads.
            recorder: Writes events.
            leads: Returns whether this process is the leader.
            watch_api: Runs the watches, on every replica.
            role_counts: The role counts of the control loop.
            epoch_s: Returns the seconds since the epoch, by this process's clock.
            monotonic_s: The watchdog's clock.
        """
        self.watchdog = Watchdog(monotonic_s, "training_jobs")
        """Detects passes that fail or hang (docs/decisions/0028)."""
        self.changes = Changes()
        self.training_jobs = Reflector(watch_api, TRAININGJOBS, decode, changes=self.changes)
        self.jobs = Reflector(
            watch_api, JOBS, decode, label_selector=LABEL_TRAINING_JOB, changes=self.changes
        )
        self._api = LeaderOnlyApi(api, leads, on_end=self.watchdog.progress)
        self._watch_api = watch_api
        self._recorder, self._leads = recorder, leads
        self._role_counts = role_counts or RoleCounts()
        self._role_counts.on_change = self.changes.bump
        self._epoch_s = epoch_s
        self._done: dict[str, tuple[bytes, bytes, JobRoles | None]] = {}
        """uid -> texts of the TrainingJob and its Job, and the Job's roles, when nothing was left to write."""
        self._failed: dict[str, tuple[int, str]] = {}
        """uid -> generation and Job uid at the last failed attempt; if either has changed, no pause is needed."""
        self._failing: set[str] = set()
        """uids whose last attempt failed with an error that is not a refusal; the status shows refusals."""
        self.failures = 0
        """Number of such failed attempts since the process started."""
        self._passes: dict[str, int] = {}
        """uid -> number of the last pass that handled it; the next pass starts with the others."""
        self._pass = 0
        self._backoffs = Backoffs[str](_FIRST_BACKOFF_S, _MAX_BACKOFF_S, _CALM_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training-jobs", daemon=True)

    @property
    def reflectors(self) -> Mapping[str, Reflector[TrainingJob]]:
        """Resource -> reflector, for metrics."""
        return {"trainingjobs": self.training_jobs, "trainingjobs_jobs": self.jobs}

    def start(self) -> None:
        """Starts the threads; may be called once."""
        self._recorder.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops the watches and the thread."""
        self._stopping.set()
        self.changes.close()
        for reflector in (self.training_jobs, self.jobs):
            reflector.request_stop()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self._recorder.stop()

    def _run(self) -> None:
        error = self._find_kind()
        if error:
            log.info(
                "the cluster has no TrainingJobs yet; waiting for them", extra=keys(error=error)
            )
        while error:
            if self._stopping.wait(_KIND_S):
                return
            self.watchdog.end(failed=False)  # a cluster without TrainingJobs is healthy
            error = self._find_kind()
        self.training_jobs.start()
        self.jobs.start()
        version = -1
        while not self._stopping.is_set():
            version = self.changes.wait(version, _WAIT_S, _GATHER_S)
            is_finished = self.try_pass()
            if not is_finished:
                version = -1
            if is_finished is None:
                self._stopping.wait(_WAIT_S)

    def _find_kind(self) -> str:
        """Returns why this account cannot list TrainingJobs, or "" if it can."""
        try:
            self._watch_api.send(request.list_page(TRAININGJOBS, limit=1))
        except Exception as error:  # noqa: BLE001 - an error must not end the thread
            return str(error) or type(error).__name__
        return ""

    @property
    def failing(self) -> int:
        """Number of TrainingJobs whose last attempt failed with an error that is not a refusal."""
        return len(self._failing) if self._leads() else 0

    def try_pass(self) -> bool | None:
        """Runs one pass under the watchdog; returns what `run_pass` returned, or None if it failed."""
        is_finished = None
        self.watchdog.begin()
        try:
            is_finished = self.run_pass()
        except Exception:  # a thread that dies silently would stop updating all TrainingJobs
            log.exception("could not update TrainingJobs")
        finally:
            self.watchdog.end(failed=is_finished is None)
        return is_finished

    def run_pass(self) -> bool:
        """Brings Jobs and statuses up to date; returns False if some are left for the next pass."""
        if not (self._leads() and self.training_jobs.synced and self.jobs.synced):
            return True
        with self.changes.condition:
            training_jobs, jobs = self.training_jobs.records(), self.jobs.records()
        job_of = {job.key: job for job in jobs}
        self._role_counts.job_uids = frozenset(job.uid for job in jobs)
        self._forget(training_jobs)
        self._pass += 1
        count = 0
        # If a pass cannot handle all TrainingJobs, the next starts with those that have waited the longest.
        ordered = sorted(training_jobs, key=lambda each: self._passes.get(each.uid, 0))
        for training_job in in_turns(ordered):
            if count >= _MAX_A_PASS or self._stopping.is_set():
                return False
            if self._bring_up_to_date(training_job, job_of.get(training_job.key)):
                self._passes[training_job.uid] = self._pass
                count += 1
        return True

    def _forget(self, training_jobs: tuple[TrainingJob, ...]) -> None:
        uids = {training_job.uid for training_job in training_jobs}
        for uid in [uid for uid in self._passes if uid not in uids]:
            del self._passes[uid]
            self._done.pop(uid, None)
            self._failed.pop(uid, None)
            self._failing.discard(uid)
            self._backoffs.end(uid)
            self._recorder.forget_uid(uid)

    def _bring_up_to_date(self, training_job: TrainingJob, job: TrainingJob | None) -> bool:
        """Handles one TrainingJob if it has changed; returns whether that took a request."""
        uid, now_s = training_job.uid, self._epoch_s()
        job_uid, job_text = ("", b"") if job is None else (job.uid, job.text)
        roles = self._role_counts.of_job.get(job_uid)
        inputs = (training_job.text, job_text, roles)
        is_expired = training_job.expires_s is not None and now_s >= training_job.expires_s
        if self._done.get(uid) == inputs and not is_expired:
            return False
        attempt = (training_job.generation, job_uid)
        if self._backoffs.is_waiting(uid, now_s) and self._failed.get(uid) == attempt:
            return False
        self._failed[uid] = attempt
        has_failed, is_settled = True, False
        try:
            if is_expired:
                self._delete(training_job)
            is_settled = is_expired or self._write(training_job, job, roles)
            has_failed = False
        except errors.KubeError as error:
            log.warning(
                "could not update TrainingJob", extra=keys(job=training_job.key, error=str(error))
            )
        except Exception:  # caused by this object's data: the others must not wait for it
            log.exception("could not update TrainingJob", extra=keys(job=training_job.key))
        self._note(uid, has_failed=has_failed)
        if is_settled:
            self._done[uid] = inputs
            self._backoffs.end(uid)
        else:
            self._backoffs.begin(uid, now_s)
        return True

    def _note(self, uid: str, *, has_failed: bool) -> None:
        """Counts an attempt for the metrics."""
        if has_failed:
            self._failing.add(uid)
            self.failures += 1
        else:
            self._failing.discard(uid)

    def _write(
        self, training_job: TrainingJob, job: TrainingJob | None, roles: JobRoles | None
    ) -> bool:
        """Writes the Job, then the status; returns False if the attempt must be repeated.

        Raises:
            KubeError: A request failed. Refusals are not raised, because the status shows them.
        """
        fields = training_job.fields
        old_status = fields.get("status") or {}
        has_ended = old_status.get("phase") in ENDED
        if has_ended or fields["metadata"].get("deletionTimestamp"):
            return True
        own_job = None if job is None else job.fields
        if own_job is not None and not owned.is_own(training_job, own_job):
            own_job = None
            acceptance = Acceptance("NameTaken", _name_taken(training_job), is_accepted=False)
        elif training_job.size_bytes:
            acceptance = Acceptance("Refused", _too_large(training_job), is_accepted=False)
        else:
            own_job, acceptance = self._try_job(training_job, fields, own_job)
        now = timestamp(self._epoch_s())
        new_status = training_status.status(fields, own_job, acceptance, now, roles)
        if new_status != old_status:
            self._write_status(training_job, old_status, new_status)
            self._report(training_job, old_status, acceptance)
            self._report_scale(training_job, old_status, new_status, roles)
        return acceptance.is_accepted or not acceptance.may_be_tried

    def _try_job(
        self, training_job: TrainingJob, fields: dict[str, Any], job: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, Acceptance]:
        """Calls `_ensure_job`; refuses invalid templates, because the schema of TrainingJobs accepts them."""
        try:
            return self._ensure_job(training_job, fields, job)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            log.exception(
                "could not build a Job of a TrainingJob", extra=keys(job=training_job.key)
            )
            text = f"could not build a Job: {error}"
            return job, Acceptance("Refused", text[:1000], is_accepted=False)

    def _ensure_job(
        self, training_job: TrainingJob, fields: dict[str, Any], job: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, Acceptance]:
        """Creates or changes the Job; returns it with the resulting acceptance."""
        try:
            if job is None:
                return self._create_job(training_job, fields)
            patch = manifests.changes(fields, job)
            if patch:
                patch.setdefault("metadata", {})["uid"] = job["metadata"]["uid"]
                patch_request = request.merge_patch(
                    JOBS, training_job.namespace, training_job.name, patch
                )
                job = call(self._api, patch_request)
        except errors.KubeError as error:
            if not errors.is_refusal(error):
                raise
            return job, Acceptance("Refused", error.message[:1000], is_accepted=False)
        template_hash = job["metadata"].get("annotations", {}).get(ANNOTATION_TEMPLATE_HASH)
        if template_hash != manifests.template_hash(fields["spec"]):
            text = "trainer.template has changed, but a Job's template cannot: trainers keep the first one"
            return job, Acceptance("TemplateChanged", text, is_accepted=False, may_be_tried=False)
        return job, Acceptance()

    def _create_job(
        self, training_job: TrainingJob, fields: dict[str, Any]
    ) -> tuple[dict[str, Any] | None, Acceptance]:
        """Creates the Job, after checking that the TrainingJob exists: the watch may not show a deletion yet.

        Raises:
            KubeError: A request failed, or the TrainingJob was deleted.
        """
        namespace, name = training_job.namespace, training_job.name
        current = find(self._api, request.get(TRAININGJOBS, namespace, name))
        metadata = {} if current is None else current["metadata"]
        if metadata.get("uid") != training_job.uid or "deletionTimestamp" in metadata:
            raise errors.NotFound(f"TrainingJob {training_job.key} was deleted")
        try:
            body = manifests.job(fields)
            create_request = request.create(JOBS, namespace, body, strict=True)
            return call(self._api, create_request), Acceptance()
        except errors.AlreadyExists:
            existing = find(self._api, request.get(JOBS, namespace, name))
        if existing is None:
            raise errors.NotFound(f"Job {training_job.key} was deleted meanwhile: EDL tries again")
        if not owned.is_own(training_job, existing):
            return None, Acceptance("NameTaken", _name_taken(training_job), is_accepted=False)
        labels = existing["metadata"].get("labels") or {}
        if labels.get(LABEL_TRAINING_JOB) == training_job.name:
            return existing, Acceptance()  # the watch of Jobs lags behind
        text = f"its Job has lost the label {LABEL_TRAINING_JOB}={training_job.name}: add it again"
        return existing, Acceptance("LabelMissing", text, is_accepted=False)

    def _write_status(
        self, training_job: TrainingJob, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> None:
        removed: dict[str, Any] = {name: None for name in old if name not in new}
        body = {"metadata": {"uid": training_job.uid}, "status": {**removed, **new}}
        self._api.send(
            request.merge_patch(
                TRAININGJOBS, training_job.namespace, training_job.name, body, subresource="status"
            )
        )

    def _report(
        self, training_job: TrainingJob, old: Mapping[str, Any], acceptance: Acceptance
    ) -> None:
        """Writes an event if the acceptance has changed."""
        before = next(
            (c.get("reason") for c in old.get("conditions", ()) if c.get("type") == "Accepted"), ""
        )
        if before != acceptance.reason:
            event = Event(
                training_job,
                acceptance.reason,
                acceptance.message,
                warning=not acceptance.is_accepted,
            )
            self._recorder.record(event, self._epoch_s())

    def _report_scale(
        self,
        training_job: TrainingJob,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        roles: JobRoles | None,
    ) -> None:
        """Writes an event if the plan changes the number of trainers."""
        scale = training_status.scale(old, new, "" if roles is None else roles.reason)
        if scale is not None:
            reason, message = scale
            self._recorder.record(Event(training_job, reason, message), self._epoch_s())

    def _delete(self, training_job: TrainingJob) -> None:
        with suppress(errors.NotFound):
            self._api.send(
                request.delete(
                    TRAININGJOBS, training_job.namespace, training_job.name, uid=training_job.uid
                )
            )


def _name_taken(training_job: TrainingJob) -> str:
    return (
        f"Job {training_job.name} exists and does not belong to this TrainingJob: delete the Job, or "
        "rename the TrainingJob"
    )


def _too_large(training_job: TrainingJob) -> str:
    return (
        f"it has {training_job.size_bytes} bytes, and at most {MAX_BYTES} are allowed: put scripts and "
        "data into a ConfigMap, and mount it"
    )
