"""`edl predict`: outputs of each task are whole or absent, and in order when they are joined."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edl import __main__
from edl.errors import DataError
from edl.jobs.outputs import INDEX, OutputWriter, finish, parts
from edl.master.leases import Portion
from edl.master.protocol import Lease

from tests.sdk.support.models import SOFTMAX, write_data
from tests.sdk.support.trainers import Lone

pytestmark = pytest.mark.timeout(180)  # whole jobs, on cores that others share

Edl = Callable[..., "subprocess.CompletedProcess[str]"]
COLUMNS = [f"x{number}" for number in range(8)]
FEED = """

def feed(records):
    columns = [f"x{number}" for number in range(8)]
    return np.array([[one[c] for c in columns] for one in records], "float32"), None


def predict(outputs):
    return {"cloud": outputs.argmax(1), "sure": outputs.max(1)}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a model, its parameters and data."""
    (tmp_path / "model.py").write_text(SOFTMAX)
    write_data(tmp_path, test=400)
    draw = np.random.default_rng(5)
    trained = {"w": draw.normal(0, 1, (8, 3)), "b": draw.normal(0, 1, 3)}
    (tmp_path / "trained").mkdir()
    np.savez(
        tmp_path / "trained/model.npz",
        allow_pickle=False,
        **{name: array.astype("float32") for name, array in trained.items()},
    )
    return tmp_path


@pytest.fixture
def predict(home: Path) -> Edl:
    """Calls `edl predict` in that folder, and waits for its end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", "predict", "model.py", "--model", "trained", *words],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
            cwd=home,
            env={**environ, "TMPDIR": str(home), "OMP_NUM_THREADS": "1"},
        )

    return call


def _outputs(inputs: np.ndarray, home: Path) -> np.ndarray:
    with np.load(home / "trained/model.npz") as own:
        expected: np.ndarray = inputs @ own["w"] + own["b"]
        return expected


WAITS = """calls.append(1)
        if os.environ["EDL_TRAINER"] == "trainer-1" and len(calls) == 3:
            pathlib.Path("holds").touch()
            time.sleep(600)
        while len(calls) > 4 and not pathlib.Path("holds").exists():
            time.sleep(0.01)"""
"""The one that is killed keeps its third batch; the other makes four before it knows of that."""


@pytest.mark.soak  # `make test` has the writer below
def test_trainers_that_die_leave_no_hole_and_no_half_file(predict: Edl, home: Path) -> None:
    """All outputs are there once, in the order of the records."""
    path = home / "model.py"
    text = path.read_text().replace("time.sleep(PAUSE_S)", WAITS)
    path.write_text(text.replace("import time\n", "import os, pathlib, time\ncalls = []\n"))
    words = ("--data", "test.npz", "--output", "out", "--join", "all.npz", "--batch-size", "8")
    done = predict(*words, "-n", "2", "--schedule", "20%:kill")
    with np.load(home / "test.npz") as data, np.load(home / "all.npz") as outputs:
        expected = _outputs(data["inputs"], home)
        np.testing.assert_allclose(outputs["outputs"], expected, rtol=1e-5, atol=1e-6)

    assert done.returncode == 0, done.stdout
    assert "400 of 400 records acknowledged" in done.stdout
    assert done.stdout.splitlines()[-1] == "edl: model has predicted: 50 files in out"
    assert sorted(path.name[:5] for path in (home / "out").iterdir()) == ["index"] + 50 * ["part-"]
    assert "sending SIGKILL to" in done.stderr


