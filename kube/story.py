"""Explains the state of a job or a pod, with a remedy if needed, from objects and records. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.cluster.snapshot import Job
from policy.explanations import EXPLANATIONS, NODES, OBSERVATIONS
from policy.records import Record

_BY_CODE = {
    str(code): explanation
    for explanations in (EXPLANATIONS, OBSERVATIONS)
    for code, explanation in explanations.items()
}
FINISHED = ("Complete", "Failed")


@dataclass(frozen=True, slots=True)
class Story:
    """The answer of `edl why`."""

    about: str
    """The subject, such as `job ml/digits`."""
    state: str
    """The state in a few words, such as `3 of 2 to 8 trainers`."""
    code: str
    text: str
    since_s: float = 0.0
    """Time since which the state has lasted, or time of the past event; 0 if unknown."""
    is_past: bool = False
    """Whether the story tells the last event instead of the current state."""
    as_of_s: float = 0.0
    """Time of the figures; 0 if they are current."""
    helps: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Record, ...] = ()
    """Past records, oldest first."""

    def to_json(self) -> dict[str, Any]:
        """Returns the story as JSON, for `-o json` and `-o yaml`."""
        return {
            "about": self.about,
            "state": self.state,
            "code": self.code,
            "text": self.text,
            "since": self.since_s,
            "asOf": self.as_of_s,
            "helps": self.helps,
            "figures": dict(self.figures),
            "history": [record.to_json() for record in self.history],
        }


def meaning(code: str) -> str:
    """Returns the meaning of a code, or "" if this version does not know it."""
    explanation = _BY_CODE.get(code)
    return explanation.meaning.replace("`", "") if explanation else ""


def way_out(code: str) -> str:
    """Returns the remedy that the explanation of a code gives; "" if no action is needed."""
    explanation = _BY_CODE.get(code)
    text = explanation.way_out.replace("`", "") if explanation else ""
    return "" if text.startswith("No action needed.") else text


def of_job(key: str, job: Job | None, records: Iterable[Record]) -> Story:
    """Explains why a job has its number of trainers, or how it ended.

    Args:
        key: namespace/name.
        job: The job, or None if it is gone.
        records: The records of its namespace, in order of time.
    """
    job_records = [record for record in records if record.job == key]
    history = tuple(record for record in job_records if record.at_s == record.since_s)
    decisions = [record for record in job_records if record.kind == "job"]
    newest = decisions[-1] if decisions else None
    about = f"job {key}"
    # A deleted job: its last decision is all that is left.
    if job is None:
        text = newest.text if newest else ""
        code = newest.code if newest else "JobDeleted"
        at_s = newest.at_s if newest else 0.0
        text = text or meaning(code)
        return Story(about, "deleted", code, text, at_s, is_past=True, history=history)
    # An ended job: its condition says why it ended.
    end = next(
        (c for c in job.status.conditions if c.type in FINISHED and c.status == "True"), None
    )
    if end is not None:
        code = "JobComplete" if end.type == "Complete" else "JobFailed"
        text = end.message or end.reason or meaning(code)
        helps = way_out(code) if code == "JobFailed" else ""
        return Story(
            about,
            end.type.lower(),
            code,
            text,
            since_s=end.time_s,
            is_past=True,
            helps=helps,
            history=history,
        )
    # A job in progress: the newest decision says why it has no more trainers.
    state = f"{job.status.active} trainers of {job.min_trainers} to {job.max_trainers}"
    if job.error:
        return Story(about, state, "Invalid", job.error, helps=way_out("Invalid"), history=history)
    if newest is None:
        text = "EDL has not planned this job yet; if this lasts, run `python -m admin doctor`"
        return Story(about, state, "Unknown", text, history=history)
    return Story(
        about,
        state,
        newest.code,
        newest.text or meaning(newest.code),
        since_s=newest.since_s,
        as_of_s=newest.at_s,
        helps=way_out(newest.code),
        figures=newest.figures,
        history=history,
    )


def state(job: Job, record: Record | None) -> tuple[str, str]:
    """Returns the code and the text of the reason why a job has its number of trainers."""
    if job.finished:
        end = next(c for c in job.status.conditions if c.type in ("Complete", "Failed"))
        return end.type, end.message
    if job.suspended:
        return "Suspended", "spec.suspend is true"
    if record is None:
        return "Unknown", "EDL has not planned this job yet"
    return record.code, record.text


def of_pod(key: str, obj: Mapping[str, Any] | None, records: Iterable[Record]) -> Story:
    """Explains why a pod waits, or why it ended.

    Args:
        key: namespace/name.
        obj: The core/v1 Pod, or None if it is gone.
        records: The records of its namespace, in order of time.
    """
    history = tuple(record for record in records if record.about == f"pod {key}")
    about = f"pod {key}"
    last = history[-1] if history else None
    status = obj.get("status", {}) if obj is not None else {}
    phase = str(status.get("phase", "")) or "gone"
    # For a pod without a node, kube-scheduler's message is newer than any record. Otherwise EDL's last
    # record explains the most, then the reason of a disruption, then the pod's own status.
    unplaced = _condition(status, "PodScheduled")
    if phase == "Pending" and unplaced.get("status") == "False":
        return _unscheduled(about, unplaced, status, history)
    if last is not None:
        state = "deleted" if obj is None else phase
        text = last.text or meaning(last.code)
        return Story(
            about,
            state,
            last.code,
            text,
            since_s=last.at_s,
            is_past=True,
            helps=way_out(last.code),
            figures=last.figures,
            history=history,
        )
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted.get("status") == "True":
        code = str(disrupted.get("reason", "DisruptionTarget"))
        return Story(about, phase, code, str(disrupted.get("message", "")))
    text = str(status.get("message", "")) or _waiting_container(status)
    code = str(status.get("reason", "")) or phase
    return Story(about, phase, code, text or "EDL has made no decision about this pod")


def _unscheduled(
    about: str, condition: Mapping[str, Any], status: Mapping[str, Any], history: tuple[Record, ...]
) -> Story:
    nominated = status.get("nominatedNodeName")
    helps = (
        f"Wait: kube-scheduler frees node {nominated} for it."
        if nominated
        else "Do what kube-scheduler's message names: lower the requests, widen the node selector, or add nodes."
    )
    code = str(condition.get("reason", "Unschedulable"))
    text = str(condition.get("message", "")) or "kube-scheduler has not tried to place it yet"
    refusals = refusals_of_extender(text)
    if refusals:
        meanings = "; ".join(f"{refusal}: {meaning(refusal)}" for refusal in refusals)
        text = f"{text} ({meanings.replace('.;', ';').rstrip('.')})"
        helps = " ".join([*(f"{refusal}: {way_out(refusal)}" for refusal in refusals), helps])
    return Story(about, "waiting for a node", code, text, helps=helps, history=history)


def refusals_of_extender(message: str) -> list[str]:
    """Returns the extender's codes in kube-scheduler's message about a pod that it could not place."""
    words = set(re.findall(r"\w+", message))
    return [str(code) for code in NODES if str(code) in words]


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _waiting_container(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            name, reason = container.get("name"), waiting.get("reason", "waiting")
            return f"container {name}: {reason} {waiting.get('message', '')}".rstrip()
    return ""
