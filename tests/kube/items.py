"""ConfigMaps to follow, watches that are cut, garbled or repeated on purpose, and the least pod."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kube import errors, request
from kube.api import Api, Stream
from kube.request import CONFIGMAPS, Request
from lab.fake_api import FakeApi


@dataclass(frozen=True)
class Item:
    """A ConfigMap, trimmed."""

    name: str
    uid: str
    value: str


def read(obj: Mapping[str, Any]) -> Item | None:
    """Decodes a ConfigMap; None if its value is "drop"."""
    value = (obj.get("data") or {})["v"]
    item = Item(obj["metadata"]["name"], obj["metadata"]["uid"], value)
    return None if value == "drop" else item


def put(api: Api, name: str, value: str) -> None:
    """Creates or changes a ConfigMap."""
    body = {"metadata": {"name": name}, "data": {"v": value}}
    try:
        api.send(request.create(CONFIGMAPS, "n", body))
    except errors.AlreadyExists:
        api.send(request.merge_patch(CONFIGMAPS, "n", name, {"data": {"v": value}}))


def drop(api: Api, name: str) -> None:
    """Deletes a ConfigMap."""
    api.send(request.delete(CONFIGMAPS, "n", name))


def truth(api: Api) -> set[Item]:
    """The items that a reflector should store."""
    page = orjson.loads(api.send(request.list_page(CONFIGMAPS, limit=0)))
    return {item for item in map(read, page["items"]) if item is not None}


class ScriptedStream:
    """A watch that is cut, garbled or repeated on purpose."""

    def __init__(self, lines: list[bytes], broken: errors.KubeError | None = None) -> None:
        self._lines = lines
        self._broken = broken

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._lines:
            return self._lines.pop(0)
        if self._broken is not None:
            raise self._broken
        raise StopIteration

    def close(self) -> None:
        """There is nothing to release."""


class FaultyWatchApi:
    """An API server whose watches send the present events and end, with one chosen fault each.

    Mishaps: "", "cut" (broken after one event), "twice" (all events repeated), "old" (the
    events of before once more), "gone" (410 over HTTP), "error" (410 in the stream),
    "garbage" (half a line).
    """

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.mishap = ""
        self._before: list[bytes] = []

    def send(self, api_request: Request) -> bytes:
        """Passes the request to the fake."""
        return self.api.send(api_request)

    @contextmanager
    def stream(self, watch_request: Request) -> Iterator[Stream]:
        """The events there are, after the mishap."""
        if self.mishap == "gone":
            raise errors.Gone("too old", status=410)
        query = tuple((k, "0" if k == "timeoutSeconds" else v) for k, v in watch_request.query)
        with self.api.stream(replace(watch_request, query=query)) as stream:
            lines = list(stream)
        before, self._before = self._before, self._before + lines
        expired = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}'
        broken = errors.Unavailable("cut")
        yield {
            "cut": lambda: ScriptedStream(lines[:1], broken),
            "twice": lambda: ScriptedStream([line for line in lines for _ in range(2)]),
            "old": lambda: ScriptedStream(before + lines),
            "error": lambda: ScriptedStream([*lines[:1], expired]),
            "garbage": lambda: ScriptedStream([*lines[:1], b'{"type":']),
        }.get(self.mishap, lambda: ScriptedStream(lines))()


def plain_pod(**status: object) -> dict[str, Any]:
    """The least that an API server sends for a pod."""
    return {
        "metadata": {"namespace": "default", "name": "one", "uid": "u-1"},
        "spec": {"containers": [{"name": "main", "resources": {}}]},
        "status": status,
    }
