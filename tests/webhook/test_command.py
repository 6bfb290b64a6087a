"""The webhook's command line, without a process or a socket of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from kube import config
from runtime import logs, supervisor
from webhook import __main__ as command
from webhook.settings import WebhookSettings


class Client:
    """A stand-in for `kube.client.Client`."""

    def __init__(self, connection: Configuration, *, user_agent: str) -> None:
        self.connection = connection
        self.user_agent = user_agent
        self.closed = False

    def close(self) -> None:
        """Gives its connections back."""
        self.closed = True


@dataclass
class Happened:
    """A recorder of the command's actions, in order."""

    connection: Configuration = field(default_factory=Configuration)
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    servers: list[tuple[Any, ...]] = field(default_factory=list)
    build: Callable[[], Any] = lambda: None
    settings: WebhookSettings = field(default_factory=WebhookSettings)

    def client(self, connection: Configuration, *, user_agent: str) -> Client:
        """A new one."""
        self.clients.append(Client(connection, user_agent=user_agent))
        return self.clients[-1]

    def server(self, *arguments: Any) -> Any:
        """Stands in for `webhook.server.WebhookServer`."""
        self.servers.append(arguments)
        return self

    def service(self) -> str:
        """Stands in for `WebhookServer.service`."""
        return "service"

    def serve(self, settings: WebhookSettings, build: Callable[[], Any]) -> None:
        """Stands in for `runtime.supervisor.run`."""
        self.settings, self.build = settings, build
        self.steps.append(("serve",))


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> Happened:
    """A command with stand-ins for server and API."""
    recorded = Happened()

    def load(path: Path | None, context: str | None) -> Configuration:
        recorded.steps.append(("load", path, context))
        return recorded.connection

    def setup(room: str, *, level: str, form: str) -> None:
        recorded.steps.append(("logs", room, level, form))

    def first(client: Client, settings: WebhookSettings) -> Path:
        assert not client.closed
        recorded.steps.append(("certificate", settings.namespace))
        return Path("/run/server.pem")

    monkeypatch.setattr(config, "load", load)
    monkeypatch.setattr(logs, "setup", setup)
    monkeypatch.setattr(supervisor, "exit_on_signals", lambda: recorded.steps.append(("signals",)))
    monkeypatch.setattr(supervisor, "run", recorded.serve)
    monkeypatch.setattr(command, "first_certificate", first)
    monkeypatch.setattr(command, "Client", recorded.client)
    monkeypatch.setattr(command, "WebhookServer", recorded.server)
    return recorded


def test_it_serves_with_a_certificate_of_its_own(happened: Happened) -> None:
    """Made before it serves, with connections that the worker does not share."""
    flags = ["--namespace=edl", "--context=c", "--log-level=debug", "--log-format=text"]
    code = command.main([*flags, "--kubeconfig=k"])
    built = happened.build()
    first, second = happened.clients

    assert code == 0
    assert happened.steps == [
        ("load", Path("k"), "c"),
        ("logs", "webhook", "debug", "text"),
        ("signals",),
        ("certificate", "edl"),
        ("serve",),
    ]
    assert happened.settings.tls_cert == Path("/run/server.pem")
    assert first.closed
    assert not second.closed
    assert built == "service"
    assert happened.servers == [(second, happened.settings, True)]
    for client in happened.clients:
        assert (client.connection, client.user_agent) == (happened.connection, "edl-webhook")


def test_a_certificate_that_is_given_is_not_looked_after(happened: Happened) -> None:
    """Another program renews it."""
    command.main(["--tls-cert=mine.pem"])
    happened.build()
    (client,) = happened.clients

    assert ("certificate", "edl-system") not in happened.steps
    assert happened.settings.tls_cert == Path("mine.pem")
    assert happened.servers == [(client, happened.settings, False)]


@pytest.mark.parametrize(
    ("argv", "texts"),
    [
        (
            [],
            [
                "usage: python -m webhook ",
                "EDL's admission webhook. Without a command, it serves until SIGTERM.\n",
                "\ncommands:\n",
                "show how admission would change the objects in a file\n",
            ],
        ),
        (
            ["dry-run"],
            [
                "YAML file with Jobs, Pods, workloads or the policy\n",
                "policy document to use (default: the default policy)\n",
            ],
        ),
    ],
)
def test_help_says_what_there_is(
    argv: list[str],
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The help of the command and of its subcommand."""
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        command.main([*argv, "--help"])
    out = capsys.readouterr().out

    assert ended.value.code == 0
    for text in texts:
        assert text in out
