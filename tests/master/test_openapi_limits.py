"""Each field of each call, at and beyond each of its limits: 1 400 calls, for `make soak` only.

Schemathesis makes them while its plugin collects this file, which `make test` lacks (tests/master/conftest).
"""

from typing import Any

import pytest
import schemathesis
from hypothesis import settings

from master import openapi
from tests.master.described import CALM, check

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

_WHOLE = schemathesis.openapi.from_dict(openapi.description())


@_WHOLE.parametrize()
@settings(CALM, max_examples=10)
def test_whatever_is_wrong_in_a_call_is_answered_as_described(
    case: schemathesis.Case[Any], url: str
) -> None:
    """Each field is at and beyond each of its limits, of another type, or missing."""
    check(case, url)
