"""The service between HTTP and the parameters: decodes calls, and runs them in threads.

The event loop talks to trainers. One thread accesses the parameters, so that a push is applied completely
before the next call sees it. Another thread reads and writes checkpoints.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import ParamSpec, TypeVar

import numpy as np
from edl_protocol import pserver as protocol
from edl_protocol.fields import Json
from edl_protocol.frames import Frame, FrameError

from pserver import frames
from pserver.checkpoint import SHUTDOWN_VERSION, CheckpointName
from pserver.errors import BusyError, NonFiniteError, ShardError
from pserver.server import ParameterServer
from pserver.serving import Answer, ShardSnapshot
from pserver.store import CheckpointStore
from runtime.call_checks import RefusedError, check_body, check_fields
from runtime.logs import keys

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

_ENDS = "this parameter server is shutting down"


class ParameterService:
    """The calls of one parameter server, and the threads that execute them."""

    def __init__(
        self, server: ParameterServer, store: CheckpointStore, clock_s: Callable[[], float]
    ) -> None:
        """Creates the service and its threads.

        Args:
            server: The server, empty or resumed from a shutdown checkpoint.
            store: The files of the server.
            clock_s: A monotonic clock.
        """
        self._server, self._store, self._clock_s = server, store, clock_s
        self._parameters = ThreadPoolExecutor(1, "pserver-parameters")
        self._disk = ThreadPoolExecutor(1, "pserver-disk")
        self._preparing = asyncio.Lock()
        self._settled = asyncio.Event()
        """Set, and replaced with a new event, when a generation starts."""
        self._ending = self._over = False

    @property
    def answer_bytes(self) -> int:
        """Approximate size of an answer with dense parameters, in bytes."""
        serving = self._server.serving
        return 0 if serving is None else serving.shard.vector.values.nbytes

    async def stop(self) -> None:
        """Writes a shutdown checkpoint, and shuts down."""
        self._ending = True
        try:
            await self._save_last()
        except (ShardError, OSError) as error:
            log.warning("shutdown checkpoint not written", extra=keys(why=str(error)))
        self.halt()

    def halt(self) -> None:
        """Shuts down without a checkpoint."""
        self._ending = self._over = True
        self._parameters.shutdown()
        self._disk.shutdown()

    # -- calls -------------------------------------------------------------------------------

    async def enter(self, raw: bytes) -> Json:
        """Answers a trainer that joins; waits for a generation if it asks to."""
        body = check_body(protocol.Enter, raw)
        until_s = self._clock_s() + body.wait_s
        while True:
            settled = self._settled
            answer = await self._run(self._server.enter, body)
            left_s = until_s - self._clock_s()
            if answer["ready"] or left_s <= 0:
                return answer
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await settled.wait()

    async def request_ticket(self, raw: bytes) -> Json:
        """Grants or releases a lease."""
        body = check_body(protocol.TicketRequest, raw)
        return await self._run(self._server.request_ticket, body, self._clock_s())

    async def settle(self, raw: bytes) -> Json:
        """Starts a generation."""
        answer = await self._run(self._settle, raw)
        settled, self._settled = self._settled, asyncio.Event()
        settled.set()
        return answer

    async def pull(self, raw: bytes) -> bytes:
        """Returns dense parameters."""
        body = check_body(protocol.Pull, raw)
        return await self._run_framed(lambda: self._server.serving_at(body.generation).pull(body))

    async def lookup(self, raw: bytes) -> bytes:
        """Returns rows of a table."""

        def lookup() -> Answer:
            frame = _frame(raw)
            body = check_fields(protocol.Lookup, frame.meta)
            return self._server.serving_at(body.generation).lookup(body, frame.arrays)

        return await self._run_framed(lookup)

    async def push(self, raw: bytes) -> bytes:
        """Applies the gradients of one batch."""

        def push() -> Answer:
            frame = _frame(raw)
            body = check_fields(protocol.Push, frame.meta)
            serving = self._server.serving_at(body.generation)
            try:
                meta, arrays = serving.push(body, frame.arrays)
            except NonFiniteError as error:
                _log_non_finite(body.trainer, body.number, error.parameter)
                raise
            return {
                **meta,
                "save": self._server.checkpoint_due(body.incarnation, self._clock_s()),
            }, arrays

        return await self._run_framed(push)

    async def page(self, raw: bytes) -> bytes:
        """Returns one page of a table's rows."""
        body = check_body(protocol.Page, raw)
        return await self._run_framed(lambda: self._server.serving_at(body.generation).page(body))

    async def report_refusal(self, raw: bytes) -> Json:
        """Records that a worker found NaN or infinity in its gradients."""
        body = check_body(protocol.Refusal, raw)
        await self._run(self._server.record_refusal, body)
        _log_non_finite(body.trainer, body.number, body.parameter)
        return {"ok": True}

    async def pin(self, number: int, raw: bytes) -> Json:
        """Pins the current version for evaluations."""
        body = check_body(protocol.GenerationCall, raw)
        version = await self._run(lambda: self._server.serving_at(body.generation).pin(number))
        return {"version": version}

    async def unpin(self, number: int, raw: bytes) -> Json:
        """Releases a pinned version."""
        body = check_body(protocol.GenerationCall, raw)
        await self._run(lambda: self._server.serving_at(body.generation).unpin(number))
        return {"ok": True}

    async def prepare(self, raw: bytes) -> Json:
        """Writes this server's part of a checkpoint (first phase)."""
        body = check_body(protocol.Prepare, raw)
        name = CheckpointName(body.generation, body.version, self._server.identity.of)
        async with self._preparing:
            if all(checkpoint.name != name for checkpoint in self._server.checkpoints):
                await self._prepare(name, body)
        return {"ok": True}

    async def commit(self, raw: bytes) -> Json:
        """Commits a checkpoint that all servers have prepared (second phase)."""
        body = check_body(protocol.Commit, raw)
        name = CheckpointName(body.generation, body.version, self._server.identity.of)
        serving = await self._run(self._server.serving_at, body.generation)
        keep = serving.shard.model.rules.checkpoint_keep
        async with self._preparing:
            await self._run_on_disk(self._store.commit, name, keep)
            checkpoints = await self._run_on_disk(self._store.checkpoints)
        await self._run(
            self._server.checkpoint_committed, body.version, checkpoints, self._clock_s()
        )
        log.info("checkpoint committed", extra=keys(name=name.folder))
        return {"ok": True}

    async def position(self, raw: bytes) -> Json:
        """Returns the position in the data, of the parameters or of a checkpoint."""
        body = check_body(protocol.PositionCall, raw)
        return await self._run(self._server.position, body, self._store.load)

    async def model(self) -> Json:
        """Returns the served model for readers of parameters."""
        return await self._run(self._model)

    async def status(self) -> Json:
        """Returns the full status, for users and the metrics."""
        return await self._run(self._server.to_json, self._clock_s())

    # -- inside ------------------------------------------------------------------------------

    def _settle(self, raw: bytes) -> Json:
        frame = _frame(raw)
        body = check_fields(protocol.Settle, frame.meta)
        dense = frame.arrays.get("dense")
        if dense is not None and dense.dtype != np.float32:
            raise RefusedError(422, "dense: an array of float32 is needed", "dense")
        self._store.record_generation(max(body.generation, self._store.generation()))
        now_s = self._clock_s()
        answer = self._server.settle(body, dense, self._store.load, now_s)
        log.info(
            "generation started",
            extra=keys(
                generation=body.generation,
                version=answer["version"],
                reason=body.reason or "initial parameters",
            ),
        )
        return answer

    def _model(self) -> Json:
        serving = self._server.serving_at(self._server.generation)
        shard = serving.shard
        return {
            **self._server.state(),
            "model": asdict(shard.model),
            "pieces": [asdict(piece) for piece in shard.pieces],
        }

    async def _prepare(self, name: CheckpointName, body: protocol.Prepare) -> None:
        identity = self._server.identity

        def take() -> ShardSnapshot:
            serving = self._server.serving_at(name.generation)
            if body.ledger is not None:
                serving.shard.data.renew(body.ledger, body.settled)
            return serving.snapshot(name, identity.job, identity.index)

        snapshot = await self._run(take)
        try:
            await self._run_on_disk(self._store.prepare, name, snapshot.meta, snapshot.arrays)
            self._server.checkpoints = tuple(await self._run_on_disk(self._store.checkpoints))
        finally:
            await self._run_in(self._parameters, snapshot.close)

    async def _save_last(self) -> None:
        """Writes the shutdown checkpoint; queued calls are not applied."""
        async with self._preparing:
            serving = await self._run_in(self._parameters, lambda: self._server.serving)
            if serving is None:
                return
            identity = self._server.identity
            name = CheckpointName(serving.generation, SHUTDOWN_VERSION, identity.of)
            snapshot = serving.snapshot(name, identity.job, identity.index)
            await self._run_on_disk(self._store.prepare, name, snapshot.meta, snapshot.arrays)
        log.info("shutdown checkpoint written", extra=keys(version=serving.shard.version))

    async def _run_framed(self, function: Callable[[], Answer]) -> bytes:
        """Runs a call, and encodes the answer before the next call can change the parameters."""

        def encoded() -> bytes:
            meta, arrays = function()
            return b"".join(frames.encode(meta, arrays))

        return await self._run(encoded)

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function in the parameter thread; refuses it once shutdown has started."""

        def guarded() -> T:
            if self._ending:
                raise BusyError(_ENDS)
            return function(*args, **kwargs)

        return await self._run_in(self._parameters, guarded)

    async def _run_on_disk(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run_in(self._disk, function, *args, **kwargs)

    async def _run_in(
        self,
        thread: ThreadPoolExecutor,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._over:
            raise BusyError(_ENDS)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, lambda: function(*args, **kwargs))


def _log_non_finite(trainer: str, step: int, parameter: str) -> None:
    log.warning(
        "gradient with NaN or infinity",
        extra=keys(trainer=trainer, step=step, parameter=parameter),
    )


def _frame(raw: bytes) -> Frame:
    try:
        return frames.decode(raw)
    except FrameError as error:
        raise RefusedError(400, f"the body is not a frame: {error}") from error
