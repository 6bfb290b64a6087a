"""Refusals of bodies: one line that names the field."""

from dataclasses import dataclass

import pytest
from edl_protocol.fields import Message

from runtime.call_checks import RefusedError, check_body


@dataclass(frozen=True)
class Box(Message):
    """A body."""

    size: int = 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body is not JSON"),
        (b'{"size": "x"}', "size: Input should be a valid integer"),
        (b'{"sise": 1}', "sise: no such field"),
        (b'{"x\\ny": 1}', "'x\\ny': no such field"),
    ],
)
def test_a_wrong_body_is_refused_in_one_line(body: bytes, text: str) -> None:
    """Whatever names a caller sends."""
    with pytest.raises(RefusedError) as refused:
        check_body(Box, body)

    assert str(refused.value).startswith(text)
    assert "\n" not in str(refused.value)


def test_a_name_of_megabytes_is_cut() -> None:
    """It is neither sent back nor logged whole."""
    with pytest.raises(RefusedError) as refused:
        check_body(Box, b'{"' + b"x" * 1_000_000 + b'": 1}')

    assert len(str(refused.value)) < 300
