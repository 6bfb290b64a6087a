"""Checkpoints of a job: which trainer may write the next, and which one is the newest. Pure."""

from master.commands import EndTicket, Saved
from runtime.call_checks import Json, RefusedError


class Checkpoints:
    """The newest checkpoint, and the ticket of the trainer that writes the next."""

    def __init__(self) -> None:
        self.newest: Json | None = None
        """The newest checkpoint that was written; None before the first."""
        self.versions = 0
        """The newest checkpoint version that was granted or reported."""
        self._saving: Json | None = None
        """The valid ticket with its trainer and version; None if no ticket is valid."""

    def grant(self, trainer: str, newest: int, generation: int) -> Json:
        """Lets a trainer write a checkpoint, unless another trainer is writing one.

        Args:
            trainer: The trainer.
            newest: The newest version that the trainer knows.
            generation: The master's generation. Tickets of other generations are not valid.

        Returns:
            The answer to the call, see the protocol.
        """
        saving = self._saving
        if saving is not None and saving["trainer"] != trainer:
            return {"granted": False, "ticket": "", "version": saving["version"]}
        # later tickets have greater versions, no matter which trainer uses its ticket first
        self.versions = max(self.versions, newest) + 1
        ticket = f"{generation}-{self.versions}"
        self._saving = {"trainer": trainer, "ticket": ticket, "version": self.versions}
        return {"granted": True, "ticket": ticket, "version": self.versions}

    def finish(self, report: Saved) -> Json:
        """Records whether a checkpoint was written; returns an empty answer.

        Raises:
            RefusedError: The ticket is no longer valid.
        """
        saving = self._saving
        if saving is None or saving["ticket"] != report.ticket:
            raise RefusedError(
                404,
                f"ticket {report.ticket!r:.40} is no longer valid: ask for another",
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
        """Revokes the ticket of a trainer that has left or was restarted, if it has one."""
        if self._saving is not None and self._saving["trainer"] == trainer:
            self._saving = None

    def end(self, command: EndTicket) -> Json:
        """Ends a ticket if it is still valid, so that another trainer may write a checkpoint."""
        if self.ticket == command.ticket:
            self._saving = None
        return {}

    @property
    def ticket(self) -> str:
        """The valid ticket; "" if no trainer has one."""
        return "" if self._saving is None else str(self._saving["ticket"])

    def revoke_any(self) -> None:
        """Revokes the ticket, no matter which trainer has it."""
        self._saving = None

    def dump(self) -> Json:
        """Returns the checkpoints as JSON; see `load`."""
        return {"checkpoint": self.newest, "saving": self._saving, "versions": self.versions}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.newest, self._saving = dumped["checkpoint"], dumped["saving"]
        self.versions = dumped["versions"]
