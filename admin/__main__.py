"""`python -m admin`: commands for cluster admins, with the permissions of the caller's kubeconfig."""

import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from admin import checks, findings, scheduler_config, servers
from admin.after import pem
from admin.before import in_host_network
from admin.checks import Ask
from admin.reader import Reader
from admin.scheduler_config import ClientFiles
from kube import config, request
from kube.client import Client
from kube.errors import ConfigError, Forbidden, KubeError
from policy.names import SYSTEM_NAMESPACE
from runtime import clock
from runtime.command_line import Parser
from runtime.printable import printable

_SERVICE = "edl-extender"


class CommandError(Exception):
    """A command cannot carry out the request; the message is one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code is 1 if it finds an error or fails, 2 for invalid arguments."""
    arguments = _parser().parse_args(argv)
    try:
        connection = config.load(arguments.kubeconfig, arguments.context)
        reader = Reader(Client(connection, user_agent="edl-admin"))
        commands: dict[str, Callable[[Reader, Namespace], int]] = {
            "check": _check,
            "doctor": _doctor,
            "remains": _remains,
            "scheduler-config": _scheduler_config,
        }
        _greet(reader)
        run = commands[arguments.command]
        return run(reader, arguments)
    except (OSError, ConfigError, KubeError, CommandError) as fault:
        print(f"admin: {printable(fault)}", file=sys.stderr)
        return 1


def _greet(reader: Reader) -> None:
    """Sends the API server a request that every user may send.

    Raises:
        CommandError: The API server does not respond, or rejects the caller, so no check would work.
    """
    try:
        reader.version()
    except Forbidden:
        return
    except KubeError as fault:
        raise CommandError(
            f"{fault}; use --kubeconfig or --context to select another cluster"
        ) from fault


def _parser() -> Parser:
    parser = Parser(prog="python -m admin", description=__doc__)
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig file; default: the one that kubectl uses"
    )
    parser.add_argument("--context", help="context of the kubeconfig; default: the current context")
    parser.add_argument(
        "--kubectl", default="kubectl", help="kubectl program; default: %(default)s"
    )
    _add_commands(parser)
    return parser


def _add_commands(parser: Parser) -> None:
    """Adds the commands. As with kubectl, the flags of all commands may also follow the command's name."""
    commands = parser.add_subparsers(dest="command", required=True, title="commands")
    check = commands.add_parser(
        "check", help="check before the installation whether the cluster is ready for EDL"
    )
    check.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="namespace for elastic Jobs; may be repeated",
    )
    commands.add_parser("doctor", help="check after the installation whether EDL works")
    commands.add_parser(
        "remains", help="show how a removal affects jobs, and which objects of EDL are left"
    )
    render = commands.add_parser(
        "scheduler-config", help="print kube-scheduler's configuration with the extender's entries"
    )
    render.add_argument(
        "--host", help="address of the extender; default: its Service, by IP address if needed"
    )
    render.add_argument(
        "--certificates", type=Path, help="folder with client.crt and client.key to include"
    )
    render.add_argument(
        "--folder",
        default="/etc/kubernetes/edl",
        help="folder of these files on kube-scheduler's machine; default: %(default)s",
    )
    for command in commands.choices.values():
        for flag, kind in (("--kubeconfig", Path), ("--context", str), ("--kubectl", str)):
            command.add_argument(flag, type=kind, default=SUPPRESS, help=SUPPRESS)


def _show(results: list[findings.Finding]) -> int:
    print(findings.report(results))
    return int(findings.failed(results))


def _check(reader: Reader, arguments: Namespace) -> int:
    return _show(checks.check(reader, clock.now(), arguments.namespace))


def _doctor(reader: Reader, arguments: Namespace) -> int:
    return _show(checks.doctor(reader, clock.now(), _ask(arguments)))


def _remains(reader: Reader, _: Namespace) -> int:
    return _show(checks.remains(reader))


def _ask(arguments: Namespace) -> Ask:
    kubectl = [arguments.kubectl]
    if arguments.kubeconfig is not None:
        kubectl += ["--kubeconfig", str(arguments.kubeconfig)]
    if arguments.context is not None:
        kubectl += ["--context", arguments.context]
    return lambda pod: servers.readyz(kubectl, SYSTEM_NAMESPACE, pod)


def _scheduler_config(reader: Reader, arguments: Namespace) -> int:
    name = f"{_SERVICE}.{SYSTEM_NAMESPACE}.svc"
    host = arguments.host or _host(reader, name)
    files = None
    if arguments.certificates is not None:
        cert, key = (
            (arguments.certificates / f"client.{end}").read_bytes() for end in ("crt", "key")
        )
        files = ClientFiles(_ca(reader), cert, key)
    print(scheduler_config.render(host, name, files, arguments.folder), end="")
    return 0


def _host(reader: Reader, name: str) -> str:
    """Returns the extender's name, or its address if a kube-scheduler in the host network cannot resolve it."""
    if not in_host_network(reader.all(request.PODS, "kube-system")):
        return name
    service = reader.get(request.SERVICES, SYSTEM_NAMESPACE, _SERVICE) or {}
    address = service.get("spec", {}).get("clusterIP")
    if not address or address == "None":
        raise CommandError(f"Service {_SERVICE} has no address: install EDL first, or set --host")
    return str(address)


def _ca(reader: Reader) -> bytes:
    secret = reader.get(request.SECRETS, SYSTEM_NAMESPACE, f"{_SERVICE}-tls") or {}
    ca = pem(secret.get("data", {}).get("ca.crt", ""))
    if not ca:
        raise CommandError(f"Secret {_SERVICE}-tls has no ca.crt: see step 1 of docs/install.md")
    return ca


if __name__ == "__main__":
    sys.exit(main())
