"""The server under contract, and how its objects are made."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from kube import request
from kube.api import Api
from kube.request import (
    CONFIGMAPS,
    JOBS,
    PODS,
    Request,
)

Object = Mapping[str, Any]


def ask(api: Api, api_request: Request) -> Any:
    """The answer, decoded."""
    return orjson.loads(api.send(api_request))


def make_config(api: Api, namespace: str, name: str, **data: str) -> Any:
    """A ConfigMap as the server has it."""
    body = {"metadata": {"name": name, "labels": {"suite": "contract"}}, "data": data}
    return ask(api, request.create(CONFIGMAPS, namespace, body))


def make_pod(api: Api, namespace: str, name: str) -> Any:
    """Creates a pod that no scheduler binds; returns the stored pod."""
    body = {
        "metadata": {"name": name, "labels": {"app": "contract"}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "none"}],
            "terminationGracePeriodSeconds": 1,
        },
    }
    return ask(api, request.create(PODS, namespace, body))


def make_job(api: Api, namespace: str, name: str) -> Any:
    """A Job that no controller takes on, as the server has it."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    body = {
        "metadata": {"name": name},
        "spec": {
            "managedBy": "example.com/contract",
            "parallelism": 1,
            "template": {"spec": pod},
        },
    }
    return ask(api, request.create(JOBS, namespace, body))


def watched(api: Api, watch_request: Request, count: int) -> list[tuple[str, Any]]:
    """The first `count` (type, object) of a watch, bookmarks left out."""
    events: list[tuple[str, Any]] = []
    with api.stream(replace(watch_request, timeout_s=30)) as stream:
        for line in stream:
            event = orjson.loads(line)
            if event["type"] != "BOOKMARK":
                events.append((event["type"], event["object"]))
            if len(events) == count:
                break
    return events


def get_pod(api: Api, namespace: str, name: str) -> Any:
    """A pod as the server has it."""
    return ask(api, request.get(PODS, namespace, name))


def run_pod(api: Api, namespace: str, name: str) -> None:
    """Plays the kubelet: the pod is Running and Ready."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    api.send(request.merge_patch(PODS, namespace, name, status, subresource="status"))


def version_of(api: Api, namespace: str) -> str:
    """The version that a list of ConfigMaps stands at now."""
    page = ask(api, request.list_page(CONFIGMAPS, namespace))
    return str(page["metadata"]["resourceVersion"])


class ContractFixtures:
    """The fixtures of all contract tests."""

    @pytest.fixture
    def api(self) -> Api:
        """The server that the facts are about."""
        raise NotImplementedError

    @pytest.fixture
    def namespace(self) -> str:
        """A namespace of its own for each test."""
        raise NotImplementedError

    @pytest.fixture
    def forget_history(self) -> Callable[[], None]:
        """Makes the server forget what watches from long ago would need."""
        raise NotImplementedError
