"""`edl.sync.train`: one trainer's part in synchronous training, round after round.

A round has fixed members. It ends when a member is lost, which breaks the exchange, or when all
agree at a step's end that a later round is to begin; the process goes on in either case.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

from edl import wire
from edl.batches import describe
from edl.errors import EdlError, MasterError, Mismatch, Refused, RoundOver, Unavailable
from edl.exchange import Interrupt, Listener, Ring
from edl.heart import replaced
from edl.process import session
from edl.rendezvous import Rendezvous, Round
from edl.session import Loop, Session
from edl.sources.base import Dataset
from edl.sync.course import Course
from edl.sync.leader import Leader, Saving, behind
from edl.sync.options import OnStep, Options, Result, Step
from edl.sync.replica import Replica
from edl.sync.saving import Saver
from edl.sync.turn import Turn

log = logging.getLogger("edl")

_LEAVE_S = 0.3
_MOST_CODE = 300
"""Characters of an entry of the code, as the master takes it."""


def train(
    replica: Replica,
    dataset: Dataset,
    batch_size: int,
    *,
    micro_batches: int = 8,
    epochs: int = 1,
    shuffle_seed: int | None = None,
    task_records: int | None = None,
    constant_batch: bool = True,
    code: Mapping[str, str] | None = None,
    checkpoints: Path | str | None = None,
    checkpoint_steps: int = 0,
    on_nan: str = "fail",
    seed: int = 0,
    on_step: OnStep = None,
    between: OnStep = None,
    member: Session | None = None,
) -> Result:
    """Trains together with all other trainers of the job, however they come and go.

    Every member holds the same parameters after every step. What a step trains on depends on the
    seed alone: the loss curve is that of a run whose members never change, but for rounding.

    Args:
        replica: This trainer's copy of the model.
        dataset: From `edl.from_arrays` and the like; the same in all trainers.
        batch_size: Records of a step, of all members together.
        micro_batches: Into so many parts a step's records are cut; also the most trainers that
            can share a step. Gradients are computed part by part.
        epochs: How often each record is trained on.
        shuffle_seed: Orders tasks differently in each epoch; None keeps their order.
        task_records: Records that are leased and acknowledged together.
        constant_batch: False: each member computes one micro-batch a step, and the learning rate
            is multiplied by members / micro_batches.
        code: What must be the same in all trainers, by name, such as a version of the program.
        checkpoints: Folder for checkpoints, the same for all trainers; the newest whole one is
            where training goes on when all members were lost.
        checkpoint_steps: So many steps lie between two of them; one is written at the end, too.
        on_nan: "fail" the job where a loss is no number, or "skip" the step.
        seed: For whatever is random in a step, such as dropout.
        on_step: Called after each step.
        between: Called after each step, at the same steps in all members, which are alike then:
            there evaluations belong.
        member: This trainer's session; the process's by default.

    Returns:
        What this trainer has seen. After SIGTERM the call does not return: the process leaves
        with code 143 once the step in hand is done, or when its grace is over.

    Raises:
        DataError: An argument that cannot be.
        TrainingError: A loss was no number, and `on_nan` is "fail".
        Refused: This trainer's program differs from that of the others.
        Unavailable: The master was away for too long.
    """
    options = Options(
        batch_size=batch_size,
        micro_batches=micro_batches,
        constant_batch=constant_batch,
        code=dict(code or {}),
        checkpoints=None if checkpoints is None else Path(checkpoints),
        checkpoint_steps=checkpoint_steps,
        on_nan=on_nan,
        seed=seed,
        on_step=on_step,
        between=between,
    )
    description = describe(
        dataset,
        batch_size,
        epochs=epochs,
        shuffle_seed=shuffle_seed,
        task_records=task_records,
        overlap=True,  # there is one consumer: order is kept, and no epoch's end is waited for
    )
    found = session() if member is None else member
    engine = Engine(replica, dataset, description, options, found)
    try:
        result = engine.run()
    finally:
        engine.close()
    if not result.whole:
        found.check()
    return result


class Engine(Loop):
    """One trainer's, for as long as it trains."""

    def __init__(
        self,
        replica: Replica,
        dataset: Dataset,
        description: wire.Json,
        options: Options,
        member: Session,
    ) -> None:
        self.replica, self.dataset, self.options, self.member = replica, dataset, options, member
        self.description = description
        self.course = Course()
        self.result = Result()
        self.leaving = threading.Event()
        self.interrupt = Interrupt()
        self.leader: Leader | None = None
        self.saver = None if options.checkpoints is None else Saver(options.checkpoints)
        self.last = True
        """Whether nobody could lead after this trainer."""
        self._training = False
        self._round = 0
        self._error: EdlError | None = None
        found = member.settings
        self._listener = Listener("" if found.exchange_port else found.address, found.exchange_port)
        address = f"{found.address}:{self._listener.address[1]}"
        # not the session's: whoever has left the rendezvous cannot come again, another engine can
        self.rendezvous = Rendezvous(found, secrets.token_hex(8), address, self._code())
        self.rendezvous.on_news(self.interrupt.set)

    # -- the session's side ------------------------------------------------------------------

    def wake(self, error: EdlError | None) -> None:
        """SIGTERM, or the master says stop: the step in hand is the last one here, or the next."""
        if error is not None:
            log.warning("%s", error)
            self._error = error
        self.leaving.set()
        self.rendezvous.leave(_LEAVE_S)
        if not self._training:
            self.interrupt.set()

    # -- the program's side ------------------------------------------------------------------

    def run(self) -> Result:
        """Takes part until all is trained, or until this trainer is to leave."""
        self.member.join()
        status = self.status()
        if status.get("state") == "done" and self.dataset.name in status["datasets"]:
            self.come_late()
            return self.result
        self.member.register(self)
        self.rendezvous.start()
        number, broken = 0, False
        while not (self.leaving.is_set() or self.result.whole):
            found = self._next(number, broken=broken)
            if found is None:
                break
            number, broken = found.number, False
            self.interrupt.clear()
            if self.rendezvous.newer(number) and self.leaving.is_set():
                break
            try:
                self._turn(found)
            except Mismatch:
                raise
            except RoundOver as error:
                broken = True
                log.info("round %d is over: %s", number, error)
        self._note()
        if self._error is not None:
            raise self._error
        return self.result

    def close(self) -> None:
        """Leaves nothing open; tells the master what only this trainer could tell."""
        self.member.release(self)
        self.rendezvous.leave(_LEAVE_S)
        if self.saver is not None:
            self.saver.close()
        if self.leader is not None:
            last = self.result.whole or self.last
            (self.leader.finish if last else self.leader.abandon)()
            self.leader = None
        self.rendezvous.close()
        self._listener.close()
        self.interrupt.close()

    def _next(self, after: int, *, broken: bool) -> Round | None:
        """The next round with this trainer; None where it is to leave meanwhile."""
        try:
            return self.rendezvous.next(after, broken=broken)
        except Unavailable:
            if self.leaving.is_set():
                return None
            raise

    def _turn(self, found: Round) -> None:
        """One round, from the first connection to its end."""
        self._round = found.number
        addresses = [one.address for one in found.members]
        key = self.member.settings.token.encode()
        ring = Ring.connect(
            self._listener,
            addresses,
            found.rank,
            number=found.number,
            key=key,
            interrupt=self.interrupt,
            on_wait=self.rendezvous.waiting,
        )
        turn = Turn(self, ring, found)
        try:
            turn.begin()
            self.result.rounds += 1
            self.last = found.world == 1
            self.rendezvous.ready(found.number)
            self._training = True
            turn.run()
        except RoundOver:
            self.replica.clear()
            self.result.redone += self.course.flight is not None
            raise
        finally:
            self._training = False
            turn.close()
            ring.close()

    # -- for rounds --------------------------------------------------------------------------

    def lead(self, after: int) -> bool:
        """Makes this member the one that leases and acknowledges; the next term begins.

        Args:
            after: The newest term in which the state was trained that all members have.

        Returns:
            Whether that is the newest state there is; else nothing has changed.

        Raises:
            RoundOver: It is over already: this member stood still, or the master is away.
        """
        try:
            self._lead(after)
        except Refused as error:
            if behind(error):
                return False
            raise
        except Unavailable as error:
            if self._is_over():
                raise RoundOver(str(error)) from error
            raise
        if self.leader is not None:
            self.course.term = self.leader.session.term
        return True

    def _lead(self, after: int) -> None:
        if self.leader is not None and self.leader.replaced:
            self.drop_lead()
        if self.leader is not None:
            try:
                self.leader.begin_term(after)
            except Refused as error:
                if not replaced(error):
                    raise
                self.drop_lead()
        if self.leader is None:
            if self._is_over():
                raise RoundOver("a later round has begun")
            self.course.leads()
            self.leader = Leader(
                self.member.settings,
                self.course.book,
                self.dataset.name,
                self.description,
                after=after,
                batch_size=self.options.batch_size,
                stopped=lambda: self.wake(None),
                over=self._is_over,
            )

    def _is_over(self) -> bool:
        """Whether the round is, for a member that is not ready in it yet."""
        return self.leaving.is_set() or self.rendezvous.newer(self._round)

    def confirm(self) -> None:
        """Whoever led and may have stood still makes sure that it still leads.

        Raises:
            RoundOver: It does not: what it would do now others have done.
        """
        if self.leader is not None and (self.leader.replaced or self.rendezvous.stalled()):
            self.leader.confirm()

    def drop_lead(self) -> None:
        """Another member leads."""
        if self.leader is not None:
            self.leader.abandon()
            self.leader = None

    def part(self) -> None:
        """This member is in no later round."""
        self.rendezvous.leave(_LEAVE_S)

    def save(self, *, wait: bool = False) -> None:
        """Writes a checkpoint of what all members have."""
        if self.saver is not None and self.leader is not None:
            lead = Saving(self.leader.session)
            self.saver.save(self.replica.state(), self.course.place_json(), lead, wait=wait)

    def fail(self, reason: str) -> None:
        """The job fails; the master tells everybody."""
        try:
            self.member.control().fail(reason)
        except MasterError as error:
            log.warning("the master did not hear that the job failed: %s", error)

    def tell(self, step: Step) -> None:
        """What the program wants to know after a step."""
        if self.leader is not None:
            self.leader.session.stepped()
        if self.options.on_step is not None:
            self.options.on_step(step)
        if self.options.between is not None:
            self.confirm()
            self.rendezvous.busy(now=True)
            try:
                self.options.between(step)
            finally:
                self.rendezvous.busy(now=False)

    def status(self) -> wire.Json:
        """The master's; nothing while it is away."""
        try:
            return self.member.control().status()
        except Unavailable as error:
            log.info("the job's status is not known: %s", error)
            return {}

    def come_late(self) -> None:
        """Others have trained the model to its end, and this trainer does not have it."""
        when = "while this trainer was away" if self.result.rounds else "before this trainer came"
        log.info("the data was trained %s", when)
        self.result.whole = self.result.late = True

    def _note(self) -> None:
        course, result = self.course, self.result
        result.steps, result.records = course.step, course.records
        result.skipped, result.metrics = course.skipped, dict(course.metrics)

    def _code(self) -> dict[str, str]:
        """What must be alike in all members."""
        options = self.options
        batch = f"{options.batch_size} records in {options.micro_batches} micro-batches"
        if not options.constant_batch:
            batch = f"micro-batches of {-(-options.batch_size // options.micro_batches)} records"
        return {
            "gradient": f"{self.replica.size} numbers",
            "batch": batch,
            "data": _told(self.dataset.name, self.description),
            **options.code,
        }


def _told(name: str, description: wire.Json) -> str:
    """A data set in short, as the other members must have it too."""
    files = description.get("files")
    records = description.get("records") if files is None else sum(f["records"] for f in files)
    kept = ("task_records", "epochs", "shuffle_seed")
    told = ", ".join(f"{key} {description[key]}" for key in kept)
    return f"{name} of {records} records, {told}"[:_MOST_CODE]
