"""The environment variables of a trainer, and a report of those that do not exist."""

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
"""Programs with variables of their own, EDL_MASTER_LISTEN and the like, which they check."""
TRAINERS = (
    "EDL_ADDRESS",
    "EDL_DATA",
    "EDL_EPOCHS",
    "EDL_EXCHANGE_PORT",
    "EDL_GRACE_S",
    "EDL_INDEX",
    "EDL_JAX_SERVICES",
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
    """Returns how often each record is trained on where the program does not say it: EDL_EPOCHS, or 1.

    Raises:
        SettingError: It is not a whole number, or too large.
    """
    return whole(os.environ, "EDL_EPOCHS", maximum=_MAX_EPOCHS) or 1


def whole(environ: Mapping[str, str], name: str, *, maximum: int) -> int:
    """Returns the whole number of a variable; 0 where it is missing or empty.

    Raises:
        SettingError: It is none, or above `maximum`.
    """
    text = environ.get(name, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or int(text) > maximum:
        raise SettingError(f"{name} is {text!r:.30}: write a whole number from 0 to {maximum}")
    return int(text)


@lru_cache(maxsize=1)
def report_unknown() -> None:
    """Logs one warning for each variable that does not exist, once in a process."""
    for text in unknown_variables(os.environ):
        log.warning("%s", text)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns a text for each variable EDL_... that does not exist but resembles one; no values.

    Others belong to other software: to a component of EDL, or to the user's program. Variables
    that Kubernetes sets for Services called edl-... are left out, too.
    """
    services = [name[: -len(_SERVICE)] for name in environ if name.endswith(_SERVICE)]
    of_others = tuple(f"{_PREFIX}{name}_".upper() for name in COMPONENTS) + tuple(
        f"{service}{part}" for service in services for part in ("_SERVICE_", "_PORT")
    )
    return [
        f"the variable {name} does not exist{hint}"
        for name in sorted(set(environ).difference(TRAINERS))
        if name.startswith(_PREFIX) and not name.startswith(of_others)
        for hint in [advice(name, TRAINERS, _PREFIX)]
        if hint
    ]
