"""The start of a round: all members come to the same state, and that of rank 0 leads."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import numpy as np

from edl.collective import Ring
from edl.errors import RoundOver
from edl.master import protocol
from edl.master.protocol import Round
from edl.sync.agreement import Agreement, StateReport, agree, digest, is_one_step_behind
from edl.sync.fallback import fall_back, load_newest_checkpoint, report_rollback
from edl.sync.group_member import GroupMember
from edl.sync.replica import State

log = logging.getLogger("edl")


class RoundStart:
    """One member's part in what precedes the first step of a round."""

    def __init__(self, member: GroupMember, ring: Ring, round_: Round) -> None:
        self._member, self._ring, self._round = member, ring, round_
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

    def _agree_on_state(self) -> None:
        progress, name = self._progress, self._round.members[self._round.rank].trainer
        own = progress.state_report(name, digest(self._replica.state()) if progress.term else 0)
        payloads = self._ring.gather(encode_json(own.json()))
        reports = [StateReport.from_json(json.loads(payload)) for payload in payloads]
        agreement = agree(reports)
        if agreement.initial and self._round.rank == agreement.source:
            load_newest_checkpoint(self._member)
        if agreement.receivers:
            self._transfer_state(agreement, own, reports[agreement.source])
        self._ring.barrier()

    def _transfer_state(self, agreement: Agreement, own: StateReport, chosen: StateReport) -> None:
        """Broadcasts the source's progress and, if needed, model; receivers load what is sent."""
        if self._round.rank == agreement.source:
            arrays, about = self._dump_state() if agreement.model_needed else self._dump_progress()
            self._ring.broadcast(arrays, encode_json(about), agreement.source)
            return
        raw, arrays = self._ring.receive(agreement.source)
        if self._round.rank not in agreement.receivers:
            return
        about = json.loads(raw)
        if agreement.model_needed:
            self._load_state(about, arrays)
        if self._member.leader is not None and is_one_step_behind(own, chosen):
            # the leader's lease table is newer than that of the source
            self._progress.advance(about["metrics"])
            self._progress.load_position(about)
        else:
            self._member.drop_leadership()
            self._progress.load(about)
        self._progress.term = chosen.term
        log.info("took the state of step %d over from %s", self._progress.step, chosen.trainer)

    def _start_term(self) -> None:
        """Begins a term as leader.

        If the state lacks acknowledged records, all members continue from a checkpoint, or from
        their own state and report the loss.
        """
        member, from_checkpoint = self._member, False
        if not member.start_term(self._progress.term):
            fallback = fall_back(member, [entry.trainer for entry in self._round.members])
            from_checkpoint = fallback.from_checkpoint
            if not member.start_term(fallback.term):
                raise RoundOver("others train on")
            report_rollback(member, fallback)
        if self._round.world_size > 1:
            arrays, about = self._dump_state() if from_checkpoint else ([], {})
            self._ring.broadcast(arrays, encode_json({**about, "term": self._progress.term}), 0)

    def _receive_term(self) -> None:
        """Receives the term from the leader, and the checkpoint's state if there is one."""
        self._member.drop_leadership()
        raw, arrays = self._ring.receive(0)
        about = json.loads(raw)
        if "names" in about:
            self._load_state(about, arrays)
            self._progress.load(about)
        self._progress.term = about["term"]

    def _dump_state(self) -> tuple[list[np.ndarray], protocol.Json]:
        """Returns the state and the group's progress, for other members."""
        state = self._replica.state()
        about = {**self._progress.dump(), "extra": state.extra, "names": list(state.arrays)}
        return [np.asarray(array, order="C") for array in state.arrays.values()], about

    def _dump_progress(self) -> tuple[list[np.ndarray], protocol.Json]:
        """Returns the group's progress, for members that have the model."""
        return [], self._progress.dump()

    def _load_state(self, about: protocol.Json, arrays: Sequence[np.ndarray]) -> None:
        self._replica.load(State(dict(zip(about["names"], arrays)), about["extra"]))


def encode_json(body: protocol.Json) -> bytes:
    """Encodes a message to the other members."""
    return json.dumps(body, separators=(",", ":")).encode()
