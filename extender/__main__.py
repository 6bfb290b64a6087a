"""`python -m extender`: answers kube-scheduler, or creates the certificates for both sides."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kubernetes.client.configuration import Configuration

from extender import certificates
from extender.app import build
from extender.settings import ExtenderSettings
from extender.tls_files import TlsFiles
from kube import config
from kube.client import Client
from kube.errors import ConfigError
from policy.names import SYSTEM_NAMESPACE
from runtime import certs, clock, extender_tls, supervisor
from runtime.certs import Pair
from runtime.command_line import Parser
from runtime.serve import ServeError

_DESCRIPTION = (
    "EDL's scheduler extender: filters and scores nodes for training pods and chooses preemption "
    "victims for kube-scheduler. Without a command, it serves until SIGTERM."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code is 1 after an error, 2 for invalid arguments."""
    parser = Parser(prog="python -m extender", description=_DESCRIPTION)
    ExtenderSettings.add_flags(parser)
    commands = parser.add_subparsers(dest="command", title="commands")
    make = commands.add_parser(
        "certificates", help="create a CA, and certificates for the server and for kube-scheduler"
    )
    make.add_argument("--out", type=Path, required=True, help="directory to write the files to")
    make.add_argument(
        "--host",
        action="append",
        default=[],
        help="additional host name of the server; may be repeated",
    )
    make.add_argument(
        "--renew",
        action="store_true",
        help="renew the certificates with the CA in --ca, for the names in its tls.crt",
    )
    make.add_argument("--ca", type=Path, help="directory with ca.crt, ca.key and tls.crt")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "certificates":
            if arguments.renew != (arguments.ca is not None):
                make.error(
                    "--renew needs --ca, the directory with ca.crt, ca.key and tls.crt"
                    if arguments.renew
                    else "--ca needs --renew: without --renew, a new CA is created"
                )
            return _certificates(arguments.out, tuple(arguments.host), arguments.ca)
        settings = ExtenderSettings.from_parsed(arguments)
        settings.start_logging()
        connection = config.load(
            settings.kubeconfig
        )  # inside `try`: an error is reported as one line
        settings = _with_certificates(settings, connection)
        supervisor.run(settings, partial(build, settings, connection))
    except (OSError, ConfigError, ServeError, certificates.CaError) as error:
        print(f"extender: {error}", file=sys.stderr)
        return 1
    return 0


def _with_certificates(settings: ExtenderSettings, connection: Configuration) -> ExtenderSettings:
    """Returns the settings with the files of --tls-secret, after waiting until they exist."""
    if not settings.tls_secret:
        return settings
    supervisor.exit_on_signals()
    client = Client(connection, user_agent="edl-extender")
    files = TlsFiles(client, settings)
    files.wait()
    client.close()  # a worker process must not share connections with its parent
    return settings.model_copy(update={"tls_cert": files.server, "client_ca": files.client_ca})


def _certificates(directory: Path, hosts: tuple[str, ...], ca_directory: Path | None) -> int:
    if ca_directory is not None:
        return _renew(directory, hosts, ca_directory)
    certificates.write(directory, extender_tls.files(SYSTEM_NAMESPACE, hosts, clock.now()))
    print(
        f"Wrote the CA, server and client certificates to {directory}. Next, create the Secret:\n"
        f"  kubectl -n {SYSTEM_NAMESPACE} create secret generic edl-extender-tls \\\n"
        f"    --from-file={directory}/tls.crt --from-file={directory}/tls.key \\\n"
        f"    --from-file={directory}/ca.crt\n"
        "Then set ca.crt, client.crt and client.key in the extender entries of kube-scheduler's\n"
        "configuration. Keep ca.key outside of the cluster and of repositories: it is needed only for\n"
        "certificates --renew, and its owner can call the extender as kube-scheduler."
    )
    return 0


def _renew(directory: Path, extra_hosts: tuple[str, ...], ca_directory: Path) -> int:
    ca = Pair((ca_directory / "ca.crt").read_bytes(), (ca_directory / "ca.key").read_bytes())
    hosts = certs.hosts((ca_directory / "tls.crt").read_bytes())
    files = certificates.renewed(
        ca, tuple(dict.fromkeys((*hosts, *extra_hosts))), SYSTEM_NAMESPACE, clock.now()
    )
    certificates.write(directory, files)
    print(
        f"Wrote renewed server and client certificates to {directory}. Next, update the Secret:\n"
        f"  kubectl -n {SYSTEM_NAMESPACE} create secret generic edl-extender-tls \\\n"
        f"    --from-file={directory}/tls.crt --from-file={directory}/tls.key \\\n"
        f"    --from-file={directory}/ca.crt --dry-run=client -o yaml | kubectl apply -f -\n"
        "The extender loads it without a restart. Then replace client.crt and client.key of\n"
        "kube-scheduler, and restart kube-scheduler."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
