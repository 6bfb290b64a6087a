"""The reconciler's threads, wiring and command line."""

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kube import config
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.fake import FakeApi
from kube.request import JOBS, NODES, create
from reconciler import app
from reconciler.__main__ import main
from reconciler.events import Recorder
from reconciler.loop import Reconciler
from reconciler.meters import Meters
from reconciler.settings import ReconcilerSettings
from runtime.metrics import Metrics
from runtime.records import Records
from tests.reconciler import objects
from tests.reconciler.waiting import LIMIT_S, until
from tests.runtime.servers import ROOT, START_S


class Threads:
    """A reconciler at work on a cluster in memory, with its real threads."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.api.send(create(NODES, None, objects.node("n0", 16)))
        self.cache = ClusterCache(self.api)
        self.recorder = Recorder(self.api, "test")
        self.fails = 0
        self.records = Records()
        self.loop = Reconciler(
            self.api,
            ReconcilerSettings(gather_seconds=0),
            cache=self.cache,
            policy=ActivePolicy(),
            leads=self.leads,
            recorder=self.recorder,
            records=self.records,
            meters=Meters(Metrics("reconciler")),
        )

    def leads(self) -> bool:
        """Leads, after as many errors as were ordered."""
        if self.fails:
            self.fails -= 1
            raise RuntimeError("who leads is not known")
        return True

    def start(self) -> None:
        """As `reconciler.app` does."""
        self.cache.start()
        assert self.cache.wait_synced(LIMIT_S)
        self.recorder.start()
        self.loop.start()

    def stop(self) -> None:
        """As `reconciler.app` does."""
        self.loop.stop()
        self.recorder.stop()
        self.cache.stop()


@pytest.fixture
def threads() -> Iterator[Threads]:
    """Not started yet; no thread of it is left afterwards."""
    before = set(threading.enumerate())
    made = Threads()
    try:
        yield made
    finally:
        made.stop()
    until(lambda: set(threading.enumerate()) <= before)


@pytest.fixture(autouse=True)
def _own_root() -> Iterator[None]:
    """Gives the root logger back as it was: a command sets it up anew."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of an API server that is not there: a port that is taken and not listened to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        yield path


def test_a_job_that_appears_wakes_the_loop(threads: Threads) -> None:
    """No tick is waited for."""
    threads.start()
    threads.api.send(create(JOBS, "ml", objects.job("net", 1, 3)))

    until(lambda: len(threads.cache.pods.records()) == 3)


def test_a_round_that_fails_is_not_the_end(
    threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its cause, and the loop can still be stopped."""
    threads.fails = 10_000
    threads.start()
    until(lambda: "round failed" in caplog.text)

    assert "who leads is not known" in caplog.text


def test_work_goes_on_after_a_round_that_failed(threads: Threads) -> None:
    """The pause is half a second at first."""
    threads.fails = 1
    threads.api.send(create(JOBS, "ml", objects.job("net", 1, 1)))
    threads.start()

    until(lambda: len(threads.cache.pods.records()) == 1)
    assert threads.fails == 0


def test_a_process_without_an_api_server_is_not_ready(nowhere: Path) -> None:
    """It says why, waits, and stops when it is told to."""
    before = set(threading.enumerate())
    service = app.build(ReconcilerSettings(identity="me", lease_seconds=1), config.load(nowhere))
    service.start()
    answer = service.app.test_client().get("/readyz")
    scrape = service.app.test_client().get("/metrics").text
    why = service.app.test_client().get("/decisions")
    service.stop()
    until(lambda: set(threading.enumerate()) <= before)

    assert answer.status_code == 503
    assert answer.json is not None
    assert (answer.json["leader"], answer.json["synced"]) == (False, False)
    assert answer.json["policy"]["source"] == "default"
    assert (why.status_code, "does not lead" in why.text) == (503, True)
    assert "edl_reconciler_decisions_dropped_count 0.0" in scrape
    assert "edl_reconciler_rounds_failed_total 0.0" in scrape


def test_a_missing_kubeconfig_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the file, and the exit code is 1."""
    flags = [f"--kubeconfig={tmp_path / 'none'}", "--listen=127.0.0.1:0"]
    monkeypatch.setattr(sys, "argv", ["reconciler", *flags])
    with pytest.raises(SystemExit) as ended:
        main()

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 1
    assert line.startswith(f"reconciler: {tmp_path / 'none'}: no way to the API server")


@pytest.mark.timeout(60)  # starts a real process, which takes a busy machine seconds
def test_help_says_what_every_flag_means() -> None:
    """And which environment variable stands for it."""
    command = [sys.executable, "-m", "reconciler", "--help"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )

    assert done.returncode == 0
    assert "--lease-seconds" in done.stdout
    assert "EDL_RECONCILER_TICK_SECONDS" in done.stdout


@pytest.mark.parametrize(
    ("flag", "says"),
    [("--lease-seconds=soon", "--lease-seconds is 'soon'"), ("--colour", "--colour")],
)
def test_a_bad_flag_is_one_line(
    flag: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage errors exit with 2."""
    monkeypatch.setattr(sys, "argv", ["reconciler", flag])
    with pytest.raises(SystemExit) as ended:
        main()

    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2
    assert says in last


def test_an_address_that_is_taken_is_one_line(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the setting, and the exit code is 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"--listen=127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(sys, "argv", ["reconciler", where, f"--kubeconfig={nowhere}"])
        with pytest.raises(SystemExit) as ended:
            main()

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 1
    assert line.startswith("reconciler: cannot listen on 127.0.0.1:")
