"""What the leader says is read as it was meant."""

from edl.sync import chunk
from edl.sync.shares import Plan, Span
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
    max_size=chunk.STEPS,
)


@given(plans=PLANS, settled=st.lists(st.text(max_size=9), max_size=5), over=st.booleans())
def test_what_was_written_is_read(plans: list[Plan], settled: list[str], *, over: bool) -> None:
    """Plans with their leases, settled tasks, and whether it is over."""
    found = chunk.read(chunk.write(plans, settled, over=over))

    assert [(one.name, one.spans) for one in found.plans] == [(p.name, p.spans) for p in plans]
    assert found.settled == tuple(settled)
    assert found.over is over


def test_a_lease_is_told_once_however_many_steps_it_lasts() -> None:
    """A chunk stays small."""
    one = lease(0, 1000)
    plans = [plan(f"p{i}", (one, i * 100, 100)) for i in range(chunk.STEPS)]

    assert chunk.write(plans, [], over=False).count(one.task.encode()) == 1
