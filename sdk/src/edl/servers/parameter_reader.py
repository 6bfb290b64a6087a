"""A read-only client of a job's parameter servers."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from edl.errors import DataError, SettingError
from edl.master.protocol import Json
from edl.master.session import Session
from edl.servers.connection import PserverConnection
from edl.servers.data_rewinder import DataRewinder
from edl.servers.errors import GenerationChanged, ServersError
from edl.servers.fan_out import FanOut
from edl.servers.frames import encode
from edl.servers.generation_barrier import GenerationBarrier
from edl.servers.layout import Layout, partition, split
from edl.servers.model_spec import ModelSpec
from edl.servers.worker import Ids
from edl_protocol import pserver as calls
from edl_protocol.frames import Frame
from edl_protocol.pserver import Piece

log = logging.getLogger("edl")
NEVER = -1
"""A version older than all others."""


class ParameterReader:
    """Reads parameters from all servers; not thread-safe.

    Call `enter` first, and again after each `GenerationChanged`.
    """

    def __init__(
        self, member: Session, model: ModelSpec | None, data: DataRewinder | None = None
    ) -> None:
        """Opens no connection yet.

        Args:
            member: This trainer's session, which has joined the job.
            model: The model that this trainer trains; None to read only.
            data: Rewinds the data together with the servers; None for a trainer without data.

        Raises:
            SettingError: EDL_PARAMETER_SERVERS is not set.
        """
        self._member, self._model = member, model
        self._urls = member.settings.servers
        if not self._urls:
            raise SettingError(
                "EDL_PARAMETER_SERVERS is not set: list the servers' URLs by index, for example "
                "http://127.0.0.1:8791,http://127.0.0.1:8793"
            )
        self._data = data
        self._keeps_position = False
        """Whether server 0 keeps the position in the data, for its checkpoints."""
        incarnation = secrets.token_hex(8)
        self._identity: Json = {"trainer": member.settings.trainer, "incarnation": incarnation}
        self._fan = self._connect()
        self._barrier = GenerationBarrier(
            self._fan,
            self._identity,
            job=member.job,
            patience_s=member.settings.patience_s,
            stopping=self._stopping,
            data=self._data,
        )
        self._side_fan: FanOut | None = None
        self._pull_thread = ThreadPoolExecutor(1, "edl-pull")
        self._layout: Layout | None = None
        if model is not None:
            sizes = {name: int(np.prod(shape)) for name, shape in model.shapes.items()}
            self._layout = Layout(model.shapes, partition(sizes, len(self._urls)))
        self.dims: dict[str, int] = {}
        """Table -> number of elements per row."""
        self.dense: dict[str, Any] = {}
        """Dense parameters from the last pull; the next pull changes these arrays."""
        self._versions: list[int] = []

    # -- generations -------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The servers' generation, which increases when they start empty or restore a checkpoint."""
        return self._barrier.generation

    @property
    def version(self) -> int:
        """Number of pushes that the local dense parameters contain; the minimum over all servers."""
        return min(self._versions, default=NEVER)

    @property
    def layout(self) -> Layout:
        """The assignment of parameters to servers."""
        if self._layout is None:
            raise ServersError("the layout is unknown before `enter`")
        return self._layout

    def enter(self) -> None:
        """Waits until all servers serve the same generation, and starts one if necessary.

        Raises:
            RequestRefused: The servers hold a different model.
            ServersUnavailable: The servers were not ready within `EDL_PATIENCE_S`.
        """
        before = self.generation
        states = self._barrier.enter(self._model, self._layout)
        if self.generation == before:
            return
        self._keeps_position = self._data is not None and bool(states[0].get("positions"))
        if self._model is None:
            models = self._fan.call_all(
                lambda connection, _: connection.json("GET", calls.MODEL_PATH)
            )
            pieces_by_server = [[Piece(**piece) for piece in model["pieces"]] for model in models]
            self._layout = Layout(models[0]["model"]["parameters"], pieces_by_server)
            self.dims = {name: table["dim"] for name, table in models[0]["model"]["tables"].items()}
        else:
            self.dims = self._model.dims
        self._versions = [NEVER] * len(self._urls)
        self.dense = self.layout.empty()
        if before:
            self._rolled_back(before, states)

    def _rolled_back(self, ended: int, states: Sequence[Json]) -> None:
        """Called when this trainer has entered a new generation, after its generation `ended`."""

    def refresh(self) -> None:
        """Enters the current generation and pulls all parameters; raises the errors of `enter`."""
        while True:
            self.enter()
            try:
                self.pull()
            except GenerationChanged:  # the generation changed again
                continue
            return

    def close(self) -> None:
        """Closes all connections."""
        self._fan.close()
        if self._side_fan is not None:
            self._side_fan.close()
        self._pull_thread.shutdown(wait=False)

    # -- parameters --------------------------------------------------------------------------

    def pull(self) -> None:
        """Updates `dense` from servers that have a newer version.

        Raises:
            GenerationChanged: The servers have started another generation.
        """
        self._apply(self._pull(self._fan, self._versions))

    def pull_ahead(self) -> Future[list[Frame]]:
        """Pulls in another thread over separate connections; pass the future to `apply_pull`."""
        if self._side_fan is None:
            self._side_fan = self._connect()
        return self._pull_thread.submit(self._pull, self._side_fan, list(self._versions))

    def apply_pull(self, coming: Future[list[Frame]]) -> None:
        """Waits for a pull started by `pull_ahead` and applies it to `dense`."""
        self._apply(coming.result())

    def lookup(self, table: str, ids: Ids, pin: int | None = None) -> Any:
        """Returns rows of a table in the order of the ids.

        Args:
            table: Name of the table.
            ids: Unique ids.
            pin: The pinned model version to read; by default, the current rows are read.

        Raises:
            DataError: There is no such table, or ids are not integers.
            GenerationChanged: The servers have started another generation.
        """
        row_ids = checked_ids(table, ids)
        dim = self._dim(table)
        positions_by_server = split(row_ids, len(self._urls))
        servers = [server for server, positions in enumerate(positions_by_server) if len(positions)]
        meta = {**self._request_fields(), "table": table, "pin": pin}

        def call(connection: PserverConnection, server: int) -> Frame:
            return connection.exchange_frames(
                calls.Lookup.PATH, encode(meta, {"ids": row_ids[positions_by_server[server]]})
            )

        rows = np.empty((len(row_ids), dim), np.float32)
        for server, frame in zip(servers, self._fan.call_all(call, servers) if servers else []):
            rows[positions_by_server[server]] = frame.arrays["rows"]
        return rows

    # -- whole versions ----------------------------------------------------------------------

    def pin(self, model_version: int) -> int:
        """Makes all servers keep a copy of their current parameters, for evaluation.

        An existing pin of the version remains unchanged. If there are too many pins, the oldest one is
        dropped.

        Returns:
            Number of pushes in the pinned parameters.
        """
        path, fields = calls.PIN_PATH.format(number=model_version), self._request_fields()
        answers = self._fan.call_all(lambda connection, _: connection.json("PUT", path, fields))
        return int(min(answer["version"] for answer in answers))

    def unpin(self, model_version: int) -> None:
        """Drops a pinned version."""
        path, fields = calls.PIN_PATH.format(number=model_version), self._request_fields()
        self._fan.call_all(lambda connection, _: connection.json("DELETE", path, fields))

    def pinned(self, model_version: int) -> dict[str, Any]:
        """Returns the dense parameters of a pinned version; for its table rows, use `lookup`.

        Raises:
            RequestRefused: The version is not pinned (404, field "pin").
        """
        dense = self.layout.empty()
        for server, frame in enumerate(self._pull(self._fan, None, model_version)):
            self.layout.unpack(server, frame.arrays["dense"], dense)
        return dense

    def rows(self, table: str) -> tuple[Any, Any]:
        """Returns the sorted ids and the rows of a table that were trained at least once."""
        self._dim(table)

        def call(connection: PserverConnection, _: int) -> list[Frame]:
            frames, after = [], 0
            while after is not None:
                body = {**self._request_fields(), "table": table, "after": after}
                frames.append(connection.fetch_frame(calls.Page.PATH, body))
                after = frames[-1].meta["next"]
            return frames

        frames = [frame for server_frames in self._fan.call_all(call) for frame in server_frames]
        ids = np.concatenate([frame.arrays["ids"] for frame in frames])
        rows = np.concatenate([frame.arrays["rows"] for frame in frames])
        unique, first = np.unique(
            ids, return_index=True
        )  # a row that an eviction has moved can occur twice
        return unique, rows[first]

    def status(self) -> list[Json]:
        """Returns the status of each server."""
        return self._fan.call_all(lambda connection, _: connection.json("GET", calls.STATUS_PATH))

    # -- internals ---------------------------------------------------------------------------

    def _connect(self) -> FanOut:
        settings = self._member.settings
        return FanOut(self._urls, settings.token, settings.patience_s, self._stopping)

    def _stopping(self) -> bool:
        return self._member.stopping

    def _request_fields(self) -> Json:
        return {**self._identity, "generation": self.generation}

    def _pull(
        self, fan: FanOut, versions: Sequence[int] | None, pin: int | None = None
    ) -> list[Frame]:
        fields = self._request_fields()

        def call(connection: PserverConnection, server: int) -> Frame:
            version = NEVER if versions is None else versions[server]
            return connection.fetch_frame(
                calls.Pull.PATH, {**fields, "version": version, "pin": pin}
            )

        return fan.call_all(call)

    def _apply(self, answers: Sequence[Frame]) -> None:
        """Applies parameters from answers, unless the local parameters are newer."""
        meta = answers[0].meta
        self._barrier.position = {"version": meta["version"], "records": meta["records"]}
        for server, frame in enumerate(answers):
            vector, version = frame.arrays.get("dense"), frame.meta["version"]
            if vector is not None and version > self._versions[server]:
                self.layout.unpack(server, vector, self.dense)
                self._versions[server] = version

    def _dim(self, table: str) -> int:
        if table not in self.dims:
            names = ", ".join(sorted(self.dims)) or "none"
            raise DataError(f"unknown table {table!r}; tables are: {names:.300}")
        return int(self.dims[table])


def checked_ids(table: str, values: Any) -> Any:
    """Returns ids as a one-dimensional int64 array.

    Raises:
        DataError: The ids are not a list of integers.
    """
    ids = np.asarray(values)
    if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or not ids.size):
        raise DataError(
            f"table {table!r}: ids are {ids.dtype} of shape {list(ids.shape)}: "
            "they must be a one-dimensional array of integers"
        )
    return np.ascontiguousarray(ids, dtype=np.int64)
