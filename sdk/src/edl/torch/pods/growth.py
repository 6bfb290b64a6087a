"""Growth of a round whose members are pods: each process gets its own part of the state, in parts.

The processes of one rank in their pods have a ring of their own for that. A pod lacks the state as long as
one of its processes does, so all of them begin to apply steps, and to compute, at the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

from edl.collective.transport import OnWait
from edl.errors import RoundOver
from edl.master import protocol
from edl.master.protocol import Round
from edl.overriding import override
from edl.sync.growth import Growth, Streams
from edl.sync.link import Link
from edl.sync.replica import GroupModel
from edl.sync.step_flags import StepFlags
from edl.torch.pods.pod import Pod


class PodGrowth(Growth):
    """One process's part in the growth of a round of pods."""

    _pod_lacks = _pod_saves = False

    def report(self) -> protocol.Json:
        """Returns what the other processes of this pod hear before each sum."""
        return {"lacking": not super().is_complete, "saving": self.is_saving}

    def hear(self, reports: Sequence[protocol.Json]) -> None:
        """Takes note of the reports of all processes of this pod."""
        self._pod_lacks = any(report["lacking"] for report in reports)
        self._pod_saves = any(report["saving"] for report in reports)

    @property
    @override
    def is_complete(self) -> bool:
        """Whether the whole pod has the state."""
        return super().is_complete and not self._pod_lacks

    @override
    def write_flags(self, flags: StepFlags) -> None:
        """Sets the flags of the whole pod."""
        super().write_flags(flags)
        flags.lacking = float(self._pod_lacks and not flags.leaving)
        flags.saving = float(self._pod_saves)


class LeadingGrowth(PodGrowth):
    """The growth of a pod's first process; the others begin with it."""

    def __init__(
        self,
        replica: GroupModel,
        ring: Link,
        round_: Round,
        streams: Streams | None,
        on_wait: OnWait,
        *,
        pod: Pod,
    ) -> None:
        """Makes no call.

        Args:
            replica: As in `Growth`.
            ring: As in `Growth`.
            round_: As in `Growth`.
            streams: As in `Growth`.
            on_wait: As in `Growth`.
            pod: The pod's processes.
        """
        super().__init__(replica, ring, round_, streams, on_wait)
        self._pod = pod

    @override
    def start(self) -> None:
        if not self._receivers:
            return
        self._pod.send(do="grow", receivers=sorted(self._receivers))
        try:
            super().start()
        except RoundOver:
            self._pod.news.write(self._round.number)
            self._pod.agree(ok=False)
            raise
        self._pod.check()
