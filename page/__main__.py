"""`python -m page`: serves the page until SIGTERM."""

import ipaddress
import sys
from collections.abc import Sequence
from functools import partial

from kube import config
from kube.errors import ConfigError
from page.service import build
from page.settings import PageSettings
from runtime import supervisor
from runtime.serve import ServeError
from runtime.settings import address

_DESCRIPTION = (
    "Read-only page with jobs, reclaims, decisions and use of the cluster, limited to the permissions of "
    "the viewer. Serves until SIGTERM."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code is 1 after an error, 2 for invalid arguments."""
    settings = PageSettings.from_command_line(_DESCRIPTION, argv)
    if settings.tls_cert is None and not _is_local(settings.listen):
        print(
            f"page: --listen {settings.listen} needs --tls-cert, because callers send tokens: set a "
            "certificate, or listen on 127.0.0.1",
            file=sys.stderr,
        )
        return 2
    settings.start_logging()
    try:
        connection = config.load(settings.kubeconfig)  # in `try`: prints errors as one line
        supervisor.run(settings, partial(build, settings, connection))
    except (OSError, ConfigError, ServeError) as error:
        print(f"page: {error}", file=sys.stderr)
        return 1
    return 0


def _is_local(listen: str) -> bool:
    """Returns whether an address is a loopback address."""
    host, _ = address(listen)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
