"""What is kept of pod specs: tenants' texts fill no cache beyond its bound."""

import gc
import weakref
from typing import Any

import orjson

from kube import decode, podspec
from kube.byte_cache import MAX_TEXT_BYTES, ByteCache
from policy.admission.job_spec import MAX_CONSTRAINTS_BYTES
from policy.cluster.snapshot import ANYWHERE


def _affinity(count: int, chars: int = 10) -> dict[str, Any]:
    values = [f"{number:0{chars}}" for number in range(count)]
    expressions = [{"key": "host", "operator": "In", "values": values}]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


class _Decoder:
    """Decodes, and records what."""

    def __init__(self) -> None:
        self.decoded: list[bytes] = []
        self.cache: ByteCache[list[bytes]] = ByteCache(self._decode, 10)
        self.meanwhile: list[bytes] = []
        """Texts that other threads ask for before the next answer."""

    def _decode(self, text: bytes) -> list[bytes]:
        self.decoded.append(text)
        while self.meanwhile:
            self.cache(self.meanwhile.pop())
        return [text]


def test_a_text_is_decoded_once() -> None:
    """Thousands of pods share theirs."""
    decoder = _Decoder()

    assert decoder.cache(b"a") is decoder.cache(b"a")
    assert decoder.decoded == [b"a"]


def test_the_texts_of_a_cache_are_bounded_by_their_bytes() -> None:
    """A full one starts again; a text that two threads decode at the same time counts once."""
    decoder = _Decoder()
    for text in (b"four", b"five", b"four", b"last", b"four"):
        decoder.cache(text)
    assert decoder.decoded == [b"four", b"five", b"last", b"four"]

    decoder = _Decoder()
    decoder.meanwhile.append(b"four")
    for text in (b"four", b"five", b"four", b"five"):
        decoder.cache(text)
    assert decoder.decoded == [b"four", b"four", b"five"]


def test_constraints_are_kept_as_long_as_a_record_has_them() -> None:
    """Kilobytes of them stayed until thousands of other pods had come."""
    spec = {"affinity": _affinity(MAX_TEXT_BYTES // 10)}
    assert MAX_TEXT_BYTES < len(orjson.dumps(spec)) < MAX_CONSTRAINTS_BYTES
    constraints = podspec.constraints(spec)
    assert podspec.constraints(spec) is constraints
    ended = weakref.ref(constraints)

    del constraints
    gc.collect()

    assert ended() is None


def test_constraints_of_a_megabyte_are_not_read() -> None:
    """Of a service's pod too: comparing them with one node takes milliseconds."""
    for spec in (
        {"affinity": _affinity(80_000)},
        {"tolerations": [{"key": f"k{number}"} for number in range(200)]},
    ):
        constraints = podspec.constraints(spec)

        assert constraints is podspec.UNREAD
        assert constraints.size < 5
    assert podspec.constraints({"tolerations": []}) is ANYWHERE


def test_of_a_stored_job_with_a_large_template_nothing_large_is_kept() -> None:
    """It was created while the webhook was away: it is invalid, and says why."""
    spec = {"affinity": _affinity(80_000), "containers": []}
    job = decode.job(
        {
            "metadata": {
                "namespace": "ml",
                "name": "net",
                "uid": "1",
                "annotations": {"edl.training/min-trainers": "1", "edl.training/max-trainers": "2"},
            },
            "spec": {"template": {"spec": spec}},
        }
    )

    assert job is not None
    assert "at most 131072 are allowed" in job.error
    assert job.template == {}
    assert job.constraints is podspec.UNREAD
