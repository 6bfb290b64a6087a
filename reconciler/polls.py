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
from dataclasses import replace

import orjson

from kube import decode, errors, request
from kube.client import Api
from policy.names import MASTER_PORT
from reconciler import words
from reconciler.turns import Target, Turn, Turns
from reconciler.words import Word
from runtime.logs import keys

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""One question has so long, from the connection to the end of the answer."""
_ROUND_S = 0.1
_IDLE_S = 0.5
_MOST_OPEN = 32
_LONGEST_PAGE = 1 << 20
_READERS = 4
_READ_TIMEOUT_S = 5.0
_STOP_S = 3.0


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
        self._turns = Turns()
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
            for turn in self._begin(_MOST_OPEN - len(open_)):
                task = asyncio.create_task(self._ask(turn, readers))
                open_.add(task)
                task.add_done_callback(open_.discard)
            await asyncio.sleep(_ROUND_S if self._targets else _IDLE_S)
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    def _begin(self, free: int) -> list[Turn]:
        """Whose turn it is; what jobs said that are not followed any more is forgotten."""
        targets = self._targets
        with self._lock:
            for uid in self._words.keys() - targets.keys():
                del self._words[uid]
            over = {uid for uid, word in self._words.items() if word.final}
        return self._turns.begin(targets, self._monotonic_s(), free, over)

    async def _ask(self, turn: Turn, readers: ThreadPoolExecutor) -> None:
        """One question; ends without an error, whatever comes."""
        target = turn.target
        word = await self._status(target) if target.address else None
        answered = word is not None
        if word is None:
            loop = asyncio.get_running_loop()
            word = await loop.run_in_executor(readers, self._outcome, target)
        counts = self._turns.end(turn, self._monotonic_s(), answered=answered)
        if word is None or not counts:
            return
        with self._lock:
            before = self._words.get(turn.uid)
            self._words[turn.uid] = word
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
