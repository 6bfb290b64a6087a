"""`edl train` as a user calls it: a job on this machine, real master and trainers, some killed."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.sdk.support.models import edit_model
from tests.sdk.support.terminals import read_until
from tests.sdk.support.trainers import Job, Lone

pytestmark = pytest.mark.timeout(180)  # whole jobs, on cores that others share


Edl = Callable[..., "subprocess.CompletedProcess[str]"]


RESULT = re.compile(
    r"^edl: model is trained: (\d+) steps, (\d+) records, loss ([\d.e-]+)"
    r"(?:; evaluation of step (\d+): loss ([\d.e-]+), accuracy ([\d.]+))?"
    r"(?:; (\d+) steps? skipped because the loss was not finite)?"
    r"; (\d+) members? at the end, after (\d+) membership changes?$",
    re.MULTILINE,
)


def _environ(home: Path) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return {**environ, "TMPDIR": str(home), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def edl(home: Path) -> Edl:
    """Calls `edl` in that folder, and waits for its end."""

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", *words],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
            cwd=home,
            env=_environ(home),
        )

    return call


def _result(last: str) -> dict[str, float]:
    """Numbers of the last line."""
    match = RESULT.search(last)
    assert match is not None, last
    names = "steps records loss version held_out_loss accuracy skipped members changes"
    return {
        name: float(text or 0) for name, text in zip(names.split(), match.groups(), strict=True)
    }


@pytest.mark.soak  # `make test` has the same with threads: tests/sdk/sync/test_train
def test_a_job_of_two_trains_the_same_model_as_one_alone(edl: Edl, lone: Lone, home: Path) -> None:
    """Except for rounding; the leader prints progress, evaluations and the result."""
    common = ("train", "model.py", "--data", "train.npz", "--evaluate", "test.npz", "--epochs", "2")
    alone = lone(*common, "--export", "alone")
    both = edl(*common, "-n", "2", "--export", "both")

    assert (alone.code, both.returncode) == (0, 0), both.stdout + both.stderr
    _assert_same_model(
        home, _result(alone.last), _result(both.stdout.splitlines()[-1]), ("alone", "both")
    )
    assert both.stdout.count("step 15, evaluation: ") == 1
    progress = r"step \d+, epoch \d of 2: loss [^;]*; (\d+ records/s[^;]*; )?\d members? in round"
    assert re.search(progress, both.stdout)


@pytest.mark.soak
def test_a_job_whose_trainers_come_and_go_trains_the_same_model(
    edl: Edl, lone: Lone, home: Path
) -> None:
    """As one trainer alone, but for rounding; kill -9 of the leader and of the master included."""
    common = ("train", "model.py", "--data", "train.npz", "--evaluate", "test.npz", "--epochs", "3")
    alone = lone(*common, "--export", "alone")
    edit_model(home, "PAUSE_S = 0.002", "PAUSE_S = 0.1")
    schedule = "10%:kill trainer-0, 15%:+1, 30%:kill master, 50%:-1"
    many = edl(*common, "-n", "3", "--export", "many", "--schedule", schedule)
    other = _result(many.stdout.splitlines()[-1])

    assert (alone.code, many.returncode) == (0, 0)
    _assert_same_model(home, _result(alone.last), other, ("alone", "many"))
    assert other["steps"] == 45
    assert other["changes"] >= 3


def _assert_same_model(
    home: Path, first_job: dict[str, float], second_job: dict[str, float], exported: tuple[str, str]
) -> None:
    """Two jobs with the same data have made the same model."""
    for name in ("steps", "records", "version", "accuracy"):
        assert first_job[name] == second_job[name] > 0.95
    assert second_job["records"] == second_job["steps"] * 64
    assert second_job["version"] == second_job["steps"]
    assert second_job["loss"] == pytest.approx(first_job["loss"], rel=1e-3)
    first, second = (np.load(home / folder / "model.npz") for folder in exported)
    for name in ("w", "b"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-3, atol=1e-5)


BLOCKS = """calls.append(1)
        while len(calls) > 48 and not list(pathlib.Path("saved").glob("checkpoint-*")):
            time.sleep(0.01)
        time.sleep(600 if len(calls) > 80 else 0)"""
"""In the seventh step until the checkpoint of the fifth is there, and in the eleventh for good."""


def test_a_job_goes_on_from_its_checkpoints(
    edl: Edl, lone: Lone, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The only trainer had to go, and the run ended with it; the next one begins at the newest."""
    caplog.set_level("INFO", "edl")
    edit_model(home, "import time\n", "import pathlib\nimport time\ncalls = []\n")
    edit_model(home, "time.sleep(PAUSE_S)", BLOCKS)
    common = ("train", "model.py", "--data", "train.npz", "--checkpoints", "saved")
    first = edl(*common, "-n", "1", "--checkpoint-every", "5", "--schedule", "40%:-1")
    edit_model(home, BLOCKS, "pass")
    second = lone(*common)

    assert first.returncode == 1
    assert "is not done" in first.stdout
    assert second.code == 0, second.err
    match = re.search(r"continuing from the checkpoint of step (\d+) in saved", caplog.text)
    assert match is not None
    assert int(match[1]) >= 5
    assert _result(second.last)["steps"] == int(match[1]) + 15


