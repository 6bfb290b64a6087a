"""The start of a round: all members get the same state, and the member of rank 0 leads."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import numpy as np

from edl.errors import RoundOver
from edl.master import protocol
from edl.master.protocol import Round
from edl.sync.agreement import Agreement, Needs, StateReport, agree, is_one_step_behind
from edl.sync.fallback import fall_back, load_newest_checkpoint, report_rollback
from edl.sync.group_member import GroupMember
from edl.sync.growth import Growth
from edl.sync.link import Link
from edl.sync.parts import bytes_in_parts
from edl.sync.replica import State

log = logging.getLogger("edl")


class RoundStart:
    """One member's part in the start of a round, before its first step."""

    def __init__(self, member: GroupMember, ring: Link, round_: Round, growth: Growth) -> None:
        self._member, self._ring, self._round = member, ring, round_
        self._growth = growth
        self._progress, self._replica = member.progress, member.replica

    def synchronize_state(self) -> None:
        """Brings all members to the same state."""
        if self._round.world_size > 1 or not self._progress.term:
            self._agree_on_state()
        self._progress.flight = None
        self._member.commit()

    def begin_term(self) -> None:
        """Makes the member of rank 0 the leader; the others receive its term."""
        if self._round.rank == 0:
            self._start_term()
        else:
            self._receive_term()
        self._growth.start()

    def _agree_on_state(self) -> None:
        progress, name = self._progress, self._round.members[self._round.rank].trainer
        kept = self._member.kept_step
        is_kept = kept is not None and kept.lineage == progress.lineage
        before = kept.before if kept is not None and is_kept else 0
        own = progress.state_report(name, before, parts=bytes_in_parts(self._replica))
        payloads = self._ring.gather(encode_json(own.json()))
        reports = [StateReport.from_json(json.loads(payload)) for payload in payloads]
        agreement = agree(reports)
        if agreement.initial and self._round.rank == agreement.source:
            load_newest_checkpoint(self._member)
            progress.start_lineage()
        if agreement.receivers:
            self._transfer_state(agreement, own, reports[agreement.source])
        self._ring.barrier()

    def _transfer_state(self, agreement: Agreement, own: StateReport, chosen: StateReport) -> None:
        """Brings the receivers to the chosen state; each gets its data from the member before it."""
        receivers, needs = agreement.receivers, agreement.needs
        if agreement.in_parts:
            self._growth.plan(receivers, self._progress.undo())
            needs = Needs.PROGRESS
        is_receiver = self._round.rank in receivers
        arrays: list[np.ndarray] = []
        fields: protocol.Json = {}
        if not is_receiver and (self._round.rank + 1) % self._round.world_size in receivers:
            arrays, fields = self._dump(needs)
        raw, arrays = self._ring.hand_over(arrays, encode_json(fields), receivers)
        if not is_receiver:
            return
        fields = json.loads(raw)
        if needs is Needs.STATE:
            self._load_state(fields, arrays)
        elif needs is Needs.GRADIENT:
            self._replica.write_gradient(arrays[0])
            self._replica.step(fields["scale"])
        if self._member.leader is not None and is_one_step_behind(own, chosen):
            # the leader's lease table is newer than the source's
            self._progress.advance(fields["metrics"])
            self._progress.load_position(fields)
        else:
            self._member.drop_leadership()
            self._progress.load(fields)
        self._progress.term = chosen.term
        log.info(
            "took over the %s of step %d from %s",
            needs.value,
            self._progress.step,
            chosen.trainer,
        )

    def _start_term(self) -> None:
        """Begins a term as leader.

        If the state lacks acknowledged records, all members continue from a checkpoint, or from the
        leader's state, and the data is set back to it.
        """
        member, progress, from_checkpoint = self._member, self._progress, False
        restored = "" if progress.term or not progress.step else "restored"
        if not member.start_term(progress.term, restored, "a checkpoint was restored"):
            fallback = fall_back(member, [entry.trainer for entry in self._round.members])
            from_checkpoint = fallback.from_checkpoint
            if not member.start_term(fallback.term, f"term-{fallback.term}", fallback.reason):
                raise RoundOver("others train on")
            if member.leader is None or not member.leader.has_rewound:
                report_rollback(member, fallback)
        member.renew_position()
        if self._round.world_size > 1:
            arrays, fields = self._dump_state() if from_checkpoint else ([], {})
            if from_checkpoint:
                self._growth.cancel()
            fields |= {"term": progress.term, "data": progress.data.dump()}
            self._ring.broadcast(arrays, encode_json(fields), 0)

    def _receive_term(self) -> None:
        """Receives the leader's term and position, and the state if it comes from a checkpoint."""
        self._member.drop_leadership()
        raw, arrays = self._ring.receive(0)
        fields = json.loads(raw)
        if "names" in fields:
            self._load_state(fields, arrays)
            self._progress.load(fields)
            self._growth.cancel()
        self._progress.data.load(fields["data"])
        self._progress.term = fields["term"]

    def _dump_state(self) -> tuple[list[np.ndarray], protocol.Json]:
        """Returns the state and the group's progress, for other members."""
        state = self._replica.state()
        fields = {**self._progress.dump(), "extra": state.extra, "names": list(state.arrays)}
        return [np.asarray(array, order="C") for array in state.arrays.values()], fields

    def _dump(self, needs: Needs) -> tuple[list[np.ndarray], protocol.Json]:
        """Returns the arrays that other members need, and the group's progress."""
        kept = self._member.kept_step
        if needs is Needs.STATE:
            return self._dump_state()
        if needs is Needs.GRADIENT and kept is not None:
            gradient = self._member.buffer[: self._replica.size]
            return [gradient], {**self._progress.dump(), "scale": kept.scale}
        return [], self._progress.dump()

    def _load_state(self, fields: protocol.Json, arrays: Sequence[np.ndarray]) -> None:
        self._replica.load(State(dict(zip(fields["names"], arrays)), fields["extra"]))


def encode_json(body: protocol.Json) -> bytes:
    """Encodes a message to the other members."""
    return json.dumps(body, separators=(",", ":")).encode()
