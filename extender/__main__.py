"""`python -m extender`: answers kube-scheduler."""

import sys
from functools import partial

from extender.app import build
from extender.settings import ExtenderSettings
from kube.errors import ConfigError
from runtime import logs, serve


def main() -> None:
    """Serves until it is told to stop; exits with 1 and one line where it cannot start."""
    settings = ExtenderSettings.from_command_line(
        "Filters and scores nodes for training pods and chooses preemption victims for kube-scheduler."
    )
    logs.setup(settings.room, level=settings.log_level, form=settings.log_format)
    try:
        serve.run(settings, partial(build, settings))
    except (ConfigError, serve.ServeError) as error:
        sys.stderr.write(f"extender: {error}\n")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
