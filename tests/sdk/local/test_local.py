"""The parts of `edl run` that need no master."""

import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl import EdlError, SettingError
from edl.local import child, ports, server_processes, trainer_pool, view
from edl.local.ports import free_ports
from edl.local.processes import Event, OutputLine, Process
from edl.local.schedule import Add, Kill, Remove, parse
from edl.local.server_processes import ServerProcesses
from edl.local.trainer_pool import MAX_FAILURES, TrainerPool, state_text

from tests.sdk.support.loops import LIMIT_S, until


def test_a_schedule_happens_once_each_at_its_time() -> None:
    """Seconds and shares of the records, in any order."""
    schedule = parse("2s:+2, 40%:kill, 60%: kill trainer-1,3.5s:-1, 90%:kill master")

    assert schedule.due(1, 0.1) == []
    assert schedule.adds
    assert schedule.due(2, 0.4) == [Add(2), Kill()]
    assert schedule.pending == ["60%: kill trainer-1", "3.5s:-1", "90%:kill master"]
    assert not schedule.adds
    assert schedule.due(9, 1) == [Kill("trainer-1"), Remove(1), Kill("master")]
    assert schedule.due(9, 1) == []
    assert schedule.pending == []
    assert parse("").due(9, 1) == []


@pytest.mark.parametrize(
    "text", ["soon:+1", "2s", "2s:jump", "2:+1", "2s:+", "-1s:kill", "2s:kill mastre"]
)
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
    progress = view.progress_text(STATUS, "trainer-0")
    rows = [
        view.Row("master", "serving", "", ""),
        view.Row("trainer-0", "training", progress, "x" * 99),
    ]
    lines = view.screen("digits", 2.0, view.sum_datasets(STATUS), rows, 80)

    assert lines[0].startswith("digits  2.0 s  [#####...............] 25 of 100 records done")
    assert lines[2].startswith(
        "trainer-0    training               25 records acknowledged, 8 not yet"
    )
    assert max(len(line) for line in lines) < 80


@pytest.mark.parametrize(("width", "place"), [(120, 0), (80, -1), (60, -1)])
def test_the_screen_names_all_keys(width: int, place: int) -> None:
    """On terminals of 60 columns, too: beside the job, or below all."""
    rows = [view.Row("master", "serving", "", "")]
    lines = view.screen("digits", 2.0, view.sum_datasets(STATUS), rows, width, notes=["step 1"])

    assert lines[place].endswith(view.KEYS)
    assert sum(view.KEYS in line for line in lines) == 1


def test_sums_are_honest_about_what_is_not_known() -> None:
    """An endless data set has no share; a trainer nobody knows holds nothing."""
    endless = view.sum_datasets({"datasets": {"a": {"stream": True, "done_records": 5}}})

    assert (endless.records, endless.done, view.done_share(endless)) == (None, 5, 0.0)
    assert view.sum_datasets({}) == view.Totals()
    assert view.sum_datasets(STATUS).dropped_tasks == 1
    assert view.progress_text({}, "trainer-0") == ""


def test_a_group_is_shown_by_its_round_and_ranks() -> None:
    """Who trains alone, for itself, is in no round."""
    members = [{"trainer": "trainer-1"}, {"trainer": "trainer-0"}]
    status = {
        "rendezvous": {"round": 4, "formed": False, "members": members},
        "trainers": {"trainer-1": {"rank": 0}},
    }

    assert view.round_text(status) == "round 4 with 2 members, forming"
    assert view.round_text({"rendezvous": {"round": 1, "formed": True, "members": [{}]}}) == (
        "round 1 with 1 member"
    )
    assert view.round_text({}) == view.round_text({"rendezvous": {"round": 0}}) == ""
    assert view.progress_text(status, "trainer-1") == "rank 0"
    assert view.screen("a", 1.0, view.Totals(), [], 30, notes=["one", "two"])[1] == "one  two"


def test_evaluations_are_no_part_of_how_far_a_job_is() -> None:
    """They are requested while the job runs."""
    kinds = {kind: {"kind": kind, "records": 9, "epochs": 1, "done_records": 3} for kind in "te"}
    kinds["e"]["kind"] = "evaluation"

    assert view.sum_datasets({"datasets": kinds}).records == 9
    assert view.sum_datasets({"datasets": kinds}).done == 3


