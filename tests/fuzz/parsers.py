"""Fuzz targets of all that reads bytes and documents from elsewhere: only documented errors."""

import io
import json
import pickle
import tempfile
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson
import yaml
from edl import CheckpointError, DataError, RecordError, Unavailable, json_text, records
from edl.collective import bundle, close_message, handshake
from edl.data.checkpoints import read_checkpoint
from edl.errors import RoundOver
from edl.master import protocol as answers
from edl.model.npz_files import read_arrays as read_npz
from edl.model.pickled_arrays import read_arrays as read_pickle
from edl.servers import frames as sdk_frames
from edl_protocol import master as protocol
from edl_protocol.frames import FrameError
from pydantic import ValidationError

from extender import wire as extender_wire
from kube import decode
from master import fence, journal
from master.protocol import check
from policy import quantity
from policy.cluster import trainer_accounting
from policy.document import parser as document
from policy.document.model import Policy
from policy.errors import DocumentError, QuantityError
from policy.priority_classes import EDL_CLASSES
from pserver import frames
from runtime.call_checks import RefusedError
from tests.extender.vectors import sent
from tests.fuzz import hostile
from tests.fuzz.mutations import mutate_bytes, mutate_json
from tests.webhook.vectors import NAMES, review
from webhook import review as reviews

_POLICY = """
admission: {order: strictFifo}
reserve: {maxLoad: {cpu: 0.97, memory: 0.9}}
quotas:
- namespaces: [ml]
  requests: {cpu: "10", memory: 20Gi}
protectedNamespaces: [kube-system]
"""
_SUMMARY = '{"next":12,"open":"0-3,7","failed":2,"failuresInRow":1,"lastFailure":1.5e9,"fatal":"x"}'


def policy_document(random: Random) -> None:
    """A document is a policy or a `DocumentError`."""
    text = mutate_bytes(random, _POLICY.encode()).decode(errors="replace")
    if random.random() < 0.5:
        text = yaml.safe_dump(mutate_json(random, yaml.safe_load(_POLICY)))[:80_000]
    with suppress(DocumentError):
        document.parse(text)


def quantities(random: Random) -> None:
    """A text is a number or a `QuantityError`, and its notation means the same number."""
    text = "".join(random.choices("0123456789.eE+-mkKMGTPiun \u0661", k=random.randint(0, 12)))
    with suppress(QuantityError):
        amount = quantity.parse("memory", text)
        assert quantity.parse("memory", quantity.show("memory", amount)) == amount


def accounting(random: Random) -> None:
    """Any annotation is an accounting, and what is written of it is read as it was written."""
    raw = mutate_bytes(random, _SUMMARY.encode()).decode(errors="replace")
    text = random.choice((raw, json.dumps(mutate_json(random, json.loads(_SUMMARY)))))
    written = trainer_accounting.serialize(trainer_accounting.parse(text))
    assert trainer_accounting.serialize(trainer_accounting.parse(written)) == written


def admission_reviews(random: Random) -> None:
    """A review is answered, or a `WireError`."""
    body = mutate_json(random, _recorded_review(random.choice(NAMES)))
    context = reviews.AdmissionContext(Policy(), EDL_CLASSES)
    with suppress(reviews.ReviewError):
        request = reviews.read(body)
        for act in (reviews.mutate, reviews.validate):
            orjson.dumps(reviews.to_json(act(request, context)))


def extender_calls(random: Random) -> None:
    """Arguments are read and their pod is decoded, or an error that the extender answers with 400."""
    name = random.choice(("filter", "prioritize", "preempt"))
    body = mutate_json(random, sent(name))
    with suppress(ValidationError, KeyError, TypeError, ValueError, AttributeError):
        if name == "preempt":
            decode.pod(extender_wire.PreemptionArgs.model_validate(body).pod)
        else:
            decode.pod(extender_wire.ExtenderArgs.model_validate(body).pod)


def master_calls(random: Random) -> None:
    """A body is a call, or a `RefusedError` that names a field."""
    kind, body = random.choice(_CALLS)
    raw = _dump(mutate_json(random, body))
    with suppress(RefusedError):
        check(kind, mutate_bytes(random, raw) if random.random() < 0.3 else raw)


def master_answers(random: Random) -> None:
    """An answer is understood, or no answer at all."""
    parse, body = random.choice(_ANSWERS)
    changed = mutate_json(random, body)
    with suppress(Unavailable):
        parse(changed if isinstance(changed, dict) else {})


def json_texts(random: Random) -> None:
    """A text is JSON, or a `ValueError`."""
    with suppress(ValueError):
        json_text.loads(mutate_bytes(random, _dump(hostile_value(random))))


def hostile_value(random: Random) -> Any:
    """A value with odd parts."""
    return mutate_json(random, {"a": [1, 2.5, {"b": None}], "c": random.choice(hostile.QUANTITIES)})


def array_frames(random: Random) -> None:
    """Bytes are a frame for the servers and for the SDK, or a `FrameError` for both."""
    data = mutate_bytes(random, _frame())
    for library in (frames, sdk_frames):
        with suppress(FrameError):
            library.decode(data)


def snapshots(random: Random) -> None:
    """A ConfigMap's text and a journal's lines are states, or the documented errors."""
    with suppress(ValueError, zlib.error):
        fence.unpack(
            mutate_bytes(random, fence.pack({"version": 1, "job": "x"}).encode()).decode("latin1")
        )
    journal._lines(mutate_bytes(random, journal.line({"do": "join"}) * 3))  # noqa: SLF001 - the reader of files


