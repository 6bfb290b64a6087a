"""Free ports on 127.0.0.1."""

from edl.local.ports import free_ports

from e2e.cluster.components import COMPONENTS, Ports

_TAKEN = "address already in use"


def pick() -> Ports:
    """Ports that are free now; another process may take one before it is used (`is_collision`)."""
    numbers = free_ports(len(COMPONENTS) + 1)
    return Ports(by_name=dict(zip(COMPONENTS, numbers, strict=False)), etcd_peer=numbers[-1])


def is_collision(message: str) -> bool:
    """Returns whether a component's last words are that its port is in use."""
    return _TAKEN in message
