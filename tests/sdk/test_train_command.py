"""`edl train` as a user calls it: a job on this machine, real master and trainers, some killed."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edl import __main__, clock

from tests.sdk.models import SOFTMAX, write_data

pytestmark = pytest.mark.timeout(180)  # whole jobs, on cores that others share

Edl = Callable[..., "subprocess.CompletedProcess[str]"]
RESULT = re.compile(
    r"^edl: model is trained: (\d+) steps, (\d+) records, loss ([\d.e-]+)"
    r"(?:; evaluation of step (\d+): loss ([\d.e-]+), accuracy ([\d.]+))?"
    r"(?:; (\d+) steps? left out, their loss was no number)?"
    r"; (\d+) members? at the end, after (\d+) changes? of members$",
    re.MULTILINE,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a model and data."""
    (tmp_path / "model.py").write_text(SOFTMAX)
    write_data(tmp_path)
    return tmp_path


def _environ(home: Path) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return {**found, "TMPDIR": str(home), "OMP_NUM_THREADS": "1"}


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


def _result(done: "subprocess.CompletedProcess[str]") -> dict[str, float]:
    """Numbers of the last line."""
    found = RESULT.search(done.stdout.splitlines()[-1]) if done.stdout else None
    assert found is not None, done.stdout + done.stderr
    names = "steps records loss version held_out_loss accuracy skipped members changes"
    return {
        name: float(text or 0) for name, text in zip(names.split(), found.groups(), strict=True)
    }


def test_a_job_whose_trainers_come_and_go_trains_the_same_model(edl: Edl, home: Path) -> None:
    """As one trainer alone, but for rounding; kill -9 of the leader and of the master included."""
    common = ("train", "model.py", "--data", "train.npz", "--evaluate", "test.npz", "--epochs", "3")
    alone = edl(*common, "-n", "1", "--export", "alone")
    _changed(home, "PAUSE_S = 0.002", "PAUSE_S = 0.1")
    schedule = "10%:kill trainer-0, 15%:+1, 30%:kill master, 50%:-1"
    many = edl(*common, "-n", "3", "--export", "many", "--schedule", schedule)
    one, other = _result(alone), _result(many)

    assert (alone.returncode, many.returncode) == (0, 0)
    assert one["steps"] == other["steps"] == 45
    assert one["records"] == other["records"] == 3 * 960
    assert (one["version"], other["version"]) == (45, 45)
    assert one["accuracy"] == other["accuracy"] > 0.95
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert other["changes"] >= 3
    with np.load(home / "alone/model.npz") as first, np.load(home / "many/model.npz") as second:
        for name in ("w", "b"):
            np.testing.assert_allclose(first[name], second[name], rtol=1e-3, atol=1e-5)
    assert many.stdout.count("step 15, evaluation: ") == 1
    progress = r"step \d+, epoch \d of 3: loss [^;]*; (\d+ records/s[^;]*; )?\d members? in round"
    assert re.search(progress, many.stdout)


def test_a_job_goes_on_from_its_checkpoints(edl: Edl, home: Path) -> None:
    """All trainers are killed, and the run with them; the next one begins at the newest."""
    _changed(home, "PAUSE_S = 0.002", "PAUSE_S = 0.04")
    common = ("train", "model.py", "--data", "train.npz", "-n", "1", "--checkpoints", "saved")
    first = edl(*common, "--checkpoint-every", "5", "--schedule", "40%:-1")
    second = edl(*common)

    assert first.returncode == 1
    assert "is not done" in first.stdout
    assert second.returncode == 0, second.stderr
    found = re.search(r"going on from the checkpoint of step (\d+) in saved", second.stdout)
    assert found is not None
    assert _result(second)["steps"] == int(found[1]) + 15


