"""Wrong use of `edl train`, and what it says then."""

import signal
from pathlib import Path

import pytest
from edl import __main__

pytestmark = pytest.mark.timeout(180)  # whole jobs, on cores that others share


BAD = [
    (["model.py"], "no training data: set --data PATH, or spec.master.data"),
    (["no-such.py", "--data", "train.npz"], "cannot read no-such.py: No such file"),
    (["model.py", "--data", "no.npz"], "--data is 'no.npz': no such file or folder"),
    (
        ["model.py", "--data", "train.npz", "--evaluate", "no"],
        "--evaluate is 'no': no such file",
    ),
    (["model.py", "--data", "train.npz", "-n", "0"], "-n is 0: at least one trainer"),
    (["model.py", "--data", "train.npz", "--schedule", "soon"], "schedule entry 'soon'"),
    (["model.py", "--data", "train.npz", "--python", "no-python"], "--python is 'no-python'"),
    (["model.py", "--data", "train.npz", "--servers", "2"], "--servers is for --async"),
    (
        ["model.py", "--data", "train.npz", "--dir", "kept"],
        "--dir kept has a journal of the data",
    ),
    (["train.npz", "--data", "train.npz"], "train.npz is not UTF-8 text"),
    (
        ["model.py", "--data", "train.npz", "--dir", "/proc/none"],
        "--dir is '/proc/none', but /proc/none is not writable: No such file",
    ),
    (["model.py", "--data", "train.npz", "--export", "model.py"], "model.py is a file: name a"),
    (
        ["model.py", "--data", "train.npz", "--export", "/proc/none/one"],
        "--export is '/proc/none/one', but /proc/none is not writable",
    ),
    (
        ["model.py", "--data", "train.npz", "--checkpoints", "model.py/saved"],
        "model.py/saved is not writable: Not a directory",
    ),
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
    stderr = capsys.readouterr().err
    assert text in stderr
    assert stderr.count("\n") == 1


def test_one_trainer_of_a_job_is_told_nothing_of_others(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where EDL_MASTER is set, flags for a job on this machine are a mistake."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("EDL_MASTER", "http://127.0.0.1:1")

    assert __main__.main(["train", "model.py", "--data", "train.npz", "-n", "3"]) == 2
    assert "-n is for jobs on this machine, but EDL_MASTER is set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "token", "text"),
    [
        ("model.py", "a-token-of-this-test", "model.py is not a record file"),
        ("train.npz", "", "EDL_TOKEN is empty"),
    ],
)
def test_a_trainer_that_cannot_begin_says_why_with_code_2(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: str,
    token: str,
    text: str,
) -> None:
    """Errors of data and settings: a replacement would fail, too."""
    monkeypatch.chdir(home)
    monkeypatch.setattr("edl.master.session._default", None)
    monkeypatch.setenv("EDL_MASTER", "http://127.0.0.1:1")
    monkeypatch.setenv("EDL_TOKEN", token)
    handler = signal.getsignal(signal.SIGTERM)
    code = __main__.main(["train", "model.py", "--data", data])
    signal.signal(signal.SIGTERM, handler)

    assert code == 2
    assert text in capsys.readouterr().err.splitlines()[-1]


def test_a_trainer_takes_from_its_job_what_no_flag_says(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data and epochs of the TrainingJob, as variables of its pod."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("EDL_MASTER", "http://127.0.0.1:1")
    monkeypatch.setenv("EDL_DATA", "of-the-job.npz")
    handler = signal.getsignal(signal.SIGTERM)
    assert __main__.main(["train", "model.py"]) == 2
    assert "of-the-job.npz does not exist" in capsys.readouterr().err
    monkeypatch.setenv("EDL_EPOCHS", "0.5")
    assert __main__.main(["train", "model.py"]) == 2
    assert "EDL_EPOCHS is '0.5'" in capsys.readouterr().err
    signal.signal(signal.SIGTERM, handler)


def test_help_says_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Of each command."""
    for command in ("train", "predict", "submit", "run"):
        with pytest.raises(SystemExit) as ended:
            __main__.main([command, "--help"])
        assert ended.value.code == 0
        assert "exit codes: 0 success; 1 the job failed" in " ".join(
            capsys.readouterr().out.split()
        )
