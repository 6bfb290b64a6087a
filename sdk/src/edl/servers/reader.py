"""All parameter servers of a job, as somebody sees them who changes nothing."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from edl.errors import DataError, SettingError
from edl.servers.entry import Entry
from edl.servers.errors import Moved, ServersError
from edl.servers.fan import Fan
from edl.servers.frames import Frame, encode
from edl.servers.layout import Layout, Piece, pieces, split
from edl.servers.link import Link
from edl.servers.model import Model
from edl.servers.worker import Ids
from edl.session import Session

log = logging.getLogger("edl")

Json = dict[str, Any]
NEVER = -1
"""A version older than any."""


class Reader:
    """Used by one thread. `enter` comes first, and after each `Moved`."""

    def __init__(self, member: Session, model: Model | None) -> None:
        """Opens no connection yet.

        Args:
            member: This trainer's session; it has joined.
            model: What it trains; None only reads.

        Raises:
            SettingError: The environment names no servers.
        """
        self._member, self._model = member, model
        self._urls = member.settings.servers
        if not self._urls:
            raise SettingError(
                "EDL_PARAMETER_SERVERS is not set: write the servers' addresses, such as "
                "http://127.0.0.1:8791,http://127.0.0.1:8793, in order of their index"
            )
        incarnation = secrets.token_hex(8)
        self._who: Json = {"trainer": member.settings.trainer, "incarnation": incarnation}
        self._fan = self._connect()
        self._entry = Entry(
            self._fan,
            self._who,
            job=member.job,
            patience_s=member.settings.patience_s,
            stopping=self._stopping,
        )
        self._side: Fan | None = None
        self._pulling = ThreadPoolExecutor(1, "edl-pull")
        self._layout: Layout | None = None
        if model is not None:
            sizes = {name: int(np.prod(shape)) for name, shape in model.shapes.items()}
            self._layout = Layout(model.shapes, pieces(sizes, len(self._urls)))
        self.dims: dict[str, int] = {}
        """Numbers in a row of each table."""
        self.dense: dict[str, Any] = {}
        """Dense parameters as they were pulled last; the arrays change with the next pull."""
        self._versions: list[int] = []

    # -- coming and going --------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows whenever the servers begin anew or go back to a checkpoint."""
        return self._entry.generation

    @property
    def version(self) -> int:
        """Of the dense parameters here: how many pushes are in them; the least of all servers."""
        return min(self._versions, default=NEVER)

    @property
    def layout(self) -> Layout:
        """Which server holds what."""
        if self._layout is None:
            raise ServersError("this is known after `enter`")
        return self._layout

    def enter(self) -> None:
        """Waits until all servers serve the same, and sees to it where nobody else does.

        Raises:
            Declined: They hold another model.
            Away: They were not ready for longer than `EDL_PATIENCE_S`.
        """
        before = self.generation
        states = self._entry.enter(self._model, self._layout)
        if self.generation == before:
            return
        if self._model is None:
            told = self._fan.each(lambda link, _: link.json("GET", "/v1/model"))
            held = [[Piece(**piece) for piece in one["pieces"]] for one in told]
            self._layout = Layout(told[0]["model"]["parameters"], held)
            self.dims = {name: one["dim"] for name, one in told[0]["model"]["tables"].items()}
        else:
            self.dims = self._model.dims
        self._versions = [NEVER] * len(self._urls)
        self.dense = self.layout.empty()
        if before:
            self._went_back(before, states)

    def _went_back(self, ended: int, states: Sequence[Json]) -> None:
        """The servers serve another generation than the one in which this trainer was."""

    def refresh(self) -> None:
        """Enters, and pulls all that there is; raises as `enter` does."""
        while True:
            self.enter()
            try:
                self.pull()
            except Moved:  # another change at once
                continue
            return

    def close(self) -> None:
        """Ends all connections."""
        self._fan.close()
        if self._side is not None:
            self._side.close()
        self._pulling.shutdown(wait=False)

    # -- parameters --------------------------------------------------------------------------

    def pull(self) -> None:
        """Brings `dense` up to date, where servers have something newer.

        Raises:
            Moved: They have begun another generation.
        """
        self._take(self._pull(self._fan, self._versions))

    def ahead(self) -> Future[list[Frame]]:
        """Pulls in another thread, over other connections; `take` what it brings later."""
        if self._side is None:
            self._side = self._connect()
        return self._pulling.submit(self._pull, self._side, list(self._versions))

    def take(self, coming: Future[list[Frame]]) -> None:
        """Takes over what `ahead` brought."""
        self._take(coming.result())

    def lookup(self, table: str, ids: Ids, pin: int | None = None) -> Any:
        """Rows of a table, in the order of the ids.

        Args:
            table: Its name.
            ids: Each once.
            pin: A pinned model version; as they are now by default.

        Raises:
            DataError: There is no such table, or ids are no whole numbers.
            Moved: They have begun another generation.
        """
        wanted = checked_ids(table, ids)
        dim = self._dim(table)
        places = split(wanted, len(self._urls))
        asked = [server for server, mine in enumerate(places) if len(mine)]
        meta = {**self._told(), "table": table, "pin": pin}

        def act(link: Link, server: int) -> Frame:
            return link.exchange("/v1/lookup", encode(meta, {"ids": wanted[places[server]]}))

        found = np.empty((len(wanted), dim), np.float32)
        for server, frame in zip(asked, self._fan.each(act, asked) if asked else []):
            found[places[server]] = frame.arrays["rows"]
        return found

    # -- whole versions ----------------------------------------------------------------------

    def pin(self, model_version: int) -> int:
        """All servers keep what they have now, so that all trainers can evaluate the same.

        Of too many the oldest is let go; one that is pinned already stays as it is.

        Returns:
            How many pushes are in it.
        """
        path, told = f"/v1/pins/{model_version}", self._told()
        answers = self._fan.each(lambda link, _: link.json("PUT", path, told))
        return int(min(answer["version"] for answer in answers))

    def unpin(self, model_version: int) -> None:
        """It is not needed any more."""
        path, told = f"/v1/pins/{model_version}", self._told()
        self._fan.each(lambda link, _: link.json("DELETE", path, told))

    def pinned(self, model_version: int) -> dict[str, Any]:
        """Dense parameters of a pinned version; `lookup` has its rows.

        Raises:
            Declined: 404, field "pin": it is not pinned (any more).
        """
        found = self.layout.empty()
        for server, frame in enumerate(self._pull(self._fan, None, model_version)):
            self.layout.unpack(server, frame.arrays["dense"], found)
        return found

    def rows(self, table: str) -> tuple[Any, Any]:
        """Ids and rows of a whole table, by id; of those that were ever trained."""
        self._dim(table)

        def act(link: Link, _: int) -> list[Frame]:
            found, after = [], 0
            while after is not None:
                body = {**self._told(), "table": table, "after": after}
                found.append(link.fetch("/v1/rows", body))
                after = found[-1].meta["next"]
            return found

        frames = [frame for each in self._fan.each(act) for frame in each]
        ids = np.concatenate([frame.arrays["ids"] for frame in frames])
        rows = np.concatenate([frame.arrays["rows"] for frame in frames])
        order = np.argsort(ids, kind="stable")
        return ids[order], rows[order]

    def status(self) -> list[Json]:
        """What each server says of itself."""
        return self._fan.each(lambda link, _: link.json("GET", "/v1/status"))

    # -- inside ------------------------------------------------------------------------------

    def _connect(self) -> Fan:
        found = self._member.settings
        return Fan(self._urls, found.token, found.patience_s, self._stopping)

    def _stopping(self) -> bool:
        return self._member.stopping

    def _told(self) -> Json:
        return {**self._who, "generation": self.generation}

    def _pull(
        self, fan: Fan, versions: Sequence[int] | None, pin: int | None = None
    ) -> list[Frame]:
        told = self._told()

        def act(link: Link, server: int) -> Frame:
            version = NEVER if versions is None else versions[server]
            return link.fetch("/v1/pull", {**told, "version": version, "pin": pin})

        return fan.each(act)

    def _take(self, answers: Sequence[Frame]) -> None:
        """Parameters that came with answers, unless there are newer ones here."""
        meta = answers[0].meta
        self._entry.seen = {"version": meta["version"], "records": meta["records"]}
        for server, frame in enumerate(answers):
            vector, version = frame.arrays.get("dense"), frame.meta["version"]
            if vector is not None and version > self._versions[server]:
                self.layout.unpack(server, vector, self.dense)
                self._versions[server] = version

    def _dim(self, table: str) -> int:
        if table not in self.dims:
            known = ", ".join(sorted(self.dims)) or "none"
            raise DataError(f"there is no table {table!r}; tables are: {known:.300}")
        return int(self.dims[table])


def checked_ids(table: str, given: Any) -> Any:
    """Ids as servers take them; raises DataError where they are no list of whole numbers."""
    ids = np.asarray(given)
    if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or not ids.size):
        raise DataError(f"table {table!r}: ids are {ids.dtype} of shape {list(ids.shape)}")
    return np.ascontiguousarray(ids, dtype=np.int64)
