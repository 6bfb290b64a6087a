"""This process's session: a process is one trainer."""

from __future__ import annotations

import logging
import threading

from edl import settings
from edl.session import Session

log = logging.getLogger("edl")

_default: Session | None = None
_default_lock = threading.Lock()


def session() -> Session:
    """This process's session, made from the environment when it is first asked for.

    Raises:
        SettingError: The environment does not say where the master is.
    """
    global _default  # noqa: PLW0603 - a process is one trainer
    with _default_lock:
        if _default is None or (_default.over and not _default.exits):
            show_logs()
            _default = Session(settings.load())
        return _default


def show_logs() -> None:
    """One-line logs on stderr, unless the program has set up logging itself."""
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s edl %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