def test_records_that_cannot_be_read_are_named(lone: Lone, home: Path) -> None:
    """Their tasks are dropped; the others' outputs, by the names that predict() gives, are there."""
    path = home / "model.py"
    path.write_text(path.read_text() + FEED)
    with np.load(home / "test.npz") as data:
        inputs = data["inputs"][:40]
    rows = [",".join(map(str, row)) for row in inputs]
    rows[21] += ",1"
    (home / "test.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    words = ("--data", "test.csv", "--output", "out", "--batch-size", "10")
    done = lone("predict", "model.py", "--model", "trained", *words)
    index = json.loads((home / "out" / INDEX).read_text())

    assert done.code == 0, done.err
    assert index["missing"] == ["records 20 to 29 of file 0"]
    assert done.status["datasets"]["prediction"]["dropped_tasks"] == 1
    assert done.last.endswith("missing records 20 to 29 of file 0, whose tasks failed")
    with np.load(parts(home / "out")[-1].path) as last:
        assert sorted(last) == ["cloud", "sure"]
        np.testing.assert_array_equal(last["cloud"], _outputs(inputs[30:], home).argmax(1))


def test_outputs_of_other_tasks_are_not_taken_for_those_of_a_job(lone: Lone, home: Path) -> None:
    """On a cluster nobody has looked into the folder before: rows would be there twice in --join."""
    words = ("predict", "model.py", "--model", "trained", "--data", "test.npz", "--output", "out")
    joined = (*words, "--join", "all.npz")
    assert lone(*joined, "--batch-size", "10").code == 0
    with np.load(home / "all.npz") as whole:
        rows = len(whole["outputs"])
    other = lone(*joined, "--batch-size", "8")
    again = lone(*joined, "--batch-size", "10")  # the same tasks: their files are replaced

    assert other.code == 2
    assert "was written by a job with other data or another --batch-size" in other.err
    assert again.code == 0
    with np.load(home / "all.npz") as whole:
        assert len(whole["outputs"]) == rows


def test_outputs_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    """In a trainer, too: the folder, the file of a task, the index and the file of all outputs."""
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write .*file: File exists"):
        OutputWriter(tmp_path / "file", {"records": 1})
    writer = OutputWriter(tmp_path / "out", {"records": 1})
    (tmp_path / "out").rmdir()
    (tmp_path / "out").touch()
    with pytest.raises(DataError, match=r"cannot write .*part-00000-000000000000.npz: "):
        writer.add([Portion(_lease(0, 1), 1)], {"y": np.zeros(1)})
    (tmp_path / "index" / INDEX).mkdir(parents=True)
    with pytest.raises(DataError, match=r"cannot write .*index.json: Is a directory"):
        finish(tmp_path / "index", {"records": 0}, None)
    OutputWriter(tmp_path / "whole", {"records": 1}).add(
        [Portion(_lease(0, 1), 1)], {"y": np.zeros(1)}
    )
    with pytest.raises(DataError, match=r"cannot write .*all.npz: "):
        finish(tmp_path / "whole", {"records": 1}, tmp_path / "file/all.npz")


BAD = [
    (["--model", "nothing"], "--model is 'nothing': no such file or folder"),
    (["--data", "nothing"], "--data is 'nothing': no such file"),
    (["--join", "all.csv"], "--join is 'all.csv': the file name must end in .npz"),
    (["--output", "old"], "--output old already holds outputs: name another folder"),
    (["--output", "model.py"], "--output is 'model.py', but model.py is a file: name a folder"),
    (["--join", "/proc/none/all.npz"], "but /proc/none is not writable: No such file"),
    (["--dir", "model.py"], "--dir is 'model.py', but model.py is a file: name a folder"),
]


@pytest.mark.parametrize(
    ("arguments", "text"), BAD, ids=["_".join(arguments) for arguments, _ in BAD]
)
def test_bad_use_is_one_line_and_starts_nothing(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
) -> None:
    """And code 2."""
    monkeypatch.chdir(home)
    monkeypatch.delenv("EDL_MASTER", raising=False)
    (home / "old").mkdir()
    (home / "old/part-00000-000000000000.npz").write_text("")
    words = ["model.py", "--data", "test.npz", "--model", "trained", "--output", "out"]

    assert __main__.main(["predict", *words, *arguments]) == 2
    stderr = capsys.readouterr().err
    assert text in stderr
    assert stderr.count("\n") == 1


def test_parameters_of_another_model_are_refused(lone: Lone, home: Path) -> None:
    """Nothing is predicted, and the array is named."""
    np.savez(home / "trained/model.npz", allow_pickle=False, w=np.zeros((9, 3), "float32"))
    words = ("--data", "test.npz", "--output", "out")
    done = lone("predict", "model.py", "--model", "trained", *words)

    assert done.code == 2, done.out
    assert "model.npz belongs to another model: w has shape [9, 3] instead of [8, 3]" in done.err
    assert not (home / "out").exists()


def _lease(start: int, end: int, *, file: str = "b", attempt: int = 1) -> Lease:
    return Lease(f"data/0/{start}", attempt, "prediction", "data", 0, start, end, file, 9.0)


def test_a_batch_may_hold_pieces_of_many_tasks(tmp_path: Path) -> None:
    """A task is written when its last record came; what was begun by a lost lease is not."""
    shape = {"files": [{"name": "a", "records": 4}, {"name": "b", "records": 6}]}
    writer = OutputWriter(tmp_path, shape)
    writer.add([Portion(_lease(4, 6), 1)], {"y": np.array([0])})  # its lease is lost
    writer.add(
        [Portion(_lease(0, 4, file="a"), 4), Portion(_lease(0, 4), 2)],
        {"y": np.arange(6)},
    )
    writer.add(
        [Portion(_lease(0, 4), 2), Portion(_lease(4, 6, attempt=2), 2)],
        {"y": np.arange(6, 10)},
    )
    missing = finish(tmp_path, shape, tmp_path / "all.npz")

    assert missing == []
    assert [part.path.name for part in parts(tmp_path)] == [
        *("part-00000-000000000000.npz", "part-00001-000000000000.npz"),
        "part-00001-000000000004.npz",
    ]
    with np.load(tmp_path / "all.npz") as outputs:
        np.testing.assert_array_equal(outputs["y"], np.arange(10))


def test_outputs_have_names_that_files_can_hold(tmp_path: Path) -> None:
    """Some are numpy's own; and what they hold can be read without running anything."""
    writer = OutputWriter(tmp_path, {"records": 1})
    for name, value, message in (
        ("file", np.zeros(1), "cannot be named 'file'"),
        ("allow_pickle", np.zeros(1), "cannot be named 'allow_pickle'"),
        ("y", np.array([{}]), "output 'y' holds Python objects"),
    ):
        with pytest.raises(DataError, match=message):
            writer.add([Portion(_lease(0, 1), 1)], {name: value})
    assert list(tmp_path.iterdir()) == []


def test_without_any_output_all_is_missing(tmp_path: Path) -> None:
    """And nothing is joined."""
    assert finish(tmp_path, {"records": 3}, tmp_path / "all.npz") == ["records 0 to 2 of file 0"]
    assert not (tmp_path / "all.npz").exists()
