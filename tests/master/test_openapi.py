"""The description and the server agree: calls that fit it are answered as described."""

from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis.strategies import one_of
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from master import openapi
from tests.master.described import CALM, check

_FEW = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": False}}})
"""Random bodies; `test_openapi_limits` has one for each way in which each field can be wrong."""
_SCHEMA = schemathesis.openapi.from_dict(openapi.description(), config=_FEW)


_OPERATIONS = [result.ok() for result in _SCHEMA.get_all_operations() if isinstance(result, Ok)]


def _modes(operation: Any) -> list[GenerationMode]:
    """Calls that fit, and those that do not, where there is anything to be wrong."""
    fits_only = operation.method == "get"
    return [GenerationMode.POSITIVE] if fits_only else list(GenerationMode)


@pytest.mark.parametrize("operation", _OPERATIONS, ids=[one.label for one in _OPERATIONS])
def test_every_call_is_answered_as_described(operation: Any, url: str) -> None:
    """Calls that fit the description, or almost, get only answers that it contains."""
    modes = [operation.as_strategy(generation_mode=mode) for mode in _modes(operation)]

    @settings(CALM, max_examples=4)
    @given(case=one_of(modes))
    def answers(case: schemathesis.Case[Any]) -> None:
        check(case, url)

    answers()
