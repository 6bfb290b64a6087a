"""`python -m reconciler`: manages the pods of elastic jobs."""

import sys
from functools import partial

from kube import config
from kube.errors import ConfigError
from reconciler.app import build
from reconciler.settings import ReconcilerSettings
from runtime import supervisor
from runtime.serve import ServeError


def main() -> None:
    """Runs the reconciler until a signal stops it; exits with 1 and one line if it cannot start."""
    settings = ReconcilerSettings.from_command_line(
        "Watches services and elastic jobs, plans, creates and evicts trainers."
    )
    settings.start_logging()
    try:
        connection = config.load(settings.kubeconfig)  # in `try`: prints errors as one line
        supervisor.run(settings, partial(build, settings, connection))
    except (ConfigError, ServeError) as error:
        sys.stderr.write(f"reconciler: {error}\n")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
