"""The agent's end and a trainer's of a socket for coordination services, with fake services."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl.errors import RoundOver
from edl.jax.agent_services import AgentServices, ServicesSocket
from edl.jax.services import CoordinationServices


class Fake(CoordinationServices):
    """Services that are names."""

    is_lost = is_closed = False

    def serve(self, members: int) -> str:
        """Names one."""
        if self.is_lost:
            raise RoundOver("the coordination service has ended")
        return f"10.0.0.1:{members}"

    def close(self) -> None:
        """Notes it."""
        self.is_closed = True


@pytest.fixture
def services() -> Fake:
    """Of an agent."""
    return Fake("10.0.0.1")


@pytest.fixture
def agent(services: Fake) -> Iterator[ServicesSocket]:
    """The agent's end."""
    running = ServicesSocket(services)
    yield running
    running.close()


def test_each_round_gets_an_address(agent: ServicesSocket) -> None:
    """Whichever of the agent's processes asks."""
    assert AgentServices(agent.path).serve(3) == "10.0.0.1:3"
    assert AgentServices(agent.path).serve(4) == "10.0.0.1:4"


def test_a_service_that_is_lost_ends_the_round(services: Fake, agent: ServicesSocket) -> None:
    """The next round asks again."""
    services.is_lost = True
    with pytest.raises(RoundOver, match="the agent has no coordination service"):
        AgentServices(agent.path).serve(3)
    services.is_lost = False
    assert AgentServices(agent.path).serve(3) == "10.0.0.1:3"


@pytest.mark.parametrize("text", [b"", b"0\n", b"-1\n", b"x\n", b"100001\n", b"1" * 400, b"\xff\n"])
def test_what_is_no_number_of_members_gets_no_address(agent: ServicesSocket, text: bytes) -> None:
    """Such as a trainer's last words; the agent goes on."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5.0)
        connection.connect(agent.path)
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # it did not read all of it
            assert connection.recv(100) == b""
    assert AgentServices(agent.path).serve(2) == "10.0.0.1:2"


def test_others_of_the_machine_cannot_reach_it(agent: ServicesSocket) -> None:
    """Its folder is of this user alone."""
    assert Path(agent.path).parent.stat().st_mode & 0o077 == 0


def test_an_agent_that_is_gone_ends_the_round(services: Fake, agent: ServicesSocket) -> None:
    """With its path; services were closed, and the folder is gone."""
    agent.close()
    assert services.is_closed
    assert not Path(agent.path).parent.exists()
    with pytest.raises(RoundOver, match="the agent does not answer at"):
        AgentServices(agent.path).serve(3)


def test_the_agent_needs_no_jax() -> None:
    """Its services are other processes."""
    script = "import sys, edl.agent.members_agent; assert not {'jax', 'jaxlib'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0  # noqa: S603 - our own program
