"""Calls for the keys of a round; some calls wait until a key is set. Runs in one asyncio loop."""

import asyncio
import base64
from collections.abc import Callable, Iterable

from edl_protocol.master import KeyAdd, KeyDelete, KeyGet, KeySet

from master.rendezvous import Rendezvous
from master.round_keys import RoundKeys
from runtime.call_checks import Json, RefusedError


class KeyCalls:
    """The keys of one job's rounds, and the calls that wait for them."""

    def __init__(self, rendezvous: Rendezvous, clock_s: Callable[[], float]) -> None:
        self._rendezvous, self._clock_s = rendezvous, clock_s
        self._keys = RoundKeys()
        self._waiting: dict[tuple[int, str], set[asyncio.Event]] = {}
        """(round, key) -> events of waiting calls. An event is set when the key is set or the round
        is over."""
        self._ended = False

    @property
    def waiting(self) -> int:
        """Number of keys that calls wait for."""
        return len(self._waiting)

    def note_round(self) -> None:
        """Follows the rendezvous; refuses calls for keys of a round that is over."""
        rendezvous = self._rendezvous
        self._keys.update(rendezvous.round, rendezvous.void, inherited=rendezvous.inherited)
        self._wake(list(self._waiting))

    async def set(self, call: KeySet) -> Json:
        """Sets a key; see the protocol."""
        try:
            value = base64.b64decode(call.value, validate=True)
        except ValueError as error:
            raise RefusedError(422, "value: value is not base64", "value") from error
        self._keys.set(call.round, (call.trainer, call.incarnation), call.key, value)
        self._wake([(call.round, call.key)])
        return {}

    async def delete(self, call: KeyDelete) -> Json:
        """Deletes keys; see the protocol."""
        self._keys.delete(call.round, (call.trainer, call.incarnation), call.keys)
        return {}

    async def add(self, call: KeyAdd) -> Json:
        """Adds to a counter; see the protocol."""
        member_id = call.trainer, call.incarnation
        total = self._keys.add(call.round, member_id, call.key, call.amount, call.call)
        self._wake([(call.round, call.key)])
        return {"value": total}

    async def get(self, call: KeyGet) -> Json:
        """Reads keys, and waits until all of them are set; see the protocol."""
        member_id, until_s = (call.trainer, call.incarnation), self._clock_s() + call.wait_s
        while True:
            values = self._keys.get(call.round, member_id, call.keys)
            missing = next((key for key in call.keys if key not in values), None)
            wait_s = until_s - self._clock_s()
            if missing is None or wait_s <= 0 or self._ended:
                break
            await self._wait((call.round, missing), wait_s)
        return {"values": {key: base64.b64encode(raw).decode() for key, raw in values.items()}}

    def end(self) -> None:
        """Answers all waiting calls; later ones do not wait."""
        self._ended = True
        self._wake(list(self._waiting))

    async def _wait(self, key: tuple[int, str], wait_s: float) -> None:
        woken = asyncio.Event()
        self._waiting.setdefault(key, set()).add(woken)
        try:
            async with asyncio.timeout(wait_s):
                await woken.wait()
        except TimeoutError:
            return
        finally:
            waiting = self._waiting.get(key, set())
            waiting.discard(woken)
            if not waiting:
                self._waiting.pop(key, None)

    def _wake(self, keys: Iterable[tuple[int, str]]) -> None:
        for key in keys:
            for woken in self._waiting.pop(key, ()):
                woken.set()