class Stage:
    """Starts small programs as trainers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: queue.Queue[Event] = queue.Queue()
        self.program = "import time; print('ready'); time.sleep(600)"
        self.pool = TrainerPool(self.start)

    def start(self, name: str) -> Process:
        """A program under this name."""
        command = [sys.executable, "-c", self.program]
        return Process(name, command, {"EDL_X": "1"}, self.folder / f"{name}.log", self.events)

    def end(self) -> None:
        """Waits until all have ended."""
        for process in self.pool.all:
            assert process.wait(LIMIT_S)
        self.pool.replace_failed()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Nothing runs after the test."""
    stage_ = Stage(tmp_path)
    yield stage_
    for process in stage_.pool.all:
        process.kill()
        process.wait(LIMIT_S)


def test_lines_of_a_process_go_to_a_file_and_to_the_run(stage: Stage) -> None:
    """The last one is kept for the screen."""
    stage.program = "import os; print('one'); print('two', os.environ['EDL_X'], '\\r three')"
    stage.pool.add(1)
    stage.end()

    assert stage.events.get(timeout=LIMIT_S) == OutputLine("trainer-0", "one")
    assert stage.pool.all[0].last_line == " three"
    assert (stage.folder / "trainer-0.log").read_text().startswith("one\ntwo 1")
    assert stage.pool.finished


def test_a_process_goes_on_where_its_log_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, or a folder that is gone, costs lines of the log and no trainer."""
    program = "for i in range(20000): print(i)"
    for path in (Path("/dev/full"), tmp_path / "gone" / "trainer-0.log"):
        caplog.clear()
        events: queue.Queue[Event] = queue.Queue()
        process = Process("trainer-0", [sys.executable, "-c", program], {}, path, events)

        assert process.wait(LIMIT_S)
        assert (process.code, process.last_line) == (0, "19999")
        assert [record.message for record in caplog.records if str(path) in record.message]
        assert len(caplog.records) == 1


def test_the_youngest_are_removed_and_killed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Names are never reused, removed trainers not replaced, names that do not run reported."""
    stage.pool.add(3)
    for _ in range(3):
        assert isinstance(stage.events.get(timeout=LIMIT_S), OutputLine)
    stage.pool.remove(1)
    stage.pool.kill(None)
    stage.pool.kill("trainer-0")
    stage.pool.kill("trainer-9")
    stage.end()
    stage.pool.add(1)

    assert [process.name for process in stage.pool.all] == [f"trainer-{i}" for i in range(4)]
    assert [process.stopped_by for process in stage.pool.all] == ["killed", "killed", "removed", ""]
    assert state_text(stage.pool.all[0]) == "killed (-9)"
    assert state_text(stage.pool.all[2]) == "failed by signal 15"
    assert state_text(stage.pool.all[3]) == "training"
    assert "nothing to kill: trainer-9 is not running" in caplog.messages
    assert not stage.pool.finished


def test_who_does_not_leave_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace, as on a cluster: a run does not wait for ever."""
    monkeypatch.setattr(trainer_pool, "_GRACE_S", 0.1)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    stage.program = deaf + stage.program
    stage.pool.add(1)
    assert isinstance(stage.events.get(timeout=LIMIT_S), OutputLine)
    stage.pool.remove(1)
    stage.pool.replace_failed()
    assert stage.pool.running

    def ended() -> bool:
        stage.pool.replace_failed()
        return not stage.pool.running

    until(ended)

    assert state_text(stage.pool.all[0]) == "killed (-9)"


def test_trainers_that_fail_are_replaced_a_few_times(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Their last line is in the log."""
    stage.program = "raise SystemExit('no data')"
    stage.pool.add(1)
    for _ in range(MAX_FAILURES + 1):
        stage.end()

    assert len(stage.pool.all) == MAX_FAILURES + 1
    assert stage.pool.failures == MAX_FAILURES + 1
    assert "trainer-0 failed with exit code 1; its last line: no data" in caplog.text


