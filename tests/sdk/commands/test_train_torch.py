"""`edl train` and `edl predict` with the example in torch, as a user runs them."""

import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.sdk.commands.calls import ROOT, assert_predicts_as_well, call_edl

TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
DIGITS = ROOT / "examples/models/digits_torch.py"

pytestmark = [
    pytest.mark.timeout(300),  # torch is imported by each process, on cores that others share
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]

Edl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def edl(tmp_path: Path) -> Edl:
    """Calls `edl` where torch can be imported, and waits for its end."""
    return partial(call_edl, tmp_path, PYTHONPATH=str(TORCH))


def _train(data: Path, *words: str) -> list[str]:
    files = ["--data", f"{data}/digits-train.npz", "--evaluate", f"{data}/digits-test.npz"]
    return ["train", str(DIGITS), *files, "--batch-size", "32", *words]


def _accuracy(text: str) -> float:
    match = re.search(
        r"^edl: .* is trained: .*evaluation of .*accuracy ([\d.]+)", text, re.MULTILINE
    )
    assert match is not None, text
    return float(match[1])


def _is_exact(text: str, epochs: int) -> bool:
    """Whether each record was acknowledged once an epoch."""
    records = epochs * 1437
    return f"{records} of {records} records acknowledged" in text and "trained again" not in text


def test_digits_are_learned_and_predicted(edl: Edl, data: Path, tmp_path: Path) -> None:
    """By one trainer; predictions of the exported model are as good as the evaluation."""
    trained = edl(*_train(data, "--epochs", "5", "--export", "model", "-n", "1"))
    test = data / "digits-test.npz"
    words = ("--data", str(test), "--model", "model", "--output", "out", "--join", "all.npz")
    predicted = edl("predict", str(DIGITS), *words, "-n", "1")

    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert _is_exact(trained.stdout + trained.stderr, 5), trained.stderr
    assert _accuracy(trained.stdout) > 0.6
    assert predicted.returncode == 0, predicted.stdout + predicted.stderr
    assert_predicts_as_well(tmp_path / "all.npz", test, _accuracy(trained.stdout))


@pytest.mark.soak
def test_digits_are_learned_while_trainers_join_and_leave(edl: Edl, data: Path) -> None:
    """They learn as well as one trainer alone, and the books are exact; sums round otherwise."""
    alone = edl(*_train(data, "--epochs", "10", "-n", "1"))
    schedule = ("--schedule", "20%:kill trainer-0, 30%:+1, 60%:-1")
    together = edl(*_train(data, "--epochs", "10", "-n", "3", *schedule))

    assert together.returncode == 0, together.stdout + together.stderr
    assert _is_exact(together.stdout + together.stderr, 10), together.stderr
    assert _accuracy(together.stdout) > 0.85
    assert _accuracy(together.stdout) == pytest.approx(_accuracy(alone.stdout), abs=0.01)


def test_parameter_servers_are_refused(edl: Edl, data: Path) -> None:
    """In one line that says what to leave out."""
    refused = edl(*_train(data, "--async", "-n", "1", "--servers", "1"))
    assert refused.returncode != 0
    assert "a model in torch, which trains together (--sync)" in refused.stdout + refused.stderr