def test_the_learning_rate_may_follow_the_members_instead(edl: Edl) -> None:
    """With --scale-learning-rate each member computes one part of a step."""
    done = edl(
        *("train", "model.py", "--data", "train.npz", "-n", "2", "--scale-learning-rate"),
        *("--evaluate", "test.npz", "--evaluate-every", "1000"),
    )

    assert done.returncode == 0, done.stderr
    assert _result(done)["steps"] > 15  # of 8 or 16 records instead of 64
    assert _result(done)["accuracy"] > 0.9


def _changed(home: Path, old: str, new: str) -> None:
    path = home / "model.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


FAILURES = [
    (
        "return Net()",
        "raise RuntimeError('no weights')",
        2,
        r"edl: model\(\) of model.py failed on trainer-\d: RuntimeError: no weights",
    ),
    ("import time\n", "import nowhere\n", 2, "model.py cannot be run: ModuleNotFoundError"),
    (
        "shifted = np",
        "raise ValueError('no label 7')\n    shifted = np",
        1,
        r"the job failed: .*loss\(outputs, labels\) of model.py failed at step 1, .* no label 7",
    ),
    (
        "return mean,",
        "return float('nan'),",
        1,
        r"the job failed: .*step 1: .*trainer-\d: loss is nan in micro-batch",
    ),
    (
        "time.sleep(PAUSE_S)",
        "raise MemoryError",
        1,
        r"out of memory at step 1, .* of 8 records on trainer-\d, .*: lower --batch-size or raise --m",
    ),
]


@pytest.mark.parametrize(("old", "new", "code", "text"), FAILURES, ids=lambda one: str(one)[:20])
def test_what_fails_in_a_models_code_ends_the_job_with_one_line(  # noqa: PLR0917 - a table's columns
    edl: Edl, home: Path, old: str, new: str, code: int, text: str
) -> None:
    """Which function, at which step, on which trainer; nobody waits for ever."""
    _changed(home, old, new)
    done = edl("train", "model.py", "--data", "train.npz", "-n", "2")

    assert done.returncode == code, done.stdout + done.stderr
    assert re.search(text, done.stdout), done.stdout
    assert "model is not done" in done.stdout


def test_steps_whose_loss_is_no_number_may_be_left_out(edl: Edl, home: Path) -> None:
    """They are counted."""
    _changed(home, "return mean,", "return float('nan') if labels[0] == 0 else mean,")
    common = ("train", "model.py", "--data", "train.npz", "-n", "1", "--on-nan", "skip")
    done = edl(*common, "--micro-batches", "1")

    assert done.returncode == 0, done.stdout
    assert 0 < _result(done)["skipped"] < 15


def test_a_checkpoint_of_another_model_is_refused(edl: Edl, home: Path) -> None:
    """With the array that differs."""
    common = ("train", "model.py", "--data", "train.npz", "-n", "1", "--checkpoints", "saved")
    assert edl(*common).returncode == 0
    _changed(home, "(8, 3)", "(8, 4)")
    done = edl(*common)

    assert done.returncode == 2
    assert "is of another model: model/w has shape [8, 3] instead of [8, 4]" in done.stdout


def test_a_trainer_with_other_code_is_refused_and_the_job_goes_on(home: Path) -> None:
    """The file was changed while the job ran: who comes later has another one."""
    words = ("--data", "train.npz", "-n", "1", "--epochs", "20", "--schedule", "30%:+1")
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", "train", "model.py", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
        env=_environ(home),
    ) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if "trainer-0 | step 1, " in line:
                _changed(home, "0.05", "0.06")
        assert running.wait(10) == 0
    text = "".join(lines)

    assert re.search(r"trainer-1 \| edl: .*code\.model", text), text
    assert "trainer-1 failed: failed with exit code 2" in text
    assert "model is trained: 300 steps, 19200 records" in lines[-1]


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
        text = _until(ours, "round 1 with 1 member  step ")
        os.write(ours, b"+")
        text += _until(ours, "with 2 members  step ")
        os.write(ours, b"q")
        text += _until(ours, "is not done after")
        assert running.wait(20) == 130
    os.close(ours)

    assert "rank 0" in text


