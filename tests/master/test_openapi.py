"""The description and the server agree: whatever fits the one, the other answers as described."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from master import openapi
from tests.master.serving import TOKEN, Served

_SCHEMA = schemathesis.openapi.from_dict(openapi.description())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master that takes whatever comes."""
    served = Served(tmp_path_factory.mktemp("openapi"), heartbeat_s=60.0)
    yield f"http://127.0.0.1:{served.port}"
    served.stop()


@_SCHEMA.parametrize()
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_call_is_answered_as_described(case: schemathesis.Case[Any], url: str) -> None:
    """No call that fits the description, or just not, ends in an answer that is not in it."""
    case.call_and_validate(
        base_url=url,
        headers={"Authorization": f"Bearer {TOKEN}"},
        excluded_checks=[positive_data_acceptance],  # "exactly one of three" is in words only
    )
