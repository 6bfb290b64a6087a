"""Trainers in threads, for tests of parameter servers."""

import threading
from typing import Any

import edl
from edl import servers
from edl.servers import TrainingResult


class Trainer:
    """A trainer in a thread; `join` returns its result or raises its error."""

    def __init__(self, member: edl.Session, worker: Any, data: edl.Dataset, **options: Any) -> None:
        self.member, self.worker = member, worker
        self._data, self._options = data, {"batch_size": 20, **options}
        self._result: TrainingResult | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float = 60.0) -> TrainingResult:
        """When it has ended."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the trainer does not end"
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._result = servers.train(
                self.worker, self._data, member=self.member, **self._options
            )
        except BaseException as error:  # noqa: BLE001 - raised again by join
            self._error = error
