"""The processes of a pod that follow its first process: they execute its commands on their shards.

Each follower has a part of the state, a connection to the processes of its rank in the other pods,
and a `DataLoader`. The first process makes all decisions for the pod (rounds, plans, leases, the newest
state), by the rules of `edl.sync`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from functools import singledispatchmethod
from typing import Any

import numpy as np

from edl.data.checkpoints import read_checkpoint
from edl.errors import RoundOver
from edl.master import sigterm
from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.protocol import Member, Round
from edl.master.round_store import RoundStore
from edl.master.session import Session, session
from edl.sources.leased_records import LeasedRecords
from edl.sync import plan_message
from edl.sync.group_round import micro_of
from edl.sync.growth import Growth
from edl.sync.options import RunSpec, SyncResult
from edl.sync.plans import Assignment, Plan, micro_size, split
from edl.sync.replica import State
from edl.sync.round_start import encode_json
from edl.sync.saving import CheckpointWriter
from edl.sync.shared_write import SharedWrite
from edl.sync.step_flags import StepFlags
from edl.torch.batches import MemberBatches, MemberReader
from edl.torch.groups.forming import form_group, gloo_groups
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.commands import (
    Apply,
    BeginStep,
    Broadcast,
    Clear,
    Command,
    Connect,
    End,
    Grow,
    HandOver,
    Load,
    NewReader,
    Read,
    Request,
    Save,
)
from edl.torch.pods.pod import Pod
from edl.torch.pods.shard_rings import ShardRings
from edl.torch.pods.step import PodStep, process_share
from edl.torch.state.dcp_files import PodFiles
from edl.torch.state.replica import TorchReplica
from edl.torch.step import StepCalls
from edl.torch.torch_round import read_flags, write_flags

log = logging.getLogger("edl")

_ADDS = 1 << 20
"""Each process numbers its additions to keys from a different multiple of this, because the master
knows the pod as one caller."""


class Follower:
    """A process of a pod other than the first; has the methods of `TorchEngine` that `Training` calls."""

    def __init__(
        self,
        replica: TorchReplica,
        spec: RunSpec,
        member: Session | None,
        *,
        pod: Pod,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: This process's part of the model.
            spec: The run's data set and options, the same in all trainers.
            member: The pod's session; only its settings are used.
            pod: The processes of the pod.
        """
        self._replica, self._pod, self._options = replica, pod, spec.options
        self._dataset, self._description = spec.dataset, spec.description
        self._settings = (session() if member is None else member).settings
        self._groups = gloo_groups(self._settings.address)
        self._files = PodFiles(pod, replica)
        folder = spec.options.checkpoints
        self._writer = None if folder is None else CheckpointWriter(folder, self._files)
        self._micro_size = micro_size(spec.options.batch_size, spec.options.micro_batches)
        self.result = SyncResult()
        self.exchanged_bytes = 0
        """Bytes of tensors that this process has summed, sent or received, in rounds that have ended."""
        self._link: GroupLink | None = None
        self._growth: Growth | None = None
        self._rings: ShardRings | None = None
        """The rings of a round in which pods get the state."""
        self._client: Client | None = None
        self._identity, self._round = ("", ""), Round(0, 0, ())
        self._state: State | None = None
        """The state that was received or read, until the first process announces `Load`."""
        self._plans: dict[str, tuple[Plan, Assignment]] = {}
        self._reader: MemberReader | None = None

    def run(self, batches: MemberBatches) -> Generator[PodStep, None, None]:
        """Yields this process's part of each step, until the first process ends.

        Raises:
            DataError: The program left out a micro-batch.
            TrainingError: Another process of this pod has ended.
            SystemExit: SIGTERM came, and the pod has left; the exit code is 143.
        """
        watcher = sigterm.SigtermWatcher(self._pass_sigterm_on)
        watcher.install()
        while True:
            command = self._pod.receive()
            if isinstance(command, End):
                break
            if isinstance(command, NewReader):
                if self._reader is not None:
                    self._reader.close(0.0)
                self._plans.clear()
                self._reader = batches.new_reader(
                    LeasedRecords(self._dataset.source, self._description)
                )
            elif isinstance(command, BeginStep):
                yield from self._step(batches, command)
            else:
                self._execute(command)
        watcher.remove()
        self.result = SyncResult(
            whole=command.whole,
            late=command.late,
            steps=command.steps,
            records=command.records,
            redone=command.redone,
        )
        if command.exits and not command.whole:
            sys.exit(sigterm.EXIT_CODE)

    def close(self) -> None:
        """Ends the connections of this process."""
        if self._writer is not None:
            self._writer.close()
        self._leave_round()
        self._groups.close()
        self._replica.close()

    @singledispatchmethod
    def _execute(self, command: Command) -> None:
        """Executes a command that yields no step."""
        raise TypeError(f"{command!r:.80} is not a command of a pod")

    # -- rounds ------------------------------------------------------------------------------

    @_execute.register
    def _connect(self, command: Connect) -> None:
        self._leave_round()
        rank, size = command.rank, command.world_size
        self._identity = command.trainer, command.incarnation
        self._client = self._new_client()
        self._round = Round(command.number, rank, (Member("", "", ""),) * size)
        waiting = Waiting(self._pod.news.of(command.number))
        self._keys = RoundStore(
            self._client,
            command.number,
            prefix=f"shard/{self._pod.rank}/",
            first_add=self._pod.rank * _ADDS,
        )
        with self._agreeing():
            group = form_group(self._groups, self._round, self._keys, waiting)
            self._link = GroupLink(group, rank, size, waiting)
            self._growth = Growth(self._replica, self._link, self._round, None)

    def _leave_round(self) -> None:
        if self._growth is not None:
            self._growth.close()
        if self._rings is not None:
            self._rings.close()
        self._growth = self._rings = None
        link, self._link = self._link, None
        if link is not None:
            self.exchanged_bytes += link.exchanged_bytes
            link.close()
            self._groups.abandon(link.works)
        if self._client is not None:
            self._client.close()
            self._client = None

    def _new_client(self) -> Client:
        """Returns a client with the pod's identity, because the pod is the member of the round."""
        connection = Connection(self._settings.master, self._settings.token)
        return Client(connection, *self._identity)

    @contextlib.contextmanager
    def _agreeing(self) -> Iterator[None]:
        """A context for an exchange with other pods; reports to the first process whether it succeeded."""
        try:
            yield
        except RoundOver as error:
            log.info("round %d is over: %s", self._round.number, error)
            self._pod.agree(ok=False)
        else:
            self._pod.agree()

    # -- the state ---------------------------------------------------------------------------

    @_execute.register
    def _broadcast(self, command: Broadcast) -> None:
        with self._agreeing():
            link = self._connected()
            self._exchange(
                lambda arrays, header: link.broadcast(arrays, header, command.source),
                sends=link.rank == command.source,
            )

    @_execute.register
    def _hand_over(self, command: HandOver) -> None:
        with self._agreeing():
            link = self._connected()
            self._exchange(
                lambda arrays, header: link.hand_over(arrays, header, command.receivers),
                sends=link.rank not in command.receivers,
            )

    def _exchange(
        self, call: Callable[[list[np.ndarray], bytes], tuple[bytes, list[Any]]], *, sends: bool
    ) -> None:
        """Sends this process's part of the state, or receives it."""
        arrays: list[np.ndarray] = []
        header = b""
        if sends:
            state = self._replica.state()
            arrays = [np.asarray(array, order="C") for array in state.arrays.values()]
            header = encode_json({"names": list(state.arrays), "extra": state.extra})
        raw, arrays = call(arrays, header)
        if not sends:
            fields = json.loads(raw)
            self._state = State(dict(zip(fields["names"], arrays)), fields["extra"])

    @_execute.register
    def _grow(self, command: Grow) -> None:
        waiting = Waiting(self._pod.news.of(self._round.number))
        self._rings = ShardRings(self._settings, self._round, self._keys, waiting)
        link, streams = self._connected(), self._rings.streams
        self._growth = Growth(self._replica, link, self._round, streams)
        self._growth.plan(command.receivers, lambda: None)
        with self._agreeing():
            self._growth.start()

    @_execute.register
    def _read(self, command: Read) -> None:
        self._state = self._files.read(read_checkpoint(command.path), command.extra)

    @_execute.register
    def _load(self, command: Load) -> None:  # noqa: ARG002 - the command has no fields
        state, self._state = self._state, None
        if state is not None:
            self._replica.load(state)

    @_execute.register
    def _save(self, command: Save) -> None:
        self._files.stage_together(self._replica)
        if self._writer is not None:
            shared = SharedWrite(
                f"{self._identity[0]}:{self._pod.rank}",
                self._pod.rank,
                self._pod.size,
                step=command.step,
                client=self._new_client(),
                round_number=self._round.number,
                is_last=command.wait,
            )
            self._writer.save(
                self._replica, {"step": command.step}, shared, None, wait=command.wait
            )

    # -- steps -------------------------------------------------------------------------------

    @_execute.register
    def _request(self, command: Request) -> None:
        (planned,) = plan_message.decode(command.plan.encode()).plans
        micro_batches = split(planned.spans, self._micro_size)
        assignment = [(index, micro_batches[index]) for index in command.indices]
        share = process_share(assignment, self._pod.rank, self._pod.size)
        self._plans[planned.name] = planned, share.counted
        self._requested().request(planned, share.read)

    def _step(self, batches: MemberBatches, command: BeginStep) -> Generator[PodStep, None, None]:
        planned, counted = self._plans.pop(command.plan)
        self._requested().take(planned)
        self._replica.begin_step()
        seed, growth = self._options.seed, self._growing()
        calls = StepCalls(
            next_batch=batches.next,
            micro=lambda index: micro_of(seed, command.step, index),
            before_last=self._begin_sums,
        )
        pod_step = PodStep(planned, counted, calls, pod=self._pod, growth=growth)
        yield pod_step
        pod_step.end()
        flags = StepFlags()
        is_complete = self._sum(flags, growth)
        report = {"ok": is_complete, "finite": self._replica.buckets.is_finite()}
        if all(report["ok"] for report in self._pod.gather(report)):
            growth.read_flags(flags)

    def _begin_sums(self) -> None:
        link = self._connected()
        if link.world_size > 1:
            self._replica.buckets.begin(link.begin_sum)

    def _sum(self, flags: StepFlags, growth: Growth) -> bool:
        """Sums the gradient over the processes of this rank in all pods; returns whether it succeeded."""
        link, buckets = self._connected(), self._replica.buckets
        if link.world_size == 1:
            return True
        try:
            growth.write_flags(flags)
            write_flags(flags, buckets.tail)
            link.wait_for(buckets.finish(link.begin_sum))
            read_flags(flags, buckets.tail, [])
            growth.take_parts(flags)
        except RoundOver as error:
            log.info("round %d is over: %s", self._round.number, error)
            return False
        return True

    @_execute.register
    def _apply(self, command: Apply) -> None:
        if self._growing().applies:
            self._replica.step(command.scale)

    @_execute.register
    def _clear(self, command: Clear) -> None:  # noqa: ARG002 - the command has no fields
        if self._link is not None and self._link.has_pending:
            self._replica.move()
        else:
            self._replica.clear()

    # -- internals ---------------------------------------------------------------------------

    def _connected(self) -> GroupLink:
        if self._link is None:
            raise RoundOver("this process is not connected")
        return self._link

    def _growing(self) -> Growth:
        if self._growth is None:
            raise RoundOver("this process is not connected")
        return self._growth

    def _requested(self) -> MemberReader:
        if self._reader is None:
            raise RoundOver("nothing was requested of this process")
        return self._reader

    def _pass_sigterm_on(self) -> None:
        """Passes SIGTERM on to the first process, because the pod leaves as a whole."""
        with contextlib.suppress(OSError):
            os.kill(self._pod.first_pid, signal.SIGTERM)
