"""An agent's coordination services: the trainers of its pod get them from it, through a socket of its own user.

A trainer sends the number of members in a line, and receives the address; an empty answer means that
there is none.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from edl.errors import RoundOver, one_line
from edl.jax.services import CoordinationServices

log = logging.getLogger("edl")

VARIABLE = "EDL_JAX_SERVICES"
"""The socket's path, in the environment of an agent's processes."""
_MAX_MEMBERS = 100_000
_MAX_LINE = 300
_REQUEST_S = 5.0
_ANSWER_S = 60.0


class ServicesSocket:
    """The agent's end: answers one trainer after the other on a thread of its own."""

    def __init__(self, services: CoordinationServices) -> None:
        """Listens.

        Raises:
            OSError: There is no folder for a socket.
        """
        self._services = services
        self._folder = Path(tempfile.mkdtemp(prefix="edl-"))  # of this user alone
        self.path = str(self._folder / "jax")
        """Where trainers find it."""
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(self.path)
            self._listener.listen()
        except OSError:
            self.close()
            raise
        threading.Thread(target=self._run, name="edl-jax-services", daemon=True).start()

    def close(self) -> None:
        """Ends it, and the services."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread's call
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._services.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_REQUEST_S)
            members = _members(_read_line(connection))
            connection.sendall(f"{self._services.serve(members)}\n".encode())
        except (OSError, ValueError, RoundOver) as error:
            log.warning("a trainer of this agent has no coordination service: %s", one_line(error))


class AgentServices:
    """A trainer's end of it, in the place of `CoordinationServices`."""

    def __init__(self, path: str) -> None:
        """Makes no call yet.

        Args:
            path: The agent's socket.
        """
        self._path = path

    def serve(self, members: int) -> str:
        """As `CoordinationServices.serve`; the service lives on where this process is lost."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_ANSWER_S)
                connection.connect(self._path)
                connection.sendall(f"{members}\n".encode())
                address = _read_line(connection)
        except OSError as error:
            raise RoundOver(f"the agent does not answer at {self._path}: {error}") from error
        if not address:
            raise RoundOver("the agent has no coordination service: see its lines")
        return address

    def close(self) -> None:
        """The services are the agent's."""


def _read_line(connection: socket.socket) -> str:
    """Returns the line without its end; "" if it is too long, or the other end closed before it."""
    with connection.makefile("rb") as stream:
        line = stream.readline(_MAX_LINE)
    return line.decode("ascii", "replace").strip() if line.endswith(b"\n") else ""


def _members(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= _MAX_MEMBERS):
        raise ValueError(f"{text!r:.40} is not a number of members")
    return int(text)