def ring_messages(random: Random) -> None:
    """A hello, a proof, a reason or a broadcast is understood, or ends the handshake or the round."""
    position = handshake.RoundPosition(7, 1, 3)
    hello = handshake.pack_hello(position, bytes(16))
    raw = mutate_bytes(random, hello).ljust(len(hello), b"x")[: len(hello)]
    with suppress(handshake.HandshakeError):
        handshake.unpack_hello(raw)
    script = handshake.initiate(position, b"key", bytes(16))
    step = next(script)
    with suppress(handshake.HandshakeError, StopIteration):
        script.send(random.randbytes(step.receive_bytes))
    close_message.unpack(
        mutate_bytes(
            random, close_message.CloseMessage(close_message.CloseCode.FAILED, 3, "x" * 40).pack()
        )
    )
    _broadcast(random)


def _broadcast(random: Random) -> None:
    spec = mutate_bytes(random, b'[["<f4", [2, 3]], ["<i8", [4]]]')
    received = bundle.ReceivedBroadcast().inbound(deque(), last=True)
    next(received)[:] = len(spec).to_bytes(8, "big") + bytes(8)
    with suppress(RoundOver, StopIteration):
        view = next(received)
        view[:] = spec
        for _ in range(20):
            view = next(received)


def data_files(random: Random) -> None:
    """Record files, `.npz` files and pickled arrays are read, or a `DataError`."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "file"
        path.write_bytes(mutate_bytes(random, _record_file()))
        with suppress(DataError), records.Reader(path) as reader:
            for number in range(min(len(reader), 50)):
                with suppress(RecordError):
                    _ = reader[number]
        path.write_bytes(mutate_bytes(random, _npz()))
        with suppress(DataError):
            read_npz(path)
        path.write_bytes(mutate_bytes(random, _pickle()))
        with suppress(CheckpointError):
            read_pickle(path)


def checkpoints(random: Random) -> None:
    """A folder is a checkpoint, or a `CheckpointError`."""
    manifest = {
        "format": 1,
        "version": 3,
        "step": 7,
        "progress": {"train": {"done_records": 8}},
        "files": [
            {
                "name": "a",
                "bytes": 1,
                "sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
            }
        ],
    }
    raw = _dump(mutate_json(random, manifest))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a").write_text("a")
        (Path(name) / "manifest.json").write_bytes(
            raw if random.random() < 0.7 else mutate_bytes(random, raw)
        )
        with suppress(CheckpointError):
            read_checkpoint(name)


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode(errors="surrogatepass")


@cache
def _recorded_review(name: str) -> Any:
    return review(name)


@cache
def _frame() -> bytes:
    arrays: Any = {"dense": np.arange(6, dtype=np.float32), "ids.0": np.arange(4, dtype=np.int64)}
    return b"".join(frames.encode({"trainer": "t"}, arrays))


@cache
def _record_file() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.rec"
        with records.Writer(path) as writer:
            for size in (0, 3, 40):
                writer.write(b"x" * size)
        return path.read_bytes()


@cache
def _npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(40), y=np.zeros((40, 2), np.float32))
    return file.getvalue()


@cache
def _pickle() -> bytes:
    return pickle.dumps({"w": np.ones((2, 3), np.float32), "b": np.zeros(3)}, protocol=4)


_WHO = {"trainer": "trainer-0", "incarnation": "abc"}
_TASK = {"task": "train/0/1", "attempt": 1}
_CALLS: tuple[tuple[Any, Any], ...] = (
    (protocol.JoinRequest, {**_WHO, "done": [_TASK], "held": [_TASK]}),
    (
        protocol.WorkRequest,
        {
            **_WHO,
            "done": [{**_TASK, "records": 4, "steps": 1, "metrics": {"loss": 0.5}}],
            "failed": [{**_TASK, "error": "e", "transient": True}],
            "back": [{**_TASK, "trained": 3}],
            "want": 2,
            "wait_s": 1.0,
            "kinds": ["training"],
            "datasets": ["train"],
            "call": 3,
        },
    ),
    (protocol.HeartbeatRequest, {**_WHO, "held": [{**_TASK, "trained": 3}]}),
    (protocol.DatasetDescription, {"files": [{"name": "a", "records": 3}], "task_records": 2}),
    (protocol.RendezvousPoll, {**_WHO, "address": "a:1", "round": 3, "wait_s": 0.5}),
    (protocol.RollbackReport, {**_WHO, "event": "e", "reason": "r", "steps": 1}),
)
_LEASE = {
    **_TASK,
    "kind": "training",
    "dataset": "train",
    "epoch": 0,
    "start": 0,
    "end": 4,
    "file": "a",
    "lease_s": 120.0,
}
_ANSWERS: tuple[tuple[Callable[[Any], object], Any], ...] = (
    (
        answers.parse_join,
        {"job": "j", "heartbeat_s": 2.0, "state": "work", "lost": ["a"], "term": 1},
    ),
    (
        answers.parse_work,
        {"results": ["accepted"], "tasks": [_LEASE], "state": "work", "again_s": 0.2, "safe": 4},
    ),
    (answers.parse_heartbeat, {"lost": [], "state": "work"}),
    (answers.parse_ticket, {"granted": True, "ticket": "1-2", "version": 2}),
    (
        answers.parse_round,
        {
            "round": 3,
            "members": [{"trainer": "a", "incarnation": "b", "address": "c:1"}],
            "formed": True,
            "probe": 1,
            "void": 0,
        },
    ),
)
