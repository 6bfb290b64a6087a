"""The environment variables of a trainer, and warnings about misspelt variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import lru_cache

from edl.errors import SettingError
from edl.nearest import advice

log = logging.getLogger("edl")

_PREFIX = "EDL_"
_SERVICE = "_SERVICE_HOST"
_MAX_EPOCHS = 1_000_000
COMPONENTS = ("extender", "master", "page", "pserver", "reconciler", "webhook")
"""Programs that have and check their own variables, such as EDL_MASTER_LISTEN."""
TRAINERS = (
    "EDL_ADDRESS",
    "EDL_DATA",
    "EDL_EPOCHS",
    "EDL_EXCHANGE_PORT",
    "EDL_GRACE_S",
    "EDL_INDEX",
    "EDL_JOB",
    "EDL_MASTER",
    "EDL_MASTER_HOST",
    "EDL_MAX_TRAINERS",
    "EDL_PARAMETER_SERVERS",
    "EDL_PATIENCE_S",
    "EDL_PROCESSES",
    "EDL_ROLE",
    "EDL_SERVER_HOSTS",
    "EDL_SNAPSHOTS",
    "EDL_SNAPSHOT_BYTES",
    "EDL_SNAPSHOT_ROUND",
    "EDL_TOKEN",
    "EDL_TOKEN_FILE",
    "EDL_TRAINER",
)


def epochs() -> int:
    """Returns the default number of epochs: EDL_EPOCHS, or 1.

    Raises:
        SettingError: EDL_EPOCHS is not a whole number, or too large.
    """
    return whole(os.environ, "EDL_EPOCHS", maximum=_MAX_EPOCHS) or 1


def whole(environ: Mapping[str, str], name: str, *, maximum: int) -> int:
    """Returns a variable as a whole number; 0 if it is missing or empty.

    Raises:
        SettingError: The value is not a whole number, or above `maximum`.
    """
    text = environ.get(name, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or int(text) > maximum:
        raise SettingError(f"{name} is {text!r:.30}: write a whole number from 0 to {maximum}")
    return int(text)


@lru_cache(maxsize=1)
def report_unknown() -> None:
    """Logs a warning for each misspelt variable, once per process."""
    for text in unknown_variables(os.environ):
        log.warning("%s", text)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns a message for each unknown variable EDL_... whose name resembles a known name.

    Other unknown variables belong to other software: an EDL component or the user's program. Variables that
    Kubernetes sets for Services named edl-... are ignored, too. The messages do not contain values.
    """
    services = [name[: -len(_SERVICE)] for name in environ if name.endswith(_SERVICE)]
    foreign_prefixes = tuple(f"{_PREFIX}{name}_".upper() for name in COMPONENTS) + tuple(
        f"{service}{part}" for service in services for part in ("_SERVICE_", "_PORT")
    )
    return [
        f"the variable {name} does not exist{hint}"
        for name in sorted(set(environ).difference(TRAINERS))
        if name.startswith(_PREFIX) and not name.startswith(foreign_prefixes)
        for hint in [advice(name, TRAINERS, _PREFIX)]
        if hint
    ]
