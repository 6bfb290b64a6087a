"""Facts about `edl.jax.JaxRounds` that need jax, with members as threads; run by `test_jax.py`."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from edl import RoundOver, Session, Settings
from edl.collective import Interrupt, Listener, Ring
from edl.errors import DataError
from edl.jax import trees
from edl.jax.rounds import JaxRounds

from tests.sdk.model.paddle_facts import check

STATE = {
    "tokens": np.int64(3_000_000_000),
    "count": 5_000_000_000,
    "seed": np.uint64(2**63 + 1),
    "rate": np.float64(0.1),
    "zero": np.float32(-0.0),
    "is_warm": True,
    "nothing": np.zeros((0, 3)),
    "half": jnp.arange(3, dtype=jnp.bfloat16),
    "turned": np.arange(6.0).reshape(2, 3).T,
}
LIMIT_S = 30.0


class Members:
    """Members of rings on this machine."""

    def __init__(self, count: int) -> None:
        self._listeners = [Listener("127.0.0.1") for _ in range(count)]
        self.interrupts = [Interrupt() for _ in range(count)]

    def together(self, act: Callable[[Ring], Any], number: int = 1) -> list[Any]:
        """Does something with each ring at once; returns the results in order of rank."""
        results: list[Any] = [None] * len(self._listeners)
        addresses = [f"127.0.0.1:{each.address[1]}" for each in self._listeners]

        def member(rank: int) -> None:
            interrupt = self.interrupts[rank]
            with Ring.connect(
                self._listeners[rank],
                addresses,
                rank,
                number=number,
                key=b"token",
                interrupt=interrupt,
            ) as ring:
                results[rank] = act(ring)

        threads = [threading.Thread(target=member, args=(rank,)) for rank in range(len(addresses))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        return results


def rounds_of(state: Any, step: int = 0, last_steps: Sequence[tuple[int, int]] = ()) -> JaxRounds:
    """Rounds that have made steps, of a job whose master is never called."""
    member = Session(Settings("http://127.0.0.1:1", "token", "trainer-0"))
    rounds = JaxRounds(state, member=member)
    rounds.step, rounds._last_steps = step, dict(last_steps)  # noqa: SLF001 - without a master
    return rounds


def is_same(one: Any, two: Any) -> bool:
    """Whether two pytrees have the same bytes, types and shapes."""
    pairs = zip(*map(jax.tree_util.tree_leaves, (one, two)), strict=True)
    arrays = [(np.asarray(first), np.asarray(second)) for first, second in pairs]
    return all(
        (first.dtype, first.shape, first.tobytes())
        == (second.dtype, second.shape, second.tobytes())
        for first, second in arrays
    )


def sums_are_exact_and_keep_their_types() -> None:
    """Truth values are counted, whole numbers wrap around as in JAX, narrow types stay narrow."""

    def add(ring: Ring) -> Any:
        tree = {
            "is_changed": ring.rank == 1,
            "count": 2**30 + ring.rank,
            "small": np.int8(-3),
            "large": np.uint32(2**31 + 1),
            "gradient": np.full((2, 3), 0.5, np.float32),
            "half": jnp.full(2, 0.5, jnp.bfloat16),
            "wave": np.complex64(1 + 2j),
            "nothing": np.zeros((0, 3), np.float32),
        }
        return trees.sum_over(ring, tree)

    totals = Members(3).together(add)
    for total in totals:
        assert is_same(total, totals[0])
    total = totals[0]
    assert (int(total["is_changed"]), total["is_changed"].dtype) == (1, np.int32)
    assert (int(total["count"]), total["count"].dtype) == (3 * 2**30 + 3 - 2**32, np.int32)
    assert (int(total["small"]), total["small"].dtype) == (-9, np.int8)
    assert (int(total["large"]), total["large"].dtype) == (3 * (2**31 + 1) % 2**32, np.uint32)
    assert np.asarray(total["gradient"]).tolist() == [[1.5] * 3] * 2
    assert (total["half"].tolist(), total["half"].dtype) == ([1.5, 1.5], jnp.bfloat16)
    assert complex(total["wave"]) == 3 + 6j
    assert total["nothing"].shape == (0, 3)


def whole_numbers_of_64_bits_are_summed_exactly() -> None:
    """With `jax_enable_x64`."""
    with jax.enable_x64(True):
        array = np.array([2**62 + 1, -(2**53) - 1, -1], np.int64)
        encoded = trees._encode(array)  # noqa: SLF001 - the context is of one thread
        total = trees._decode(3 * encoded, array)  # noqa: SLF001
    assert (total == np.array([3 * 2**62 + 3 - 2**64, -3 * 2**53 - 3, -3])).all()


def a_lost_member_ends_the_sum() -> None:
    """The others continue in the next round."""
    members = Members(2)

    def act(ring: Ring) -> Any:
        ring.barrier()
        if ring.rank == 1:
            return None
        with pytest.raises(RoundOver):
            trees.sum_over(ring, {"gradient": np.ones(1 << 16, np.float32)})
        return "over"

    assert members.together(act) == ["over", None]
    assert members.together(lambda ring: int(trees.sum_over(ring, 1)), 2) == [2, 2]


def states_arrive_as_they_are() -> None:
    """Numbers of 64 bits, too, which JAX would cut to 32."""
    own = [
        rounds_of(jax.tree_util.tree_map(np.zeros_like, STATE)),
        rounds_of(STATE, 7, [(1, 7)]),
    ]
    Members(2).together(lambda ring: own[ring.rank]._take_newest(ring))  # noqa: SLF001
    for rounds in own:
        assert is_same(rounds.state, STATE)
        assert (rounds.step, rounds._last_steps) == (7, {1: 7})  # noqa: SLF001


def the_newer_round_decides_between_equal_steps() -> None:
    """One member alone had completed step 5 in round 1; the others made it again in round 2."""
    own = [rounds_of({"made_in": made_in}, 5, [(made_in, 5)]) for made_in in (1, 2, 2)]
    Members(3).together(lambda ring: own[ring.rank]._take_newest(ring))  # noqa: SLF001
    assert [int(rounds.state["made_in"]) for rounds in own] == [2, 2, 2]


def a_sum_that_others_have_completed_counts() -> None:
    """The batch of the interrupted step is trained if the newest state has the step of that round."""
    for last_steps, counts in (([(4, 9)], True), ([(4, 8), (5, 9)], False), ([(5, 9)], False)):
        rounds = rounds_of({"a": 1}, 8)
        rounds._interrupted = 4, 8  # noqa: SLF001 - as `sum` sets it
        assert rounds._counts_in(dict(last_steps)) == counts  # noqa: SLF001


def states_that_cannot_be_sent_are_refused() -> None:
    """By the name of the leaf."""
    for state, text in (
        ({"key": jax.random.key(0)}, "state: ['key'] is a key of random numbers: keep"),
        ([1, "relu"], "state: [1] is a str: keep numbers"),
        ({"model": object()}, "state: ['model'] is a object: keep numbers"),
    ):
        with pytest.raises(DataError) as info:
            trees.signature(state)
        assert str(info.value).startswith(text)
    key = jax.random.key_data(jax.random.key(0))
    assert trees.signature({"key": key, "step": 1, "rate": 0.1, "none": None})


FACTS = (
    sums_are_exact_and_keep_their_types,
    whole_numbers_of_64_bits_are_summed_exactly,
    a_lost_member_ends_the_sum,
    states_arrive_as_they_are,
    the_newer_round_decides_between_equal_steps,
    a_sum_that_others_have_completed_counts,
    states_that_cannot_be_sent_are_refused,
)

if __name__ == "__main__":
    check(FACTS)
