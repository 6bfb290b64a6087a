"""JAX's coordination service of one round, as a process: `python -m edl.jax.service HOST`.

It reads the number of members from its input, and writes its address. It ends with who has started
it, and always without its destructor, which would tell the members: JAX would abort the process of each.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

FOREVER_S = 10 * 365 * 86_400
"""The time-outs of service and members: JAX aborts a process where one is over. The master decides who is a member."""


def main(host: str) -> None:
    """Serves one round."""
    from jaxlib import _jax  # noqa: PLC0415 - edl.jax.services reads the constant without it

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it at once, without destructors
    line = sys.stdin.readline()
    if not line:
        return  # no round needed it
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    address = f"{host}:{port}"
    _service = _jax.get_distributed_runtime_service(
        address,
        int(line),
        heartbeat_timeout=FOREVER_S,
        cluster_register_timeout=FOREVER_S,
        shutdown_timeout=1,
        recoverable=True,
    )
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    sys.stdin.read()  # until nobody holds the other end
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
