"""JAX's coordination service in a process of its own: it must not end with the trainer of rank 0.

    python -m edl.jax.service HOST

reads numbers of members from its input, a line each, starts a service for each, and writes its
address. It outlives the process that has started it by `_LINGER_S`, so that members of a round
whose rank 0 is lost keep the service until the next round has one.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import Any

from edl.errors import RoundOver

_LINGER_S = 60.0
HEARTBEAT_S = 86_400
"""After which the service takes a member for dead; it decides nothing, as the master does."""


class CoordinationService:
    """A handle of the service's process, which starts with the first round that needs it."""

    def __init__(self, host: str) -> None:
        """Starts nothing yet.

        Args:
            host: This trainer's, at which the others reach it.
        """
        self._host = host
        self._process: subprocess.Popen[str] | None = None

    def serve(self, members: int) -> str:
        """Starts the service of a round; returns its address.

        Raises:
            RoundOver: The process has ended; the next call starts another.
        """
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "edl.jax.service", self._host]
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RoundOver("the coordination service has no pipes")
        try:
            print(members, file=stdin, flush=True)
            address = stdout.readline().strip()
        except OSError as error:
            raise RoundOver(f"the coordination service has ended: {error}") from error
        if not address:
            raise RoundOver("the coordination service has ended: see its lines above")
        return address

    def close(self) -> None:
        """Lets the process end; it lingers for members that still need it."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def main(host: str) -> None:
    """Serves one round after the other."""
    from jaxlib import _jax  # noqa: PLC0415 - the class above runs without it

    services: list[Any] = []
    for line in sys.stdin:
        with socket.create_server((host, 0)) as free:
            port = free.getsockname()[1]
        address = f"{host}:{port}"
        services.append(
            _jax.get_distributed_runtime_service(
                address,
                int(line),
                heartbeat_timeout=HEARTBEAT_S,
                shutdown_timeout=1,
                recoverable=True,
            )
        )
        del services[:-2]  # members of the round before may still be about to leave it
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
    threading.Event().wait(_LINGER_S)


if __name__ == "__main__":
    main(sys.argv[1])
