"""Checkpoints of a job: who may write the next, and which is the newest. Pure."""

from master.commands import EndTicket, Saved
from runtime.call_checks import Json, RefusedError


class Checkpoints:
    """The newest checkpoint, and the ticket of the trainer that writes the next."""

    def __init__(self) -> None:
        self.newest: Json | None = None
        """The newest checkpoint that was written; None before the first."""
        self.versions = 0
        """The newest version of a checkpoint that was granted or reported."""
        self._saving: Json | None = None
        """The ticket that is valid, its trainer and its version."""

    def grant(self, trainer: str, newest: int, generation: int) -> Json:
        """Lets a trainer write a checkpoint, unless another one does.

        Args:
            trainer: The trainer.
            newest: The newest version that it knows.
            generation: The master's generation: tickets of another one are not valid.

        Returns:
            The answer as in the protocol.
        """
        saving = self._saving
        if saving is not None and saving["trainer"] != trainer:
            return {"granted": False, "ticket": "", "version": saving["version"]}
        # later tickets have greater versions, whichever trainer asked for them and uses them when
        self.versions = max(self.versions, newest) + 1
        ticket = f"{generation}-{self.versions}"
        self._saving = {"trainer": trainer, "ticket": ticket, "version": self.versions}
        return {"granted": True, "ticket": ticket, "version": self.versions}

    def finish(self, report: Saved) -> Json:
        """Records how the writing of a checkpoint ended; the answer has nothing.

        Raises:
            RefusedError: Its ticket is not valid any more.
        """
        saving = self._saving
        if saving is None or saving["ticket"] != report.ticket:
            raise RefusedError(
                404,
                f"ticket {report.ticket!r:.40} is not valid any more: ask for another",
                "ticket",
            )
        self._saving = None
        if report.ok:
            self.newest = {
                "version": saving["version"],
                "by": saving["trainer"],
                "path": report.path,
                "step": report.step,
            }
        return {}

    def revoke(self, trainer: str) -> None:
        """Revokes the ticket of a trainer, if it has one: it will not write the checkpoint."""
        if self._saving is not None and self._saving["trainer"] == trainer:
            self._saving = None

    def end(self, command: EndTicket) -> Json:
        """Ends a ticket, if it is still the valid one: another trainer may write a checkpoint."""
        if self.ticket == command.ticket:
            self._saving = None
        return {}

    @property
    def ticket(self) -> str:
        """The ticket that is valid; "" for none."""
        return "" if self._saving is None else str(self._saving["ticket"])

    def revoke_any(self) -> None:
        """Revokes the ticket, whichever trainer has it."""
        self._saving = None

    def dump(self) -> Json:
        """The checkpoints as JSON; see `load`."""
        return {"checkpoint": self.newest, "saving": self._saving, "versions": self.versions}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.newest, self._saving = dumped["checkpoint"], dumped["saving"]
        self.versions = dumped["versions"]
