"""What both tests of the OpenAPI description share; Schemathesis takes a second to be imported."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.master.serving import TOKEN

CALM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def check(case: schemathesis.Case[Any], url: str) -> None:
    """Sends a call, and checks that the description contains the answer."""
    case.call_and_validate(
        base_url=url,
        headers={"Authorization": f"Bearer {TOKEN}"},
        excluded_checks=[positive_data_acceptance],  # "exactly one of three" is in words only
    )
