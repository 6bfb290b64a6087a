"""The state of one parameter server: the generation it serves. No I/O; callers pass the time.

A server starts empty. A trainer that holds server 0's lease settles all servers, with initial parameters
or with the newest checkpoint that all servers have. From then on they serve one generation. A restarted
server is empty and refuses calls of the previous generation, so that trainers notice the restart and
settle all servers again. Used by one thread at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from edl_protocol.fields import Json
from edl_protocol.frames import Array, Frame
from edl_protocol.pserver import (
    Enter,
    Model,
    ObservedProgress,
    Piece,
    PositionCall,
    Refusal,
    Settle,
    TicketRequest,
)

from pserver import optimizers, shard_codec
from pserver.checkpoint import CheckpointName, StoredCheckpoint
from pserver.errors import FullError, ShardError
from pserver.memory import Memory, Views
from pserver.model import MAX_DENSE_NUMBERS, check_dense_size, check_fits, check_same
from pserver.rollbacks import NOTHING, ServerRollbacks
from pserver.serving import ServedGeneration, ServerStats
from pserver.shard import DataPosition, Shard, ShardCounts
from pserver.shard_codec import ShardPlace
from runtime.call_checks import RefusedError

SETTLE, SAVE = "settle", "save"
SETTLE_S = 30.0
"""Time for a trainer to initialise or restore all servers, before another trainer may try."""
SAVE_S = 120.0
"""Time for a trainer to write a checkpoint on all servers."""
_CONFLICT, _FULL = 409, 507
_NEWEST = 8
"""Number of checkpoints listed in the state."""


@dataclass(frozen=True, slots=True)
class _Lease:
    holder: str
    until_s: float


class CoordinatorLeases:
    """Leases for coordinating all servers, one trainer at a time for each kind.

    Only server 0 grants them. A granted lease is answered with its ticket, a number from 1 on.
    """

    def __init__(self) -> None:
        self._numbers = 0
        self._leases: dict[str, _Lease] = {}

    def acquire(self, kind: str, holder: str, now_s: float, lease_s: float) -> int | None:
        """Grants a lease, unless another holder has it. A new lease replaces an expired one.

        A holder that asks again gets a new ticket, because the first answer may have been lost.

        Returns:
            The ticket; None while another holder has the lease.
        """
        lease = self._leases.get(kind)
        if lease is not None and lease.holder != holder and now_s < lease.until_s:
            return None
        self._numbers += 1
        self._leases[kind] = _Lease(holder, now_s + lease_s)
        return self._numbers

    def is_held(self, kind: str, now_s: float) -> bool:
        """Returns whether the lease is held."""
        lease = self._leases.get(kind)
        return lease is not None and now_s < lease.until_s

    def release(self, kind: str, holder: str) -> None:
        """Releases a lease, if this holder has it."""
        lease = self._leases.get(kind)
        if lease is not None and lease.holder == holder:
            self.end(kind)

    def end(self, kind: str) -> None:
        """Ends a lease, no matter which holder has it."""
        self._leases.pop(kind, None)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The job of a server, and its index among the servers of the job."""

    job: str
    index: int
    of: int


