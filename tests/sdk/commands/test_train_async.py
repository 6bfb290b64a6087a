"""`edl train --async`: parameter servers beside the master, and any of them may die."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import model as models

from tests.master.serving import TOKEN
from tests.pserver import serving
from tests.pserver.serving import RunningServers
from tests.sdk.support.models import edit_model
from tests.sdk.support.trainers import Lone

pytestmark = pytest.mark.timeout(180)  # whole jobs, on cores that others share

Train = Callable[..., "subprocess.CompletedProcess[str]"]
RESULT = re.compile(
    r"^edl: model is trained: (\d+) steps?, (\d+) records, loss ([\d.e-]+) here"
    r"(?:; evaluation of step (\d+): loss ([\d.e-]+), accuracy ([\d.]+))?"
)


@pytest.fixture
def train(home: Path) -> Train:
    """Calls `edl train --async` in that folder, and waits for its end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        command = ["train", "model.py", "--async", "--data", "train.npz", *words]
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", *command],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
            cwd=home,
            env={**environ, "TMPDIR": str(home), "OMP_NUM_THREADS": "1"},
        )

    return call


@pytest.fixture
def running(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServers]:
    """Two servers in this process, for a trainer in it."""
    monkeypatch.setattr(serving, "TOKEN", TOKEN)
    servers = RunningServers(home / "saved", 2)
    monkeypatch.setenv("EDL_PARAMETER_SERVERS", ",".join(servers.urls))
    yield servers
    servers.stop()


def _result(done: "subprocess.CompletedProcess[str]") -> tuple[str | None, ...]:
    assert done.stdout, done.stderr
    return _numbers(done.stdout.splitlines()[-1])


def _numbers(last: str) -> tuple[str | None, ...]:
    match = RESULT.search(last)
    assert match is not None, last
    return match.groups()


def _exported_as_evaluated(home: Path, loss: str | None) -> None:
    """The exported model has the reported loss."""
    with np.load(home / "out/model.npz") as model, np.load(home / "test.npz") as data:
        scores = data["inputs"] @ model["w"] + model["b"]
        chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        own = -np.log(chances[np.arange(len(scores)), data["labels"]] + 1e-9).mean()
    assert float(loss or 0) == pytest.approx(own, rel=1e-3)


LIVES = """
import http.client, json, os, urllib.request

calls = []


def lives():
    url = os.environ["EDL_PARAMETER_SERVERS"] + "/v1/status"
    token = {"Authorization": "Bearer " + os.environ["EDL_TOKEN"]}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=token), timeout=60) as response:
            state = json.load(response)
            return state["ready"] and state["generation"] == 1
    except (OSError, http.client.HTTPException):
        return False


def model():"""
"""A killed server does not answer, then holds nothing, and serves generation 2 after that."""
BLOCKS = """calls.append(1)
        while len(calls) == 25 and lives():
            time.sleep(0.01)"""
"""In the 25th of 30 steps, until the server was killed."""


@pytest.mark.soak  # `make test` has servers/test_kills and test_faults
def test_a_server_may_die(train: Train, home: Path) -> None:
    """What it loses is trained again, whenever that was, and the exported model is the server's."""
    edit_model(home, "\ndef model():", LIVES)
    edit_model(home, "time.sleep(PAUSE_S)", BLOCKS)
    done = train(
        *("-n", "1", "--servers", "1", "--epochs", "2", "--evaluate", "test.npz"),
        *("--checkpoint-every", "4", "--export", "out", "--schedule", "40%:kill server-0"),
    )
    steps, records, _, version, loss, accuracy = _result(done)

    assert done.returncode == 0, done.stdout
    assert "servers restarted once" in done.stdout
    assert records == str(2 * 960)
    assert (steps, version) == ("30", "30"), done.stdout
    assert float(accuracy or 0) > 0.95
    _exported_as_evaluated(home, loss)


