"""Asks a job's master for the state of its training, with the job's token.

The token is read with the caller's permissions, because the page itself has no access to Secrets. So only
callers who may read a job's token see the answer of its master. The answer is written by users' programs, so
all of it is checked.
"""

import asyncio
import base64
import binascii
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson

from kube import request
from kube.access_review import TIMEOUT_S
from kube.api import Api
from kube.reading import call
from policy.admission import sidecar, unstructured
from policy.cluster.snapshot import Job
from policy.names import MASTER_PORT, MASTER_TOKEN_KEY
from runtime import bounded_get

_ASK_S = 2.0
_MAX_DATASETS, _MAX_EVALUATED, _MAX_EVALUATIONS = 64, 8, 2_048
"""Limits for data sets, for data sets with a chart, and for evaluations. A browser would draw more too slowly."""
_MAX_METRICS = 512
"""Maximum number of different metrics in all evaluations together; one task may have as many."""
_MAX_EVENTS = 100
_NAMES = {
    "state": "state",
    "reason": "reason",
    "generation": "generation",
    "steps": "steps",
    "max_steps": "maxSteps",
    "lost_records": "lostRecords",
    "trained_again_records": "trainedAgainRecords",
    "datasets": "datasets",
    "trainers": "trainers",
    "setbacks": "setbacks",
    "checkpoint": "checkpoint",
    "evaluations": "evaluations",
    "storage_errors": "storageErrors",
    "dropped": "dropped",
    "failures": "failures",
}
"""Field of a master's status -> field of the page's answer."""


class MasterAnswerError(Exception):
    """The master gave no usable answer; the message is one line."""


def ask(caller: Api, job: Job, address: str, port: int = MASTER_PORT) -> dict[str, Any]:
    """Returns the state of the training as reported by the master.

    Args:
        caller: The API server, used with the caller's token.
        job: The job.
        address: Address of the pod that hosts the master.
        port: Port of the master.

    Raises:
        Forbidden: The caller may not read the job's token.
        KubeError: The token could not be read for another reason.
        MasterAnswerError: The master does not answer, or its answer is not a status.
    """
    if not address:
        raise MasterAnswerError("it is not running")
    name = sidecar.object_name(job.name)
    secret_request = replace(request.get(request.SECRETS, job.namespace, name), timeout_s=TIMEOUT_S)
    token = _token(call(caller, secret_request))
    try:
        body = asyncio.run(_get(address, port, token))
    except TimeoutError as error:
        raise MasterAnswerError(f"no answer within {_ASK_S:g} s") from error
    except bounded_get.TokenError as error:
        raise MasterAnswerError("its token differs from that in the job's Secret") from error
    except (OSError, ValueError, EOFError) as error:
        raise MasterAnswerError(" ".join(str(error).split())[:200]) from error
    status = _parsed(body)
    shown = {name: status[field] for field, name in _NAMES.items() if field in status}
    return _bounded(shown)


async def _get(address: str, port: int, token: str) -> bytes:
    async with asyncio.timeout(_ASK_S):
        return await bounded_get.get(address, port, "/v1/status", token)


def _bounded(shown: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer with as much data as a browser can draw at once; time series keep the newest values."""
    bounded = dict(shown)
    if "datasets" in shown:
        datasets = unstructured.mapping(shown, "datasets")
        bounded["datasets"] = dict(islice(datasets.items(), _MAX_DATASETS))
    if "evaluations" in shown:
        bounded["evaluations"] = _evaluations(unstructured.objects(shown, "evaluations"))
    if "setbacks" in shown:
        setbacks = unstructured.mapping(shown, "setbacks")
        newest = unstructured.objects(setbacks, "newest")[-_MAX_EVENTS:]
        bounded["setbacks"] = {**setbacks, "newest": newest}
    return bounded


def _evaluations(evaluations: list[unstructured.Json]) -> list[dict[str, Any]]:
    """Returns the newest evaluations, limited to the first data sets and the first metrics among them."""
    datasets: dict[str, None] = {}
    metrics: dict[str, None] = {}
    bounded = []
    for evaluation in evaluations[-_MAX_EVALUATIONS:]:
        dataset = str(evaluation.get("dataset"))
        values = unstructured.mapping(evaluation, "metrics")
        if len(datasets) < _MAX_EVALUATED:
            datasets.setdefault(dataset)
        for name in islice(values, _MAX_METRICS - len(metrics)):
            metrics.setdefault(name)
        if dataset in datasets:
            known = {name: value for name, value in values.items() if name in metrics}
            bounded.append({**evaluation, "metrics": known})
    return bounded


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict):
        raise MasterAnswerError("its answer is not a status")
    return status


def _token(secret: dict[str, Any]) -> str:
    text = unstructured.mapping(secret, "data").get(MASTER_TOKEN_KEY)
    try:
        token = base64.b64decode(str(text), validate=True).decode("ascii")
    except (ValueError, binascii.Error) as error:
        raise MasterAnswerError(f"its Secret has no {MASTER_TOKEN_KEY}") from error
    if not token.isprintable():
        raise MasterAnswerError("its Secret has no usable token")
    return token
