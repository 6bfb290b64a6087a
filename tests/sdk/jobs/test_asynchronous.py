"""Evaluations of a version that is pinned at the parameter servers, when those refuse."""

from typing import Any

import pytest
from edl import model as models
from edl.jobs.asynchronous import _PinnedModel  # its callers train
from edl.servers.errors import GenerationChanged, RequestRefused


class Servers:
    """Servers that answer calls about pins with the next of these errors."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors, self.calls = list(errors), 0

    def _answer(self) -> dict[str, float]:
        self.calls += 1
        error = self.errors.pop(0)
        if error is not None:
            raise error
        return {"w": 1.0}

    def pinned(self, version: int) -> dict[str, float]:
        """Parameters of a pinned version."""
        assert version == 7
        return self._answer()

    def unpin(self, version: int) -> None:
        """Releases it."""
        assert version == 7
        self._answer()


class Worker:
    """Notes what it has loaded."""

    def __init__(self) -> None:
        self.loaded: list[Any] = []

    def load(self, parameters: Any) -> None:
        """Takes parameters."""
        self.loaded.append(parameters)


GONE = RequestRefused(404, "pin 7 is unknown")
ANOTHER = GenerationChanged(409, "generation 2 is served")


@pytest.fixture(autouse=True)
def _evaluates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "evaluate", lambda *_, **__: {"loss": 0.5})


def test_a_version_is_loaded_once_for_all_batches() -> None:
    """Each batch is evaluated on it."""
    servers, worker = Servers(None), Worker()
    model = _PinnedModel(worker, servers, 7)  # type: ignore[arg-type] # they stand for a client

    assert [model.evaluate([1]), model.evaluate([2])] == [{"loss": 0.5}] * 2
    assert (worker.loaded, servers.calls) == ([{"w": 1.0}], 1)


@pytest.mark.parametrize("error", [GONE, ANOTHER])
def test_a_version_that_is_gone_is_not_asked_for_again(error: RequestRefused) -> None:
    """The servers restarted, or another evaluation has its place: the evaluation has no result."""
    servers = Servers(error)
    model = _PinnedModel(Worker(), servers, 7)  # type: ignore[arg-type] # as above

    assert [model.evaluate([1]), model.evaluate([2])] == [None, None]
    assert servers.calls == 1


@pytest.mark.parametrize("error", [GONE, ANOTHER, None])
def test_a_pin_that_is_gone_need_not_be_released(error: RequestRefused | None) -> None:
    """The aim is reached."""
    servers = Servers(error)
    _PinnedModel(Worker(), servers, 7).forget()  # type: ignore[arg-type] # as above

    assert servers.calls == 1


def test_another_refusal_of_a_release_is_an_error() -> None:
    """It says that this trainer or the servers are wrong."""
    model = _PinnedModel(Worker(), Servers(RequestRefused(400, "no number")), 7)  # type: ignore[arg-type] # as above

    with pytest.raises(RequestRefused, match="no number"):
        model.forget()
