"""A read-only API server: lists of a synthetic cluster, and watches of its changes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from bench import objects
from bench.clusters import policy
from kube import errors
from kube.request import CONFIGMAPS, JOBS, NODES, PODS, Request, Resource
from policy.cluster.snapshot import Node, Pod, Snapshot
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE

Event = dict[str, Any]


class Events:
    """A watch that returns the queued events, then ends."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = iter(lines)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._lines)

    def close(self) -> None:
        """Ends the watch."""
        self._lines = iter(())


class ReplayApiServer:
    """A `kube.api.Api` that keeps the uids of records, unlike `lab.fake_api`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._version = 1
        self._lists = {
            NODES.plural: [objects.node(node) for node in snapshot.nodes],
            PODS.plural: [objects.pod(pod) for pod in snapshot.pods],
            JOBS.plural: [objects.job(job) for job in snapshot.jobs],
            CONFIGMAPS.plural: [_config()],
        }
        self._events: dict[str, list[bytes]] = {plural: [] for plural in self._lists}

    def send(self, request: Request) -> bytes:
        """Answers a list in one page; all other requests fail."""
        items = self._lists.get(_plural(request))
        if request.method != "GET" or items is None:
            raise errors.NotFound("this server is read-only", status=404, reason="NotFound")
        version = str(self._version)
        for item in items:
            item["metadata"]["resourceVersion"] = version
        return orjson.dumps({"metadata": {"resourceVersion": version}, "items": items})

    @contextmanager
    def stream(self, request: Request) -> Iterator[Events]:
        """Yields the changes since the last watch of this kind."""
        plural = _plural(request)
        lines, self._events[plural] = self._events[plural], []
        yield Events(lines)

    def put_pod(self, pod: Pod) -> None:
        """Adds or changes a pod."""
        self._emit(PODS, "MODIFIED", objects.pod(pod))

    def drop_pod(self, pod: Pod) -> None:
        """Removes a pod."""
        self._emit(PODS, "DELETED", objects.pod(pod))

    def put_node(self, node: Node) -> None:
        """Adds or changes a node."""
        self._emit(NODES, "MODIFIED", objects.node(node))

    def _emit(self, resource: Resource, kind: str, body: Mapping[str, Any]) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._events[resource.plural].append(orjson.dumps({"type": kind, "object": body}))


def _plural(request: Request) -> str:
    return request.path.rpartition("/")[2]


def _config() -> dict[str, Any]:
    rules = policy().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {
        "metadata": {"name": POLICY_CONFIGMAP, "namespace": SYSTEM_NAMESPACE, "uid": "uid-policy"},
        "data": {POLICY_KEY: orjson.dumps(rules).decode()},
    }
