"""Free ports on 127.0.0.1."""

import socket
from contextlib import ExitStack

from e2e.cluster.components import COMPONENTS, Ports

_TAKEN = "address already in use"


def pick() -> Ports:
    """Ports that are free now; somebody else may take one before it is used (`is_collision`)."""
    with ExitStack() as stack:  # all are held until all are chosen, so that they differ
        numbers = []
        for _ in range(len(COMPONENTS) + 1):
            holder = stack.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            numbers.append(int(holder.getsockname()[1]))
    return Ports(by_name=dict(zip(COMPONENTS, numbers, strict=False)), etcd_peer=numbers[-1])


def is_collision(message: str) -> bool:
    """Whether a component's last words are that its port is in use."""
    return _TAKEN in message
