"""Whose state counts at a round's start."""

from edl.sync.agreement import Hello, agree, one_behind
from hypothesis import given
from hypothesis import strategies as st

HELLOS = st.lists(
    st.builds(Hello, st.just("t"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


def test_nobody_has_a_state_yet() -> None:
    """The oldest makes it, and all others take it over, whatever they were made with."""
    found = agree([Hello("a", digest=1), Hello("b", digest=2), Hello("c", digest=1)])

    assert (found.source, found.needy, found.fresh) == (0, frozenset({1, 2}), True)


def test_newcomers_take_over_what_the_oldest_survivor_has() -> None:
    """Survivors that are alike need nothing."""
    found = agree([Hello("a", 4, 9, 7), Hello("b", 4, 9, 7), Hello("c")])

    assert (found.source, found.needy, found.fresh) == (0, frozenset({2}), False)


def test_the_step_that_only_some_have_made_counts() -> None:
    """A member died in the exchange: who is ahead gives, though it is not the oldest."""
    found = agree([Hello("a", 4, 9, 7), Hello("b", 4, 10, 8), Hello("c", 4, 10, 8)])

    assert (found.source, found.needy) == (1, frozenset({0}))


def test_one_that_comes_back_with_more_steps_of_an_older_term_gives_nothing() -> None:
    """The others have gone on without it; what it had made alone is no part of the job."""
    found = agree([Hello("a", 5, 9, 7), Hello("b", 4, 10, 8)])

    assert (found.source, found.needy) == (0, frozenset({1}))


def test_the_same_step_with_other_bits_is_another_state() -> None:
    """A state is known by its checksum."""
    assert agree([Hello("a", 4, 9, 7), Hello("b", 4, 9, 6)]).needy == {1}


def test_a_newcomer_is_never_taken_for_one_that_has_the_state() -> None:
    """Not even if nothing was trained yet."""
    assert agree([Hello("a", 1, 0, 0), Hello("b", 0, 0, 0)]).needy == {1}


@given(HELLOS)
def test_the_source_has_the_newest_state_and_only_others_need_it(hellos: list[Hello]) -> None:
    """Whatever they have: no other is newer, and who needs nothing has exactly that."""
    found = agree(hellos)
    best = hellos[found.source]

    assert found.source not in found.needy
    assert found.fresh == all(one.term == 0 for one in hellos)
    assert all((one.term, one.step) <= (best.term, best.step) for one in hellos) or found.fresh
    for rank, one in enumerate(hellos):
        if rank not in found.needy and rank != found.source:
            assert (one.term > 0, one.step, one.digest) == (True, best.step, best.digest)


def test_one_behind_lacks_just_the_step_that_it_had_begun() -> None:
    """Its book knows what the others' know, but for that step."""
    mine = Hello("a", 4, 9, 7, made="p9", flight="p10")

    assert one_behind(mine, Hello("b", 4, 10, 8, made="p10"))
    assert not one_behind(mine, Hello("b", 4, 11, 8, made="p11"))
    assert not one_behind(mine, Hello("b", 4, 10, 8, made="other"))
    assert not one_behind(Hello("a", 4, 9, 7), Hello("b", 4, 10, 8))


def test_a_hello_travels_as_json() -> None:
    """With every field of it."""
    mine = Hello("a", 4, 9, 7, "p9", "p10")

    assert Hello(**mine.json()) == mine