def test_who_comes_when_all_is_trained_says_no_result(lone: Lone, home: Path) -> None:
    """The last line of a run is a result, of one who has trained."""
    job, words = Job(home), ("train", "model.py", "--data", "train.npz", "--export", "out")
    first, late = (lone.of(job, name, *words) for name in ("trainer-0", "trainer-1"))
    job.close()

    assert _result(first.last)["steps"] == 15
    assert (late.code, late.out) == (
        0,
        "model: other trainers finished the training before this trainer joined\n",
    )


@pytest.mark.usefixtures("home")
def test_the_learning_rate_may_follow_the_members_instead(lone: Lone) -> None:
    """With --scale-learning-rate each member computes one part of a step."""
    done = lone(
        *("train", "model.py", "--data", "train.npz", "--scale-learning-rate"),
        *("--evaluate", "test.npz", "--evaluate-every", "1000"),
    )

    assert done.code == 0, done.err
    assert _result(done.last)["steps"] == 120  # of 8 records instead of 64
    assert _result(done.last)["accuracy"] > 0.9


@pytest.mark.parametrize("flag", ["--data", "--evaluate"])
def test_records_that_a_model_without_feed_cannot_use_are_refused_at_the_start(
    lone: Lone, home: Path, flag: str
) -> None:
    """Code 2, before the trainer joins: every other one would fail, and a trained model be lost."""
    (home / "rows.csv").write_text("x,y\n1,2\n")
    data = {"--data": "train.npz", flag: "rows.csv"}
    done = lone("train", "model.py", *(word for pair in data.items() for word in pair))

    assert done.code == 2, done.out + done.err
    assert "model.py has no function feed(records)" in done.err.splitlines()[-1]
    assert done.status["trainers"] == {}


FAILURES = [
    (
        "return Net()",
        "raise RuntimeError('no weights')",
        2,
        False,
        r"model\(\) of model.py failed on trainer-\d: RuntimeError: no weights",
    ),
    ("import time\n", "import nowhere\n", 2, False, "cannot run model.py: ModuleNotFoundError"),
    (
        "shifted = np",
        "raise ValueError('no label 7')\n    shifted = np",
        1,
        True,
        r"loss\(outputs, labels\) of model.py failed at step 1, .* no label 7",
    ),
    (
        "return mean,",
        "return float('nan'),",
        1,
        True,
        r"step 1: .*trainer-\d: loss is nan in micro-batch",
    ),
    (
        "time.sleep(PAUSE_S)",
        "raise MemoryError",
        1,
        False,
        r"out of memory at step 1, .* of 8 records on trainer-\d, .*: lower --batch-size or raise --m",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "code", "fails", "text"), FAILURES, ids=lambda parameter: str(parameter)[:20]
)
def test_what_fails_in_a_models_code_ends_a_trainer_with_one_line(
    lone: Lone, home: Path, old: str, new: str, code: int, fails: bool, text: str
) -> None:
    """Which function, at which step, on which trainer; what others would come upon fails the job."""
    edit_model(home, old, new)
    done = lone("train", "model.py", "--data", "train.npz")
    last = done.err.splitlines()[-1]

    assert done.code == code, done.out + done.err
    assert last.startswith("edl: ")
    assert re.search(text, last), done.err
    assert re.search(text, done.status["reason"] or "") if fails else not done.status["reason"]
    assert (done.status["state"] == "failed") is fails


@pytest.mark.soak  # `make test` has the same with one trainer, above
def test_a_model_that_fails_ends_the_job_of_all(edl: Edl, home: Path) -> None:
    """The run's last line says why; nobody waits for ever."""
    edit_model(home, "shifted = np", "raise ValueError('no label 7')\n    shifted = np")
    done = edl("train", "model.py", "--data", "train.npz", "-n", "2")

    assert done.returncode == 1, done.stdout + done.stderr
    reason = (
        r"the job failed: .*loss\(outputs, labels\) of model.py failed at step 1, .* no label 7"
    )
    assert re.search(reason, done.stdout), done.stdout
    assert "model is not done" in done.stdout


def test_steps_whose_loss_is_no_number_may_be_left_out(lone: Lone, home: Path) -> None:
    """They are counted."""
    edit_model(home, "return mean,", "return float('nan') if labels[0] == 0 else mean,")
    common = ("train", "model.py", "--data", "train.npz", "--on-nan", "skip")
    done = lone(*common, "--micro-batches", "1")

    assert done.code == 0, done.err
    assert 0 < _result(done.last)["skipped"] < 15


