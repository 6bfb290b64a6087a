"""The description and the server agree: whatever fits the one, the other answers as described."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from master import openapi
from tests.master.serving import TOKEN, Served

_FEW = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": False}}})
"""Random bodies, but not one for each way in which each field can be wrong: those are 1 400."""
_SCHEMA = schemathesis.openapi.from_dict(openapi.description(), config=_FEW)
_WHOLE = schemathesis.openapi.from_dict(openapi.description())
_CALM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master that takes whatever comes."""
    served = Served(tmp_path_factory.mktemp("openapi"), heartbeat_s=60.0)
    yield f"http://127.0.0.1:{served.port}"
    served.stop()


def _check(case: schemathesis.Case[Any], url: str) -> None:
    case.call_and_validate(
        base_url=url,
        headers={"Authorization": f"Bearer {TOKEN}"},
        excluded_checks=[positive_data_acceptance],  # "exactly one of three" is in words only
    )


@_SCHEMA.parametrize()
@settings(_CALM, max_examples=4)
def test_every_call_is_answered_as_described(case: schemathesis.Case[Any], url: str) -> None:
    """No call that fits the description, or just not, ends in an answer that is not in it."""
    _check(case, url)


@pytest.mark.soak
@pytest.mark.timeout(300)
@_WHOLE.parametrize()
@settings(_CALM, max_examples=10)
def test_whatever_is_wrong_in_a_call_is_answered_as_described(
    case: schemathesis.Case[Any], url: str
) -> None:
    """Each field is at and beyond each of its limits, of another type, or not there."""
    _check(case, url)
