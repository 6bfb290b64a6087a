"""Changes jobs, or the TrainingJobs that own them, with the caller's permissions."""

from collections.abc import Mapping
from typing import Any

from cli.errors import CliError
from cli.frame import Frame, explained
from kube import request
from kube.errors import Invalid
from kube.request import JOBS, TRAININGJOBS
from policy.names import GROUP


def key(obj: Mapping[str, Any]) -> str:
    """Returns namespace/name of an object."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def send(
    frame: Frame,
    job: Mapping[str, Any],
    job_patch: Mapping[str, Any],
    training_job_patch: Mapping[str, Any],
) -> None:
    """Applies `job_patch` to a Job or, if a TrainingJob owns it, `training_job_patch` to the TrainingJob.

    Both are merge patches.

    Raises:
        CliError: A permission is missing, the API server refuses the change, or the cluster has no EDL.
    """
    frame.require_edl()
    owner = next(
        (
            reference["name"]
            for reference in job["metadata"].get("ownerReferences") or ()
            if reference.get("kind") == TRAININGJOBS.kind
            and reference.get("apiVersion", "").startswith(f"{GROUP}/")
        ),
        "",
    )
    metadata = job["metadata"]
    resource, name, patch = JOBS, metadata["name"], job_patch
    if owner:
        resource, name, patch = TRAININGJOBS, owner, training_job_patch
    try:
        with explained(resource, "patch", metadata["namespace"]):
            frame.api.send(request.merge_patch(resource, metadata["namespace"], name, patch))
    except Invalid as error:
        raise CliError(f"{resource.kind} {name}: {error.message}") from error
