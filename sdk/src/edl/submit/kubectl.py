"""Creates a job's objects on the cluster with the user's `kubectl`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from edl.errors import EdlError

_ANSWER_S = 60.0
_MANAGER = "edl.training/reconciler"
"""Value that EDL's webhook writes into `spec.managedBy` of a Job."""


def create(job: Mapping[str, Any], config_map: Mapping[str, Any]) -> bool:
    """Creates the Job, then its ConfigMap with the Job as owner, so that both are deleted together.

    Pods of the Job wait for the ConfigMap.

    Returns:
        Whether EDL manages the Job, according to the field that its webhook sets.

    Raises:
        EdlError: kubectl is missing, or the cluster refused an object; the message has the reason.
    """
    program = _program()
    created_job = json.loads(_call([program, "create", "-f", "-", "-o", "json"], job))
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": created_job["metadata"]["uid"],
    }
    metadata = {**config_map["metadata"], "ownerReferences": [owner]}
    try:
        _call([program, "create", "-f", "-"], {**config_map, "metadata": metadata})
    except EdlError as error:
        raise EdlError(
            f"created the Job, but not its ConfigMap: {error}; delete the Job before you try again"
        ) from error
    spec: Mapping[str, Any] = created_job.get("spec") or {}
    return spec.get("managedBy") == _MANAGER


def create_one(manifest: Mapping[str, Any]) -> None:
    """Creates one object.

    Raises:
        EdlError: See `create`.
    """
    _call([_program(), "create", "-f", "-"], manifest)


def _program() -> str:
    program = shutil.which("kubectl")
    if program is None:
        raise EdlError(
            "kubectl was not found: install it, or drop --apply and use the printed JSON elsewhere"
        )
    return program


def _call(command: Sequence[str], manifest: Mapping[str, Any]) -> str:
    """Runs kubectl and returns its output."""
    try:
        process = subprocess.run(  # noqa: S603 - the user's own kubectl
            command,
            input=json.dumps(manifest),
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EdlError(f"kubectl did not finish within {_ANSWER_S:g} s") from error
    if process.returncode:
        message = " ".join(process.stderr.split()) or f"exit code {process.returncode}"
        raise EdlError(
            f"kubectl refused {manifest['kind']} {manifest['metadata']['name']}: {message}"
        )
    return process.stdout
