"""The parts of `edl run` that need no master."""

import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl import EdlError, SettingError
from edl.local import child, crew, ports, servers, view
from edl.local.crew import MOST_FAILURES, Crew, state
from edl.local.ports import free_ports
from edl.local.processes import Line, News, Process
from edl.local.schedule import Add, Kill, Remove, parse
from edl.local.servers import Servers

from tests.sdk.loops import LIMIT_S, until


def test_a_schedule_happens_once_each_at_its_time() -> None:
    """Seconds and shares of the records, in any order."""
    schedule = parse("2s:+2, 40%:kill, 60%: kill trainer-1,3.5s:-1, 90%:kill master")

    assert schedule.due(1, 0.1) == []
    assert schedule.adds
    assert schedule.due(2, 0.4) == [Add(2), Kill()]
    assert not schedule.adds
    assert schedule.due(9, 1) == [Kill("trainer-1"), Remove(1), Kill("master")]
    assert schedule.due(9, 1) == []
    assert parse("").due(9, 1) == []


@pytest.mark.parametrize("text", ["soon:+1", "2s", "2s:jump", "2:+1", "2s:+", "-1s:kill"])
def test_a_schedule_that_cannot_be_read_is_named(text: str) -> None:
    """With the way it is written."""
    with pytest.raises(SettingError, match="write WHEN:WHAT"):
        parse(f"1s:+1, {text}")


STATUS = {
    "datasets": {"a": {"records": 50, "epochs": 2, "done_records": 25, "dropped_tasks": 1}},
    "trainers": {"trainer-0": {"records": 25, "uncommitted_records": 8}},
}


def test_the_screen_has_a_line_for_each_process() -> None:
    """None is longer than the terminal is wide."""
    held = view.held(STATUS, "trainer-0")
    rows = [
        view.Row("master", "serving", "", ""),
        view.Row("trainer-0", "training", held, "x" * 99),
    ]
    lines = view.screen("digits", 2.0, view.sums(STATUS), rows, 80)

    assert lines[0].startswith("digits  2.0 s  [#####...............] 25 of 100 records done")
    assert lines[2].startswith(
        "trainer-0    training               25 records acknowledged, 8 not yet"
    )
    assert max(len(line) for line in lines) < 80


def test_sums_are_honest_about_what_is_not_known() -> None:
    """An endless data set has no share; a trainer nobody knows holds nothing."""
    endless = view.sums({"datasets": {"a": {"stream": True, "done_records": 5}}})

    assert (endless.records, endless.done, view.share(endless)) == (None, 5, 0.0)
    assert view.sums({}) == view.Sums()
    assert view.sums(STATUS).dropped_tasks == 1
    assert view.held({}, "trainer-0") == ""


def test_a_group_is_shown_by_its_round_and_ranks() -> None:
    """Who trains alone, for itself, is in no round."""
    members = [{"trainer": "trainer-1"}, {"trainer": "trainer-0"}]
    status = {
        "rendezvous": {"round": 4, "formed": False, "members": members},
        "trainers": {"trainer-1": {"rank": 0}},
    }

    assert view.together(status) == "round 4 with 2 members, forming"
    assert view.together({"rendezvous": {"round": 1, "formed": True, "members": [{}]}}) == (
        "round 1 with 1 member"
    )
    assert view.together({}) == view.together({"rendezvous": {"round": 0}}) == ""
    assert view.held(status, "trainer-1") == "rank 0"
    assert view.screen("a", 1.0, view.Sums(), [], 30, about=["one", "two"])[1] == "one  two"


def test_evaluations_are_no_part_of_how_far_a_job_is() -> None:
    """They are asked for as the job goes on."""
    kinds = {kind: {"kind": kind, "records": 9, "epochs": 1, "done_records": 3} for kind in "te"}
    kinds["e"]["kind"] = "evaluation"

    assert view.sums({"datasets": kinds}).records == 9
    assert view.sums({"datasets": kinds}).done == 3


class Stage:
    """Starts small programs as trainers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.news: queue.Queue[News] = queue.Queue()
        self.program = "import time; print('ready'); time.sleep(600)"
        self.crew = Crew(self.start)

    def start(self, name: str) -> Process:
        """A program under this name."""
        command = [sys.executable, "-c", self.program]
        return Process(name, command, {"EDL_X": "1"}, self.folder / f"{name}.log", self.news)

    def end(self) -> None:
        """Waits until all have ended."""
        for one in self.crew.all:
            assert one.wait(LIMIT_S)
        self.crew.look()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Nothing runs after the test."""
    found = Stage(tmp_path)
    yield found
    for one in found.crew.all:
        one.kill()
        one.wait(LIMIT_S)


def test_lines_of_a_process_go_to_a_file_and_to_the_run(stage: Stage) -> None:
    """The last one is kept for the screen."""
    stage.program = "import os; print('one'); print('two', os.environ['EDL_X'], '\\r three')"
    stage.crew.add(1)
    stage.end()

    assert stage.news.get(timeout=LIMIT_S) == Line("trainer-0", "one")
    assert stage.crew.all[0].last == " three"
    assert (stage.folder / "trainer-0.log").read_text().startswith("one\ntwo 1")
    assert stage.crew.finished


