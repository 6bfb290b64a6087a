"""A member's own way to JAX's coordination service, with sockets in its place."""

import socket
from collections.abc import Iterator

import pytest
from edl.jax.relay import ServiceRelay

_SHORT_S = 0.05


@pytest.fixture
def service() -> Iterator[socket.socket]:
    """A listening socket in the place of a service."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def relay(service: socket.socket) -> Iterator[ServiceRelay]:
    """A relay to it."""
    running = ServiceRelay(f"127.0.0.1:{service.getsockname()[1]}")
    yield running
    running.close()


def _connect(relay: ServiceRelay) -> socket.socket:
    host, _, port = relay.address.rpartition(":")
    return socket.create_connection((host, int(port)), 5.0)


def test_what_is_sent_arrives_in_both_directions(
    service: socket.socket, relay: ServiceRelay
) -> None:
    """Byte for byte; each connection has its own to the service."""
    with _connect(relay) as own, service.accept()[0] as end:
        own.sendall(b"question")
        assert end.recv(100) == b"question"
        end.sendall(b"answer")
        assert own.recv(100) == b"answer"


def test_a_connection_stays_open_where_the_service_is_lost(
    service: socket.socket, relay: ServiceRelay
) -> None:
    """JAX would end its process otherwise; it only waits for an answer."""
    with _connect(relay) as own:
        service.accept()[0].close()
        service.close()
        own.sendall(b"is somebody there")
        own.settimeout(_SHORT_S)
        with pytest.raises(TimeoutError):
            own.recv(100)
        relay.close()
        own.settimeout(5.0)
        assert own.recv(100) == b""


def test_a_service_that_cannot_be_reached_is_tried_again_with_the_next_connection(
    service: socket.socket, relay: ServiceRelay
) -> None:
    """The connection ends at once, as a refused one does."""
    service.close()
    with _connect(relay) as own:
        assert own.recv(100) == b""
    with _connect(relay) as again:
        assert again.recv(100) == b""
