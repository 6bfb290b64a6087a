"""`python -m webhook`: serves admission, or shows what it would do to a file (dry-run)."""

import sys
from collections.abc import Sequence
from pathlib import Path

from kube import config
from kube.client import Client
from kube.errors import ConfigError
from policy.document import parser as document
from policy.document.model import Policy
from policy.errors import DocumentError
from policy.priority_classes import EDL_CLASSES
from runtime import supervisor
from runtime.command_line import Parser
from runtime.printable import printable
from runtime.serve import ServeError
from webhook import dryrun
from webhook.review import AdmissionContext
from webhook.server import WebhookServer, first_certificate
from webhook.settings import WebhookSettings

_AGENT = "edl-webhook"
_OWN_IMAGE = "edl"
"""The default image of masters in a dry run."""
_DESCRIPTION = "EDL's admission webhook. Without a command, it serves until SIGTERM."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code is 1 after a refusal or an error, 2 for a usage error."""
    parser = Parser(prog="python -m webhook", description=_DESCRIPTION)
    WebhookSettings.add_flags(parser)
    commands = parser.add_subparsers(dest="command", title="commands")
    dry = commands.add_parser(
        "dry-run", help="show how admission would change the objects in a file"
    )
    dry.add_argument("file", type=Path, help="YAML file with Jobs, Pods, workloads or the policy")
    dry.add_argument(
        "--policy", type=Path, help="policy document to use (default: the default policy)"
    )
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "dry-run":
            image = arguments.master_image or _OWN_IMAGE
            return _dry_run(arguments.file, arguments.policy, image)
        return _serve(WebhookSettings.from_parsed(arguments))
    except (
        OSError,
        UnicodeDecodeError,
        ConfigError,
        DocumentError,
        dryrun.FileError,
        ServeError,
    ) as error:
        print(f"webhook: {printable(error)}", file=sys.stderr)
        return 1


def _dry_run(file: Path, policy_file: Path | None, master_image: str) -> int:
    policy = Policy() if policy_file is None else document.parse(policy_file.read_text())
    report = dryrun.report(
        file.read_text(), AdmissionContext(policy, EDL_CLASSES, master_image=master_image)
    )
    print("\n".join(report.lines))
    return 1 if report.refused else 0


def _serve(settings: WebhookSettings) -> int:
    connection = config.load(settings.kubeconfig, settings.context)
    settings.start_logging()
    supervisor.exit_on_signals()
    managed = settings.tls_cert is None
    if managed:
        client = Client(connection, user_agent=_AGENT)
        file = first_certificate(client, settings)
        client.close()  # the worker must not share connections with its parent
        settings = settings.model_copy(update={"tls_cert": file})
    supervisor.run(
        settings,
        lambda: WebhookServer(Client(connection, user_agent=_AGENT), settings, managed).service(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
