"""`make demo` in its small version, as a user starts it: the product's loop, end to end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e.workload import QUICK

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

_RUN_S = 200
_STOP_S = 30
_ROOT = Path(__file__).parents[1]


def _demo(*words: str) -> list[str]:
    return [sys.executable, "-m", "e2e.demo", "--quick", *words]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a whole run with EDL left its report, its picture and its logs."""
    directory = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        _demo("--output", str(directory)),
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield directory
    assert _left_behind(directory) == []


@pytest.fixture(scope="module")
def report(output: Path) -> dict[str, Any]:
    """The run's report."""
    read: dict[str, Any] = orjson.loads((output / "report.json").read_bytes())
    return read


def test_services_get_their_capacity_back(report: dict[str, Any]) -> None:
    """Every wanted service runs again before the plateau is over."""
    (reclaim,) = report["edl"]["figures"]["reclaims"]
    assert reclaim["seconds"] is not None
    assert reclaim["seconds"] < QUICK.step_s


def test_every_job_has_its_minimum_and_keeps_it(report: dict[str, Any]) -> None:
    """No job is without its minimum while another has more than its own."""
    figures = report["edl"]["figures"]
    for start in figures["start_ups"]:
        assert start["whole_s"] is not None
    assert figures["unfair_s"] == 0
    for plateau in figures["trainers"]:
        assert min(plateau.values()) >= QUICK.min_trainers


def test_trainers_come_back_when_services_leave(report: dict[str, Any]) -> None:
    """The plateau with fewer services has more trainers than those beside it."""
    first, middle, last = (sum(jobs.values()) for jobs in report["edl"]["figures"]["trainers"])
    assert middle > first
    assert middle > last


def test_nothing_comes_back_to_compete(report: dict[str, Any]) -> None:
    """No trainer takes a node that the burst still needs."""
    assert report["edl"]["figures"]["competitors"] == 0


def test_the_report_names_every_bar_and_the_picture_is_there(
    output: Path, report: dict[str, Any]
) -> None:
    """Machine, commit and criteria are in the report, and the run was drawn."""
    names = {criterion["name"] for criterion in report["bars"]}
    assert {"reclaim_16_to_36_s", "jain_at_plateaus_min", "trainers_killed"} <= names
    assert report["machine"]["cpus"]
    assert report["commit"]
    assert (output / "demo.png").stat().st_size > 10_000


def test_an_interrupt_stops_everything(tmp_path: Path) -> None:
    """Ctrl-C while EDL starts ends with one line and leaves no process behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    process = subprocess.Popen(
        _demo("--output", str(tmp_path)), cwd=_ROOT, stdout=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("starting EDL"):
            break
    process.send_signal(signal.SIGINT)
    remaining_output, _ = process.communicate(timeout=_STOP_S)
    assert process.returncode == 130
    assert "interrupted: everything that was started is stopped" in remaining_output
    assert _left_behind(tmp_path) == []


def _left_behind(directory: Path) -> list[str]:
    """Command lines of processes that still name the run's directory."""
    command_lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words and path.parent.name != str(os.getpid()):
            command_lines.append(words)
    return command_lines
