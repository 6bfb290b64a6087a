"""The description and the server agree: calls that fit it are answered as described."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import one_of

from master import openapi

_OPERATIONS = [
    f"{method.upper()} {path}"
    for path, item in openapi.description()["paths"].items()
    for method in item
]


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """Schemathesis' operations by their labels, with random bodies.

    `test_openapi_limits` has one body for each way in which each field can be wrong. The import
    takes a second: it is not for each process that collects this file.
    """
    import schemathesis  # noqa: PLC0415 - see above
    from schemathesis.config import SchemathesisConfig  # noqa: PLC0415 - see above
    from schemathesis.core.result import Ok  # noqa: PLC0415 - see above

    few = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": False}}})
    schema = schemathesis.openapi.from_dict(openapi.description(), config=few)
    results = [result for result in schema.get_all_operations() if isinstance(result, Ok)]
    return {result.ok().label: result.ok() for result in results}


def test_schemathesis_knows_every_operation(operations: dict[str, Any]) -> None:
    """No part of the description is left out."""
    assert sorted(operations) == sorted(_OPERATIONS)


def test_what_stands_in_a_path_is_required() -> None:
    """OpenAPI asks for that; generators of clients refuse other descriptions."""
    parameters = [
        parameter
        for item in openapi.description()["paths"].values()
        for operation in item.values()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "path"
    ]
    assert parameters
    assert all(parameter["required"] is True for parameter in parameters)


@pytest.mark.parametrize("label", _OPERATIONS)
def test_every_call_is_answered_as_described(
    operations: dict[str, Any], label: str, url: str
) -> None:
    """Calls that fit the description, or almost, get only answers that it contains."""
    from schemathesis.generation import GenerationMode  # noqa: PLC0415 - as above

    from tests.master.described import CALM, check  # noqa: PLC0415 - as above

    operation = operations[label]
    fits_only = operation.method == "get"  # there is nothing to be wrong
    modes = [GenerationMode.POSITIVE] if fits_only else list(GenerationMode)

    @settings(CALM, max_examples=4)
    @given(case=one_of([operation.as_strategy(generation_mode=mode) for mode in modes]))
    def answers(case: Any) -> None:
        check(case, url)

    answers()