class ParameterServer:
    """A server's served generation, known checkpoints, leases and counters."""

    def __init__(
        self,
        identity: ServerIdentity,
        max_bytes: int | None,
        generation: int,
        checkpoints: Sequence[StoredCheckpoint],
        *,
        max_dense_numbers: int = MAX_DENSE_NUMBERS,
    ) -> None:
        """Creates an empty server.

        Args:
            identity: Which server this is.
            max_bytes: Memory limit for arrays; None for no limit.
            generation: The newest generation that the server knows.
            checkpoints: Checkpoints on its disk, oldest first.
            max_dense_numbers: Largest number of dense parameters of a model.
        """
        self.identity = identity
        self.checkpoints = tuple(checkpoints)
        self.generation = generation
        self.serving: ServedGeneration | None = None
        self.leases = CoordinatorLeases()
        self.rollbacks = ServerRollbacks()
        self.stats = ServerStats()
        self._max_bytes, self._max_dense_numbers = max_bytes, max_dense_numbers
        self._ticket = 0
        self._reached = NOTHING
        """Progress of the last generation that this process served."""

    def state(self) -> Json:
        """Returns the state, which trainers need before they can train."""
        counts = NOTHING if self.serving is None else self.serving.shard.counts
        return {
            **asdict(self.identity),
            "ready": self.serving is not None,
            "positions": True,
            "generation": self.generation,
            **counts._asdict(),
            "have": [checkpoint.name._asdict() for checkpoint in self.checkpoints[-_NEWEST:]],
        }

    def enter(self, body: Enter) -> Json:
        """Answers a trainer that joins.

        Raises:
            RefusedError: The trainer's model differs.
        """
        if body.model is not None:
            self._check(body.model)
        newest, rollback = 0, None
        if self.serving is not None:
            newest = self.serving.shard.applied.get(body.incarnation, 0)
            if body.seen is not None:
                self.rollbacks.record_late_report(body.generation, _to_counts(body.seen))
            rollback = self.rollbacks.of_generation(body.generation)
        return {**self.state(), "newest": newest, "setback": rollback}

    def request_ticket(self, body: TicketRequest, now_s: float) -> Json:
        """Grants or releases a lease for an action on all servers.

        Raises:
            RefusedError: This is not server 0.
        """
        if self.identity.index:
            raise RefusedError(_CONFLICT, "only server 0 issues tickets: ask server 0", "index")
        if body.back:
            self.leases.release(body.kind, body.incarnation)
            return {"granted": False, "ticket": 0}
        if body.kind == SETTLE:
            serves_newer = self.serving is not None and body.generation < self.generation
            number = None
            if not serves_newer:
                number = self.leases.acquire(SETTLE, body.incarnation, now_s, SETTLE_S)
            return {"granted": number is not None, "ticket": number or 0}
        serving = self.serving_at(body.generation)
        number = None
        if serving.shard.version > serving.schedule.version:
            number = self.leases.acquire(SAVE, body.incarnation, now_s, SAVE_S)
        return {"granted": number is not None, "version": serving.shard.version}

    def settle(
        self,
        body: Settle,
        dense: Array | None,
        load: Callable[[CheckpointName], list[Frame]],
        now_s: float,
    ) -> Json:
        """Starts a generation; repeating the call has no effect.

        Args:
            body: The request.
            dense: Initial parameters, unless the generation starts from a checkpoint.
            load: Reads this server's files of a checkpoint.
            now_s: The time now.

        Raises:
            RefusedError: The generation is too old, or the model or the checkpoint is unusable.
        """
        last_settled = (self.generation, self._ticket)
        if (body.generation, body.ticket) == last_settled and self.serving is not None:
            return self.state()
        if (body.generation, body.ticket) <= last_settled:
            text = f"generation {body.generation} is too old: this server is at {last_settled[0]}"
            raise RefusedError(_CONFLICT, text, "generation")
        if self.serving is not None:
            self._reached, self.serving = self.serving.shard.counts, None
        shard = self._shard(body, dense, load)
        shard.data.is_known = shard.data.is_known and body.rewound
        ended, reached = max(self.generation, body.ended), self._reached
        if body.seen is not None and body.ended == ended:
            reached = max(reached, _to_counts(body.seen))
        self.rollbacks.record(ended, shard.counts, reached, body.reason)
        self._serve(body.generation, body.ticket, shard, now_s)
        for kind in (SETTLE, SAVE):
            self.leases.end(kind)
        return self.state()

    def position(self, body: PositionCall, load: Callable[[CheckpointName], list[Frame]]) -> Json:
        """Returns the position in the data that the parameters, or a checkpoint, contain.

        Args:
            body: The request.
            load: Reads this server's files of a checkpoint.

        Raises:
            RefusedError: The generation is over, or the checkpoint does not exist.
        """
        data = DataPosition()
        if body.checkpoint is None:
            data = self.serving_at(body.generation).shard.data
        else:
            try:
                files = load(CheckpointName(**vars(body.checkpoint)))
                data.load(files[0].meta.get("data"))
            except (ShardError, LookupError, TypeError, ValueError, AttributeError) as error:
                text = f"checkpoint: its position in the data cannot be read: {error!r:.100}"
                raise RefusedError(_CONFLICT, text, "checkpoint") from error
        position = data.dump()
        if body.tasks is not None:
            position["remaining"] = {
                t: data.remaining[t] for t in body.tasks if t in data.remaining
            }
        return position

    def resume(self, frame: Frame, now_s: float) -> None:
        """Resumes from this server's shutdown checkpoint; nothing is lost.

        Raises:
            ShardError: The file's contents are invalid.
            FullError: The memory limit would be exceeded.
        """
        model = shard_codec.model_of(frame)
        pieces = [Piece(**fields) for fields in frame.meta["pieces"]]
        place = ShardPlace(self.identity.index, self.identity.of)
        shard = shard_codec.assemble(model, pieces, place, [frame], Memory(self._max_bytes))
        self._serve(int(frame.meta["generation"]), 0, shard, now_s)

    def serving_at(self, generation: int) -> ServedGeneration:
        """Returns the served generation.

        Raises:
            RefusedError: The server is empty, or serves another generation.
        """
        if self.serving is None or self.serving.generation != generation:
            state = f"is at {self.generation}" if self.serving is not None else "has restarted"
            text = f"generation {generation} is over: server {self.identity.index} {state}"
            raise RefusedError(_CONFLICT, text, "generation")
        return self.serving

    def record_refusal(self, body: Refusal) -> None:
        """Counts a gradient that a worker did not push because of NaN or infinity."""
        self.serving_at(body.generation)
        self.stats.record_refusal(body.trainer, body.number, body.parameter)

    def checkpoint_due(self, process: str, now_s: float) -> bool:
        """Returns whether the process that just pushed must write a checkpoint; if so, grants it the lease."""
        serving = self.serving
        if serving is None or self.identity.index or self.leases.is_held(SAVE, now_s):
            return False
        rules = serving.shard.model.rules
        if not serving.schedule.is_due(rules, serving.shard.version, now_s):
            return False
        return self.leases.acquire(SAVE, process, now_s, SAVE_S) is not None

    def checkpoint_committed(
        self, version: int, checkpoints: Sequence[StoredCheckpoint], now_s: float
    ) -> None:
        """Records a committed checkpoint."""
        self.checkpoints = tuple(checkpoints)
        self.leases.end(SAVE)
        if self.serving is not None:
            self.serving.schedule.committed(version, now_s)

    def to_json(self, now_s: float) -> Json:
        """Returns the server's section of the status."""
        serving = self.serving
        newest = self.checkpoints[-1] if self.checkpoints else None
        checkpoint = (
            None if newest is None else {**newest.name._asdict(), "records": newest.records}
        )
        return {
            **self.state(),
            **self.stats.to_json(),
            "setbacks": self.rollbacks.to_json(),
            "max_bytes": self._max_bytes,
            "checkpoint": checkpoint,
            "unsaved": None
            if serving is None
            else {
                "steps": serving.shard.version - serving.schedule.version,
                "seconds": max(0.0, now_s - serving.schedule.at_s),
            },
            "serving": None if serving is None else serving.to_json(),
        }

    def _check(self, model: Model) -> None:
        optimizers.make(model.optimizer)
        check_dense_size(model, self._max_dense_numbers)
        if self.serving is not None:
            # a trainer may have settled this server, and failed before it settled server 0
            if self.identity.index == 0 or self.serving.shard.version:
                check_same(self.serving.shard.model, model)
        elif self.checkpoints:
            self._check_checkpoint(self.checkpoints[-1], model)

    def _check_checkpoint(self, checkpoint: StoredCheckpoint, model: Model) -> None:
        try:
            check_fits(checkpoint.model, model, f"checkpoint {checkpoint.name.folder}")
        except RefusedError as error:
            text = f"{error}: it belongs to another model; name another folder, or another job"
            raise RefusedError(error.status, text, error.field) from error

    def _shard(
        self, body: Settle, dense: Array | None, load: Callable[[CheckpointName], list[Frame]]
    ) -> Shard:
        memory = Memory(self._max_bytes)
        try:
            if body.checkpoint is not None:
                return self._restored(body, CheckpointName(**vars(body.checkpoint)), load, memory)
            if dense is None:
                raise RefusedError(422, "dense: initial parameters are missing", "dense")
            return Shard(
                body.model,
                body.pieces,
                dense.copy(),
                memory,
                Views(memory),
                servers=self.identity.of,
            )
        except FullError as error:
            text = (
                f"this server's part of the model exceeds its memory limit by {error.needed_bytes} "
                "bytes: raise the limit (--max-bytes), or start more servers"
            )
            raise RefusedError(_FULL, text) from error

    def _restored(
        self,
        body: Settle,
        name: CheckpointName,
        load: Callable[[CheckpointName], list[Frame]],
        memory: Memory,
    ) -> Shard:
        checkpoint = next((stored for stored in self.checkpoints if stored.name == name), None)
        if checkpoint is None:
            text = (
                f"server {self.identity.index} has no checkpoint {name.folder} of {name.of} servers"
            )
            raise RefusedError(_CONFLICT, text, "checkpoint")
        self._check_checkpoint(checkpoint, body.model)
        place = ShardPlace(self.identity.index, self.identity.of)
        try:
            return shard_codec.assemble(body.model, body.pieces, place, load(name), memory)
        except ShardError as error:
            self.checkpoints = tuple(stored for stored in self.checkpoints if stored.name != name)
            text = f"checkpoint {name.folder} at server {self.identity.index}: {error}"
            raise RefusedError(_CONFLICT, text, "checkpoint") from error

    def _serve(self, generation: int, ticket: int, shard: Shard, now_s: float) -> None:
        self.generation, self._ticket, self._reached = generation, ticket, NOTHING
        self.serving = ServedGeneration(generation, shard, self.stats, now_s)


def _to_counts(progress: ObservedProgress) -> ShardCounts:
    return ShardCounts(progress.version, progress.records)
