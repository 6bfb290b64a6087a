import socket

from e2e.cluster.components import COMPONENTS
from e2e.cluster.ports import is_collision, pick


def test_every_component_gets_a_port_that_is_free() -> None:
    """All differ, etcd's second one included, and can be bound."""
    ports = pick()
    numbers = [*ports.by_name.values(), ports.etcd_peer]

    assert set(ports.by_name) == set(COMPONENTS)
    assert len(set(numbers)) == len(COMPONENTS) + 1
    for number in numbers:
        socket.create_server(("127.0.0.1", number)).close()
    assert ports.url == f"https://127.0.0.1:{ports.by_name['kube-apiserver']}"


def test_a_taken_port_is_recognised() -> None:
    """From what Go programs say about it, and nothing else."""
    assert is_collision("listen tcp 127.0.0.1:1: bind: address already in use")
    assert not is_collision("permission denied")
