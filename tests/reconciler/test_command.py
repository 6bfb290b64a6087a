"""The reconciler's wiring and command line."""

import socket
import sys
import threading
from pathlib import Path

import pytest

from kube import config
from reconciler import app
from reconciler.__main__ import main
from reconciler.settings import ReconcilerSettings
from tests.reconciler.waiting import until
from tests.support.commands import Commands

pytestmark = pytest.mark.usefixtures("root_logger")


def test_a_process_without_an_api_server_is_not_ready(nowhere: Path) -> None:
    """It reports why, waits, and stops on a signal."""
    before = set(threading.enumerate())
    service = app.build(ReconcilerSettings(identity="me", lease_seconds=1), config.load(nowhere))
    service.start()
    answer = service.app.test_client().get("/readyz")
    scrape = service.app.test_client().get("/metrics").text
    service.stop()
    until(lambda: set(threading.enumerate()) <= before)

    assert answer.status_code == 503
    assert answer.json is not None
    assert (answer.json["leader"], answer.json["synced"]) == (False, False)
    assert answer.json["policy"]["source"] == "default"
    assert "edl_reconciler_events_dropped_total 0.0" in scrape
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
    assert line.startswith(f"reconciler: {tmp_path / 'none'}: no usable API server configuration")


@pytest.mark.parametrize(
    ("flag", "message"),
    [("--lease-seconds=soon", "--lease-seconds is 'soon'"), ("--colour", "--colour")],
)
def test_a_bad_flag_is_one_line(
    flag: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage errors exit with 2."""
    monkeypatch.setattr(sys, "argv", ["reconciler", flag])
    with pytest.raises(SystemExit) as ended:
        main()

    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2
    assert message in last


def test_an_address_that_is_taken_is_one_line(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the setting, and the exit code is 1."""
    with socket.create_server(("127.0.0.1", 0)) as blocker:
        where = f"--listen=127.0.0.1:{blocker.getsockname()[1]}"
        monkeypatch.setattr(sys, "argv", ["reconciler", where, f"--kubeconfig={nowhere}"])
        with pytest.raises(SystemExit) as ended:
            main()

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 1
    assert line.startswith("reconciler: cannot listen on 127.0.0.1:")


def test_help_says_what_every_flag_means(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which environment variable stands for it."""
    monkeypatch.setattr(sys, "argv", ["reconciler", "--help"])
    done = commands.run(lambda _: main())

    assert done.returncode == 0
    assert "--lease-seconds" in done.stdout
    assert "EDL_RECONCILER_TICK_SECONDS" in done.stdout
