"""One whole extender process but for its socket, on a cluster in memory."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from flask.testing import FlaskClient
from kubernetes.client.configuration import Configuration

from extender import __main__ as command
from extender import app
from extender.settings import ExtenderSettings
from kube import config, request
from kube.request import CONFIGMAPS, NODES
from lab.fake_api import FakeApi
from policy.names import POLICY_CONFIGMAP, POLICY_KEY
from runtime import logs, supervisor
from tests.extender.vectors import sent
from tests.reconciler import objects
from tests.reconciler.waiting import until

SETTINGS = ExtenderSettings(namespace="edl", max_body_bytes=20_000)
MEANING = {
    "answer_seconds": "Time to answer a request.",
    "nodes_rejected_total": "Nodes that filter rejected, by reason.",
    "errors_total": "Requests that were refused.",
    "decisions_dropped_total": "Decision records dropped for newer ones.",
    "victims_total": "Training pods chosen as victims, by tier.",
    "watch_age_seconds": "Time since the last message of the quietest watch.",
}

Start = Callable[[ExtenderSettings], FlaskClient]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a process with such settings on a node and a policy; no thread is left afterwards."""
    before = set(threading.enumerate())
    api, connection = FakeApi(), Configuration()
    api.send(request.create(NODES, None, objects.node("n0", 16)))
    body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: "{}"}}
    api.send(request.create(CONFIGMAPS, "edl", body))
    stops: list[Callable[[], None]] = []
    came: list[tuple[Configuration, str]] = []

    def client(how: Configuration, *, user_agent: str) -> FakeApi:
        came.append((how, user_agent))
        return api

    def starting(settings: ExtenderSettings) -> FlaskClient:
        service = app.build(settings, connection)
        stops.append(service.stop)
        service.start()
        assert came == [(connection, "edl-extender")]
        return service.app.test_client()

    monkeypatch.setattr(app, "Client", client)
    yield starting
    for stop in stops:
        stop()
    until(lambda: set(threading.enumerate()) <= before)


def test_a_process_becomes_ready_and_answers(start: Start) -> None:
    """From the watches of the cluster, by the policy in EDL's namespace."""
    client = start(SETTINGS)
    until(lambda: client.get("/readyz").status_code == 200)
    ready: Any = client.get("/readyz").json
    answer: Any = client.post("/filter", json=sent("filter")).json

    assert ready["synced"] is True
    assert 0.0 <= ready["watch_age_seconds"] < 180.0
    assert ready["policy"]["source"] == "configmap"
    assert answer["NodeNames"] == ["n0"]
    assert client.get("/decisions").status_code == 200


def test_every_figure_says_what_it_is(start: Start) -> None:
    """One line of help each; `_created` is what the client library adds."""
    client = start(SETTINGS)
    until(lambda: client.get("/readyz").status_code == 200)
    lines = client.get("/metrics").text.splitlines()
    helps = [line for line in lines if line.startswith("# HELP edl_extender_")]
    help_texts = dict(line.removeprefix("# HELP edl_extender_").split(" ", 1) for line in helps)
    (age,) = [line for line in lines if line.startswith("edl_extender_watch_age_seconds ")]

    assert {name: help_texts[name] for name in MEANING} == MEANING
    assert 0.0 <= float(age.partition(" ")[2]) < 180.0


def test_more_than_a_question_is_refused(start: Start) -> None:
    """By the setting, before it is read."""
    client = start(SETTINGS)
    until(lambda: client.get("/readyz").status_code == 200)

    assert client.post("/filter", json={"Pod": "x" * 20_000}).status_code == 413


def test_the_candidates_of_a_large_cluster_are_no_long_body() -> None:
    """kube-scheduler sends every node with its victims; it would go on without the extender."""
    victims = {"Pods": [{"UID": "0" * 36}] * 110, "NumPDBViolations": 0}
    candidates = {f"node-{number:05}": victims for number in range(5_000)}
    body = orjson.dumps({"NodeNameToMetaVictims": candidates})

    assert len(body) < ExtenderSettings().max_body_bytes


def test_without_a_client_ca_anybody_may_ask(start: Start) -> None:
    """As on a laptop; with one, only who has a certificate."""
    open_ = start(SETTINGS)
    until(lambda: open_.get("/readyz").status_code == 200)

    assert open_.post("/filter", json=sent("filter")).status_code == 200


def test_the_command_serves_what_it_was_told_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Settings of the command line, the connection of the kubeconfig, logs as asked for."""
    served: list[tuple[Any, Any]] = []
    levels: list[tuple[str, str, str]] = []
    loaded: list[Path | None] = []
    connection = Configuration()

    def load(path: Path | None) -> Configuration:
        loaded.append(path)
        return connection

    def setup(room: str, *, level: str, form: str) -> None:
        levels.append((room, level, form))

    monkeypatch.setattr(config, "load", load)
    monkeypatch.setattr(logs, "setup", setup)
    monkeypatch.setattr(supervisor, "run", lambda settings, build: served.append((settings, build)))
    monkeypatch.setattr(command, "build", lambda *arguments: arguments)
    where = tmp_path / "kubeconfig"
    flags = ["--namespace=edl", "--log-level=debug", "--log-format=text", f"--kubeconfig={where}"]
    code = command.main(flags)

    ((settings, build),) = served
    assert code == 0
    assert settings.namespace == "edl"
    assert build() == (settings, connection)
    assert loaded == [where]
    assert levels == [("extender", "debug", "text")]


@pytest.mark.parametrize(
    ("argv", "texts"),
    [
        (
            [],
            [
                "usage: python -m extender ",
                "EDL's scheduler extender: filters and scores nodes for training pods and chooses ",
                "Without a command, it serves until SIGTERM.\n",
                "\ncommands:\n",
                "create a CA, and certificates for the server and for kube-scheduler",
            ],
        ),
        (
            ["certificates"],
            ["directory to write the files to", "additional host name of the server"],
        ),
    ],
)
def test_help_says_what_there_is(
    argv: list[str],
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the command, and of the one in it."""
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        command.main([*argv, "--help"])
    out = capsys.readouterr().out

    assert ended.value.code == 0
    for text in texts:
        assert text in out
