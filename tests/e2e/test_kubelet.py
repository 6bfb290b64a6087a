"""Nodes that refuse what does not fit, as kubelets do and kwok's nodes do not."""

from contextlib import AbstractContextManager
from dataclasses import replace

import orjson

from e2e.kubelet import Admission
from e2e.measure.pods import Kind, PodView
from kube.api import Stream
from kube.errors import NotFound
from kube.request import Request
from policy.cluster.snapshot import Phase
from tests.e2e.runs import view

_NODE = "node-000"


class _Sent:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.is_gone = False

    def send(self, request: Request) -> bytes:
        self.requests.append(request)
        if self.is_gone:
            raise NotFound("deleted meanwhile")
        return b"{}"

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """Nothing is watched."""
        raise NotImplementedError


def _pod(uid: str, kind: Kind = Kind.TRAINER) -> PodView:
    """A bound pod of 5 CPU."""
    return view(kind, uid=uid, node=_NODE)


def _play(*changes: tuple[PodView | None, PodView | None], sent: _Sent | None = None) -> list[str]:
    """Plays changes on a node of 12 CPU; returns the paths of the refusals."""
    api = sent or _Sent()
    with Admission(api, {_NODE: 12_000}).playing() as admission:
        for old, new in changes:
            admission.change(old, new)
    return [request.path for request in api.requests]


def test_the_pod_that_comes_last_is_refused_once() -> None:
    """Two of 5 CPU fit into 12; the third fails with a kubelet's reason, whatever it is."""
    sent = _Sent()
    late = _pod("late", Kind.SERVICE)
    paths = _play(
        (None, _pod("a")), (None, _pod("b")), (None, late), (late, replace(late)), sent=sent
    )
    assert paths == ["/api/v1/namespaces/services/pods/late/status"]
    status = orjson.loads(sent.requests[0].body)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert "requested: 5000, used: 10000, capacity: 12000" in status["message"]


def test_room_is_free_when_a_pod_has_ended_or_is_gone() -> None:
    """Not when it is told to stop: its containers still run."""
    a, b = _pod("a"), _pod("b")
    stopping = replace(a, deleting=True)
    ended = replace(a, phase=Phase.SUCCEEDED)
    full: list[tuple[PodView | None, PodView | None]] = [(None, a), (None, b)]
    assert _play(*full, (a, stopping), (None, _pod("c"))) != []
    assert _play(*full, (a, ended), (None, _pod("c"))) == []
    assert _play(*full, (b, None), (None, _pod("c"))) == []


def test_a_refused_pod_takes_no_room_and_may_vanish_first() -> None:
    """The next pod that fits is admitted, and a deletion that came first is no error."""
    sent = _Sent()
    sent.is_gone = True
    a, b, late = _pod("a"), _pod("b"), _pod("late")
    paths = _play((None, a), (None, b), (None, late), (b, None), (None, _pod("c")), sent=sent)
    assert len(paths) == 1


def test_a_pod_without_a_node_is_nobody_s() -> None:
    """It waits."""
    assert _play((None, view(Kind.SERVICE)), (view(Kind.SERVICE), None)) == []