def test_servers_that_go_back_at_the_end_cost_no_evaluation_and_no_model(
    home: Path, lone: Lone, running: RunningServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the trained model is evaluated: both are of the checkpoint of the end."""
    evaluate, kills = models.evaluate, [running.start, running.kill]

    def killing(*args: Any, **options: Any) -> dict[str, float] | None:
        while kills:
            kills.pop()()
        return evaluate(*args, **options)

    monkeypatch.setattr(models, "evaluate", killing)
    ended = lone(
        *("train", "model.py", "--async", "--data", "train.npz", "--evaluate", "test.npz"),
        *("--evaluate-every", "1000", "--export", "out"),
    )
    steps, _, _, version, loss, _ = _numbers(ended.last)

    assert ended.code == 0, ended.err
    assert not kills
    assert (steps, version) == ("15", "15")
    _exported_as_evaluated(home, loss)


@pytest.mark.usefixtures("home")
def test_the_model_is_evaluated_while_it_is_trained(lone: Lone, running: RunningServers) -> None:
    """Each due version once, on parameters that the servers keep meanwhile and no longer."""
    ended = lone(
        *("train", "model.py", "--async", "--data", "train.npz", "--evaluate", "test.npz"),
        *("--evaluate-every", "5"),
    )
    lines = re.findall(r"^step (\d+), evaluation: loss [\d.e-]+, accuracy", ended.out, re.MULTILINE)

    assert ended.code == 0, ended.err
    assert lines == ["5", "10", "15"]
    serving = [server.server.serving_at(1) for server in running.all]
    assert [shard._pins for shard in serving] == [{}, {}]  # noqa: SLF001 - nothing shows a leak


@pytest.mark.soak
def test_servers_and_trainers_may_die(train: Train, home: Path) -> None:
    """Training continues from the servers' newest checkpoint, and the exported model is theirs."""
    edit_model(home, "PAUSE_S = 0.002", "PAUSE_S = 0.15")
    done = train(
        *("-n", "2", "--servers", "2", "--epochs", "3", "--evaluate", "test.npz"),
        *("--checkpoint-every", "4", "--export", "out"),
        *("--schedule", "20%:kill, 25%:+1, 45%:kill server-0, 60%:kill master"),
    )
    steps, records, _, version, loss, accuracy = _result(done)

    assert done.returncode == 0, done.stdout
    assert "master restarted once, servers restarted once" in done.stdout
    assert records == str(3 * 960)
    lost = re.search(r"(\d+) steps? lost to server failures", done.stdout)
    assert int(steps or 0) + int(lost[1] if lost else 0) >= 45
    assert steps == version
    assert float(accuracy or 0) > 0.95
    _exported_as_evaluated(home, loss)


@pytest.mark.soak  # `make test` has servers/test_faults
def test_a_job_goes_on_from_its_servers_checkpoints(train: Train) -> None:
    """What has been trained is not trained again; with more epochs, all are on the same parameters."""
    words = ("-n", "1", "--checkpoints", "saved", "--modulate")
    first = train(*words, "--servers", "1")
    again = train(*words, "--servers", "2")
    more = train(*words, "--servers", "2", "--epochs", "2")

    assert (first.returncode, again.returncode, more.returncode) == (0, 0, 0), more.stdout
    assert _result(first)[0] == "15"
    assert "model is trained: 15 steps, 960 records, no metrics" in again.stdout.splitlines()[-1]
    assert _result(more)[0] == "45"


RAISES = ("shifted = np", "raise ValueError('no label 7')\n    shifted = np")
NO_LABEL = r"loss\(outputs, labels\) of model.py failed at .*: no label 7"


@pytest.mark.soak  # `make test` has the same with one trainer in this process
def test_a_model_that_fails_ends_the_job_of_all(train: Train, home: Path) -> None:
    """The run's last line says why; nobody waits for ever."""
    edit_model(home, *RAISES)
    done = train("-n", "2", "--servers", "1")

    assert done.returncode == 1, done.stdout
    assert re.search(r"the job failed: .*" + NO_LABEL, done.stdout), done.stdout


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (
            ('"kind": "momentum"', '"kind": "newton"'),
            2,
            r"'newton' is not one of sgd, momentum, adagrad, adam",
        ),
        (RAISES, 1, NO_LABEL),
    ],
    ids=["optimizer", "raises"],
)
def test_what_cannot_be_trained_ends_a_trainer_with_one_line(
    lone: Lone, home: Path, change: tuple[str, str], code: int, text: str
) -> None:
    """What others would come upon too fails the job, for the same reason."""
    edit_model(home, *change)
    done = lone("train", "model.py", "--async", "--data", "train.npz")

    assert done.code == code, done.err
    assert re.search(text, done.err.splitlines()[-1]), done.err
    assert bool(re.search(text, done.status["reason"] or "")) is (code == 1)


@pytest.mark.usefixtures("running")
def test_a_loss_that_is_no_number_ends_the_job_with_one_line(lone: Lone, home: Path) -> None:
    """Unless such batches may be left out."""
    edit_model(home, "return mean,", "return float('nan'),")
    done = lone("train", "model.py", "--async", "--data", "train.npz")
    text = r"the loss is NaN or infinite at step 1 of trainer trainer-\d"

    assert (done.code, done.status["state"]) == (1, "failed")
    assert re.search(text, done.status["reason"])
    assert re.search(text, done.err.splitlines()[-1]), done.err


@pytest.mark.usefixtures("running")
def test_batches_whose_loss_is_no_number_may_be_left_out(lone: Lone, home: Path) -> None:
    """They are counted, and batches may be refused for their age."""
    edit_model(home, "return mean,", "return float('nan') if labels[0] == 0 else mean,")
    common = ("train", "model.py", "--async", "--data", "train.npz")
    done = lone(*common, "--on-nan", "skip", "--max-staleness", "2")

    assert done.code == 0, done.err
    assert "steps skipped because the loss was not finite" in done.last