def test_a_checkpoint_of_another_model_is_refused(lone: Lone, home: Path) -> None:
    """With the array that differs."""
    common = ("train", "model.py", "--data", "train.npz", "--checkpoints", "saved")
    assert lone(*common).code == 0
    edit_model(home, "(8, 3)", "(8, 4)")
    done = lone(*common)

    assert done.code == 2
    assert "belongs to another model: model/w has shape [8, 3] instead of [8, 4]" in done.err


WAITS = """while len(calls) > 8 and not pathlib.Path("go").exists():
            time.sleep(0.01)
        calls.append(1)"""
"""In the second step, until the test says so."""


def test_a_trainer_with_other_code_is_refused_and_the_job_goes_on(home: Path) -> None:
    """The file was changed while the job ran: who comes later has another one."""
    edit_model(home, "import time\n", "import pathlib\nimport time\ncalls = []\n")
    edit_model(home, "time.sleep(PAUSE_S)", WAITS)
    job, words = Job(home), ("-m", "edl", "train", "model.py", "--data", "train.npz")
    first = job.start("trainer-0", *words)
    first.says("step 1, ")
    edit_model(home, "0.05", "0.06")
    other = job.start("trainer-1", *words)
    assert other.ends() == 2
    (home / "go").touch()
    assert first.ends() == 0
    job.close()

    assert re.search(r"^edl: .*code\.model", other.text, re.MULTILINE), other.text
    assert "model is trained: 15 steps, 960 records" in first.text


HANGS = """def accuracy(outputs, labels):
    pathlib.Path("evaluating").touch()
    while not pathlib.Path("killed").exists():
        time.sleep(0.01)
    return (outputs.argmax(1) == labels).mean()


def metrics():"""
"""Nobody ends an evaluation before a trainer is killed."""


def test_the_result_is_printed_though_the_leader_is_lost_after_the_last_step(home: Path) -> None:
    """By the member that is left: it has the same model, and evaluates all of it."""
    edit_model(home, "import time\n", "import pathlib\nimport time\ncalls = []\n")
    edit_model(home, "time.sleep(PAUSE_S)", WAITS)
    edit_model(home, "def metrics():", HANGS)
    edit_model(home, "lambda outputs, labels: (outputs.argmax(1) == labels).mean()", "accuracy")
    job = Job(home, heartbeat_s=0.5)
    once = ("--evaluate", "test.npz", "--evaluate-every", "1000")
    words = ("-m", "edl", "train", "model.py", "--data", "train.npz", *once)
    leader = job.start("trainer-0", *words)
    leader.says("step 1, ")
    left = job.start("trainer-1", *words)
    _wait(lambda: len(job.status["rendezvous"]["members"]) == 2)
    (home / "go").touch()
    _wait((home / "evaluating").exists)
    leader.process.kill()
    (home / "killed").touch()
    code = left.ends()
    job.close()

    assert code == 0, left.text
    assert _result(left.text)["accuracy"] > 0.9


def _wait(happens: Callable[[], bool]) -> None:
    """Waits for it, as long as the test may take."""
    while not happens():
        time.sleep(0.02)


@pytest.mark.soak  # `make test` has test_run and local/test_local
def test_a_terminal_shows_members_and_the_newest_step(home: Path) -> None:
    """And takes keys."""
    ours, theirs = pty.openpty()
    words = ("--data", "train.npz", "-n", "1", "--epochs", "500")
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", "train", "model.py", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        cwd=home,
        env={**_environ(home), "COLUMNS": "200", "LINES": "40"},
    ) as running:
        os.close(theirs)
        text = read_until(ours, "round 1 with 1 member  step ")
        os.write(ours, b"+")
        text += read_until(ours, "with 2 members  step ")
        os.write(ours, b"q")
        text += read_until(ours, "is not done after")
        assert running.wait(60) == 130
    os.close(ours)

    assert "rank 0" in text


def test_sigterm_before_it_has_joined_ends_a_trainer_at_once(home: Path) -> None:
    """Frameworks take seconds to import, and set handlers of their own in C; 143 as always."""
    deaf = "import ctypes\nctypes.CDLL(None).signal(15, 1)\nprint('importing', flush=True)\n"
    edit_model(home, "import time\n", f"import time\n{deaf}time.sleep(600)\n")
    environ = {"EDL_MASTER": "http://127.0.0.1:1", "EDL_TOKEN": "a-token-of-this-test"}
    with subprocess.Popen(
        [sys.executable, "-m", "edl", "train", "model.py", "--data", "train.npz"],
        stdout=subprocess.PIPE,
        cwd=home,
        env={**_environ(home), **environ},
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"importing\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143  # long before the import is over
