"""`python -m extender`: answers kube-scheduler, or creates the certificates for both sides."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from extender import certificates
from extender.app import build
from extender.settings import ExtenderSettings
from kube import config
from kube.errors import ConfigError
from policy.names import SYSTEM_NAMESPACE
from runtime import clock, serve
from runtime.command_line import Parser

_DESCRIPTION = (
    "Filters and scores nodes for training pods and chooses preemption victims for "
    "kube-scheduler: serves until SIGTERM, unless a command is named."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code is 1 after an error, 2 for invalid arguments."""
    parser = Parser(prog="python -m extender", description=_DESCRIPTION)
    ExtenderSettings.add_flags(parser)
    commands = parser.add_subparsers(dest="command", title="commands")
    make = commands.add_parser("certificates", help="make a CA and a certificate for each side")
    make.add_argument("--out", type=Path, required=True, help="directory for the files")
    make.add_argument("--host", action="append", default=[], help="one more name of the server")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "certificates":
            return _certificates(arguments.out, tuple(arguments.host))
        settings = ExtenderSettings.from_parsed(arguments)
        settings.start_logging()
        connection = config.load(settings.kubeconfig)  # here, where an error is one line
        serve.run(settings, partial(build, settings, connection))
    except (OSError, ConfigError, serve.ServeError) as error:
        print(f"extender: {error}", file=sys.stderr)
        return 1
    return 0


def _certificates(directory: Path, hosts: tuple[str, ...]) -> int:
    certificates.write(directory, certificates.files(SYSTEM_NAMESPACE, hosts, clock.now()))
    print(
        f"wrote ca, tls and client certificates to {directory}; next:\n"
        f"  kubectl -n {SYSTEM_NAMESPACE} create secret generic edl-extender-tls \\\n"
        f"    --from-file={directory}/tls.crt --from-file={directory}/tls.key \\\n"
        f"    --from-file={directory}/ca.crt\n"
        "then name ca.crt, client.crt and client.key in the extender entries of "
        "kube-scheduler's configuration"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
