"""The processes of a pod other than its first: each does with its shards what the first one says.

It has a part of the state, a connection to the processes of its rank in the other pods, and a
`DataLoader` of its own. What is decided (rounds, plans, books, the newest state) the first process
decides for all of its pod, by the rules of `edl.sync`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
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
from edl.sync.options import RunSpec, SyncResult
from edl.sync.plans import Assignment, Plan, micro_size, split
from edl.sync.replica import State
from edl.sync.round_start import encode_json
from edl.sync.saving import CheckpointWriter
from edl.sync.shared_write import SharedWrite
from edl.sync.step_flags import StepFlags
from edl.torch.groups.forming import form_group, gloo_groups
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.growth import PodGrowth
from edl.torch.pods.pod import Pod
from edl.torch.pods.shard_rings import ShardRings
from edl.torch.pods.step import PodStep, process_share
from edl.torch.state.dcp_files import PodFiles
from edl.torch.state.replica import TorchReplica
from edl.torch.step import StepCalls
from edl.torch.torch_round import MemberBatches, MemberReader, read_flags, write_flags

log = logging.getLogger("edl")

_ADDS = 1 << 20
"""Each process numbers its additions to keys from another number: the master knows one caller."""


class Follower:
    """One process of a pod; has what `Training` uses of `TorchEngine`."""

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
            replica: Its part of the model.
            spec: As in `TorchEngine`.
            member: The pod's; only its settings are used.
            pod: Its processes.
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
        """Of the tensors that this process has summed, sent or received, in rounds that have ended."""
        self._link: GroupLink | None = None
        self._growth: PodGrowth | None = None
        self._rings: ShardRings | None = None
        """Of a round in which pods get the state."""
        self._client: Client | None = None
        self._identity, self._round = ("", ""), Round(0, 0, ())
        self._state: State | None = None
        """What was received or read, until the first process says that it is to be loaded."""
        self._plans: dict[str, tuple[Plan, Assignment]] = {}
        self._reader: MemberReader | None = None
        self._commands: dict[str, Callable[..., None]] = {
            "connect": self._connect,
            "broadcast": self._broadcast,
            "hand_over": self._hand_over,
            "grow": self._grow,
            "read": self._read,
            "load": self._load,
            "request": self._request,
            "apply": self._apply,
            "clear": self._clear,
            "save": self._save,
        }

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
            do = command.pop("do")
            if do == "end":
                break
            if do == "read_anew":
                if self._reader is not None:
                    self._reader.close(0.0)
                self._plans.clear()
                self._reader = batches.new_reader(
                    LeasedRecords(self._dataset.source, self._description)
                )
            elif do == "step":
                yield from self._step(batches, **command)
            else:
                self._commands[do](**command)
        watcher.remove()
        exits = command.pop("exits")
        self.result = SyncResult(**command)
        if exits and not self.result.whole:
            sys.exit(sigterm.EXIT_CODE)

    def close(self) -> None:
        """Ends its connections."""
        if self._writer is not None:
            self._writer.close()
        self._leave_round()
        self._groups.close()
        self._replica.close()

    # -- rounds ------------------------------------------------------------------------------

    def _connect(self, number: int, place: list[int], identity: list[str]) -> None:
        """Connects to the processes of this rank in the other pods of a round."""
        self._leave_round()
        rank, size = place
        self._identity = (identity[0], identity[1])
        self._client = self._new_client()
        self._round = Round(number, rank, (Member("", "", ""),) * size)
        waiting = Waiting(self._pod.news.of(number))
        rank = self._pod.rank
        self._keys = RoundStore(
            self._client, number, prefix=f"shard/{rank}/", first_add=rank * _ADDS
        )
        with self._agreeing():
            group = form_group(self._groups, self._round, self._keys, waiting)
            self._link = GroupLink(group, rank, size, waiting)
            self._growth = PodGrowth(self._replica, self._link, self._round, None)

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
        """A client with the identity of the pod, which is the member of the round."""
        connection = Connection(self._settings.master, self._settings.token)
        return Client(connection, *self._identity)

    @contextlib.contextmanager
    def _agreeing(self) -> Iterator[None]:
        """A context for an exchange with other pods: the first process learns whether it failed."""
        try:
            yield
        except RoundOver as error:
            log.info("round %d is over: %s", self._round.number, error)
            self._pod.agree(ok=False)
        else:
            self._pod.agree()

    # -- the state ---------------------------------------------------------------------------

    def _broadcast(self, source: int) -> None:
        with self._agreeing():
            link = self._connected()
            self._exchange(
                lambda arrays, about: link.broadcast(arrays, about, source),
                sends=link.rank == source,
            )

    def _hand_over(self, receivers: list[int]) -> None:
        with self._agreeing():
            link = self._connected()
            self._exchange(
                lambda arrays, about: link.hand_over(arrays, about, receivers),
                sends=link.rank not in receivers,
            )

    def _exchange(
        self, call: Callable[[list[np.ndarray], bytes], tuple[bytes, list[Any]]], *, sends: bool
    ) -> None:
        """Sends this process's part of the state, or receives it."""
        arrays: list[np.ndarray] = []
        about = b""
        if sends:
            state = self._replica.state()
            arrays = [np.asarray(array, order="C") for array in state.arrays.values()]
            about = encode_json({"names": list(state.arrays), "extra": state.extra})
        raw, arrays = call(arrays, about)
        if not sends:
            fields = json.loads(raw)
            self._state = State(dict(zip(fields["names"], arrays)), fields["extra"])

    def _grow(self, receivers: list[int]) -> None:
        """Connects the processes of this rank, for the parts of the state that some of them get."""
        waiting = Waiting(self._pod.news.of(self._round.number))
        self._rings = ShardRings(self._settings, self._round, self._keys, waiting)
        link, streams = self._connected(), self._rings.streams
        self._growth = PodGrowth(self._replica, link, self._round, streams)
        self._growth.plan(receivers, lambda: None)
        with self._agreeing():
            self._growth.start()

    def _read(self, path: str, extra: dict[str, Any]) -> None:
        self._state = self._files.read(read_checkpoint(path), extra)

    def _load(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._replica.load(state)

    def _save(self, step: int, *, wait: bool) -> None:
        self._files.stage_together(self._replica)
        if self._writer is not None:
            shared = SharedWrite(
                f"{self._identity[0]}:{self._pod.rank}",
                self._pod.rank,
                self._pod.size,
                step=step,
                client=self._new_client(),
                round_number=self._round.number,
                is_last=wait,
            )
            self._writer.save(self._replica, {"step": step}, shared, None, wait=wait)

    # -- steps -------------------------------------------------------------------------------

    def _request(self, plan: str, indices: list[int]) -> None:
        """Requests this process's micro-batches of a step, of those of its pod."""
        (planned,) = plan_message.decode(plan.encode()).plans
        micro_batches = split(planned.spans, self._micro_size)
        assignment = [(index, micro_batches[index]) for index in indices]
        share = process_share(assignment, self._pod.rank, self._pod.size)
        self._plans[planned.name] = planned, share.counted
        self._requested().request(planned, share.read)

    def _step(self, batches: MemberBatches, plan: str, step: int) -> Generator[PodStep, None, None]:
        planned, counted = self._plans.pop(plan)
        self._requested().take(planned)
        self._replica.begin_step()
        seed, growth = self._options.seed, self._growing()
        calls = StepCalls(
            next_batch=batches.next,
            micro=lambda index: micro_of(seed, step, index),
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

    def _sum(self, flags: StepFlags, growth: PodGrowth) -> bool:
        """Sums the gradient over the processes of this rank; returns whether it is complete."""
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

    def _apply(self, scale: float) -> None:
        if self._growing().applies:
            self._replica.step(scale)

    def _clear(self) -> None:
        if self._link is not None and self._link.has_pending:
            self._replica.move()
        else:
            self._replica.clear()

    # -- inside ------------------------------------------------------------------------------

    def _connected(self) -> GroupLink:
        if self._link is None:
            raise RoundOver("this process is not connected")
        return self._link

    def _growing(self) -> PodGrowth:
        if self._growth is None:
            raise RoundOver("this process is not connected")
        return self._growth

    def _requested(self) -> MemberReader:
        if self._reader is None:
            raise RoundOver("nothing was requested of this process")
        return self._reader

    def _pass_sigterm_on(self) -> None:
        """The pod leaves as a whole, and its first process begins."""
        with contextlib.suppress(OSError):
            os.kill(self._pod.first_pid, signal.SIGTERM)
