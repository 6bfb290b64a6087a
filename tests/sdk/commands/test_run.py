"""`edl run` with a real master and real trainers, some of which are killed."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from queue import Queue

import pytest
from edl import SettingError, __main__
from edl.local import master, programs
from edl.local.ports import free_ports
from edl.local.processes import Event, Process

from tests.sdk.support.contract import Master
from tests.sdk.support.terminals import read_until

PROGRAM = """
import os, sys, time
import edl
print("begins", flush=True)
steps = 0
def wait_for(path):
    global steps
    steps += 1
    while steps > 16 and not (os.path.exists(path) or edl.session().stopping):
        time.sleep(0.01)
data = edl.from_function("train", int, {records})
log = os.open(sys.argv[1], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
for batch in edl.batches(data, 5, task_records=10, epochs=2):
    {step}
    os.write(log, b"".join(b"%d\\n" % number for number in batch))
"""
"""Notes what it has trained on; `wait_for` lets it make 16 steps before there is a file.

Or until it has to leave.
"""
LAST = re.compile(
    r"train is (done|not done) after [\d.]+ s: (\d+) of (\d+) records acknowledged"
    r"(?:, (\d+) records? lost and trained again)?(?:, (\d+) tasks? dropped)?"
    r"(?:, master restarted (once|\d+ times))?\n"
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program by `edl run`, with a file for the records that it trained."""

    def command(*options: str, program: str) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "train.py"
        path.write_text(program)
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", "run", *options, str(path), str(tmp_path / "trained")],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )

    return command


def _started(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """A run under way, which says all that it says in one stream."""
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", "run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def _trained(folder: Path) -> Counter[int]:
    return Counter(int(line) for line in (folder / "trained").read_text().splitlines())


def _last(text: str) -> list[str]:
    match = LAST.search(text)
    assert match is not None, text
    return list(match.groups(default="0"))


@pytest.mark.soak  # `make test` has data/test_real_master
def test_kills_of_trainers_and_of_the_master_lose_no_record(tmp_path: Path) -> None:
    """Each is acknowledged once an epoch; what was trained in vain is counted and shown."""
    path, go = tmp_path / "train.py", tmp_path / "go"
    path.write_text(PROGRAM.format(records=300, step="wait_for(sys.argv[2])"))
    schedule = "3%:kill, 5%:kill trainer-0, 7%:kill master, 8%:+1"
    words = ("-n", "3", "--schedule", schedule, str(path), str(tmp_path / "trained"), str(go))
    with _started(tmp_path, *words) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if line == "trainer-3 | begins\n":
                go.touch()  # all of the schedule has happened
        assert running.wait(60) == 0, "".join(lines)
    trained, text = _trained(tmp_path), "".join(lines)
    word, acknowledged, records, lost, dropped, restarts = _last(text)

    assert (word, acknowledged, records) == ("done", "600", "600")
    assert (dropped, restarts) == ("0", "once")
    assert set(trained) == set(range(300))
    assert min(trained.values()) >= 2
    assert int(lost) <= sum(trained.values()) - 600
    assert "sending SIGKILL to trainer-0" in text
    assert "sending SIGKILL to trainer-2" in text


def test_an_undisturbed_run_trains_each_record_once_an_epoch(run: Run, tmp_path: Path) -> None:
    """And leaves no folder behind; what processes print is shown with their names, as text."""
    program = PROGRAM.format(records=100, step="pass") + "print('over')\n"
    done = run("-n", "2", program=program)

    assert done.returncode == 0, done.stderr
    assert {2} == set(_trained(tmp_path).values())
    assert _last(done.stdout) == ["done", "200", "200", "0", "0", "0"]
    assert "trainer-0 | over" in done.stdout
    assert re.search(r"^master \| [\d:]+ info serving job=train ", done.stdout, re.MULTILINE)
    assert '{"' not in done.stdout + done.stderr
    assert "logs and journal" not in done.stdout


def test_a_trainer_that_leaves_with_0_finishes_no_job(run: Run) -> None:
    """As on a cluster: a program with a handler of its own may exit with any code when it is removed."""
    handler = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    program = handler + PROGRAM.format(records=50, step='wait_for("never")')
    done = run("-n", "1", "--schedule", "40%:-1", program=program)

    assert "trainer-0 ended: done" in done.stderr
    assert _last(done.stdout)[0] == "not done"
    assert done.returncode == 1


@pytest.mark.parametrize("place", ["a full disk", "a pipe without a reader"])
def test_output_that_cannot_be_written_is_no_traceback(tmp_path: Path, place: str) -> None:
    """On a full disk the job goes on; who reads no more, as `head` does, ends it with 141."""
    path, is_disk = tmp_path / "train.py", place == "a full disk"
    step = "pass" if is_disk else 'wait_for("never")'
    path.write_text(PROGRAM.format(records=200, step=step))
    reader, pipe = os.pipe()
    os.close(reader)
    with open("/dev/full" if is_disk else pipe, "wb") as output:  # noqa: PTH123 - of a descriptor
        ended = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", "run", "-n", "1", str(path), str(tmp_path / "trained")],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )

    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode == (0 if is_disk else 141), ended.stderr
    assert ("cannot write the output, discarding it: No space" in ended.stderr) is is_disk


def test_a_program_that_fails_ends_the_run(run: Run) -> None:
    """After a few tries, with its last line, and where the logs are."""
    done = run("-n", "1", program="raise ValueError('no data')")

    assert done.returncode == 1
    assert "its last line: ValueError: no data" in done.stderr
    assert "logs and journal are in" in done.stdout


def test_the_error_of_a_program_is_named_and_not_how_its_session_ended(run: Run) -> None:
    """The session says below the traceback that the trainer left."""
    program = PROGRAM.format(records=100, step="raise ValueError('no such step')")
    done = run("-n", "1", program=program)

    assert done.returncode == 1
    assert "its last line: ValueError: no such step" in done.stderr
    assert re.search(
        r"^the last line of trainer-\d: ValueError: no such step$", done.stdout, re.MULTILINE
    )


def test_a_folder_that_cannot_be_written_is_named(run: Run) -> None:
    """In one line, before anything starts."""
    done = run("--dir", "/proc/none", program="")

    assert (done.returncode, done.stdout) == (2, "")
    text = "edl: --dir is '/proc/none', but /proc/none is not writable: No such file or directory"
    assert done.stderr == f"{text}\n"


@pytest.mark.soak  # `make test` has tests/master/test_failed_tasks
def test_a_job_that_fails_says_why(run: Run) -> None:
    """All tasks fail alike and none is done: trainers end well, the run does not."""
    done = run(
        "-n",
        "1",
        program="""
import edl
def read(number):
    raise ValueError("no such image")
for batch in edl.batches(edl.from_function("train", read, 40), 1, task_records=1):
    pass
""",
    )

    assert done.returncode == 1, done.stdout
    assert "is not done after" in done.stdout
    assert "16 tasks of train failed, and none was done, the last of them train/0/" in done.stdout
    assert "ValueError: no such image" in done.stdout


def test_a_master_that_cannot_live_ends_the_run(run: Run, tmp_path: Path) -> None:
    """With its last line of output."""
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "journal").write_text("not a directory")
    done = run("-n", "1", "--dir", str(folder), program="import time; time.sleep(600)")

    assert done.returncode == 1
    assert "the master dies repeatedly: master: " in done.stderr


def test_a_run_can_be_continued(run: Run, tmp_path: Path) -> None:
    """The journal in --dir knows what was done, and what of it was handed back half trained."""
    program = PROGRAM.format(records=50, step='wait_for("never")')
    options = ("-n", "1", "--dir", str(tmp_path / "kept"))
    first = run(*options, "--schedule", "40%:-1", program=program)
    late = ("--schedule", "9000s:kill master")
    second = run(*options, *late, program=PROGRAM.format(records=50, step="pass"))

    assert first.returncode == 1
    assert _last(first.stdout)[0] == "not done"
    word, acknowledged, records, lost, _, _ = _last(second.stdout)
    assert (word, acknowledged, records) == ("done", "100", "100")
    assert sum(_trained(tmp_path).values()) == 100 + int(lost)
    assert "the run ended before the schedule entry '9000s:kill master' was due" in second.stderr


def test_a_run_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    """SIGHUP is ignored there, and stays ignored; without nohup it ends the run as Ctrl-C does."""
    path, go = tmp_path / "train.py", tmp_path / "go"
    path.write_text(PROGRAM.format(records=100, step="wait_for(sys.argv[2])"))
    words = ("nohup", sys.executable, "-m", "edl", "run", "-n", "1", path, tmp_path / "trained", go)
    with subprocess.Popen(  # noqa: S603 - our own program
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line == "trainer-0 | begins\n":
                running.send_signal(signal.SIGHUP)
                go.touch()
                break
        text = running.stdout.read()
        assert running.wait(60) == 0, text
    assert _last(text)[0] == "done"


def test_a_terminal_shows_a_line_for_each_and_takes_keys(tmp_path: Path) -> None:
    """`+` adds a trainer, `q` ends the run."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(records=4000, step="time.sleep(0.05)"))
    ours, theirs = pty.openpty()
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", "run", "-n", "1", str(path), str(tmp_path / "trained")],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        os.close(theirs)
        text = read_until(ours, "records acknowledged, ")
        os.write(ours, b"+")
        text += read_until(ours, "trainer-1")
        os.write(ours, b"q")
        text += read_until(ours, "is not done after")
        assert running.wait(60) == 130
    os.close(ours)

    assert "+ add  - remove" in text
    assert "master       serving" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "no-such-file.py"], "no-such-file.py is not a file"),
        (["run", "-n", "0", __file__], "-n is 0"),
        (["run", "--schedule", "soon", __file__], "schedule entry 'soon' is invalid"),
    ],
)
def test_bad_use_is_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And code 2."""
    assert __main__.main(arguments) == 2
    assert text in capsys.readouterr().err


def test_without_the_master_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The SDK alone does not bring it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingError, match="install edl-control-plane"):
        programs.require("master", "edl run needs the master, which is")


def test_the_last_word_of_a_master_that_just_died_is_true(tmp_path: Path) -> None:
    """It is started again and asked, so that no old figures end a run."""
    token, (port,) = "a-token-of-this-test", free_ports(1)
    environ = {"EDL_TOKEN": token, "EDL_JOB": "digits"}
    command = master.command(str(tmp_path / "journal"), port)
    news = Queue[Event]()

    def start() -> Process:
        return Process(master.NAME, command, environ, tmp_path / "log", news)

    supervisor = master.MasterSupervisor(start, f"http://127.0.0.1:{port}", token)
    try:
        assert supervisor.final_status()
        Master(port, token).describe()
        supervisor.process.kill()
        supervisor.process.wait(60)
        assert supervisor.final_status()
        assert list(supervisor.status["datasets"]) == ["train"]
    finally:
        supervisor.close()
        supervisor.process.remove()
        supervisor.process.wait(60)
