"""Reports how a removal of EDL affects jobs, and which objects are left. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from admin.findings import Finding, note, ok, warning
from policy.names import LABEL_ROLE, MANAGER


def jobs(objects: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Reports the effect on Jobs that EDL manages; `objects` are all Jobs."""
    findings = []
    for job in objects:
        conditions = job.get("status", {}).get("conditions", ())
        finished = any(
            condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
            for condition in conditions
        )
        if job.get("spec", {}).get("managedBy") == MANAGER and not finished:
            name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            active = job.get("status", {}).get("active", 0)
            text = f"its {active} trainers run on, but EDL no longer adds or replaces trainers, and the Job "
            text += (
                "never ends: let it end first, or delete it and create it without the annotations"
            )
            findings.append(warning(f"job {name}", text))
    return findings or [ok("jobs", "EDL manages no running job")]


def remains(objects: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Finding]:
    """Lists the objects of EDL that are left; `objects` are (plural, object) with EDL's label."""
    findings = []
    for plural, obj in objects:
        metadata = obj["metadata"]
        namespace = f" in {metadata['namespace']}" if metadata.get("namespace") else ""
        findings.append(note(plural, f"{metadata['name']}{namespace} is left"))
    return findings or [ok("objects", "none of EDL is left")]


def pods(objects: Iterable[Mapping[str, Any]]) -> Finding:
    """Reports training pods that are left; `objects` are all pods."""
    training = [pod for pod in objects if LABEL_ROLE in pod["metadata"].get("labels", {})]
    if training:
        subject = (
            "1 training pod is" if len(training) == 1 else f"{len(training)} training pods are"
        )
        names = ", ".join(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in training[:5]
        )
        return note("pods", f"{subject} left, such as {names}")
    return ok("pods", "no training pod is left")
