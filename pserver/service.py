"""One parameter server at work: calls in, answers out. The seam between HTTP, parameters and disk.

Three threads: the loop speaks with trainers, one thread alone touches parameters (so a push is
applied whole before the next call sees any of it), and one writes and reads checkpoints.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import numpy as np

from pserver import frames, protocol
from pserver.checkpoint import LAST, Name
from pserver.errors import BusyError, NonFiniteError, RefusedError, ShardError
from pserver.frames import FrameError, Json
from pserver.server import Server
from pserver.serving import Answer
from pserver.store import Store
from runtime.logs import keys

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

_ENDS = "this parameter server is about to end"


class Service:
    """Serves one part of one job's parameters."""

    def __init__(self, server: Server, store: Store, clock_s: Callable[[], float]) -> None:
        """Takes over what was found on the disk, and nothing else yet.

        Args:
            server: Empty, or resumed.
            store: Its files.
            clock_s: A clock that never goes back.
        """
        self._server, self._store, self._clock_s = server, store, clock_s
        self._parameters = ThreadPoolExecutor(1, "pserver-parameters")
        self._disk = ThreadPoolExecutor(1, "pserver-disk")
        self._preparing = asyncio.Lock()
        self._settled = asyncio.Event()
        """Set, and replaced, whenever a generation begins."""
        self._ending = self._over = False

    @property
    def answer_bytes(self) -> int:
        """About so long is an answer with dense parameters."""
        serving = self._server.serving
        return 0 if serving is None else serving.shard.vector.values.nbytes

    async def stop(self) -> None:
        """Ends; writes what it has, so that it can go on there."""
        self._ending = True
        try:
            await self._save_last()
        except (ShardError, OSError) as error:
            log.warning("not saved at the end", extra=keys(why=str(error)))
        self.halt()

    def halt(self) -> None:
        """Ends with nothing more."""
        self._ending = self._over = True
        self._parameters.shutdown()
        self._disk.shutdown()

    # -- calls -------------------------------------------------------------------------------

    async def enter(self, raw: bytes) -> Json:
        """A trainer comes; waits for a generation where it asks for that."""
        body = protocol.check(protocol.Enter, raw)
        until_s = self._clock_s() + body.wait_s
        while True:
            settled = self._settled
            answer = await self._with(self._server.enter, body)
            left_s = until_s - self._clock_s()
            if answer["ready"] or left_s <= 0:
                return answer
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await settled.wait()

    async def ask(self, raw: bytes) -> Json:
        """A ticket."""
        body = protocol.check(protocol.Ask, raw)
        return await self._with(self._server.ask, body, self._clock_s())

    async def settle(self, raw: bytes) -> Json:
        """Begins a generation."""
        answer = await self._with(self._settle, raw)
        settled, self._settled = self._settled, asyncio.Event()
        settled.set()
        return answer

    async def pull(self, raw: bytes) -> bytes:
        """Dense parameters."""
        body = protocol.check(protocol.Pull, raw)
        return await self._framed(lambda: self._server.at(body.generation).pull(body))

    async def lookup(self, raw: bytes) -> bytes:
        """Rows of a table."""

        def act() -> Answer:
            frame = _frame(raw)
            body = protocol.check_meta(protocol.Lookup, frame.meta)
            return self._server.at(body.generation).lookup(body, frame.arrays)

        return await self._framed(act)

    async def push(self, raw: bytes) -> bytes:
        """Gradients of one batch."""

        def act() -> Answer:
            frame = _frame(raw)
            body = protocol.check_meta(protocol.Push, frame.meta)
            serving = self._server.at(body.generation)
            try:
                meta, arrays = serving.push(body, frame.arrays)
            except NonFiniteError as error:
                _complain(body.trainer, body.number, error.parameter)
                raise
            return {**meta, "save": self._server.due(body.incarnation, self._clock_s())}, arrays

        return await self._framed(act)

    async def page(self, raw: bytes) -> bytes:
        """Some rows of a table."""
        body = protocol.check(protocol.Page, raw)
        return await self._framed(lambda: self._server.at(body.generation).page(body))

    async def refused(self, raw: bytes) -> Json:
        """A worker's own gradient was no number."""
        body = protocol.check(protocol.Refusal, raw)
        await self._with(self._server.refused, body)
        _complain(body.trainer, body.number, body.parameter)
        return {"ok": True}

    async def pin(self, number: int, raw: bytes) -> Json:
        """Keeps a version for evaluations."""
        body = protocol.check(protocol.Who, raw)
        version = await self._with(lambda: self._server.at(body.generation).pin(number))
        return {"version": version}

    async def unpin(self, number: int, raw: bytes) -> Json:
        """Lets it go."""
        body = protocol.check(protocol.Who, raw)
        await self._with(lambda: self._server.at(body.generation).unpin(number))
        return {"ok": True}

    async def prepare(self, raw: bytes) -> Json:
        """Writes this server's part of a checkpoint."""
        body = protocol.check(protocol.Save, raw)
        name = Name(body.generation, body.version, self._server.place.of)
        async with self._preparing:
            if all(one.name != name for one in self._server.have):
                await self._prepare(name)
        return {"ok": True}

    async def commit(self, raw: bytes) -> Json:
        """All servers have written theirs."""
        body = protocol.check(protocol.Save, raw)
        name = Name(body.generation, body.version, self._server.place.of)
        serving = await self._with(self._server.at, body.generation)
        keep = serving.shard.model.rules.checkpoint_keep
        async with self._preparing:
            await self._on_disk(self._store.commit, name, keep)
            have = await self._on_disk(self._store.have)
        await self._with(self._server.saved, body.version, have, self._clock_s())
        log.info("checkpoint", extra=keys(name=name.folder))
        return {"ok": True}

    async def model(self) -> Json:
        """What is served, for whoever only reads it."""
        return await self._with(self._model)

    async def status(self) -> Json:
        """All of it, for people and for metrics."""
        return await self._with(self._server.told, self._clock_s())

    # -- inside ------------------------------------------------------------------------------

    def _settle(self, raw: bytes) -> Json:
        frame = _frame(raw)
        body = protocol.check_meta(protocol.Settle, frame.meta)
        dense = frame.arrays.get("dense")
        if dense is not None and dense.dtype != np.float32:
            raise RefusedError(422, "dense: an array of float32 is needed", "dense")
        self._store.enter(max(body.generation, self._store.generation()))
        now_s = self._clock_s()
        answer = self._server.settle(body, dense, self._store.load, now_s)
        log.info(
            "generation",
            extra=keys(
                generation=body.generation,
                version=answer["version"],
                reason=body.reason or "first parameters",
            ),
        )
        return answer

    def _model(self) -> Json:
        serving = self._server.at(self._server.generation)
        shard = serving.shard
        return {
            **self._server.state(),
            "model": shard.model.model_dump(),
            "pieces": [piece.model_dump() for piece in shard.pieces],
        }

    async def _prepare(self, name: Name) -> None:
        place = self._server.place
        taken = await self._with(
            lambda: self._server.at(name.generation).take(name, place.job, place.index)
        )
        try:
            await self._on_disk(self._store.prepare, name, taken.meta, taken.arrays)
            self._server.have = tuple(await self._on_disk(self._store.have))
        finally:
            await self._in(self._parameters, taken.close)

    async def _save_last(self) -> None:
        """What is served at the end; calls that are on their way are not applied any more."""
        async with self._preparing:
            serving = await self._in(self._parameters, lambda: self._server.serving)
            if serving is None:
                return
            place = self._server.place
            name = Name(serving.generation, LAST, place.of)
            taken = serving.take(name, place.job, place.index)
            await self._on_disk(self._store.prepare, name, taken.meta, taken.arrays)
        log.info("saved at the end", extra=keys(version=serving.shard.version))

    async def _framed(self, act: Callable[[], Answer]) -> bytes:
        """Encoded before the next call may change what it is about."""
        return await self._with(lambda: b"".join(frames.encode(*act())))

    async def _with(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In the thread of the parameters; what is queued at the end is not begun any more."""

        def guarded() -> T:
            if self._ending:
                raise BusyError(_ENDS)
            return act(*args, **kwargs)

        return await self._in(self._parameters, guarded)

    async def _on_disk(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in(self._disk, act, *args, **kwargs)

    async def _in(
        self,
        thread: ThreadPoolExecutor,
        act: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._over:
            raise BusyError(_ENDS)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, lambda: act(*args, **kwargs))


def _complain(trainer: str, step: int, parameter: str) -> None:
    log.warning(
        "gradient with NaN or infinity",
        extra=keys(trainer=trainer, step=step, parameter=parameter),
    )


def _frame(raw: bytes) -> frames.Frame:
    try:
        return frames.decode(raw)
    except FrameError as error:
        raise RefusedError(400, f"the body is no frame: {error}") from error
