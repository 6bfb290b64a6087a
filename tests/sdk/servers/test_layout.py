"""Which server holds what: the same for everybody, whole, and even."""

from typing import Any

import numpy as np
import pytest
from edl.servers import layout
from edl.servers.layout import Layout
from edl_protocol.pserver import Piece
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import CALM

SIZES = st.dictionaries(st.text("abcxyz._", min_size=1), st.integers(0, 50_000), max_size=12)


@CALM
@given(SIZES, st.integers(1, 9))
def test_each_number_is_at_one_server(sizes: dict[str, int], servers: int) -> None:
    """However parameters are cut."""
    slices = layout.partition(sizes, servers)
    numbers = {name: np.zeros(size) for name, size in sizes.items()}
    for piece in (piece for server in slices for piece in server):
        numbers[piece.name][piece.start : piece.stop] += 1

    assert len(slices) == servers
    assert all((counts == 1).all() for counts in numbers.values())
    assert slices == layout.partition(dict(reversed(sizes.items())), servers)


@pytest.mark.parametrize("servers", [2, 4, 8])
def test_servers_are_evenly_loaded(servers: int) -> None:
    """A perceptron of half a million numbers, of which one array alone holds three quarters."""
    sizes = {"w1": 784 * 512, "b1": 512, "w2": 512 * 256, "b2": 256, "w3": 2560, "b3": 10}
    loads = [
        sum(piece.size for piece in server_slices)
        for server_slices in layout.partition(sizes, servers)
    ]

    assert max(loads) < 1.06 * sum(loads) / servers


@CALM
@given(st.integers(1, 5), st.integers(0, 3))
def test_what_is_packed_comes_back(servers: int, seed: int) -> None:
    """Parameters of any shape, small and large, and scalars; what is missing is zero."""
    shapes: dict[str, tuple[int, ...]] = {
        "a": (100, 100),
        "b": (3,),
        "c": (),
        "d": (2, 0),
        "e": (9,),
    }
    chance = np.random.default_rng(seed)
    dense = {name: chance.normal(size=shape) for name, shape in shapes.items() if name != "e"}
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    server_layout = Layout(shapes, layout.partition(sizes, servers))
    back = server_layout.empty()
    for server, vector in enumerate(server_layout.pack(dense, "gradients")):
        server_layout.unpack(server, vector, back)

    assert not back.pop("e").any()
    assert all(np.allclose(back[name], array) for name, array in dense.items())
    assert all(back[name].shape == array.shape for name, array in dense.items())


def test_a_number_has_the_name_of_its_parameter() -> None:
    """For texts about numbers that are none."""
    server_layout = Layout(
        {"a": (3,), "b": (2,)},
        [[Piece("a", 0, 3), Piece("b", 0, 2)]],
    )

    assert [server_layout.parameter_at(0, place) for place in range(5)] == ["a"] * 3 + ["b"] * 2


@CALM
@given(st.lists(st.integers(-(1 << 62), 1 << 62), unique=True), st.integers(1, 9))
def test_ids_are_shared_out_by_their_remainder(ids: list[int], servers: int) -> None:
    """Each at one server, in their order; negative ones too."""
    array: Any = np.array(ids, np.int64)
    places = layout.split(array, servers)

    assert sorted(np.concatenate(places).tolist()) == list(range(len(ids)))
    if servers > 1:
        for server, positions in enumerate(places):
            assert [ids[place] % servers for place in positions] == [server] * len(positions)
