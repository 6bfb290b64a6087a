"""The background cluster: its state file and its lock.

The supervisor (`supervisor.py`) holds a lock for as long as it lives, so that nobody has to
trust a process id in a file: a state file without a held lock is stale.
"""

import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from e2e.cluster.errors import ClusterError
from e2e.cluster.process import last_lines
from runtime.clock import monotonic_s

_STOP_S = 15.0
_POLL_S = 0.1
_LOOKED_AT_S = 2.0


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster."""

    name: str
    pid: int
    port: int
    exit_code: int | None
    """None while it runs."""


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """The supervisor's record of the running cluster."""

    supervisor: int
    """Its process id."""
    started_s: float
    """Seconds since the epoch."""
    url: str
    kubeconfig: str
    kubectl: str
    version: str
    components: tuple[Component, ...]

    def to_json(self) -> str:
        """For the state file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            components = tuple(Component(**component) for component in fields.pop("components"))
            return cls(components=components, **fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory with the files of the background cluster."""

    directory: Path

    @property
    def state_file(self) -> Path:
        """Written when the cluster is up, removed when it is down."""
        return self.directory / "state.json"

    @property
    def log(self) -> Path:
        """The supervisor's log file."""
        return self.directory / "supervisor.log"

    @property
    def cluster(self) -> Path:
        """The cluster's own files, its logs among them."""
        return self.directory / "cluster"

    def hold(self) -> int | None:
        """Takes the lock for the rest of this process and signs it; None if another has it.

        Retries for a moment, since `is_held` takes the lock briefly.

        Returns:
            The descriptor that holds it.
        """
        deadline_s = monotonic_s() + _LOOKED_AT_S
        while (descriptor := self._try_lock()) is None:
            if monotonic_s() > deadline_s:
                return None
            time.sleep(_POLL_S)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        return descriptor

    @property
    def is_held(self) -> bool:
        """Whether a supervisor is running."""
        descriptor = self._try_lock()
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def read(self) -> SupervisorState | None:
        """Returns the running cluster; None if none runs, or it is not up yet.

        Raises:
            ClusterError: the state file is none.
        """
        if not self.is_held:
            return None
        try:
            return SupervisorState.from_json(self.state_file.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ClusterError(
                f"{self.state_file} cannot be read ({error}); end the cluster with "
                "`python -m e2e.cluster down`"
            ) from error

    def write(self, state: SupervisorState) -> None:
        """Replaces the state file in one step."""
        draft = self.state_file.with_suffix(".new")
        draft.write_text(state.to_json())
        draft.replace(self.state_file)

    def clear_stale(self) -> bool:
        """Removes the state of a cluster whose supervisor died; whether there was one."""
        if self.is_held or not self.state_file.exists():
            return False
        self.state_file.unlink(missing_ok=True)
        return True

    def stop(self) -> bool:
        """Ends the running cluster; False if none runs.

        Raises:
            ClusterError: the supervisor is alive, but unknown or not willing.
        """
        if not self.is_held:
            return False
        supervisor = self._supervisor()
        for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
            os.kill(supervisor, number)
            if self._wait_until_free(patience_s):
                self.state_file.unlink(missing_ok=True)
                return True
        raise ClusterError(f"the supervisor (process {supervisor}) does not end; see {self.log}")

    def problem(self) -> str:
        """Returns the last lines of the supervisor's log."""
        return last_lines(self.log, 1)

    def _try_lock(self) -> int | None:
        self.directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _supervisor(self) -> int:
        """Returns the lock file's owner, which is known before the cluster is up."""
        text = (self.directory / "lock").read_text().strip()
        if not text.isdigit():
            raise ClusterError(f"a supervisor holds {self.directory}/lock without its name in it")
        return int(text)

    def _wait_until_free(self, patience_s: float) -> bool:
        deadline_s = monotonic_s() + patience_s
        while self.is_held:
            if monotonic_s() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True
