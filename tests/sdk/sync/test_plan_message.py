"""Plan messages are decoded as they were encoded."""

from edl.sync import plan_message
from edl.sync.plans import Plan, Span
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.sync.leases import lease, plan

LEASES = [lease(index, epoch=epoch) for index in range(4) for epoch in range(2)]
PLANS = st.lists(
    st.builds(
        Plan,
        st.text("abc-123", min_size=1, max_size=8),
        st.lists(
            st.builds(Span, st.sampled_from(LEASES), st.integers(0, 99), st.integers(1, 99)),
            max_size=5,
        ).map(tuple),
    ),
    max_size=plan_message.STEPS,
)


@given(plans=PLANS, settled=st.lists(st.text(max_size=9), max_size=5), over=st.booleans())
def test_what_was_written_is_read(plans: list[Plan], settled: list[str], *, over: bool) -> None:
    """Plans with their leases, settled tasks, and whether it is over."""
    message = plan_message.decode(plan_message.encode(plans, settled, over=over))

    assert [(plan_.name, plan_.spans) for plan_ in message.plans] == [
        (p.name, p.spans) for p in plans
    ]
    assert message.settled == tuple(settled)
    assert message.over is over


def test_a_lease_is_sent_once_however_many_steps_it_lasts() -> None:
    """A message stays small."""
    long_lease = lease(0, 1000)
    plans = [plan(f"p{i}", (long_lease, i * 100, 100)) for i in range(plan_message.STEPS)]

    assert plan_message.encode(plans, [], over=False).count(long_lease.task.encode()) == 1
