"""Hands a job's objects to the cluster, by the user's own `kubectl`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from edl.errors import EdlError

_ANSWER_S = 60.0


def create(job: Mapping[str, Any], config_map: Mapping[str, Any]) -> None:
    """Creates the Job, then its ConfigMap as the Job's own: it is deleted with it.

    Pods of the Job wait until the ConfigMap is there.

    Raises:
        EdlError: kubectl is missing, or the cluster refused an object; with its own words.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise EdlError(
            "kubectl was not found: install it, or drop --apply and use the YAML elsewhere"
        )
    made = json.loads(_call([program, "create", "-f", "-", "-o", "json"], job))
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": made["metadata"]["uid"],
    }
    metadata = {**config_map["metadata"], "ownerReferences": [owner]}
    try:
        _call([program, "create", "-f", "-"], {**config_map, "metadata": metadata})
    except EdlError as error:
        raise EdlError(
            f"the Job was made, but not its ConfigMap: {error}; delete the Job before you try again"
        ) from error


def _call(command: Sequence[str], thing: Mapping[str, Any]) -> str:
    """What kubectl prints."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own kubectl
            command,
            input=json.dumps(thing),
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EdlError(f"kubectl gave no answer within {_ANSWER_S:g} s") from error
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise EdlError(f"kubectl refused {thing['kind']} {thing['metadata']['name']}: {words}")
    return done.stdout
