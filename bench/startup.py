"""Servers of benchmarks, which are processes: when they accept connections."""

import socket
import subprocess
from time import perf_counter, sleep

STARTED_S = 60.0
"""Time limit of a start."""
_LOOK_S = 0.01


def accepts(port: int, process: "subprocess.Popen[bytes]") -> bool:
    """Waits until a server accepts connections.

    Args:
        port: Of this machine.
        process: The server.

    Returns:
        False if it ended, or did not accept any in time.
    """
    until_s = perf_counter() + STARTED_S
    while perf_counter() < until_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), STARTED_S).close()
        except ConnectionRefusedError:
            sleep(_LOOK_S)
        else:
            return True
    return False
