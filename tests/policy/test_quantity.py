import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import quantity
from policy.errors import PolicyError, QuantityError
from tests.support.strategies import CALM

_INT64 = 2**63 - 1


@CALM
@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(-_INT64, _INT64))
def test_every_amount_reads_back(resource: str, amount: int) -> None:
    """What `show` writes, `parse` reads as the same amount, whatever its size."""
    assert quantity.parse(resource, quantity.show(resource, amount)) == amount


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "500m", 500),
        ("cpu", "2", 2_000),
        ("cpu", "0.1", 100),
        ("cpu", ".5", 500),
        ("cpu", "5.", 5_000),
        ("cpu", "+1", 1_000),
        ("cpu", "1e3", 1_000_000),
        ("cpu", "1E-3", 1),
        ("memory", "1Ki", 1024),
        ("memory", "1.5Gi", 1_610_612_736),
        ("memory", "128M", 128_000_000),
        ("memory", "2E", 2 * 10**18),
        ("memory", "129e6", 129_000_000),
        ("nvidia.com/gpu", "8", 8),
    ],
)
def test_suffixes_mean_what_kubernetes_says(resource: str, text: str, amount: int) -> None:
    """Decimal and binary suffixes, exponents, and bare points are read as upstream reads them."""
    assert quantity.parse(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1n", 1),
        ("cpu", "100u", 1),
        ("cpu", "1500u", 2),
        ("cpu", "-1500u", -2),
        ("memory", "0.5", 1),
        ("memory", "100m", 1),
        ("memory", "-0.1", -1),
        ("memory", "1." + "0" * 40 + "1", 2),
        ("memory", "0", 0),
    ],
)
def test_fractions_round_away_from_zero(resource: str, text: str, amount: int) -> None:
    """Parts of the smallest unit count as one, as the scheduler counts them."""
    assert quantity.parse(resource, text) == amount


@pytest.mark.parametrize("text", ["1e999", "9" * 60, "16Ei"])
def test_amounts_are_capped_to_int64(text: str) -> None:
    """Amounts beyond int64 are its largest value, as upstream stores them."""
    assert quantity.parse("memory", text) == _INT64
    assert quantity.parse("memory", f"-{text}") == -_INT64


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 Gi", "1gi", "Gi", "abc", "1e", "1e5k", "--1", "1.2.3", "0x10", "٣", "1" * 65],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """The message names the resource, shows the text and gives an example."""
    with pytest.raises(QuantityError, match=r"^memory: .* is not a quantity; .*512Mi"):
        quantity.parse("memory", text)


def test_the_example_suits_the_resource() -> None:
    """For CPU the example is one of CPU."""
    with pytest.raises(PolicyError, match="500m or 2"):
        quantity.parse("cpu", "many")


def test_maps_are_read_whole() -> None:
    """Values may be numbers, as YAML gives them."""
    assert quantity.parse_all({"cpu": 2, "memory": "1Gi"}) == {"cpu": 2_000, "memory": 2**30}
    with pytest.raises(QuantityError, match="memory"):
        quantity.parse_all({"cpu": 2, "memory": "big"})


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 5_000, "5"),
        ("cpu", 1_500, "1500m"),
        ("memory", 8 * 2**30, "8Gi"),
        ("memory", 1_536, "1536"),
        ("memory", 0, "0"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, amount: int, text: str) -> None:
    """The largest binary suffix that leaves no rest is used."""
    assert quantity.show(resource, amount) == text
