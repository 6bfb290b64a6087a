"""A leader whose loop is of no use gives the lease up, and the standby plans on (decision 0028)."""

from pathlib import Path

import pytest

from e2e.environment import IsolatedNamespace
from e2e.two_reconcilers import pair
from e2e.waiting import until
from reconciler.watchdog import PATIENCE_S
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

_LEASE_S = 15.0
"""As deployed: the watchdog, not a short lease, is what ends the term."""


@pytest.mark.parametrize("fault", ["hang", "fail"])
def test_a_leader_whose_ticks_are_of_no_use_makes_way(
    namespace: IsolatedNamespace, tmp_path: Path, fault: str
) -> None:
    """The standby leads once the watchdog's patience is over, and grows a job that came meanwhile."""
    broken = tmp_path / "broken"
    first = ("-m", "e2e.faulty_reconciler", fault, str(broken))
    with pair(namespace.environment, tmp_path, first=first, lease_s=_LEASE_S) as two:
        namespace.submit("before", low=2, high=10)
        namespace.wait_running("before", 10, 30)
        broken.touch()
        begun_s = clock.monotonic_s()
        namespace.submit("after", low=2, high=10)
        until("the second leads", two.holder, lambda name: name == "second", 60)
        took_s = clock.monotonic_s() - begun_s
        namespace.wait_running("after", 10, 30)

        assert took_s > PATIENCE_S / 2, "the lease ended for another reason"
        print(f"ticks {fault}: the second leads after {took_s:.1f} s")
        for job in ("before", "after"):
            assert namespace.wait_exact(job).accounting.next_id == 10
