"""Whether nodes can have an image: references, what nodes say, and what a registry answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from admin import registry
from admin.findings import Level
from admin.image import (
    ImageError,
    ImageReference,
    Presence,
    RegistryAnswer,
    judge,
    nodes_with,
    not_named,
    parse,
)

DIGEST = f"sha256:{'0' * 64}"
EDL = parse("registry.example/edl:0.1.0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("edl", "docker.io/library/edl:latest"),
        ("team/edl:1", "docker.io/team/edl:1"),
        ("registry.example/a/b-c/edl:0.1.0", "registry.example/a/b-c/edl:0.1.0"),
        ("registry.example:5000/edl", "registry.example:5000/edl:latest"),
        ("localhost/edl:1", "localhost/edl:1"),
        ("[::1]:5000/edl:1", "[::1]:5000/edl:1"),
        (f"registry.example/edl:1@{DIGEST}", f"registry.example/edl@{DIGEST}"),
    ],
)
def test_references_are_read_as_kubelets_read_them(text: str, expected: str) -> None:
    """With the host, folder and tag that the author has left out."""
    assert str(parse(text)) == expected


@pytest.mark.parametrize(
    "text", ["", "EDL:1", "registry.example/", "edl:", "a b", "edl@sha256:1", "edl:1\n", "x..y/é"]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    """In one line with one that is."""
    with pytest.raises(ImageError, match=r"write, for example, registry\.example/edl:0\.1\.0"):
        parse(text)


def test_nodes_say_which_images_they_have() -> None:
    """By tag or by digest; some list no names at all."""
    nodes: list[dict[str, Any]] = [
        {"metadata": {"name": "a"}, "status": {"images": [{"names": ["registry.example/edl:0.1.0"]}]}},
        {"metadata": {"name": "b"}, "status": {"images": [{"names": [f"registry.example/edl@{DIGEST}"]}]}},
        {"metadata": {"name": "c"}, "status": {"images": [{"names": None}]}},
        {"metadata": {"name": "d"}, "status": {}},
    ]  # fmt: skip

    assert nodes_with(EDL, nodes) == ["a"]
    assert nodes_with(parse(f"registry.example/edl@{DIGEST}"), nodes) == ["b"]


@pytest.mark.parametrize(
    ("present", "answer", "level", "words"),
    [
        (3, Presence.UNKNOWN, Level.OK, "3 of 3 nodes have it"),
        (0, Presence.FOUND, Level.OK, "is in its registry"),
        (
            1,
            Presence.MISSING,
            Level.ERROR,
            "1 of 3 nodes have it, and registry.example does not have it",
        ),
        (0, Presence.HIDDEN, Level.WARNING, "imagePullSecrets"),
        (0, Presence.UNKNOWN, Level.WARNING, "is not reachable from here (why)"),
    ],
)
def test_an_image_that_nobody_has_is_an_error(
    present: int, answer: Presence, level: Level, words: str
) -> None:
    """What cannot be known from here is a warning that says what to look at."""
    finding = judge(EDL, present, 3, RegistryAnswer(answer, "why"))

    assert (finding.level, finding.subject) == (level, "image")
    assert words in finding.text
    assert not_named().level is Level.NOTE


class _Registry(BaseHTTPRequestHandler):
    """Has `edl:1` for all, `hidden:1` for nobody, `token:1` for callers with a token."""

    def do_HEAD(self) -> None:
        """An image's manifest."""
        name = self.path.removeprefix("/v2/").partition("/")[0]
        wants_token = name in ("token", "basic") and "Authorization" not in self.headers
        status = {"edl": 200, "none": 404, "hidden": 403, "broken": 500, "basic": 401}.get(
            name, 200
        )
        self.send_response(401 if wants_token else status)
        if wants_token:
            host = self.headers["Host"]
            realm = f'Bearer realm="http://{host}/token",service="s",scope="repository:token:pull"'
            self.send_header("WWW-Authenticate", 'Basic realm="x"' if name == "basic" else realm)
        self.end_headers()

    def do_GET(self) -> None:
        """A token."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"token": "abc"}' if "scope=repository" in self.path else b"no")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def _registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_registry_is_asked_as_a_kubelet_without_credentials_would() -> None:
    """Where it wants a token, for the one that it gives to everybody."""
    with _registry() as host:
        answers = {
            name: registry.ask(parse(f"{host}/{name}:1"))
            for name in ("edl", "none", "hidden", "token", "basic", "broken")
        }

    assert {name: answer.presence for name, answer in answers.items()} == {
        "edl": Presence.FOUND,
        "none": Presence.MISSING,
        "hidden": Presence.HIDDEN,
        "token": Presence.FOUND,
        "basic": Presence.HIDDEN,
        "broken": Presence.UNKNOWN,
    }
    assert answers["broken"].detail == "it answers with status 500"


def test_a_registry_that_is_not_there_is_one_line() -> None:
    """Most are not reached from everywhere."""
    with _registry() as host:
        gone = ImageReference(host, "edl", "1", "")
    answer = registry.ask(gone)

    assert answer.presence is Presence.UNKNOWN
    assert "refused" in answer.detail
    assert "\n" not in answer.detail
