"""One parameter server: which generation it serves, and how it comes to one. No I/O, time is told.

It begins empty. A trainer that holds server 0's ticket settles all servers: with first parameters,
or with the newest checkpoint that all of them have. From then on they serve one generation. A server
that starts again is empty and refuses calls of the generation before; so trainers notice, and settle
all of them anew. Used by one thread at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pserver import contents, optimizers, tickets
from pserver.checkpoint import Kept, Name
from pserver.errors import FullError, RefusedError, ShardError
from pserver.frames import Array, Frame, Json
from pserver.memory import Memory, Views
from pserver.model import Model, Piece, check_fits, check_same
from pserver.protocol import Ask, Enter, Refusal, Seen, Settle
from pserver.serving import Serving
from pserver.setbacks import NOTHING, Setbacks
from pserver.shard import Counts, Shard
from pserver.tally import Tally
from pserver.tickets import Tickets

_CONFLICT, _FULL = 409, 507
_NEWEST = 8
"""Checkpoints that a state names."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which server this is."""

    job: str
    index: int
    of: int


class Server:
    """Holds what it serves, what it could go back to, and what it has counted."""

    def __init__(
        self, place: Place, most_bytes: int | None, generation: int, have: Sequence[Kept]
    ) -> None:
        """Empty.

        Args:
            place: Which server this is.
            most_bytes: That arrays may take.
            generation: The newest that it knows to have been.
            have: Checkpoints on its disk, oldest first.
        """
        self.place = place
        self.have = tuple(have)
        self.generation = generation
        self.serving: Serving | None = None
        self.tickets = Tickets()
        self.setbacks = Setbacks()
        self.tally = Tally()
        self._most_bytes = most_bytes
        self._ticket = 0
        self._reached = NOTHING
        """How far it was when it served last, in this process."""

    def state(self) -> Json:
        """What trainers need to know before they can begin."""
        counts = NOTHING if self.serving is None else self.serving.shard.counts
        return {
            **asdict(self.place),
            "ready": self.serving is not None,
            "generation": self.generation,
            **counts._asdict(),
            "have": [one.name._asdict() for one in self.have[-_NEWEST:]],
        }

    def enter(self, body: Enter) -> Json:
        """A trainer comes.

        Raises:
            RefusedError: It trains another model.
        """
        if body.model is not None:
            self._check(body.model)
        newest, setback = 0, None
        if self.serving is not None:
            newest = self.serving.shard.applied.get(body.incarnation, 0)
            if body.seen is not None:
                self.setbacks.late(body.generation, _counts(body.seen))
            setback = self.setbacks.of(body.generation)
        return {**self.state(), "newest": newest, "setback": setback}

    def ask(self, body: Ask, now_s: float) -> Json:
        """Whether the caller may do something for all servers.

        Raises:
            RefusedError: This is not server 0, who decides that.
        """
        if self.place.index:
            raise RefusedError(_CONFLICT, "tickets are server 0's: ask that one", "index")
        if body.back:
            self.tickets.give_back(body.kind, body.incarnation)
            return {"granted": False, "ticket": 0}
        if body.kind == tickets.SETTLE:
            serves_newer = self.serving is not None and body.generation < self.generation
            number = None
            if not serves_newer:
                number = self.tickets.ask(tickets.SETTLE, body.incarnation, now_s, tickets.SETTLE_S)
            return {"granted": number is not None, "ticket": number or 0}
        serving = self.at(body.generation)
        number = None
        if serving.shard.version > serving.saving.version:
            number = self.tickets.ask(tickets.SAVE, body.incarnation, now_s, tickets.SAVE_S)
        return {"granted": number is not None, "version": serving.shard.version}

    def settle(
        self, body: Settle, dense: Array | None, load: Callable[[Name], list[Frame]], now_s: float
    ) -> Json:
        """Begins a generation; the same call again changes nothing.

        Args:
            body: Which, and with what.
            dense: First parameters, where it is not with a checkpoint.
            load: Reads this server's files of a checkpoint.
            now_s: The time.

        Raises:
            RefusedError: It is too late, does not fit, or the checkpoint cannot be used.
        """
        mine = (self.generation, self._ticket)
        if (body.generation, body.ticket) == mine and self.serving is not None:
            return self.state()
        if (body.generation, body.ticket) <= mine:
            text = f"generation {body.generation} comes too late: this server is at {mine[0]}"
            raise RefusedError(_CONFLICT, text, "generation")
        if self.serving is not None:
            self._reached, self.serving = self.serving.shard.counts, None
        shard = self._shard(body, dense, load)
        ended, reached = max(self.generation, body.ended), self._reached
        if body.seen is not None and body.ended == ended:
            reached = max(reached, _counts(body.seen))
        self.setbacks.fell(ended, shard.counts, reached, body.reason)
        self._serve(body.generation, body.ticket, shard, now_s)
        for kind in (tickets.SETTLE, tickets.SAVE):
            self.tickets.end(kind)
        return self.state()

    def resume(self, frame: Frame, now_s: float) -> None:
        """Goes on where this server ended when it was told to; nothing is lost.

        Raises:
            ShardError: The file is not what it says.
            FullError: There is no room.
        """
        model = contents.model_of(frame)
        pieces = [Piece(**one) for one in frame.meta["pieces"]]
        place = (self.place.index, self.place.of)
        shard = contents.assemble(model, pieces, place, [frame], Memory(self._most_bytes))
        self._serve(int(frame.meta["generation"]), 0, shard, now_s)

    def at(self, generation: int) -> Serving:
        """What is served.

        Raises:
            RefusedError: Nothing, or another generation.
        """
        if self.serving is None or self.serving.generation != generation:
            what = f"is at {self.generation}" if self.serving is not None else "has begun anew"
            text = f"generation {generation} is over: server {self.place.index} {what}"
            raise RefusedError(_CONFLICT, text, "generation")
        return self.serving

    def refused(self, body: Refusal) -> None:
        """A worker found NaN or infinity by itself."""
        self.at(body.generation)
        self.tally.refused(body.trainer, body.number, body.parameter)

    def due(self, process: str, now_s: float) -> bool:
        """Whether the process that has just pushed is to save a checkpoint; it has the ticket then."""
        serving = self.serving
        if serving is None or self.place.index or self.tickets.held(tickets.SAVE, now_s):
            return False
        rules = serving.shard.model.rules
        if not serving.saving.due(rules, serving.shard.version, now_s):
            return False
        return self.tickets.ask(tickets.SAVE, process, now_s, tickets.SAVE_S) is not None

    def saved(self, version: int, have: Sequence[Kept], now_s: float) -> None:
        """A checkpoint was committed."""
        self.have = tuple(have)
        self.tickets.end(tickets.SAVE)
        if self.serving is not None:
            self.serving.saving.done(version, now_s)

    def told(self, now_s: float) -> Json:
        """For the status."""
        serving = self.serving
        newest = self.have[-1] if self.have else None
        checkpoint = (
            None if newest is None else {**newest.name._asdict(), "records": newest.records}
        )
        return {
            **self.state(),
            **self.tally.told(),
            "setbacks": self.setbacks.told(),
            "most_bytes": self._most_bytes,
            "checkpoint": checkpoint,
            "unsaved": None
            if serving is None
            else {
                "steps": serving.shard.version - serving.saving.version,
                "seconds": max(0.0, now_s - serving.saving.at_s),
            },
            "serving": None if serving is None else serving.told(),
        }

    def _check(self, model: Model) -> None:
        optimizers.make(model.optimizer)
        if self.serving is not None:
            # another server than 0 may have been begun by somebody who got no further
            if self.place.index == 0 or self.serving.shard.version:
                check_same(self.serving.shard.model, model)
        elif self.have:
            self._check_kept(self.have[-1], model)

    def _check_kept(self, kept: Kept, model: Model) -> None:
        try:
            check_fits(kept.model, model, f"checkpoint {kept.name.folder}")
        except RefusedError as error:
            text = f"{error}: it is of another model; name another folder, or another job"
            raise RefusedError(error.status, text, error.named) from error

    def _shard(
        self, body: Settle, dense: Array | None, load: Callable[[Name], list[Frame]]
    ) -> Shard:
        room = Memory(self._most_bytes)
        try:
            if body.checkpoint is not None:
                return self._restored(body, Name(**body.checkpoint.model_dump()), load, room)
            if dense is None:
                raise RefusedError(422, "dense: first parameters are missing", "dense")
            return Shard(body.model, body.pieces, dense.copy(), room, Views(room))
        except FullError as error:
            text = (
                f"the model's part does not fit into this parameter server, {error.needed_bytes} "
                "bytes are missing: give it more memory (--max-bytes), or start more servers"
            )
            raise RefusedError(_FULL, text) from error

    def _restored(
        self, body: Settle, name: Name, load: Callable[[Name], list[Frame]], room: Memory
    ) -> Shard:
        kept = next((one for one in self.have if one.name == name), None)
        if kept is None:
            text = f"server {self.place.index} has no checkpoint {name.folder} of {name.of} servers"
            raise RefusedError(_CONFLICT, text, "checkpoint")
        self._check_kept(kept, body.model)
        place = (self.place.index, self.place.of)
        try:
            return contents.assemble(body.model, body.pieces, place, load(name), room)
        except ShardError as error:
            self.have = tuple(one for one in self.have if one.name != name)
            text = f"checkpoint {name.folder} at server {self.place.index}: {error}"
            raise RefusedError(_CONFLICT, text, "checkpoint") from error

    def _serve(self, generation: int, ticket: int, shard: Shard, now_s: float) -> None:
        self.generation, self._ticket, self._reached = generation, ticket, NOTHING
        self.serving = Serving(generation, shard, self.tally, now_s)


def _counts(seen: Seen) -> Counts:
    return Counts(seen.version, seen.records)
