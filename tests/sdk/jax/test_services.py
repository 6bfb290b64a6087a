"""Coordination services as processes, and members that still use them: JAX aborts those that are told of an end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl.errors import RoundOver
from edl.jax.services import CoordinationServices

JAX = Path(os.environ.get("EDL_JAX_PATH") or Path(__file__).parents[3] / "build/jax")
LIMIT_S = 100.0
MEMBER = """
import sys
from edl.jax.relay import ServiceRelay
from edl.jax.service import FOREVER_S
from jaxlib import _jax

relay = ServiceRelay(sys.argv[1])
client = _jax.get_distributed_runtime_client(
    relay.address, 0, init_timeout=FOREVER_S, shutdown_timeout=1, heartbeat_timeout=FOREVER_S, shutdown_on_destruction=False
)
client.connect()
print("connected", flush=True)
sys.stdin.readline()
client.shutdown()
print("left", flush=True)
"""


@pytest.fixture
def services() -> Iterator[CoordinationServices]:
    """Services of this machine, of which nothing lingers."""
    running = CoordinationServices("127.0.0.1")
    yield running
    processes = [each for each in (*running._running, running._next) if each]  # noqa: SLF001 - see above
    running.close()
    for process in processes:
        process.kill()
        process.wait()


needs_jax = pytest.mark.skipif(
    not (JAX / "jax").exists(), reason="no jax here: `make jax` installs it"
)


@needs_jax
@pytest.mark.parametrize("how", ["two rounds later", "SIGINT"])
def test_a_member_outlives_its_service(
    how: str, services: CoordinationServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the service ends; the member leaves it in order after that."""
    monkeypatch.setenv("PYTHONPATH", str(JAX))
    command = [sys.executable, "-c", MEMBER, services.serve(1)]
    service = services._running[0]  # noqa: SLF001 - it is the process that ends
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    member = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]  # noqa: S603 - our own program
    try:
        assert member.stdout.readline() == "connected\n"
        if how == "two rounds later":
            services.serve(2)
            services.serve(2)
        else:
            service.send_signal(signal.Signals[how])
        service.wait(LIMIT_S)
        out, _ = member.communicate("leave\n", LIMIT_S)
        assert (out, member.returncode) == ("left\n", 0)
    finally:
        member.kill()


def test_a_process_that_cannot_serve_ends_the_round(
    services: CoordinationServices,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The reason is in its own lines, and the next round starts another."""
    (tmp_path / "jaxlib.py").write_text("", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for _ in range(2):
        with pytest.raises(RoundOver, match="the coordination service has ended"):
            services.serve(2)
    assert "cannot import name '_jax'" in capfd.readouterr().err