def _until(place: int, wanted: str) -> str:
    text = ""
    while wanted not in text:
        text += os.read(place, 4096).decode(errors="replace")
    return text


BAD = [
    (["no-such.py", "--data", "train.npz"], "no-such.py cannot be read: No such file"),
    (["model.py", "--data", "no.npz"], "--data is 'no.npz', and there is no such file or folder"),
    (
        ["model.py", "--data", "train.npz", "--evaluate", "no"],
        "--evaluate is 'no', and there is no",
    ),
    (["model.py", "--data", "train.npz", "-n", "0"], "-n is 0: at least one trainer"),
    (["model.py", "--data", "train.npz", "--schedule", "soon"], "schedule entry 'soon'"),
    (["model.py", "--data", "train.npz", "--python", "no-python"], "--python is 'no-python'"),
    (["model.py", "--data", "train.npz", "--servers", "2"], "--servers is for --async"),
    (["model.py", "--data", "train.npz", "--dir", "kept"], "--dir kept has a journal, which knows"),
    (["train.npz", "--data", "train.npz"], "train.npz is not text in UTF-8"),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=["_".join(words)[:40] for words, _ in BAD])
def test_bad_use_is_one_line_and_starts_nothing(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    text: str,
) -> None:
    """And code 2."""
    monkeypatch.chdir(home)
    monkeypatch.delenv("EDL_MASTER", raising=False)
    (home / "kept/journal").mkdir(parents=True)

    assert __main__.main(["train", *words]) == 2
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


def test_one_trainer_of_a_job_is_told_nothing_of_others(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where EDL_MASTER is set, flags for a job on this machine are a mistake."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("EDL_MASTER", "http://127.0.0.1:1")

    assert __main__.main(["train", "model.py", "--data", "train.npz", "-n", "3"]) == 2
    assert "-n is for jobs on this machine, but EDL_MASTER is set" in capsys.readouterr().err


def test_a_trainer_that_cannot_begin_says_why_with_code_2(home: Path) -> None:
    """The data, the settings: its replacement would end alike."""
    told = {"EDL_MASTER": "http://127.0.0.1:1", "EDL_TOKEN": "a-token-of-this-test"}
    for words, more, text in (
        (("--data", "model.py"), told, "model.py is no record file"),
        (("--data", "train.npz"), {**told, "EDL_TOKEN": ""}, "EDL_TOKEN is empty"),
    ):
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", "train", "model.py", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=home,
            env={**_environ(home), **more},
        )
        assert done.returncode == 2, done.stderr
        assert text in done.stderr.splitlines()[-1]


def test_sigterm_before_it_has_joined_ends_a_trainer_at_once(home: Path) -> None:
    """Frameworks take seconds to import, and set handlers of their own in C; 143 as always."""
    deaf = "import ctypes\nctypes.CDLL(None).signal(15, 1)\nprint('importing', flush=True)\n"
    _changed(home, "import time\n", f"import time\n{deaf}time.sleep(60)\n")
    told = {"EDL_MASTER": "http://127.0.0.1:1", "EDL_TOKEN": "a-token-of-this-test"}
    with subprocess.Popen(
        [sys.executable, "-m", "edl", "train", "model.py", "--data", "train.npz"],
        stdout=subprocess.PIPE,
        cwd=home,
        env={**_environ(home), **told},
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"importing\n"
        since_s = clock.monotonic_s()
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == 143
        assert clock.monotonic_s() - since_s < 5


def test_help_says_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Of each command."""
    for command in ("train", "predict", "submit", "run"):
        with pytest.raises(SystemExit) as ended:
            __main__.main([command, "--help"])
        assert ended.value.code == 0
        assert "exit codes: 0 done; 1 the job failed" in " ".join(capsys.readouterr().out.split())
