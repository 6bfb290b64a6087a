"""Reads /readyz of EDL's servers through `kubectl port-forward`.

Forwarded requests arrive in the pod from 127.0.0.1. So they work regardless of NetworkPolicies, and with
every authentication method of kubectl. The API server's proxy for pods connects from outside, which
NetworkPolicies block.
"""

import json
import re
import select
import subprocess
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any

from runtime import clock

_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_START_S = 15.0
_ANSWER_S = 5.0
_MAX_BYTES = 1 << 20
_PORT = 8080


class UnreachableError(Exception):
    """A server could not be reached; the message is one line."""


def readyz(kubectl: Sequence[str], namespace: str, pod: str) -> Mapping[str, Any]:
    """Returns a server's response, whether or not it is ready.

    Args:
        kubectl: The command, with flags that select the cluster.
        namespace: Namespace of the pod.
        pod: Name of the pod.

    Raises:
        UnreachableError: kubectl or the pod does not exist, or there was no response.
    """
    command = [*kubectl, "-n", namespace, "port-forward", f"pod/{pod}", f":{_PORT}"]
    try:
        process = subprocess.Popen(  # noqa: S603 - the admin's own kubectl
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise UnreachableError(f"{command[0]} does not run ({error}): set --kubectl") from error
    try:
        return _ask(_local_port(process))
    finally:
        process.kill()
        process.communicate()


def _local_port(process: "subprocess.Popen[bytes]") -> int:
    """Returns the local port that kubectl forwards."""
    assert process.stdout is not None  # noqa: S101 - always true, but mypy does not know
    until_s = clock.monotonic_s() + _START_S
    line = b""
    while select.select([process.stdout], [], [], max(0.0, until_s - clock.monotonic_s()))[0]:
        line = process.stdout.readline()
        match = _FORWARDING.search(line)
        if match:
            return int(match[1])
        if not line:
            break
    process.kill()
    _, complaint = process.communicate()
    text = " ".join(complaint.decode(errors="replace").split())[:300]
    raise UnreachableError(text or f"kubectl forwarded no port within {_START_S:.0f} s")


def _ask(port: int) -> Mapping[str, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/readyz")  # a 503 has the same details as a 200
        details = json.loads(connection.getresponse().read(_MAX_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        raise UnreachableError(f"no answer from /readyz: {error}") from error
    finally:
        connection.close()
    if not isinstance(details, dict):
        raise UnreachableError("its answer to /readyz is not from a server of EDL")
    return details
