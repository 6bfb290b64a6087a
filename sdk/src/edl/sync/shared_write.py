"""Coordinates members that write a checkpoint together, through the round's keys at the master.

The leader announces the folder, each member reports its part, and the leader reports the end. All
waits end with the round, so a checkpoint that lacks a part is never completed.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence

from edl.errors import CheckpointError, EdlError, Refused, one_line
from edl.master import protocol
from edl.master.client import Client
from edl.master.round_store import RoundStore

_WAIT_S = 600.0
"""How long members wait for each other while the round continues."""
_PLAIN_BYTES = 1 << 12
"""Longer results are compressed, because that of a model with many tensors would exceed the size
limit of a value."""


class SharedWrite:
    """One member's part in writing one checkpoint."""

    def __init__(
        self,
        name: str,
        rank: int,
        count: int,
        *,
        step: int,
        client: Client | None,
        round_number: int,
        is_last: bool = False,
    ) -> None:
        """Makes no call.

        Args:
            name: This trainer's name.
            rank: This member's rank; 0 leads, and ranks from `count` on write nothing.
            count: Number of members that write.
            step: Step of the checkpoint.
            client: A separate connection, closed here; None if one member writes alone.
            round_number: Number of the round.
            is_last: Whether this is the run's last checkpoint; an earlier checkpoint may have the
                same step.
        """
        self._name, self.rank, self.count = name, rank, count
        self._client = client
        self._keys = None if client is None else RoundStore(client, round_number)
        # if an earlier checkpoint of this step had the same keys, a member would write into its folder
        self._prefix = f"checkpoint/{step}/last" if is_last else f"checkpoint/{step}"
        self._part_keys = [f"{self._prefix}/{rank}" for rank in range(1, count)]
        self._is_last = is_last
        self._is_announced = self._is_reported = False

    @property
    def keys(self) -> list[str]:
        """The keys of this checkpoint; unused once all members have reported a later checkpoint."""
        return [self._prefix, *self._part_keys]

    def announce(self, folder: str) -> None:
        """Tells the other members to write into this folder; "" tells them to write nothing."""
        self._is_announced = True
        if self._keys is not None:
            self._keys.set(self._prefix, folder.encode())

    def announced(self) -> str:
        """Waits for the folder and returns its name; "" if this member writes nothing.

        Raises:
            RoundOver: The round is over.
        """
        if self._keys is None or self.rank >= self.count:
            return ""
        folder = self._keys.get(self._prefix, _WAIT_S).decode()
        if "/" in folder or folder in (".", ".."):
            raise CheckpointError(
                f"the leader names {folder!r:.80}, which is not a folder of checkpoints"
            )
        self._is_reported = not folder  # the leader does not wait for this part
        return folder

    def fail(self, reason: str) -> None:
        """Reports why this member has not written its part.

        Raises:
            RoundOver: The round is over.
        """
        self.report({"error": f"{self._name} {reason}"})

    def report(self, result: protocol.Json) -> None:
        """Reports that this member has written its part.

        Raises:
            RoundOver: The round is over.
        """
        self._is_reported = True
        if self._keys is not None:
            self._keys.set(f"{self._prefix}/{self.rank}", _encode(result))

    def gather(self, own: protocol.Json, left_out: Sequence[str] = ()) -> list[protocol.Json]:
        """Waits for all members' parts; returns their results in order of rank.

        Deletes the keys of this checkpoint and of skipped ones: a round may have thousands of
        checkpoints, but can hold only some thousands of keys.

        Args:
            own: The result of the leader's own part.
            left_out: Keys of the checkpoints that the leader has skipped since the last written
                checkpoint.

        Raises:
            CheckpointError: A member could not write its part.
            RoundOver: The round is over.
        """
        if self._keys is None:
            return [own]
        values = self._keys.get_all(self._part_keys, _WAIT_S)
        try:
            self._keys.delete([*left_out, *self.keys])
        except Refused:  # an older master cannot delete keys: free their values
            for key in self._part_keys:
                self._keys.set(key, b"")
        results = [own, *(_decode(values[key]) for key in self._part_keys)]
        errors = [result["error"] for result in results if "error" in result]
        if errors:
            raise CheckpointError("; ".join(errors))
        return results

    def wait_for_end(self) -> None:
        """Waits until the leader has completed the checkpoint or failed.

        Raises:
            RoundOver: The round is over.
        """
        if self._keys is not None:
            self._keys.wait([f"{self._prefix}/end"], _WAIT_S)

    def close(self) -> None:
        """Sets the keys that the others may still wait for, and closes the connection."""
        if self._client is None or self._keys is None:
            return
        with contextlib.suppress(EdlError):
            if self.rank == 0:
                if not self._is_announced:
                    self.announce("")
                if self._is_last:  # members wait only for the end of the last checkpoint
                    self._keys.set(f"{self._prefix}/end", b"")
            elif not self._is_reported:
                self.fail("was still writing the previous one")
        self._client.close()


def _encode(result: protocol.Json) -> bytes:
    raw = json.dumps(result).encode()
    return raw if len(raw) <= _PLAIN_BYTES else zlib.compress(raw)


def _decode(raw: bytes) -> protocol.Json:
    """Decodes a result that `_encode` returned.

    Raises:
        CheckpointError: `raw` is not a result.
    """
    try:
        result: protocol.Json = json.loads(raw if raw.startswith(b"{") else zlib.decompress(raw))
    except (ValueError, zlib.error) as error:
        raise CheckpointError(
            f"a member reports a part that cannot be read: {one_line(error)}"
        ) from error
    return result