def test_a_terminal_shows_why_a_trainer_failed_and_what_others_say(stage: Stage) -> None:
    """The error, though the session wrote below it how it ended; lines of the log without their time."""
    log = "print('10:00:00 edl trainer-0 left job a')"
    stage.program = log
    stage.pool.add(1)
    stage.program = f"import sys; print('ValueError: no data'); {log}; sys.exit(1)"
    stage.pool.add(1)
    stage.end()

    assert [process.headline for process in stage.pool.all[:2]] == [
        "trainer-0 left job a",
        "ValueError: no data",
    ]


def test_trainers_that_could_only_fail_again_are_not_replaced(stage: Stage) -> None:
    """Those with the fatal exit code, and all once the job needs no trainers."""
    stage.program = "import sys; sys.exit(2)"
    stage.pool = TrainerPool(stage.start, fatal_code=2)
    stage.pool.add(1)
    stage.end()
    assert stage.pool.ended_fatally
    stage.program = "import sys; sys.exit(1)"
    stage.pool.add(1)
    assert stage.pool.all[-1].wait(LIMIT_S)
    stage.pool.replace_failed(lambda: False)

    assert [process.name for process in stage.pool.failed] == ["trainer-0", "trainer-1"]
    assert len(stage.pool.all) == 2


def test_parameter_servers_are_started_again_under_their_names(stage: Stage) -> None:
    """As often as they are killed, as long as they live for a while in between."""
    processes = ServerProcesses(lambda index: stage.start(server_processes.name_of(index)), 2)
    first = processes.all

    def revived() -> bool:
        processes.restart_dead()
        return processes.all[1] is not first[1]

    assert processes.kill("server-1")
    assert not processes.kill("trainer-1")
    until(revived)
    assert [process.name for process in processes.all] == ["server-0", "server-1"]
    assert processes.all[0] is first[0]
    assert processes.deaths == 1
    processes.stop(LIMIT_S)
    assert not any(process.running for process in processes.all)


def test_a_parameter_server_that_cannot_live_ends_the_run(stage: Stage) -> None:
    """With its last line."""
    stage.program = "raise SystemExit('no such folder')"
    processes = ServerProcesses(lambda index: stage.start(server_processes.name_of(index)), 1)

    def look() -> bool:
        processes.restart_dead()
        return False

    with pytest.raises(EdlError, match="server-0 dies repeatedly: no such folder"):
        until(look)


def test_a_server_that_does_not_end_is_killed(stage: Stage) -> None:
    """After its grace for a last checkpoint."""
    stage.program = (
        "import signal, time; signal.signal(15, lambda *_: 0); print(1); time.sleep(600)"
    )
    processes = ServerProcesses(lambda index: stage.start(server_processes.name_of(index)), 1)
    assert stage.events.get(timeout=LIMIT_S) == OutputLine("server-0", "1")
    processes.stop(0.1)

    assert processes.all[0].code == -9


def test_a_server_is_told_who_it_is() -> None:
    """And where it listens, each time the same."""
    command = server_processes.command(1, [81, 82], "digits", Path("/saved"))
    words = "--listen 127.0.0.1:82 --index 1 --of 2 --job digits --checkpoints /saved"
    words += " --log-format text"

    assert command[3:] == ["pserver", *words.split()]


def test_ports_differ() -> None:
    """Though nobody listens on any."""
    assert len(set(free_ports(20))) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names of sockets are Linux's")
def test_ports_are_not_given_to_two_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anybody listens on them; here of twenty that there are."""
    bounds = tmp_path / "range"
    bounds.write_text("10020 60999")
    monkeypatch.setattr(ports, "_RANGE", bounds)
    own = free_ports(12)
    script = (
        "import pathlib, sys; from edl.local import ports; ports._RANGE = pathlib.Path(sys.argv[1]);"
        "print(*ports.free_ports(12))"
    )
    others = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", script, str(bounds)], check=True, capture_output=True, text=True
    ).stdout.split()

    assert len(set(others)) == 12
    assert not set(own) & set(map(int, others))


def test_ports_are_none_that_connections_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise a restarted server may find its port taken; if no other port is left, any is used."""
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
