"""What members of `edl.jax.JaxRounds` get of the one with the newest state."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
JAX = Path(os.environ.get("EDL_JAX_PATH") or ROOT / "build/jax")

pytestmark = pytest.mark.skipif(
    not (JAX / "jax").exists(), reason="no jax here: `make jax` installs it"
)

TAKES = """
import jax, jax.numpy as jnp, numpy as np
from edl.jax import JaxRounds
from edl.jax.distributed import Processes

state = {
    "tokens": np.int64(3_000_000_000), "count": 5_000_000_000, "seed": np.uint64(2**63 + 1),
    "rate": np.float64(0.1), "zero": np.float32(-0.0), "is_warm": True, "nothing": np.zeros((0, 3)),
    "half": jnp.arange(3, dtype=jnp.bfloat16), "turned": np.arange(6.0).reshape(2, 3).T,
}

def member(rank, step, own):
    rounds = JaxRounds.__new__(JaxRounds)
    rounds._processes, rounds.state, rounds.step = Processes(rank, 2), own, step
    return rounds

def take(rounds, other=None):
    # its sums: of the steps, and of the state with that of the other, or with zeros
    sent = []

    def sum_with_the_other(tree):
        sent.append(jax.tree_util.tree_map(jnp.asarray, tree))
        if len(sent) == 1:
            return [0, 7]
        zeros = jax.tree_util.tree_map(jnp.zeros_like, sent[-1])
        return jax.tree_util.tree_map(jnp.add, sent[-1], zeros if other is None else other)

    rounds.sum = sum_with_the_other
    rounds._take_newest()
    for one, two in zip(*map(jax.tree_util.tree_leaves, (rounds.state, state))):
        one, two = np.asarray(one), np.asarray(two)
        assert (one.dtype, one.shape) == (two.dtype, two.shape), (one, two)
        assert one.tobytes() == two.tobytes(), (one, two)
    return sent[-1]

source = take(member(1, 7, state))
take(member(0, 0, jax.tree_util.tree_map(np.zeros_like, state)), source)
"""

REFUSES = """
import jax
from edl.errors import DataError
from edl.jax.distributed import signature

for state, text in (
    ({"key": jax.random.key(0)}, "state: ['key'] is a key of random numbers: keep"),
    ([1, "relu"], "state: [1] is a str: keep numbers"),
    ({"model": object()}, "state: ['model'] is a object: keep numbers"),
):
    try:
        signature(state)
    except DataError as error:
        assert str(error).startswith(text), error
    else:
        raise AssertionError(text)
signature({"key": jax.random.key_data(jax.random.key(0)), "step": 1, "rate": 0.1, "none": None})
"""


@pytest.mark.parametrize("program", [TAKES, REFUSES], ids=["as they are", "or not at all"])
def test_states_come_as_they_are(program: str) -> None:
    """Numbers of 64 bits, too, which JAX would cut to 32; what is no array is refused by name."""
    completed = subprocess.run(  # noqa: S603 - our own programs
        [sys.executable, "-W", "ignore", "-c", program],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": f"{JAX}:{ROOT}:{ROOT / 'sdk/src'}",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
