"""Which of its own batches a trainer counts as lost; without servers."""

from edl.servers.push_history import PushHistory, RollbackLoss, rollback_report
from edl_protocol.master import RollbackShare
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import CALM

BATCH = st.tuples(st.integers(1, 3), st.integers(1, 2), st.booleans())
"""Numbers since the one before (batches that were left out have some), records, acknowledged."""
EVENT = BATCH | st.lists(st.integers(0, 30), min_size=1, max_size=3)
"""Or the newest numbers that servers hold after they went back."""


@CALM
@given(st.lists(EVENT, max_size=30))
def test_each_batch_that_one_server_has_not_any_more_is_lost_once(
    events: list[tuple[int, int, bool] | list[int]],
) -> None:
    """With its records; and what is on its way is named unless server 0 kept it."""
    pushes, records_by_number = PushHistory(), dict[int, int]()
    number, pending = 0, (0, 0)
    for event in events:
        if isinstance(event, tuple):
            step, records, acknowledged = event
            number += step
            pushes.begin(number, records)
            pending = (number, records)
            if acknowledged:
                pushes.acknowledge(number, records)
                records_by_number[number], pending = records, (0, 0)
            continue
        lost = {number: size for number, size in records_by_number.items() if number > min(event)}
        comes_again = pending[0] > event[0]
        expected = RollbackLoss(
            len(lost), sum(lost.values()), comes_again, pending[1] * comes_again
        )
        assert pushes.roll_back(event) == expected
        records_by_number, pending = (
            {number: size for number, size in records_by_number.items() if number not in lost},
            (0, 0),
        )


def test_a_batch_that_is_acknowledged_twice_counts_once() -> None:
    """A program of one's own may push it again."""
    pushes = PushHistory()
    for number in (1, 2, 2, 1):
        pushes.begin(number, 10)
        pushes.acknowledge(number, 10)

    assert pushes.roll_back([0]) == RollbackLoss(2, 20, 0, 0)


def test_the_master_hears_of_the_generation_that_ended() -> None:
    """With the reason that server 0 knows; without it if server 0 has restarted since."""
    lost = RollbackLoss(1, 20, 1, 20)
    share = RollbackShare("i", 1, 20, 1, 20)
    setback = {"generation": 3, "reason": "server 1 restarted", "steps": 5, "records": 100}

    assert rollback_report(3, setback, lost, "i") == (
        "generation-3",
        "server 1 restarted",
        5,
        100,
        share,
    )
    assert rollback_report(3, None, lost, "i")[2:] == (0, 0, share)
