"""The decision which member's state is the newest at a round's start."""

from dataclasses import replace

from edl.sync.agreement import Needs, StateReport, agree, is_one_step_behind
from hypothesis import given
from hypothesis import strategies as st

REPORTS = st.lists(
    st.builds(StateReport, st.just("t"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


def test_nobody_has_a_state_yet() -> None:
    """The oldest member creates the state, and all others load it, whatever they started with."""
    agreement = agree(
        [StateReport("a", lineage=1), StateReport("b", lineage=2), StateReport("c", lineage=1)]
    )

    assert (agreement.source, agreement.receivers, agreement.initial) == (
        0,
        frozenset({1, 2}),
        True,
    )


def test_newcomers_take_over_what_the_oldest_survivor_has() -> None:
    """Survivors with equal states load nothing."""
    agreement = agree([StateReport("a", 4, 9, 7), StateReport("b", 4, 9, 7), StateReport("c")])

    assert (agreement.source, agreement.receivers, agreement.initial) == (0, frozenset({2}), False)


def test_the_step_that_only_some_have_made_counts() -> None:
    """A member died in a collective call: the member ahead is the source, though not the oldest."""
    agreement = agree(
        [StateReport("a", 4, 9, 7), StateReport("b", 4, 10, 8), StateReport("c", 4, 10, 8)]
    )

    assert (agreement.source, agreement.receivers) == (1, frozenset({0}))


def test_one_that_comes_back_with_more_steps_of_an_older_term_gives_nothing() -> None:
    """The others continued without it; the steps it made alone are not part of the job."""
    agreement = agree([StateReport("a", 5, 9, 7), StateReport("b", 4, 10, 8)])

    assert (agreement.source, agreement.receivers) == (0, frozenset({1}))


def test_one_that_comes_back_with_equal_steps_of_an_older_term_takes_over_the_progress() -> None:
    """It has the model; but others have acknowledged and leased tasks without it."""
    agreement = agree([StateReport("a", 4, 9, 7), StateReport("b", 5, 9, 7)])

    assert (agreement.source, agreement.receivers) == (1, frozenset({0}))
    assert agreement.needs is Needs.PROGRESS


def test_the_model_is_sent_where_any_member_lacks_it() -> None:
    """A newcomer needs it, whatever others need."""
    reports = [StateReport("a", 5, 9, 7), StateReport("b", 4, 9, 7), StateReport("c")]

    assert agree(reports).receivers == {1, 2}
    assert agree(reports).needs is Needs.STATE
    assert agree(reports[:1]).needs is Needs.PROGRESS


def test_the_same_step_made_of_other_steps_is_another_state() -> None:
    """Such as one that was made in an earlier round, and then again by others."""
    assert agree([StateReport("a", 4, 9, 7), StateReport("b", 4, 9, 6)]).receivers == {1}


def test_a_newcomer_is_never_taken_for_one_that_has_the_state() -> None:
    """Not even if nothing was trained yet."""
    assert agree([StateReport("a", 1, 0, 0), StateReport("b", 0, 0, 0)]).receivers == {1}


@given(REPORTS)
def test_the_source_has_the_newest_state_and_only_others_need_it(
    reports: list[StateReport],
) -> None:
    """For any reports: no other is newer, and members that need nothing have exactly that state."""
    agreement = agree(reports)
    best = reports[agreement.source]

    assert agreement.source not in agreement.receivers
    assert agreement.initial == all(report.term == 0 for report in reports)
    assert (
        all((report.term, report.step) <= (best.term, best.step) for report in reports)
        or agreement.initial
    )
    for rank, report in enumerate(reports):
        if rank not in agreement.receivers and rank != agreement.source:
            assert (report.step, report.lineage) == (best.step, best.lineage)
            assert report.term == best.term


def test_one_behind_lacks_just_the_step_that_it_had_begun() -> None:
    """Its lease table equals the others' but for that step."""
    own = StateReport("a", 4, 9, 7, last_plan="p9", flight="p10")

    assert is_one_step_behind(own, StateReport("b", 4, 10, 8, last_plan="p10"))
    assert not is_one_step_behind(own, StateReport("b", 4, 11, 8, last_plan="p11"))
    assert not is_one_step_behind(own, StateReport("b", 4, 10, 8, last_plan="other"))
    assert not is_one_step_behind(StateReport("a", 4, 9, 7), StateReport("b", 4, 10, 8))


def test_who_is_one_step_behind_gets_the_gradient() -> None:
    """Not the state, if all that have made the step still have its gradient."""
    behind = StateReport("a", 4, 9, 7, last_plan="p9", flight="p10")
    ahead = StateReport("b", 4, 10, 8, last_plan="p10", before=7)
    assert agree([behind, ahead, ahead]).needs is Needs.GRADIENT
    assert agree([behind, ahead, behind]).receivers == {0, 2}
    for others in (
        [replace(ahead, before=0)],  # it has begun the next step
        [ahead, replace(ahead, before=0)],
        [replace(ahead, before=6)],
        [replace(ahead, last_plan="other")],
        [ahead, StateReport("newcomer")],
        [ahead, replace(behind, term=3)],
        [ahead, replace(ahead, term=3)],  # it has the model, but not the progress
    ):
        assert agree([behind, *others]).needs is Needs.STATE
    newcomer = StateReport("c", flight="p10")
    assert agree([newcomer, StateReport("b", 1, 1, 8, last_plan="p10")]).needs is Needs.STATE


def test_a_report_travels_as_json() -> None:
    """With every field of it."""
    report = StateReport("a", 4, 9, 7, "p9", "p10", 6)

    assert StateReport.from_json(report.json()) == report