def test_the_youngest_are_removed_and_killed(stage: Stage) -> None:
    """Names are never given twice, and whoever was asked to go is not replaced."""
    stage.crew.add(3)
    for _ in range(3):
        assert isinstance(stage.news.get(timeout=LIMIT_S), Line)
    stage.crew.remove(1)
    stage.crew.kill(None)
    stage.crew.kill("trainer-0")
    stage.end()
    stage.crew.add(1)

    assert [one.name for one in stage.crew.all] == [f"trainer-{i}" for i in range(4)]
    assert [one.asked for one in stage.crew.all] == ["killed", "killed", "removed", ""]
    assert state(stage.crew.all[0]) == "killed (-9)"
    assert state(stage.crew.all[2]) == "failed by signal 15"
    assert state(stage.crew.all[3]) == "training"
    assert not stage.crew.finished


def test_who_does_not_leave_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace, as on a cluster: a run does not wait for ever."""
    monkeypatch.setattr(crew, "_GRACE_S", 0.1)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    stage.program = deaf + stage.program
    stage.crew.add(1)
    assert isinstance(stage.news.get(timeout=LIMIT_S), Line)
    stage.crew.remove(1)
    stage.crew.look()
    assert stage.crew.running

    def ended() -> bool:
        stage.crew.look()
        return not stage.crew.running

    until(ended)

    assert state(stage.crew.all[0]) == "killed (-9)"


def test_trainers_that_fail_are_replaced_a_few_times(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Their last line is in the log."""
    stage.program = "raise SystemExit('no data')"
    stage.crew.add(1)
    for _ in range(MOST_FAILURES + 1):
        stage.end()

    assert len(stage.crew.all) == MOST_FAILURES + 1
    assert stage.crew.failures == MOST_FAILURES + 1
    assert "trainer-0 failed: failed with exit code 1; its last line: no data" in caplog.text


def test_trainers_that_could_only_fail_again_are_not_replaced(stage: Stage) -> None:
    """Those with the hopeless exit code, and all once the job needs no more."""
    stage.program = "import sys; sys.exit(2)"
    stage.crew = Crew(stage.start, hopeless_code=2)
    stage.crew.add(1)
    stage.end()
    assert stage.crew.hopeless
    stage.program = "import sys; sys.exit(1)"
    stage.crew.add(1)
    assert stage.crew.all[-1].wait(LIMIT_S)
    stage.crew.look(lambda: False)

    assert [one.name for one in stage.crew.failed] == ["trainer-0", "trainer-1"]
    assert len(stage.crew.all) == 2


def test_parameter_servers_are_started_again_under_their_names(stage: Stage) -> None:
    """As often as they are killed, as long as they live for a while in between."""
    found = Servers(lambda index: stage.start(servers.name_of(index)), 2)
    first = found.all

    def revived() -> bool:
        found.look()
        return found.all[1] is not first[1]

    assert found.kill("server-1")
    assert not found.kill("trainer-1")
    until(revived)
    assert [one.name for one in found.all] == ["server-0", "server-1"]
    assert found.all[0] is first[0]
    assert found.deaths == 1
    found.end(LIMIT_S)
    assert not any(one.running for one in found.all)


def test_a_parameter_server_that_cannot_live_ends_the_run(stage: Stage) -> None:
    """With its last line."""
    stage.program = "raise SystemExit('no such folder')"
    found = Servers(lambda index: stage.start(servers.name_of(index)), 1)

    def look() -> bool:
        found.look()
        return False

    with pytest.raises(EdlError, match="server-0 does not stay alive: no such folder"):
        until(look)


def test_a_server_that_does_not_end_is_killed(stage: Stage) -> None:
    """After its grace for a last checkpoint."""
    stage.program = (
        "import signal, time; signal.signal(15, lambda *_: 0); print(1); time.sleep(600)"
    )
    found = Servers(lambda index: stage.start(servers.name_of(index)), 1)
    assert stage.news.get(timeout=LIMIT_S) == Line("server-0", "1")
    found.end(0.1)

    assert found.all[0].code == -9


def test_a_server_is_told_who_it_is() -> None:
    """And where it listens, each time the same."""
    command = servers.command(1, [81, 82], "digits", Path("/saved"))
    words = "--listen 127.0.0.1:82 --index 1 --of 2 --job digits --checkpoints /saved"

    assert command[3:] == ["pserver", *words.split()]


def test_ports_differ() -> None:
    """Though nobody listens on any."""
    assert len(set(free_ports(20))) == 20


def test_ports_are_none_that_connections_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else whoever is started again may find his own taken; where these get all, any will do."""
    bounds = tmp_path / "range"
    monkeypatch.setattr(ports, "_RANGE", bounds)
    for text, below in (("10040\t60999\n", 10_040), ("nothing", 49_152), ("1024 65535", 65_536)):
        bounds.write_text(text)
        assert all(1024 <= port < below for port in free_ports(5))


def _has_ended(process: int) -> bool:
    """Whether it is gone, or waits for its reaper."""
    try:
        return not Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl, which is Linux's")
def test_a_child_does_not_outlive_its_parent() -> None:
    """Even when that is killed with -9."""
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    parent = f"""
import os, subprocess, sys
subprocess.run([sys.executable, {child.__file__!r}, str(os.getpid()), sys.executable, "-c", {sleeper!r}])
"""
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        grandchild = int(running.stdout.readline())
        running.send_signal(signal.SIGKILL)
        running.wait(LIMIT_S)
        until(lambda: _has_ended(grandchild))


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    """The parent ended between fork and exec."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, child.__file__, "1", sys.executable, "-c", "print('started')"],
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (143, b"")
