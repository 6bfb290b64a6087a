"""Asks masters how their jobs stand, beside the loop and never in its way.

One thread with an event loop of its own: each question has one second in all, whatever the pod at
the other end does, so masters that are dead, slow or hostile cost their own job's news alone.
Where nobody answers, the ConfigMap that the job's masters write to may hold the final word.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import orjson

from kube import decode, errors, request
from kube.client import Api
from policy.names import MASTER_PORT
from reconciler import words
from reconciler.words import Word
from runtime.logs import keys

log = logging.getLogger(__name__)

EVERY_S = 2.0
"""One job is asked at most this often."""
TIMEOUT_S = 1.0
LAST_PAUSE_S = 30.0
"""The longest wait between two questions to a master that does not answer."""
_ROUND_S = 0.1
_IDLE_S = 0.5
_MOST_STARTED = 10
"""Questions begun in one round: at most 100 a second in all."""
_MOST_OPEN = 32
_LONGEST_PAGE = 1 << 20
_READERS = 4
_READ_TIMEOUT_S = 5.0
_STOP_S = 3.0


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask. One that differs from the one before is asked at once."""

    namespace: str
    config_map: str
    address: str
    """IP address of the pod that carries the master; "" where none does."""
    token: str
    turn: int = 0
    """Grows whenever news is expected."""

    def __repr__(self) -> str:
        """Without the token, which must not get into logs."""
        return f"Target({self.namespace}/{self.config_map} at {self.address!r})"


@dataclass(slots=True)
class _Turn:
    """When a job is asked next."""

    target: Target
    at_s: float = 0.0
    pause_s: float = EVERY_S
    open: bool = False


class Polls:
    """`follow` and `words` are for the loop's thread; everything else happens on its own."""

    def __init__(
        self,
        api: Api,
        *,
        changed: Callable[[], None],
        clock_s: Callable[[], float],
        monotonic_s: Callable[[], float],
        port: int = MASTER_PORT,
    ) -> None:
        """Starts nothing.

        Args:
            api: Where ConfigMaps are read.
            changed: Called, on another thread, when a job turns out to be over, or to be led by
                another trainer.
            clock_s: Seconds since the epoch, for words.
            monotonic_s: What turns go by.
            port: Where masters listen.
        """
        self._api = api
        self._changed = changed
        self._clock_s = clock_s
        self._monotonic_s = monotonic_s
        self._port = port
        self._targets: Mapping[str, Target] = {}
        self._turns: dict[str, _Turn] = {}
        self._words: dict[str, Word] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="masters", daemon=True)

    def start(self) -> None:
        """Begins to ask; once only."""
        self._thread.start()

    def stop(self) -> None:
        """Ends, within about the time of one question."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def follow(self, targets: Mapping[str, Target]) -> None:
        """Job uid -> whom to ask from now on; what others said is forgotten."""
        self._targets = dict(targets)

    def words(self) -> dict[str, Word]:
        """Job uid -> the newest word of its master."""
        with self._lock:
            return dict(self._words)

    def _run(self) -> None:
        with ThreadPoolExecutor(_READERS, thread_name_prefix="outcomes") as readers:
            asyncio.run(self._rounds(readers))

    async def _rounds(self, readers: ThreadPoolExecutor) -> None:
        open_: set[asyncio.Task[None]] = set()
        while not self._stopping.is_set():
            for uid, turn in self._due(_MOST_OPEN - len(open_)):
                turn.open = True
                task = asyncio.create_task(self._ask(uid, turn, readers))
                open_.add(task)
                task.add_done_callback(open_.discard)
            await asyncio.sleep(_ROUND_S if self._targets else _IDLE_S)
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    def _due(self, free: int) -> list[tuple[str, _Turn]]:
        """Whose turn it is, those that have waited longest first."""
        targets, now_s = self._targets, self._monotonic_s()
        for uid in self._turns.keys() - targets.keys():
            del self._turns[uid]
            with self._lock:
                self._words.pop(uid, None)
        for uid, target in targets.items():
            turn = self._turns.get(uid)
            if turn is None or turn.target != target:
                self._turns[uid] = _Turn(target, now_s)
        due = [
            (uid, turn)
            for uid, turn in self._turns.items()
            if turn.at_s <= now_s and not turn.open and not self._over(uid)
        ]
        due.sort(key=lambda pair: pair[1].at_s)
        return due[: max(0, min(_MOST_STARTED, free))]

    def _over(self, uid: str) -> bool:
        """A final word is not asked for twice."""
        word = self._words.get(uid)
        return word is not None and word.final

    async def _ask(self, uid: str, turn: _Turn, readers: ThreadPoolExecutor) -> None:
        """One question; ends without an error, whatever comes."""
        target = turn.target
        word = await self._status(target) if target.address else None
        turn.pause_s = EVERY_S if word is not None else min(LAST_PAUSE_S, turn.pause_s * 2)
        if word is None:
            loop = asyncio.get_running_loop()
            word = await loop.run_in_executor(readers, self._outcome, target)
        turn.at_s = self._monotonic_s() + turn.pause_s
        turn.open = False
        if word is None or self._turns.get(uid) is not turn:
            return
        with self._lock:
            before = self._words.get(uid)
            self._words[uid] = word
        if word.final or (before.leader if before is not None else None) != word.leader:
            self._changed()

    async def _status(self, target: Target) -> Word | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                body = await _get(target.address, self._port, target.token)
        except (OSError, TimeoutError, ValueError, EOFError) as error:
            log.debug("master does not answer", extra=keys(target=repr(target), error=str(error)))
            return None
        return words.of_status(body, self._clock_s())

    def _outcome(self, target: Target) -> Word | None:
        """On a reader's thread."""
        asked = request.get(request.CONFIGMAPS, target.namespace, target.config_map)
        try:
            answer = self._api.send(replace(asked, timeout_s=_READ_TIMEOUT_S))
        except errors.KubeError as error:
            log.debug("outcome not read", extra=keys(target=repr(target), error=str(error)))
            return None
        return words.of_outcome(decode.configmap(orjson.loads(answer)).data, self._clock_s())


async def _get(address: str, port: int, token: str) -> bytes:
    """The body of a 200 to GET /v1/status.

    HTTP/1.0, so that the body ends with the connection and is never in chunks.

    Raises:
        ValueError: another answer, or more than a page.
        OSError: no connection, or it broke.
    """
    reader, writer = await asyncio.open_connection(address, port, limit=_LONGEST_PAGE)
    try:
        host = f"[{address}]" if ":" in address else address
        head = f"GET /v1/status HTTP/1.0\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}"
        writer.write(f"{head}\r\nAccept: application/json\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        answer = await _read(reader)
    finally:
        writer.close()
    head_end = answer.find(b"\r\n\r\n")
    if head_end < 0 or answer.split(None, 2)[1:2] != [b"200"]:
        raise ValueError(f"answered {answer[:40]!r}")
    return answer[head_end + 4 :]


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end of the connection."""
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _LONGEST_PAGE:
            raise ValueError(f"more than {_LONGEST_PAGE} bytes")
    return b"".join(parts)
