"""Objects of any shape are read without an error."""

import pytest

from policy.admission import unstructured


def test_positions_in_a_list_are_kept() -> None:
    """A patch names elements by position, whatever is beside them."""
    assert unstructured.objects({"containers": [1, {"name": "a"}]}, "containers") == [
        {},
        {"name": "a"},
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("999999999", 999_999_999),
        ("1000000000", -1),
        ("", -1),
        ("-1", -1),
        ("1.0", -1),
        ("٣", -1),
        (None, -1),
        (3, -1),
    ],
)
def test_a_number_is_digits_alone(text: object, number: int) -> None:
    """Anything else is no id or index; a user may have written it."""
    assert unstructured.number(text) == number
