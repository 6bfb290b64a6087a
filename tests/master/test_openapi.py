"""The description and the server agree: calls that fit it are answered as described."""

from typing import Any

import schemathesis
from hypothesis import settings
from schemathesis.config import SchemathesisConfig

from master import openapi
from tests.master.described import CALM, check

_FEW = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": False}}})
"""Random bodies; `test_openapi_limits` has one for each way in which each field can be wrong."""
_SCHEMA = schemathesis.openapi.from_dict(openapi.description(), config=_FEW)


@_SCHEMA.parametrize()
@settings(CALM, max_examples=4)
def test_every_call_is_answered_as_described(case: schemathesis.Case[Any], url: str) -> None:
    """Calls that fit the description, or almost, get only answers that it contains."""
    check(case, url)
