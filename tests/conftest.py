"""Hypothesis profiles: of `make test`, `make soak` and `make properties`.

See tests.support.strategies too.
"""

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.commands import Commands, own_root_logger
from tests.support.kubeconfigs import write_kubeconfig

pytest_plugins = ["tests.support.leftovers"]

settings.register_profile(
    "quick",  # how long an example takes says nothing on a machine that is busy
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quick")
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers share the cores: one thread each
os.environ["SSL_CERT_FILE"] = os.devnull  # tests bring their own; the system's slow each start
gc.set_threshold(100_000, 20, 100)  # collecting tests makes next to no garbage


def pytest_collection_finish() -> None:
    """What has been collected stays to the end: no collection of garbage looks at it again."""
    gc.freeze()
    gc.set_threshold(700, 10, 100)  # young cycles go as ever; a look at all objects takes 0.05 s


def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two cores: about a third of the time tests wait for processes and disks.

    Cores are those that this process may use; with psutil, pytest-xdist would count all of the machine.
    """
    cores = len(os.sched_getaffinity(0))
    return cores + (cores + 1) // 2


@pytest.fixture
def commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Commands]:
    """Runs commands of the components in this process."""
    with own_root_logger():
        yield Commands(monkeypatch, capsys)


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Restores the root logger after the test, which configures it."""
    with own_root_logger():
        yield


@pytest.fixture
def absent_server() -> Iterator[str]:
    """The URL of an API server that is not there: a port that is taken and not listened to."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"https://127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def nowhere(tmp_path: Path, absent_server: str) -> Path:
    """A kubeconfig of an API server that is not there."""
    return write_kubeconfig(tmp_path / "kubeconfig", absent_server)


@pytest.fixture(scope="session")
def thorough() -> bool:
    """Whether `make properties` runs: random tests without Hypothesis play many more rounds."""
    return settings().max_examples > settings.get_profile("default").max_examples
